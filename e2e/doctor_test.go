package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"pollux/internal/agent/agenttest"
	"pollux/internal/agent/gemini/fakecli"
	"pollux/internal/doctor"
	"pollux/internal/fakemodel"
	"pollux/internal/ide/geminiide/causes"
	"pollux/internal/sys/systest"
)

// A patient is a world that doctor examines: a companion with an editor, and
// the real CLI on the PATH.
type patient struct {
	*world
	editor *plugin
	dir    string   // the working directory of the CLI
	env    []string // added to the terminal's environment
	bin    string   // the directory that contains the CLI
	others []*ide   // that run beside the companion
	parts  []string // that doctor examines
}

func newPatient(t *testing.T) *patient {
	w := newWorld(t, func(fakemodel.Request) fakemodel.Reply { return fakemodel.Say("ok") })
	p := &patient{world: w, dir: w.project, bin: installed(t, "gemini-"+current, "node_modules", ".bin"), parts: []string{"gemini", "bridge"}}
	// In a container the CLI would connect to another host.
	p.set("REMOTE_CONTAINERS=1")
	return p
}

func (p *patient) set(env ...string) { p.env = append(p.env, env...) }

// replaceCLI replaces the CLI by a fake one with the same version, which starts faster.
func (p *patient) replaceCLI() {
	p.t.Helper()
	path := agenttest.Install(p.t, fakecli.Install, filepath.Join(p.home, "fake"), current)
	p.bin = filepath.Dir(path)
}

// unset removes variables from the terminal's environment.
func (p *patient) unset(keys ...string) {
	p.world.env = slices.DeleteFunc(p.world.env, func(kv string) bool {
		k, _, _ := strings.Cut(kv, "=")
		return slices.Contains(keys, k)
	})
}

// settings replaces text in Gemini CLI's settings.
func (p *patient) settings(before, now string) {
	p.t.Helper()
	p.replaceHome(".gemini/settings.json", before, now)
}

// files returns the discovery files.
func (p *patient) files() []string {
	p.t.Helper()
	all, err := filepath.Glob(filepath.Join(p.tmp(), "gemini", "ide", "*.json"))
	if err != nil || len(all) == 0 {
		p.t.Fatalf("no discovery files: %v", err)
	}
	return all
}

// tamper changes the contents of all discovery files.
func (p *patient) tamper(change func(f map[string]any)) {
	p.t.Helper()
	for _, path := range p.files() {
		data, err := os.ReadFile(path)
		f := make(map[string]any)
		if err == nil {
			err = json.Unmarshal(data, &f)
		}
		if err != nil {
			p.t.Fatal(err)
		}
		change(f)
		p.write(path, toJSON(p.t, f))
	}
}

func (p *patient) write(path, text string) {
	p.t.Helper()
	systest.WriteFile(p.t, path, text)
}

// environ returns the environment of the terminal.
func (p *patient) environ() []string {
	return append(append(slices.Clone(p.world.env), "PATH="+p.bin+":"+os.Getenv("PATH")), p.env...)
}

// doctor runs `pollux doctor` from a shell, as the user runs the CLI, possibly
// below another program. It returns the findings that are not ok.
func (p *patient) doctor(before []string, args ...string) (findings []doctor.Finding, code int) {
	p.t.Helper()
	argv := append(slices.Clone(before), "bash", "-c", `"$0" "$@"; exit $?`, polluxBinary, "doctor", "--json")
	cmd := exec.Command(argv[0], append(argv[1:], args...)...)
	cmd.Env, cmd.Dir = p.environ(), p.dir
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	var r doctor.Report
	if jsonErr := json.Unmarshal(out.Bytes(), &r); jsonErr != nil || cmd.ProcessState == nil || cmd.ProcessState.ExitCode() > 1 {
		p.t.Fatalf("pollux doctor: %v\n%s%s", err, out.Bytes(), errs.Bytes())
	}
	if bytes.Contains(out.Bytes(), []byte(p.editor.token())) {
		p.t.Errorf("doctor prints the token:\n%s", out.Bytes())
	}
	return r.Findings, cmd.ProcessState.ExitCode()
}

