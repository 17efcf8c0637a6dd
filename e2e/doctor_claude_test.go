package e2e

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"pollux/internal/doctor"
	"pollux/internal/editor"
	"pollux/internal/fakemodel"
	"pollux/internal/sys/systest"
)

// noProcess is above the limits of all systems.
const noProcess = 1 << 30

// An ide is a program that publishes a lock file as another IDE does. It accepts
// connections and closes them.
type ide struct {
	port     int
	lock     string
	accepted atomic.Int32
}

// newIDE starts an ide. The PID in its lock is that of the test.
func (p *patient) newIDE(address string, folder string, change func(lock map[string]any)) *ide {
	p.t.Helper()
	l, err := net.Listen("tcp", net.JoinHostPort(address, "0"))
	if err != nil {
		p.t.Fatal(err)
	}
	i := &ide{port: l.Addr().(*net.TCPAddr).Port}
	systest.Serve(p.t, l, func(conn net.Conn) { i.accepted.Add(1); conn.Close() })
	lock := map[string]any{
		"pid": os.Getpid(), "workspaceFolders": []string{folder}, "ideName": "Other", "transport": "ws", "authToken": "x",
	}
	if change != nil {
		change(lock)
	}
	i.lock = p.lockFile(i.port)
	p.write(i.lock, toJSON(p.t, lock))
	p.others = append(p.others, i)
	return i
}

func (p *patient) lockFile(port int) string {
	return filepath.Join(p.home, ".claude", "ide", fmt.Sprint(port)+".lock")
}

// claudeSettings writes the user's settings of Claude Code, and its state file with
// these values too.
func (p *patient) claudeSettings(settings, state string) {
	p.t.Helper()
	p.writeHome(".claude/settings.json", settings)
	path := filepath.Join(p.home, ".claude.json")
	text := systest.ReadFile(p.t, path)
	if state != "" {
		p.writeHome(".claude.json", strings.Replace(text, "{", "{"+state+",", 1))
	}
}

// inEditor adds the variables of the editor's terminal.
func inEditor(p *patient) { p.set(p.editor.env()...) }

const manual = `{"permissions": {"defaultMode": "default"}}`

