package checks

import (
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"pollux/internal/doctor"
	"pollux/internal/editor"
	"pollux/internal/ide/asking"
	"pollux/internal/ide/blocking"
	"pollux/internal/ide/claudeide"
	"pollux/internal/sys/disk"
	"pollux/internal/sys/proc"
	"pollux/internal/sys/systest"
)

func TestMain(m *testing.M) { systest.VerifyTestMain(m) }

// A room is a private home with a project, in which checks run.
type room struct {
	t             *testing.T
	home, project string
	running       []editor.Running
}

func newRoom(t *testing.T) *room {
	root := systest.Dir(t)
	r := &room{t: t, home: filepath.Join(root, "home"), project: filepath.Join(root, "project")}
	for _, dir := range []string{filepath.Join(r.home, ".claude", "ide"), r.project} {
		if err := disk.PrivateDir(dir); err != nil {
			t.Fatal(err)
		}
	}
	for _, key := range []string{
		claudeide.EnvPort, claudeide.EnvOpencodePort, claudeide.EnvAutoConnect, "CLAUDE_CONFIG_DIR", "CLAUDE_CODE_SIMPLE",
		"CLAUDE_CODE_IDE_HOST_OVERRIDE", "ENABLE_IDE_INTEGRATION", "TERM_PROGRAM", "CURSOR_TRACE_ID", "FORCE_CODE_TERMINAL",
		"TERMINAL_EMULATOR", "VSCODE_GIT_ASKPASS_MAIN",
	} {
		t.Setenv(key, "")
	}
	systest.SetHome(t, r.home)
	t.Setenv("XDG_CONFIG_HOME", "")
	return r
}

// lock writes a lock file for the project, served by a companion that accepts every
// token, or by status if that is not 0.
func (r *room) lock(status int, change func(*claudeide.Lock)) (path string) {
	r.t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if status != 0 {
			w.WriteHeader(status)
			return
		}
		if conn, err := websocket.Accept(w, q, &websocket.AcceptOptions{Subprotocols: []string{"mcp"}}); err == nil {
			conn.CloseNow()
		}
	}))
	r.t.Cleanup(server.Close)
	l := claudeide.Lock{
		PID: os.Getpid(), WorkspaceFolders: []string{r.project}, IDEName: "Test", Transport: "ws", AuthToken: "secret-token",
	}
	if change != nil {
		change(&l)
	}
	return r.write(server.Listener.Addr().(*net.TCPAddr).Port, l)
}

func (r *room) write(port int, l claudeide.Lock) (path string) {
	r.t.Helper()
	data, err := json.Marshal(l)
	if err != nil {
		r.t.Fatal(err)
	}
	path = filepath.Join(r.home, ".claude", "ide", strconv.Itoa(port)+".lock")
	systest.WriteFile(r.t, path, string(data))
	return path
}

// found runs a check and returns the findings that are not ok.
func (r *room) found(check doctor.Check) (all []string, report doctor.Report) {
	report = doctor.Examine(r.t.Context(), doctor.Config{Dir: r.project, Running: r.running}, []doctor.Part{{Checks: []doctor.Check{check}}})
	for _, f := range report.Findings {
		if f.Status != doctor.OK {
			all = append(all, string(f.Status)+" "+f.Check)
			if f.Next == "" {
				r.t.Errorf("%s names no next step: %s", f.Check, f.Text)
			}
		}
		if strings.Contains(f.Text+f.Next, "secret-token") {
			r.t.Errorf("a finding holds the token: %+v", f)
		}
	}
	slices.Sort(all)
	return all, report
}