func (e *plugin) token() string {
	if e == nil {
		return "no token"
	}
	return e.info.Token
}

// unwell returns the findings that are not ok, as "failed companion/port".
func unwell(findings []doctor.Finding) (all []string) {
	for _, f := range findings {
		if f.Status != doctor.OK {
			all = append(all, fmt.Sprintf("%s %s/%s", f.Status, f.Part, f.Check))
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// wantUnwell runs doctor for Gemini CLI and the bridge, or other parts, and compares the findings.
func (p *patient) wantUnwell(before []string, want ...string) {
	p.t.Helper()
	findings, code := p.doctor(before, p.parts...)
	got := unwell(findings)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		p.t.Errorf("doctor finds %q, want %q:\n%s", got, want, toJSON(p.t, findings))
	}
	failed := slices.ContainsFunc(want, func(f string) bool { return strings.HasPrefix(f, "failed") })
	if (code == 1) != failed {
		p.t.Errorf("exit code %d, failed %v", code, failed)
	}
	for _, f := range findings {
		if f.Status != doctor.OK && f.Next == "" && !strings.Contains(f.Text, ": ") {
			p.t.Errorf("%s names no next step: %s", f.Check, f.Text)
		}
	}
}

// What the real CLI says about its connection.
const (
	connects     = causes.Connects
	disconnected = causes.Disconnected
	unsupported  = causes.Unsupported
	startsNot    = "exit code" // it exits with an error
	notAsked     = ""
)

// askedOf reports whether the real agent is asked about a cause. make test, which has the
// option -short, asks about a few.
func askedOf(cause string, few ...string) bool {
	return !testing.Short() || slices.Contains(few, cause)
}

// wantCLI runs the real CLI in the same way and compares its message.
func (p *patient) wantCLI(says string) {
	p.t.Helper()
	p.bin = filepath.Dir(geminiCLI(p.t))
	if testing.Short() { // TestGemini has a CLI that starts itself again
		p.set(relaunchEnv + "=true")
	}
	cli := p.run(p.dir, p.environ()[len(p.world.env):], "bash", "-c", `"$0" "$@"; echo "exit code $?"`, "gemini")
	if says == startsNot {
		cli.expect(startsNot)
		return
	}
	cli.expect(ready)
	if says == unsupported { // it has no /ide status
		cli.keys("/ide")
		cli.expect("Manage IDE integration") // it knows its commands
		cli.keys(" status")
		cli.expect("/ide status") // before it has read this, it takes the Enter for pasted text
		time.Sleep(typingDelay)
		cli.keys("\r")
		cli.expect(unsupported)
		return
	}
	if got := cli.ideStatus(connects, disconnected); got != says {
		p.t.Errorf("the CLI says %q, want %q", got, says)
	}
}

// Each cause that doctor knows is reproduced. Doctor finds it and nothing more,
// and the real CLI, started in the same way, behaves as doctor predicts. With -short, a fake
// CLI takes the place of the real one for most causes.
func TestDoctor(t *testing.T) {
	t.Parallel()
	const dead = "1" // nobody listens on this port
	root := func(p *patient) {
		systest.NeedRoot(p.t)
	}
	for name, tt := range map[string]struct {
		make func(p *patient) // runs before the editor starts
		then func(p *patient) // runs after the editor has started
		want []string
		cli  string
		bare bool // start no editor
		real bool // doctor quotes the real CLI
	}{
		"healthy":                   {cli: connects},
		"healthy, by the variables": {cli: connects, then: func(p *patient) { p.set(p.editor.env()...) }},
		"no companion, in a terminal that the CLI knows": {bare: true, want: []string{"failed companion/companion"}, cli: disconnected,
			make: func(p *patient) { p.set("TERM_PROGRAM=sublime") }},
		"no CLI, but npm": {want: []string{"warning companion/cli", "failed bridge/read-only"},
			make: func(p *patient) { p.bin = p.toolsOnly("node", "npm"); p.set("PATH=" + p.bin) }},
		"no CLI": {want: []string{"failed companion/cli", "failed bridge/read-only"},
			make: func(p *patient) { p.bin = p.toolsOnly("node"); p.set("PATH=" + p.bin) }},
		"no Node": {want: []string{"failed companion/node"},
			make: func(p *patient) { p.bin = p.toolsOnly("gemini"); p.set("PATH=" + p.bin) }},
		"an old Node": {want: []string{"failed companion/node"},
			make: func(p *patient) { p.command("node", "echo v18.20.4") }},
		"broken settings": {want: []string{"failed companion/settings"}, cli: startsNot,
			make: func(p *patient) { p.settings(`{"enabled": true`, `{"enabled": true,`) }},
		"a broken list of trusted folders": {want: []string{"failed companion/settings"}, cli: startsNot,
			make: func(p *patient) {
				p.settings(`"folderTrust": {"enabled": false}`, `"folderTrust": {"enabled": true}`)
				p.writeHome(".gemini/trustedFolders.json", `{"/": "YES"}`)
			}},
		"IDE mode is off": {want: []string{"failed companion/ide-mode"}, cli: disconnected,
			make: func(p *patient) { p.settings(`"ide": {"enabled": true`, `"ide": {"enabled": false`) }},
		"IDE mode was never on": {want: []string{"failed companion/ide-mode"}, cli: disconnected,
			make: func(p *patient) { p.settings(`"ide": {"enabled": true, `, `"ide": {`) }},
		"IDE mode is off for the folder": {want: []string{"failed companion/ide-mode"}, cli: disconnected,
			make: func(p *patient) {
				p.write(filepath.Join(p.project, ".gemini", "settings.json"), `{"ide":{"enabled":false}}`)
			}},
		"IDE mode is off for all": {want: []string{"failed companion/ide-mode"}, cli: disconnected,
			make: func(p *patient) {
				root(p)
				etc, err := os.MkdirTemp("/var", "pollux-test-")
				if err != nil {
					p.t.Fatal(err)
				}
				p.t.Cleanup(func() { os.RemoveAll(etc) })
				path := filepath.Join(etc, "settings.json")
				p.write(path, `{"ide":{"enabled":false}}`)
				p.set("GEMINI_CLI_SYSTEM_SETTINGS_PATH=" + path)
			}},
		"settings for all that all can write": {want: []string{"warning companion/settings"}, cli: connects,
			make: func(p *patient) {
				path := filepath.Join(p.home, "etc", "settings.json")
				p.write(path, `{"ide":{"enabled":false}}`)
				p.set("GEMINI_CLI_SYSTEM_SETTINGS_PATH=" + path)
			}},
		"CI":              {want: []string{"failed companion/terminal"}, then: func(p *patient) { p.set("CI=true") }},
		"a dumb terminal": {want: []string{"warning companion/terminal"}, then: func(p *patient) { p.set("TERM=dumb") }},
		"a dead proxy":    {want: []string{"warning companion/proxy"}, cli: connects, then: func(p *patient) { p.set("HTTPS_PROXY=http://me:secret@127.0.0.1:"+dead, "NO_PROXY=127.0.0.1") }},
		"no proxy's URL":  {real: true, want: []string{"failed companion/proxy", "warning bridge/warm"}, then: func(p *patient) { p.set("HTTP_PROXY=::::", "NO_PROXY=127.0.0.1") }},
		"no certificates": {want: []string{"warning companion/proxy"}, then: func(p *patient) { p.set("NODE_EXTRA_CA_CERTS=/nowhere") }},
		"another TMPDIR": {want: []string{"failed companion/tmpdir"}, cli: unsupported,
			then: func(p *patient) {
				other := filepath.Join(p.home, "tmp")
				p.write(filepath.Join(other, "f"), "")
				p.set("TMPDIR=" + other)
			}},
		"a command instead of a port": {cli: connects,
			then: func(p *patient) { p.tamper(func(f map[string]any) { delete(f, "port") }) }},
		"a companion that was killed": {want: []string{"failed companion/stale"}, cli: disconnected,
			then: func(p *patient) { p.editor.kill() }},
		"its files are gone": {want: []string{"failed companion/file"}, cli: unsupported,
			then: func(p *patient) {
				for _, f := range p.files() {
					os.Remove(f)
				}
			}},
		"no room": {want: []string{"failed companion/disk"},
			then: func(p *patient) {
				root(p)
				dir := filepath.Join(p.home, "full")
				p.write(filepath.Join(dir, "f"), "")
				if out, err := exec.Command("mount", "-t", "tmpfs", "-o", "ro,size=64k", "none", dir).CombinedOutput(); err != nil {
					p.t.Skipf("no mounts here: %v\n%s", err, out)
				}
				p.t.Cleanup(func() { exec.Command("umount", dir).Run() })
				p.set("POLLUX_STATE_DIR=" + dir)
			}},
		"not signed in": {want: []string{"failed bridge/auth"},
			make: func(p *patient) {
				p.settings(`"auth": {"selectedType": "gemini-api-key"}, `, "")
				p.set("GEMINI_API_KEY=", "GOOGLE_GEMINI_BASE_URL=")
			}},
		"a key in the user's .env": {
			make: func(p *patient) {
				p.settings(`"auth": {"selectedType": "gemini-api-key"}, `, "")
				p.unset("GEMINI_API_KEY", "GOOGLE_GEMINI_BASE_URL")
				p.writeHome(".gemini/.env", "export GEMINI_API_KEY='none'\n")
			}},
		"a nearer .env hides it": {want: []string{"failed bridge/auth"},
			make: func(p *patient) {
				p.settings(`"auth": {"selectedType": "gemini-api-key"}, `, "")
				p.unset("GEMINI_API_KEY", "GOOGLE_GEMINI_BASE_URL")
				p.writeHome(".gemini/.env", "GEMINI_API_KEY=none\n")
				p.file(".env", "OTHER=1\n")
			}},
		"a way of signing in that needs a terminal": {want: []string{"failed bridge/auth"},
			make: func(p *patient) { p.settings(`"auth": {"selectedType": "gemini-api-key"}, `, "") }},
		"a way that the administrator does not want": {want: []string{"failed bridge/auth"},
			make: func(p *patient) {
				p.settings(`"selectedType": "gemini-api-key"`, `"selectedType": "gemini-api-key", "enforcedType": "oauth-personal"`)
			}},
		"no key": {real: true, want: []string{"warning bridge/auth", "failed bridge/auth"},
			make: func(p *patient) { p.set("GEMINI_API_KEY=") }},
		"no project for Vertex AI": {want: []string{"failed bridge/auth"},
			make: func(p *patient) { p.settings(`"gemini-api-key"`, `"vertex-ai"`) }},
		"a folder that is not trusted": {want: []string{"warning bridge/trust"},
			make: func(p *patient) { p.settings(`"folderTrust": {"enabled": false}`, `"folderTrust": {"enabled": true}`) }},
		"a CLI too old for the bridge": {want: []string{"failed bridge/read-only"},
			make: func(p *patient) {
				p.set("GEMINI_CLI_PATH=" + filepath.Join(installed(p.t, "gemini-"+old, "node_modules", ".bin"), "gemini"))
			}},
		"no warm process": {want: []string{"warning bridge/warm"},
			make: func(p *patient) {
				path := p.command("broken", `[ "$1" = --version ] && echo 0.61.0 && exit; echo "boom" >&2; exit 1`)
				p.set("GEMINI_CLI_PATH=" + path)
			}},
	} {
		t.Run(strings.ReplaceAll(name, ",", ""), func(t *testing.T) {
			asked := askedOf(name, "healthy", "broken settings")
			p := newPatient(t) // the bridge refuses a TMPDIR with a comma in its name
			if testing.Short() && name != "healthy" && !tt.real {
				p.replaceCLI()
			}
			if tt.make != nil {
				tt.make(p)
			}
			if !tt.bare {
				p.editor = p.edit(nil)
			}
			if tt.then != nil {
				tt.then(p)
			}
			p.wantUnwell(nil, tt.want...)
			if name == "healthy" && testing.Short() { // TestGemini has the CLI
				return
			}
			if tt.cli != notAsked && asked {
				p.wantCLI(tt.cli)
			}
		})
	}
}

// Where a fake companion brings about a cause, too, the real CLI behaves as doctor predicts.
// The unit test of the checks finds the same causes without the CLI.
func TestDoctorCauses(t *testing.T) {
	t.Parallel()
	for name, cause := range causes.All {
		t.Run(strings.ReplaceAll(name, ",", ""), func(t *testing.T) {
			if cause.Says == "" || !askedOf(name, "no companion") {
				t.Skip("a unit test of the checks has this cause")
			}
			p := newPatient(t)
			p.parts = p.parts[:1] // the bridge needs no companion
			s := &causes.Site{
				T: t, Project: p.project, Files: filepath.Join(p.tmp(), "gemini", "ide"), Dir: p.project,
				Setenv: func(key, value string) { p.set(key + "=" + value) },
			}
			cause.Make(s)
			p.dir = s.Dir
			var want []string
			for _, finding := range cause.Want {
				want = append(want, strings.Replace(finding, " ", " companion/", 1))
			}
			p.wantUnwell(nil, want...)
			p.wantCLI(cause.Says)
		})
	}
}

// toolsOnly returns a directory that contains only these programs and a shell.
func (p *patient) toolsOnly(names ...string) string {
	p.t.Helper()
	dir := filepath.Join(p.home, "bin")
	systest.MakeDir(p.t, dir)
	for _, n := range append(names, "bash", "ps") {
		path := filepath.Join(p.bin, n)
		if _, err := os.Stat(path); err != nil {
			if path, err = exec.LookPath(n); err != nil {
				p.t.Fatal(err)
			}
		}
		systest.Link(p.t, path, filepath.Join(dir, n))
	}
	return dir
}

// command installs a shell script as the first match on the PATH.
func (p *patient) command(name, script string) string {
	p.t.Helper()
	dir := filepath.Join(p.home, "first")
	systest.MakeDir(p.t, dir)
	p.set("PATH=" + dir + ":" + p.bin + ":" + os.Getenv("PATH"))
	return agenttest.WriteProgram(p.t, dir, name, script, "")
}

// cliVersion installs a CLI of a version, which fails when it is run.
func (p *patient) cliVersion(version string) {
	p.t.Helper()
	p.write(filepath.Join(p.home, "first", "package.json"), toJSON(p.t, map[string]any{"name": "@google/gemini-cli", "version": version}))
	p.command("gemini", "exit 1")
}

// doctor --fix shows what it will do and does it; afterwards doctor finds
// nothing.
func TestDoctorFix(t *testing.T) {
	p := newPatient(t)
	p.replaceCLI()
	p.settings(`"ide": {"enabled": true, `, `"ide": {`)
	p.editor = p.edit(nil)
	loose := p.files()[0]
	stale := filepath.Join(p.tmp(), "gemini", "ide", "gemini-ide-server-4194303-1.json")
	p.write(stale, `{"port":1,"workspacePath":"/"}`)
	for path, mode := range map[string]os.FileMode{loose: 0o644, filepath.Dir(loose): 0o755} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
	}
	p.wantUnwell(nil, "failed companion/ide-mode", "warning companion/directory", "warning companion/stale")
	run := func(in string, args ...string) (string, error) {
		cmd := exec.Command(polluxBinary, append([]string{"doctor"}, args...)...)
		cmd.Env, cmd.Dir, cmd.Stdin = p.environ(), p.dir, strings.NewReader(in)
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	for _, in := range []string{"", "n\n"} {
		out, err := run(in, "--fix")
		if err == nil || !strings.Contains(out, "remove "+stale) || !strings.Contains(out, "turn on IDE mode") {
			t.Errorf("answered %q: %v\n%s", in, err, out)
		}
		if _, err := os.Stat(stale); err != nil {
			t.Errorf("answered %q, it was changed: %v", in, err)
		}
	}
	// Input after Ctrl-C does not count as an answer.
	asked := p.run(p.dir, p.environ()[len(p.world.env):], "bash", "-c", `"$0" "$@"; echo "exit code $?"`, polluxBinary, "doctor", "--fix")
	asked.expect("Proceed? [Y/n]")
	asked.keys("\x03")
	asked.expect("nothing was changed")
	asked.keys("\r")
	asked.expect("exit code 130")
	if _, err := os.Stat(stale); err != nil {
		t.Errorf("after Ctrl-C it was changed: %v", err)
	}
	if out, err := run("y\n", "--fix"); err != nil || !strings.Contains(out, "Nothing is wrong.") {
		t.Errorf("%v\n%s", err, out)
	}
	if info, err := os.Stat(loose); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the loose file: %v, %v", info, err)
	}
	p.wantUnwell(nil)
	if !testing.Short() { // TestDoctor has a healthy CLI
		p.wantCLI(connects)
	}
}

// Doctor does not run a program that another user put there, and does not send
// a token to a port that another user named, although an older CLI would.
func TestDoctorTrustsNoFileOfAnother(t *testing.T) {
	t.Parallel()
	systest.NeedRoot(t)
	for name, want := range map[string]string{"the directory, too": "failed companion/directory", "a directory of mine": "failed companion/user"} {
		t.Run(name, func(t *testing.T) {
			p := newPatient(t)
			p.cliVersion("0.40.0")
			planted := filepath.Join(p.home, "planted")
			dir := filepath.Join(p.tmp(), "gemini", "ide")
			path := filepath.Join(dir, "gemini-ide-server-1-2.json")
			p.write(path, toJSON(t, map[string]any{
				"workspacePath": "/", "ideInfo": map[string]any{"name": "x", "displayName": "X"},
				"stdio": map[string]any{"command": "touch", "args": []string{planted}},
			}))
			theirs := []string{path}
			if name == "the directory, too" {
				theirs = append(theirs, dir, filepath.Dir(dir))
			}
			for _, f := range theirs {
				if err := os.Chown(f, 65534, 65534); err != nil {
					t.Fatal(err)
				}
			}
			p.wantUnwell(nil, want, "warning bridge/warm")
			if _, err := os.Stat(planted); err == nil {
				t.Error("doctor ran another user's command")
			}
		})
	}
}

// --fix does not follow links.
func TestDoctorFixFollowsNoLink(t *testing.T) {
	p := newPatient(t)
	p.editor = p.edit(nil)
	precious := filepath.Join(p.home, "precious")
	if err := os.Mkdir(precious, 0o755); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(p.tmp(), "gemini", "ide")
	systest.Link(t, precious, filepath.Join(dir, "gemini-ide-server-4194303-8.json"))
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	p.doctor(nil, "--fix", "--yes")
	if info, err := os.Stat(precious); err != nil || info.Mode().Perm() != 0o755 {
		t.Errorf("the target of a link has changed: %v, %v", info, err)
	}
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the directory: %v, %v", info, err)
	}
}