// Each cause that doctor knows is produced. Doctor names it and nothing more, and the
// real Claude Code behaves as doctor says. TestClaude has the healthy one.
func TestDoctorClaude(t *testing.T) {
	if !isolated(t) {
		return
	}
	const (
		connects    = "connects"
		searches    = "searches"    // but does not connect
		leavesAlone = "leavesAlone" // it does not search
		simple      = "simple"      // it does not search, and has no tool that writes
		deletes     = "deletes"     // all locks
		reviews     = "reviews"     // it connects and opens a diff
		terminal    = "terminal"    // it connects and asks in the terminal
		writes      = "writes"      // it connects and does not ask
	)
	const auto = "CLAUDE_CODE_AUTO_CONNECT_IDE=true"
	for name, tt := range map[string]struct {
		bare bool             // start no editor
		make func(p *patient) // runs before the editor starts
		then func(p *patient) // runs after the editor has started
		args []string         // of Claude Code
		view func(*editor.InitializeParams)
		want []string
		cli  string
	}{
		"healthy":       {then: inEditor, cli: reviews},
		"by the option": {args: []string{"--ide"}, want: []string{"warning auto-connect"}, cli: connects},
		"by its state": {cli: connects,
			make: func(p *patient) { p.claudeSettings(manual, `"autoConnectIde": true`) }},
		"a dead proxy": {cli: connects, then: func(p *patient) {
			inEditor(p)
			p.set("HTTP_PROXY=http://127.0.0.1:1", "HTTPS_PROXY=http://127.0.0.1:1", "http_proxy=http://127.0.0.1:1")
		}},
		"not told to connect": {want: []string{"warning auto-connect"}, cli: leavesAlone,
			then: func(p *patient) { p.set("ENABLE_IDE_INTEGRATION=true") }},
		"told not to connect": {want: []string{"failed auto-connect"}, cli: leavesAlone, args: []string{"--ide"},
			then: func(p *patient) { p.set("CLAUDE_CODE_AUTO_CONNECT_IDE=false") }},
		"a simple one": {want: []string{"failed auto-connect"}, cli: simple,
			then: func(p *patient) { inEditor(p); p.set("CLAUDE_CODE_SIMPLE=1") }},
		"no companion": {bare: true, want: []string{"failed companion"}, cli: searches,
			make: func(p *patient) { p.set(auto) }},
		"no view": {want: []string{"failed view"}, cli: searches, then: inEditor,
			view: func(i *editor.InitializeParams) { i.Diff = false }},
		"two locks": {bare: true, want: []string{"failed several"}, cli: searches, make: func(p *patient) {
			p.set(auto)
			p.newIDE("127.0.0.1", p.project, nil)
			p.newIDE("127.0.0.1", filepath.Dir(p.project), nil)
		}},
		"a symbolic link": {bare: true, want: []string{"failed symlink"}, cli: searches, make: func(p *patient) {
			p.set(auto)
			link := filepath.Join(p.home, "link")
			systest.Link(p.t, p.project, link)
			p.newIDE("127.0.0.1", link, nil)
		}},
		"a folder below": {bare: true, want: []string{"failed workspace"}, cli: searches, make: func(p *patient) {
			p.set(auto)
			p.newIDE("127.0.0.1", filepath.Join(p.project, "sub"), nil)
		}},
		"a port without a lock": {bare: true, want: []string{"failed companion", "failed variables"}, cli: searches,
			make: func(p *patient) { p.set(fmt.Sprintf("CLAUDE_CODE_SSE_PORT=%d", p.portWithoutLock())) }},
		"a port without a lock, beside": {want: []string{"warning variables"}, cli: connects,
			make: func(p *patient) { p.set(fmt.Sprintf("CLAUDE_CODE_SSE_PORT=%d", p.portWithoutLock())) }},
		"a process that has ended": {bare: true, want: []string{"failed lock"}, cli: deletes, make: func(p *patient) {
			p.set(auto)
			p.write(p.lockFile(1), toJSON(p.t, map[string]any{
				"pid": noProcess, "workspaceFolders": []string{p.project}, "ideName": "Other", "transport": "ws",
			}))
		}},
		"a process of another container": {bare: true, want: []string{"failed container"}, cli: deletes, make: func(p *patient) {
			p.set(auto)
			p.newIDE("127.0.0.1", p.project, func(lock map[string]any) { lock["pid"] = noProcess })
		}},
		"only the other loopback address": {bare: true, want: []string{"failed port"}, cli: searches, make: func(p *patient) {
			p.set(auto)
			p.newIDE("::1", p.project, nil)
		}},
		"a terminal of VS Code": {want: []string{"failed terminal"}, cli: searches,
			then: func(p *patient) { inEditor(p); p.set("CURSOR_TRACE_ID=1") }},
		"a rival": {want: []string{"failed port", "warning rival"}, then: inEditor,
			make: func(p *patient) { p.newIDE("127.0.0.1", p.project, nil) }},
		"an old transport": {bare: true, want: []string{"failed transport"}, make: func(p *patient) {
			p.set(auto)
			p.newIDE("127.0.0.1", p.project, func(lock map[string]any) { delete(lock, "transport") })
		}},
		"a companion that was killed": {want: []string{"failed companion", "warning stale"}, cli: deletes,
			then: func(p *patient) { inEditor(p); p.editor.kill() }},
		"auto mode": {want: []string{"warning mode"}, cli: writes, then: inEditor,
			make: func(p *patient) { p.claudeSettings(`{"permissions": {"defaultMode": "auto"}}`, "") }},
		"no mode": {want: []string{"warning mode"}, cli: writes, then: inEditor,
			make: func(p *patient) { p.claudeSettings(`{}`, "") }},
		"a mode that accepts edits": {want: []string{"warning mode"}, cli: writes, then: inEditor,
			make: func(p *patient) { p.claudeSettings(`{"permissions": {"defaultMode": "acceptEdits"}}`, "") }},
		"auto mode of a repository": {want: []string{"warning mode"}, cli: writes, then: inEditor,
			make: func(p *patient) {
				p.write(filepath.Join(p.project, ".claude", "settings.json"), `{"permissions": {"defaultMode": "auto"}}`)
			}},
		"a repository that turns questions off": {cli: reviews, then: inEditor,
			make: func(p *patient) {
				p.claudeSettings(`{}`, "")
				p.write(filepath.Join(p.project, ".claude", "settings.json"), `{"permissions": {"defaultMode": "bypassPermissions"}}`)
			}},
		"diffs in the terminal": {want: []string{"failed diff-tool"}, cli: terminal, then: inEditor,
			make: func(p *patient) { p.claudeSettings(manual, `"diffTool": "terminal"`) }},
		"settings that are no JSON": {want: []string{"warning mode", "warning settings"}, then: inEditor,
			make: func(p *patient) { p.claudeSettings(`{`, "") }},
	} {
		t.Run(name, func(t *testing.T) {
			var path string
			p := newClaudePatient(t, claudeEdits(&path, "Write", map[string]any{"content": "new\n"}))
			path = p.file("a.txt", "old\n")
			bin, own := p.configure("claude")
			p.bin = filepath.Dir(bin)
			p.claudeSettings(manual, "")
			if tt.make != nil {
				tt.make(p)
			}
			if !tt.bare {
				locks := len(p.claudeLocks())
				p.editor = p.edit(tt.view)
				waitFor(t, "the lock", func() bool { return tt.view != nil || len(p.claudeLocks()) > locks })
			}
			if tt.then != nil {
				tt.then(p)
			}
			p.wantClaude(tt.want...)
			if tt.cli == "" || !askedOf(name, "auto mode") {
				return
			}
			// Claude Code deletes the lock of a process that has ended when its search begins.
			decoy := p.lockFile(2)
			p.write(decoy, toJSON(t, map[string]any{"pid": noProcess}))
			accepted := p.accepted() // doctor may have connected
			cli := p.screen(append(slices.Clone(p.env), own...), append([]string{bin}, tt.args...)...)
			switch tt.cli {
			case searches, deletes, connects, reviews, terminal, writes:
				waitFor(t, "the search", func() bool { _, err := os.Stat(decoy); return err != nil })
			}
			switch tt.cli {
			case connects, reviews, terminal, writes:
				waitFor(t, "the agent", func() bool { return len(p.editor.agents(t)) == 1 })
			}
			if tt.cli == connects {
				return
			}
			if tt.cli == deletes {
				waitFor(t, "the end of all locks", func() bool { return len(p.claudeLocks()) == 0 })
			}
			cli.see("❯")
			cli.ask("change it")
			switch tt.cli {
			case reviews:
				d := next(t, "diff", p.editor.opened)
				if err := p.editor.Reject(p.context(), d.ID); err != nil {
					t.Fatal(err)
				}
				cli.see("Rejected write to a.txt")
				return
			case simple:
				cli.see(after)
			case writes:
				cli.see(after)
				p.wantsUnasked(path)
				p.wantFile(path, "new\n")
			default: // it asks in the terminal
				cli.see("Do you want to")
			}
			if n := p.accepted() - accepted; n > 0 {
				t.Errorf("Claude Code has connected %d times to another IDE", n)
			}
			if p.editor == nil || tt.cli == deletes {
				return
			}
			if n := len(p.editor.opened); n > 0 {
				t.Errorf("%d diffs are open", n)
			}
			if agents := p.editor.agents; slices.Contains([]string{searches, leavesAlone, simple}, tt.cli) {
				if all := agents(t); len(all) > 0 {
					t.Errorf("connected: %v", all)
				}
			}
		})
	}
	// A user without Gemini CLI gets one line about it, unless they ask for more.
	t.Run("without Gemini CLI", func(t *testing.T) {
		p := newClaudePatient(t, nil)
		bin, _ := p.configure("claude")
		p.bin = filepath.Dir(bin)
		p.claudeSettings(manual, "")
		if err := os.RemoveAll(filepath.Join(p.home, ".gemini")); err != nil {
			t.Fatal(err)
		}
		p.editor = p.edit(nil)
		inEditor(p)
		waitFor(t, "the lock", func() bool { return len(p.claudeLocks()) > 0 })
		findings, code := p.doctor(nil)
		if all := unwell(findings); len(all) > 0 || code != 0 {
			t.Errorf("doctor finds %q, exit code %d", all, code)
		}
		if !slices.ContainsFunc(findings, func(f doctor.Finding) bool {
			return f.Part == doctor.Agents && strings.HasPrefix(f.Text, "not installed: Gemini CLI")
		}) {
			t.Errorf("no finding names Gemini CLI: %+v", findings)
		}
		findings, code = p.doctor(nil, "gemini")
		if all := unwell(findings); !slices.Contains(all, "failed companion/ide-mode") || code != 1 {
			t.Errorf("for Gemini CLI doctor finds %q, exit code %d", all, code)
		}
	})
	// Claude Code looks for a lock for 30 s. With -short, one that never looks takes its place, and
	// a lock from the future the place of the wait.
	t.Run("late", func(t *testing.T) {
		p := newClaudePatient(t, nil)
		bin, own := p.configure("claude")
		p.bin = filepath.Dir(bin)
		p.claudeSettings(manual, `"hasIdeAutoConnectDialogBeenShown": true`)
		p.set(auto)
		env := append(slices.Clone(p.env), own...)
		var cli screen
		if testing.Short() {
			cli = p.screen(append(env, "CLAUDE_CODE_AUTO_CONNECT_IDE=false"), bin, "--ide")
			cli.see("❯")
			p.editor = p.edit(nil)
			waitFor(t, "the lock", func() bool { return len(p.claudeLocks()) > 0 })
			later := time.Now().Add(searchTime)
			systest.SetTime(t, p.claudeLocks()[0], later)
		} else {
			decoy := p.lockFile(2)
			p.write(decoy, toJSON(t, map[string]any{"pid": noProcess}))
			cli = p.screen(env, bin)
			waitFor(t, "the search", func() bool { _, err := os.Stat(decoy); return err != nil })
			time.Sleep(searchTime)
			p.editor = p.edit(nil)
		}
		p.wantClaude("failed late")
		if all := p.editor.agents(t); len(all) > 0 {
			t.Errorf("connected: %v", all)
		}
		cli.see("❯")
		cli.ask("/ide")
		cli.see("Test Editor")
		cli.press("Up")
		cli.see("❯   Test Editor")
		cli.press("Enter")
		waitFor(t, "the agent", func() bool { return len(p.editor.agents(t)) == 1 })
		p.wantClaude()
	})
}

