package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pollux/internal/agent"
	"pollux/internal/fakemodel"
	"pollux/internal/sys/systest"
)

// A farPool is a host that has the files, Gemini CLI and a pool. The world's MCP client
// runs elsewhere, with another home and another copy of the project.
type farPool struct {
	*world
	here string   // the copy of the project where the MCP client runs
	env  []string // the environment there
}

func newFarPool(w *world) farPool {
	t := w.t
	t.Helper()
	f := farPool{world: w, here: filepath.Join(w.home, "here")}
	tmp := filepath.Join(w.home, "tmp")
	for _, dir := range []string{f.here, tmp} {
		systest.MakeDir(t, dir)
	}
	f.env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + tmp, "TMPDIR=" + tmp, "XDG_RUNTIME_DIR=" + tmp, "LANG=C.UTF-8",
		"GORACE=" + os.Getenv("GORACE"), "GEMINI_CLI_PATH=/not/here", "GEMINI_WARM_WAIT_MS=60000",
	}
	w.env = append(w.env, "GEMINI_CLI_PATH="+w.askedCLI(), "GEMINI_WARM_WAIT_MS=60000")
	t.Cleanup(func() {
		w.pollux("pool", "stop")
		for _, pattern := range []string{"tmp/pollux/pool-*", "tmp/pollux-bridge-*", "home/tmp/pollux/pool-*", "home/tmp/pollux-*"} {
			if left, err := filepath.Glob(filepath.Join(filepath.Dir(w.project), pattern)); err != nil || len(left) > 0 {
				t.Errorf("left: %v, %v", left, err)
			}
		}
	})
	return f
}

// ssh returns the variable that lets ssh reach the pool's host.
func (f farPool) ssh() string {
	f.t.Helper()
	var env []string
	for _, kv := range f.world.env {
		if name, _, _ := strings.Cut(kv, "="); slices.Contains([]string{"HOME", "LANG"}, name) || strings.HasPrefix(name, "G") {
			env = append(env, kv)
		}
	}
	return "POLLUX_SSH=ssh -F " + f.world.ssh(env...)
}

// write writes a file of both copies of the project.
func (f farPool) write(name, text string) {
	f.t.Helper()
	f.file(name, text)
	systest.WriteFile(f.t, filepath.Join(f.here, name), text)
}

func (f farPool) bridge(env []string, flags ...string) *bridgeClient {
	f.t.Helper()
	cmd := exec.Command(polluxBinary, append([]string{"bridge", "--log", "debug"}, flags...)...)
	cmd.Dir, cmd.Env = f.here, append(slices.Clone(f.env), env...)
	return f.connect(cmd)
}

// end ends a bridge, and then the pool. Their processes must end too.
func (f farPool) end(c *bridgeClient) {
	f.t.Helper()
	pids := append(children(f.t, c.cmd.Process.Pid), children(f.t, f.onlyPool().PID)...)
	c.leave()
	f.pollux("pool", "stop")
	waitEnded(f.t, pids...)
}

// renames is a model that renames a function with the CLI's tools.
func renames(r fakemodel.Request, project string) fakemodel.Reply {
	in := func(elem ...string) string { return filepath.Join(append([]string{project}, elem...)...) }
	steps := []fakemodel.Reply{
		fakemodel.CallTool("read_file", map[string]any{"file_path": "greet.py"}),
		fakemodel.CallTool("replace", map[string]any{"file_path": in("greet.py"), "instruction": "rename", "old_string": "def greet():", "new_string": "def hello():"}),
		fakemodel.CallTool("write_file", map[string]any{"file_path": in("docs", "hello.md"), "content": "# Hello\n"}),
	}
	if r.Step < len(steps) {
		return steps[r.Step]
	}
	return fakemodel.Say("Renamed it.")
}

// wantRenamed checks the outcome of [renames] in a copy of the project, which the call
// has not changed.
func wantRenamed(t *testing.T, o outcome, dir string) {
	t.Helper()
	o.want(t, false, "Renamed it.", "+def hello():")
	if _, err := os.Stat(filepath.Join(dir, "docs")); err == nil {
		t.Error("docs is on the disk")
	}
	o.apply(t, dir)
	for name, want := range map[string]string{"greet.py": "def hello():\n    pass\n", "docs/hello.md": "# Hello\n"} {
		systest.WantFile(t, filepath.Join(dir, name), want)
	}
}