// An interrupted doctor leaves no file and no process.
func TestInterruptedCommandsLeaveNothing(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ argv, until string }{
		"doctor":      {"doctor bridge", "tmp/pollux-bridge-*"},
		"conformance": {"conformance -- sh -c", "tmp/pollux-conformance-*/workspace"},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPatient(t)
			argv := strings.Fields(tt.argv)
			if name == "conformance" {
				argv = append(argv, "trap '' TERM INT; sleep 4711 & sleep 4711; sleep 4711")
			}
			cmd := exec.Command(polluxBinary, argv...)
			cmd.Env, cmd.Dir = p.environ(), p.dir
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			pattern := filepath.Join(filepath.Dir(p.project), tt.until)
			waitFor(t, "its directory", func() bool { all, _ := filepath.Glob(pattern); return len(all) > 0 })
			var below []int
			waitFor(t, "its children", func() bool { below = children(t, cmd.Process.Pid); return len(below) > 0 })
			cmd.Process.Signal(syscall.SIGTERM)
			cmd.Wait()
			waitGone(t, below...)
			for _, pattern := range []string{"pollux-*", "px*"} {
				if left, _ := filepath.Glob(filepath.Join(p.tmp(), pattern)); len(left) > 0 {
					t.Errorf("left behind: %v", left)
				}
			}
		})
	}
}