// A process that Claude Code has just forked has its name, too, and is neither late nor
// connected.
func TestLateProcesses(t *testing.T) {
	written := time.Now()
	process := func(pid int, before time.Duration) proc.StartedProcess {
		return proc.StartedProcess{Process: proc.Process{PID: pid}, Started: written.Add(-before)}
	}
	old, older, forked := process(1, time.Minute), process(2, time.Hour), process(3, -time.Minute)
	for name, tt := range map[string]struct {
		processes []proc.StartedProcess
		connected []int
		want      []string
	}{
		"no process":                  {nil, nil, nil},
		"in time":                     {[]proc.StartedProcess{process(1, searchTimeout)}, nil, nil},
		"late":                        {[]proc.StartedProcess{old}, nil, []string{"1"}},
		"connected":                   {[]proc.StartedProcess{old}, []int{1}, nil},
		"connected, with a fork":      {[]proc.StartedProcess{old, forked}, []int{1}, nil},
		"the other one is connected":  {[]proc.StartedProcess{old, older}, []int{2}, []string{"1"}},
		"a later one is connected":    {[]proc.StartedProcess{old, forked}, []int{3}, []string{"1"}},
		"of unknown process":          {[]proc.StartedProcess{old, forked}, []int{0}, nil},
		"two, one of unknown process": {[]proc.StartedProcess{old, older}, []int{0}, []string{"1", "2"}},
	} {
		if got := lateProcesses(tt.processes, written, tt.connected); !slices.Equal(got, tt.want) {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
}

const deadPID = 1 << 30

// The causes that need no Claude Code to produce; the tests in e2e produce the others
// with it.
func TestClaude(t *testing.T) {
	for name, tt := range map[string]struct {
		make func(r *room)
		want []string
	}{
		"healthy":     {func(r *room) { r.lock(0, nil) }, nil},
		"wrong token": {func(r *room) { r.lock(http.StatusUnauthorized, nil) }, []string{"failed token"}},
		"no view": {func(r *room) {
			r.lock(http.StatusServiceUnavailable, func(l *claudeide.Lock) { l.Pollux = &blocking.Mark{} })
		}, []string{"failed view"}},
		"another program": {func(r *room) { r.lock(http.StatusOK, nil) }, []string{"failed port"}},
		"a free port": {func(r *room) {
			r.write(1, claudeide.Lock{PID: os.Getpid(), WorkspaceFolders: []string{r.project}, Transport: "ws"})
		}, []string{"failed port"}},
		"no process, and a free port": {func(r *room) {
			r.write(1, claudeide.Lock{WorkspaceFolders: []string{r.project}, Transport: "ws"})
		}, []string{"failed lock"}},
		"another address": {func(r *room) {
			r.lock(0, nil)
			r.t.Setenv("CLAUDE_CODE_IDE_HOST_OVERRIDE", "127.0.0.2")
		}, []string{"failed port"}},
		"a companion without its lock": {func(r *room) {
			r.running = []editor.Running{{Status: editor.Status{Page: true, Roots: []string{r.project}}}}
		}, []string{"failed companion"}},
		"a directory that is a file": {func(r *room) {
			dir := filepath.Join(r.home, ".claude", "ide")
			systest.Remove(r.t, dir)
			systest.WriteFile(r.t, dir, "")
		}, []string{"failed companion", "failed directory"}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRoom(t)
			t.Setenv(claudeide.EnvAutoConnect, "true")
			settings := filepath.Join(r.home, ".claude", "settings.json")
			systest.WriteFile(t, settings, `{"permissions":{"defaultMode":"manual"}}`)
			tt.make(r)
			if got, report := r.found(Claude); !slices.Equal(got, tt.want) {
				t.Errorf("found %q, want %q: %+v", got, tt.want, report.Findings)
			}
		})
	}
}

// Doctor said that Claude Code connects, which it does not in a terminal that has the folder
// in another case.
func TestSpelling(t *testing.T) {
	if runtime.GOOS != "windows" {
		t.Skip("it matters to Claude Code on Windows only")
	}
	upper := strings.ToUpper
	for name, tt := range map[string]struct {
		folders func(project string) []string
		dir     func(project string) string
		want    []string
	}{
		"as on disk":       {func(p string) []string { return []string{p} }, filepath.Clean, nil},
		"another case":     {func(p string) []string { return []string{p} }, upper, []string{"failed spelling"}},
		"both in the lock": {func(p string) []string { return []string{p, upper(p)} }, upper, nil},
		"another folder":   {func(p string) []string { return []string{p + "2"} }, upper, []string{"failed companion"}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRoom(t)
			t.Setenv(claudeide.EnvAutoConnect, "true")
			r.lock(0, func(l *claudeide.Lock) { l.WorkspaceFolders = tt.folders(r.project) })
			t.Chdir(tt.dir(r.project))
			got, report := r.found(Claude)
			if !slices.Equal(got, tt.want) {
				t.Errorf("found %q, want %q: %+v", got, tt.want, report.Findings)
			}
		})
	}
}