// searchTime is longer than Claude Code looks for a lock after its start.
const searchTime = 33 * time.Second

func newClaudePatient(t *testing.T, script fakemodel.Script) *patient {
	w := newClaudeWorld(t, script)
	return &patient{world: w, dir: w.project}
}

// accepted returns how many connections the other IDEs have accepted.
func (p *patient) accepted() (n int32) {
	for _, i := range p.others {
		n += i.accepted.Load()
	}
	return n
}

// portWithoutLock returns the port of a server that has no lock file.
func (p *patient) portWithoutLock() int {
	other := p.newIDE("127.0.0.1", p.home, nil)
	systest.Remove(p.t, other.lock)
	return other.port
}

// wantClaude runs doctor for Claude Code and compares the findings.
func (p *patient) wantClaude(want ...string) { p.t.Helper(); p.wantOf("claude", want...) }

// wantOf runs doctor for one agent and compares the findings.
func (p *patient) wantOf(agent string, want ...string) {
	p.t.Helper()
	findings, code := p.doctor(nil, agent)
	var got []string
	for _, f := range unwell(findings) {
		got = append(got, strings.Replace(f, agent+"/", "", 1))
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		p.t.Errorf("doctor finds %q, want %q:\n%s", got, want, toJSON(p.t, findings))
	}
	if failed := slices.ContainsFunc(want, func(f string) bool { return strings.HasPrefix(f, "failed") }); failed != (code == 1) {
		p.t.Errorf("exit code %d, failed %v", code, failed)
	}
	for _, f := range findings {
		if f.Status != doctor.OK && f.Next == "" {
			p.t.Errorf("%s names no next step: %s", f.Check, f.Text)
		}
	}
}