// The agent runs on another host, which ssh reaches: it is signed in there, and sees the
// files there. The project has another path there, a symbolic link.
func TestPoolSSH(t *testing.T) {
	var project string
	f := newFarPool(newWorld(t, func(r fakemodel.Request) fakemodel.Reply {
		if strings.Contains(r.Prompt, "rename") {
			return renames(r, project)
		}
		return readsThenAnswers(r)
	}))
	project = f.project
	f.write("greet.py", "def greet():\n    pass\n")
	f.file("hello.txt", "good morning from far away")
	link := filepath.Join(f.home, "link")
	systest.Link(t, f.project, link)
	c := f.bridge([]string{f.ssh()}, "--ssh", "far", "--map", f.here+"="+link)
	o := c.call("query", map[string]any{"prompt": "what does hello.txt say?", "changeMode": true})
	o.want(t, false, "good morning from far away")
	if o.Meta["runner"] != agent.Warmed {
		t.Errorf("_meta is %v", o.Meta)
	}
	wantRenamed(t, c.call("query", map[string]any{"prompt": "rename greet", "changeMode": true}), f.here)
	f.wantFile(filepath.Join(f.project, "greet.py"), "def greet():\n    pass\n")
	if _, err := os.Stat(filepath.Join(f.project, "docs")); err == nil {
		t.Error("docs is on the disk there")
	}
	c.call("query", map[string]any{"prompt": "hello?", "workingDirectory": f.home}).
		want(t, true, f.home+" is in no --map")
	f.end(c)
}

// The connection, or the pool, ends in the middle of a call. The call that was in
// progress there ends, and the bridge asks again.
func TestPoolSSHLost(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(f farPool, c *bridgeClient){
		"ssh": func(f farPool, c *bridgeClient) {
			kill(children(f.t, c.cmd.Process.Pid)[0])
		},
		"pool": func(f farPool, _ *bridgeClient) { kill(f.onlyPool().PID) },
	} {
		t.Run(name, func(t *testing.T) {
			again := make(chan struct{})
			f := newFarPool(newFakeWorld(t, func(r fakemodel.Request) fakemodel.Reply {
				<-again
				return fakemodel.Say("answered")
			}))
			c := f.bridge([]string{f.ssh()}, "--ssh", "far", "--map", f.here+"="+f.project)
			answer := make(chan outcome, 1)
			go func() { answer <- c.call("query", map[string]any{"prompt": "wait"}) }()
			f.asked("wait", 1)
			end(f, c)
			f.asked("wait", 2)
			waitFor(t, "the end of the first call", func() bool {
				sessions := f.onlyPool().Sessions
				return len(sessions) == 1 && sessions[0].Requests == 1
			})
			close(again)
			next(t, "answer", answer).want(t, false, "answered")
			f.end(c)
		})
	}
}