// Fix narrows what others can read, and removes only what our own companions left.
func TestClaudeFix(t *testing.T) {
	r := newRoom(t)
	mark := &blocking.Mark{Host: blocking.Here()}
	lock := claudeide.Lock{PID: deadPID, WorkspaceFolders: []string{r.project}, Transport: "ws"}
	theirs := r.write(1, lock)
	lock.Pollux = mark
	ours := r.write(2, lock)
	kept := r.lock(0, func(l *claudeide.Lock) { l.Pollux = mark })
	dir := filepath.Dir(ours)
	// On Unix, others can only read kept.
	if err := errors.Join(systest.Share(dir), systest.Share(kept), os.Chmod(kept, 0o644)); err != nil {
		t.Fatal(err)
	}
	_, report := r.found(Claude)
	if err := report.Fix(); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]bool{theirs: true, ours: false, kept: true} {
		if _, err := os.Stat(path); (err == nil) != want {
			t.Errorf("%s: %v", path, err)
		}
	}
	for _, path := range []string{dir, kept} {
		if info, err := os.Stat(path); err != nil || !disk.Private(path, info) {
			t.Errorf("%s is open to others: %v, %v", path, info.Mode(), err)
		}
	}
}

func TestOpencode(t *testing.T) {
	for name, tt := range map[string]struct {
		make func(r *room)
		want []string
	}{
		"healthy": {func(r *room) { r.lock(0, nil) }, nil},
		"another process": {func(r *room) {
			r.lock(0, func(l *claudeide.Lock) { l.PID = deadPID })
		}, nil},
		"Claude Code's variable": {func(r *room) {
			r.lock(0, nil)
			r.t.Setenv(claudeide.EnvPort, "1")
		}, []string{"failed variables"}},
		"its own variable": {func(r *room) {
			r.lock(0, nil)
			r.t.Setenv(claudeide.EnvOpencodePort, "1")
		}, []string{"failed variables"}},
		"no token":     {func(r *room) { r.lock(0, func(l *claudeide.Lock) { l.AuthToken = "" }) }, []string{"failed token"}},
		"wrong token":  {func(r *room) { r.lock(http.StatusUnauthorized, nil) }, []string{"failed token"}},
		"no companion": {func(*room) {}, []string{"failed companion"}},
		// The next companion removes its lock.
		"a companion that was killed": {func(r *room) {
			r.lock(0, func(l *claudeide.Lock) { l.PID, l.Pollux = deadPID, &blocking.Mark{Host: blocking.Here()} })
		}, []string{"failed companion", "warning stale"}},
		"no view": {func(r *room) {
			r.running = []editor.Running{{Status: editor.Status{Roots: []string{r.project}}}}
		}, []string{"failed view"}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRoom(t)
			tt.make(r)
			if got, report := r.found(Opencode); !slices.Equal(got, tt.want) {
				t.Errorf("found %q, want %q: %+v", got, tt.want, report.Findings)
			}
		})
	}
}

func TestSettings(t *testing.T) {
	for name, tt := range map[string]struct {
		files map[string]string // below the home, or in the project with PROJECT/
		mode  string
		errs  int
	}{
		"none":               {},
		"the user's":         {files: map[string]string{".claude/settings.json": "acceptEdits"}, mode: "acceptEdits"},
		"the project's wins": {files: map[string]string{".claude/settings.json": "auto", "PROJECT/.claude/settings.json": "default"}, mode: "default"},
		"the local one wins": {files: map[string]string{"PROJECT/.claude/settings.json": "plan", "PROJECT/.claude/settings.local.json": "default"}, mode: "default"},
		"auto of a project":  {files: map[string]string{".claude/settings.json": "default", "PROJECT/.claude/settings.json": "auto"}},
		"a project without questions": {files: map[string]string{".claude/settings.json": "auto",
			"PROJECT/.claude/settings.local.json": "bypassPermissions"}, mode: "default"},
		"the user's, without questions": {files: map[string]string{".claude/settings.json": "bypassPermissions"}, mode: "bypassPermissions"},
		"no JSON":                       {files: map[string]string{".claude/settings.json": `"`, ".claude.json": `"`}, errs: 2},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRoom(t)
			for file, mode := range tt.files {
				path := filepath.Join(r.home, file)
				if rest, ok := strings.CutPrefix(file, "PROJECT/"); ok {
					path = filepath.Join(r.project, rest)
				}
				systest.WriteFile(t, path, `{"permissions":{"defaultMode":"`+mode+`"}}`)
			}
			got := loadSettings(r.project)
			start := asking.Start{Dir: r.project, Getenv: os.Getenv}
			mode, _ := asking.Choice{Flag: "--permission-mode"}.Chosen(start, claudeide.Settings(start))
			if mode != tt.mode || len(got.errs) != tt.errs {
				t.Errorf("%q, %+v, want %q and %d errors", mode, got, tt.mode, tt.errs)
			}
		})
	}
}