// Doctor finds nothing wrong in a working setup, wherever the CLI is started.
func TestDoctorPlaces(t *testing.T) {
	t.Parallel()
	for name, before := range map[string]func(p *patient) []string{
		"a nested shell": func(*patient) []string {
			return []string{"bash", "-c", `bash -c '"$0" "$@"; exit $?' "$0" "$@"; exit $?`}
		},
		"sh, not bash": func(*patient) []string { return []string{"sh", "-c", `"$0" "$@"; exit $?`} },
		"setsid":       func(*patient) []string { return []string{"setsid", "--wait"} },
		"env -i": func(p *patient) []string {
			keep := []string{"env", "-i"}
			for _, kv := range p.environ() {
				switch k, _, _ := strings.Cut(kv, "="); k {
				case "HOME", "PATH", "TMPDIR", "REMOTE_CONTAINERS", "GEMINI_API_KEY", "GOOGLE_GEMINI_BASE_URL", "XDG_RUNTIME_DIR", "TERM":
					keep = append(keep, kv)
				}
			}
			return keep
		},
		"a chroot": func(p *patient) []string { return p.chroot("") },
	} {
		t.Run(name, func(t *testing.T) {
			p := newPatient(t)
			p.replaceCLI()
			p.editor = p.edit(nil)
			p.wantUnwell(before(p))
		})
	}
	// In tmux the CLI looks up the tmux server's process.
	t.Run("tmux", func(t *testing.T) {
		p := newPatient(t)
		p.replaceCLI()
		p.editor = p.edit(nil)
		out := filepath.Join(p.home, "out.json")
		shell := p.screen(append(p.environ(), "PS1=shell> "), "bash", "--norc")
		shell.see("shell>")
		shell.keys(fmt.Sprintf("%s doctor gemini bridge --json > %s; mv %[2]s %[2]s.done", polluxBinary, out))
		shell.press("Enter")
		var data []byte
		waitFor(t, "doctor in tmux", func() (done bool) {
			var err error
			data, err = os.ReadFile(out + ".done")
			return err == nil
		})
		var r doctor.Report
		if err := json.Unmarshal(data, &r); err != nil || len(unwell(r.Findings)) > 0 {
			t.Errorf("%v: %s", err, data)
		}
		if !strings.Contains(string(data), "(tmux), in tmux") {
			t.Errorf("doctor does not say that the CLI looks up tmux: %s", data)
		}
	})
	// Doctor names the owner of another user's companion. A user who has a
	// companion sees no finding.
	t.Run("a second user", func(t *testing.T) {
		systest.NeedRoot(t)
		p := newPatient(t)
		p.editor = p.edit(nil)
		second := []string{"setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"}
		p.openTo(65534)
		p.parts = p.parts[:1]
		p.wantUnwell(second, "failed companion/directory", "failed companion/disk")
		p.set("TMPDIR="+filepath.Join(p.home, "tmp"), "XDG_RUNTIME_DIR="+filepath.Join(p.home, "tmp"))
		p.wantUnwell(second, "failed companion/companion")
		p.wrap, p.world.env = second, append(p.world.env, p.env...)
		p.editor = p.edit(nil)
		p.parts = append(p.parts, "bridge")
		p.wantUnwell(second)
	})
}