// The MCP client runs in a container without a network, with other processes and another
// file system. The socket of the host's pool is mounted into it, and the project under
// another name.
func TestPoolContainer(t *testing.T) {
	systest.NeedRoot(t)
	var project string
	model := func(r fakemodel.Request) fakemodel.Reply {
		if strings.Contains(r.Prompt, "rename") {
			return renames(r, project)
		}
		return readsThenAnswers(r)
	}
	world := newWorld
	if testing.Short() { // the real CLI is that of TestPoolSSH
		world, model = newFakeWorld, func(fakemodel.Request) fakemodel.Reply { return fakemodel.Say("good morning") }
	}
	f := newFarPool(world(t, model))
	project = f.project
	f.file("hello.txt", "good morning")
	f.file("greet.py", "def greet():\n    pass\n")
	pool := f.run(f.project, nil, polluxBinary, "pool")
	pool.expect("the pool listens on " + filepath.Join(f.tmp(), "pollux", "pool-"))
	socket := f.onlyPool().Socket
	root := filepath.Join(f.home, "root")
	systest.MakeDir(t, root)
	script := fmt.Sprintf(`R=%s
		mount -t tmpfs none $R
		for d in usr bin sbin lib lib64 etc dev; do mkdir -p $R/$d; mount --rbind /$d $R/$d; done
		mkdir -p $R/proc $R/tmp $R/root $R/workspaces/app $R/run/pollux $R/opt/pollux
		mount -t proc proc $R/proc
		mount --bind %s $R/workspaces/app
		mount --bind %s $R/run/pollux
		mount --bind %s $R/opt/pollux
		cd $R
		exec chroot $R env -i HOME=/root LANG=C.UTF-8 PATH=/opt/pollux:/usr/bin:/bin GORACE=atexit_sleep_ms=10 \
			sh -c 'cd /workspaces/app && exec pollux bridge --socket /run/pollux/%s --map /workspaces/app=%s'
	`, root, f.project, filepath.Dir(socket), filepath.Dir(polluxBinary), filepath.Base(socket), f.project)
	cmd := exec.Command("unshare", "-n", "-m", "-p", "--fork", "--kill-child", "sh", "-ec", script)
	c := f.connect(cmd)
	c.call("query", map[string]any{"prompt": "what does hello.txt say?", "workingDirectory": "/workspaces/app"}).want(t, false, "good morning")
	if all := f.onlyPool().Workers; len(all) != 1 || all[0].Dir != f.project {
		t.Errorf("the processes are %+v", all)
	}
	if !testing.Short() { // the fake one has no tools
		o := c.call("query", map[string]any{"prompt": "rename greet", "changeMode": true, "workingDirectory": "/workspaces/app"})
		wantRenamed(t, o, f.project)
	}
	f.end(c)
}

// Wrong addresses get errors with the next step.
func TestPoolRemoteErrors(t *testing.T) {
	f := newFarPool(newFakeWorld(t, func(fakemodel.Request) fakemodel.Reply { return fakemodel.Say("ok") }))
	ssh := f.ssh()
	config := strings.TrimPrefix(ssh, "POLLUX_SSH=ssh -F ")
	text := systest.ReadFile(t, config)
	// Without a key, the host asks for a password.
	keyless := config + "-keyless"
	systest.WriteFile(t, keyless, strings.Replace(text, "ssh/user\n", "ssh/host\n", 1))
	for name, tt := range map[string]struct {
		flags  []string
		says   string
		status int
	}{
		"no such host":         {[]string{"--ssh", "nowhere.invalid"}, "no pool answers there: ssh: Could not resolve hostname nowhere.invalid", 1},
		"no key":               {[]string{"--via", "ssh -F " + keyless + " far pollux pool connect"}, "Permission denied", 1},
		"no pollux":            {[]string{"--via", "nosuchcommand"}, "nosuchcommand: not found; install pollux there", 1},
		"an old pollux":        {[]string{"--via", "echo 'pollux: unknown command \"pool\"' >&2; exit 2"}, "install the same version of pollux there", 1},
		"another version":      {[]string{"--via", `echo '{"name": "pollux pool", "protocol": 99, "version": "v9"}'; cat`}, "the pool is of Pollux v9", 1},
		"a talkative shell":    {[]string{"--via", "echo hello; cat"}, "does a startup file of the shell there print something?", 1},
		"no socket":            {[]string{"--socket", "/nowhere"}, "no pool answers at /nowhere (connect: no such file or directory): is one running", 1},
		"no directory there":   {[]string{"--ssh", "far", "--map", f.here + "=/nope"}, "there is no directory /nope where the pool runs", 1},
		"no directory here":    {[]string{"--ssh", "far", "--map", "/nope=" + f.project}, "there is no directory /nope here", 2},
		"a map without a pool": {[]string{"--map", f.here + "=" + f.project}, "--map needs the way to another pool", 2},
		"two ways":             {[]string{"--ssh", "far", "--socket", "x"}, "cannot be combined: use one", 2},
	} {
		cmd := exec.Command(polluxBinary, append(append([]string{"ask"}, tt.flags...), "hello?")...)
		cmd.Env, cmd.Dir = append(slices.Clone(f.env), ssh), f.here
		out, _ := cmd.CombinedOutput()
		if cmd.ProcessState.ExitCode() != tt.status || !strings.Contains(string(out), tt.says) {
			t.Errorf("%s: %v\n%s", name, cmd.ProcessState, out)
		}
	}
}