// In a container the CLI connects to another host.
func TestDoctorContainer(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		env  []string
		then func(p *patient)
		want []string
		net  bool // the container has its own network
	}{
		"the companion is in it, too": {env: []string{"REMOTE_CONTAINERS="}, want: []string{"failed companion/container"},
			then: func(p *patient) { p.tamper(func(f map[string]any) { delete(f, "stdio") }) }},
		"by the command":         {env: []string{"REMOTE_CONTAINERS="}},
		"it is one of VS Code's": {},
		// This was "a companion that is running": only a refused connection counted.
		"variables of none": {env: []string{"REMOTE_CONTAINERS=", "GEMINI_CLI_IDE_SERVER_PORT=9"},
			want: []string{"warning companion/variables"}},
		"over ssh": {env: []string{"REMOTE_CONTAINERS=", "SSH_CONNECTION=127.0.0.1 1 127.0.0.1 22"}},
		"the companion is outside": {env: []string{"REMOTE_CONTAINERS="}, want: []string{"failed companion/container"},
			then: func(p *patient) { p.tamper(func(f map[string]any) { delete(f, "stdio") }) }, net: true},
		"the CLI is Windows' own": {env: []string{"WSL_DISTRO_NAME=Debian"}, want: []string{"failed companion/cli"},
			then: func(p *patient) { p.set("PATH=/mnt/c/npm:" + os.Getenv("PATH")) }},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPatient(t)
			p.replaceCLI()
			p.set(tt.env...)
			p.editor = p.edit(nil)
			if tt.then != nil {
				tt.then(p)
			}
			before := p.chroot("mkdir -p $R/mnt/c; ln -s " + p.bin + " $R/mnt/c/npm; touch $R/.dockerenv")
			if tt.net {
				before = slices.Insert(before, 1, "-n")
			}
			p.wantUnwell(before, tt.want...)
		})
	}
}

// chroot returns the command that runs a program in a new root, made of this
// machine's directories, after a script that knows the root as $R.
func (p *patient) chroot(script string) []string {
	p.t.Helper()
	systest.NeedRoot(p.t)
	root := filepath.Join(p.home, "root")
	systest.MakeDir(p.t, root)
	return []string{"unshare", "-m", "sh", "-ec", `R=` + root + `
		mount -t tmpfs none $R
		for d in usr bin sbin lib lib64 etc proc dev root home work tmp opt; do
			[ -e /$d ] || continue
			mkdir -p $R/$d
			mount --rbind /$d $R/$d
		done
		mkdir -p $R` + repo + `; mountpoint -q $R` + repo + ` || [ -e $R` + repo + `/go.mod ] || mount --rbind ` + repo + ` $R` + repo + `
		` + script + `
		dir=$PWD
		exec chroot $R sh -c 'cd "$0" && exec "$@"' "$dir" "$@"`, "sh"}
}

// openTo gives a user access to the world.
func (p *patient) openTo(uid int) {
	p.t.Helper()
	for dir := p.project; dir != os.TempDir() && dir != "/"; dir = filepath.Dir(dir) {
		os.Chmod(dir, 0o755)
	}
	p.write(filepath.Join(p.home, "tmp", "f"), "")
	filepath.WalkDir(p.home, func(path string, _ os.DirEntry, err error) error { return os.Chown(path, uid, uid) })
	os.Chmod(filepath.Dir(polluxBinary), 0o755)
}
