package e2e

import (
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"pollux/internal/editor"
	"pollux/internal/sys/systest"
)

// forwardEnv makes the test binary forward containerModel, inside a container
// without a network, to a unix socket outside.
const (
	forwardEnv     = "POLLUX_E2E_FORWARD"
	containerModel = "127.0.0.1:18080"
)

func forward(socket string) {
	l, err := net.Listen("tcp", containerModel)
	if err != nil {
		panic(err)
	}
	serve(l, func() (net.Conn, error) { return net.Dial("unix", socket) })
}

// serve forwards each connection to a connection that dial opens.
func serve(l net.Listener, dial func() (net.Conn, error)) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer conn.Close()
			remote, err := dial()
			if err != nil {
				return
			}
			defer remote.Close()
			go io.Copy(remote, conn)
			io.Copy(conn, remote)
		}()
	}
}

// A remoteCLI runs where neither its companion's port nor its paths exist.
type remoteCLI struct {
	*world
	editor *plugin
	file   string // the editor's path
	here   string // the CLI's path
}

// check checks what the user sees: a context with the CLI's paths, and a change
// that the editor shows, edits and accepts.
func (f remoteCLI) check(cli *terminal) {
	t := f.t
	t.Helper()
	f.editor.show(editor.File{Path: f.file, Active: true})
	cli.expect("1 open file")
	cli.prompt("change it")
	d := next(t, "diff", f.editor.opened)
	if d.Path != f.file {
		t.Errorf("the editor shows a diff of %s, want %s", d.Path, f.file)
	}
	if d.Original != "one\n" {
		t.Errorf("its original is %q", d.Original)
	}
	cli.expect(asks)
	f.editor.accept(d, "one\nfrom far away\n")
	cli.expect(after)
	said := ""
	for _, r := range f.model.Requests() {
		said += r.Text
	}
	if !strings.Contains(said, f.here) || strings.Contains(said, f.file) {
		t.Errorf("the model must receive %s and not %s: %q", f.here, f.file, tail(said, 2000))
	}
}

// The CLI runs in a container with another network, other processes and another
// file system, in which the project has another path. The companion's socket is
// mounted into it.
func TestRemoteContainer(t *testing.T) {
	systest.NeedRoot(t)
	here := "/workspaces/app/f.txt"
	w := newWorld(t, write(&here, "one\ntwo\n"))
	f := remoteCLI{world: w, file: w.file("f.txt", "one\n"), here: here}
	f.editor = w.edit(nil)
	socket := f.editor.info.Env[editor.EnvSocket]

	modelSocket := filepath.Join(w.home, "model.sock")
	l, err := net.Listen("unix", modelSocket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go serve(l, func() (net.Conn, error) { return net.Dial("tcp", strings.TrimPrefix(w.model.URL, "http://")) })

	self := systest.Self(t)
	root := filepath.Join(w.home, "root")
	systest.MakeDir(t, root)
	bin := installed(t, "gemini-"+current)
	script := fmt.Sprintf(`R=%s
		mount -t tmpfs none $R
		for d in usr bin sbin lib lib64 etc dev; do mkdir -p $R/$d; mount --rbind /$d $R/$d; done
		mkdir -p $R/proc $R/tmp $R/root/.gemini $R/workspaces/app $R/run/pollux $R/opt/pollux $R/opt/gemini
		mount -t proc proc $R/proc
		mount --bind %s $R/workspaces/app
		mount --bind %s $R/run/pollux
		mount --bind %s $R/opt/pollux
		mount --bind %s $R/opt/gemini
		cp %s/.gemini/settings.json $R/root/.gemini/
		touch $R/.dockerenv
		ip link set lo up
		%s=%s %s &
		cd $R
		exec chroot $R env -i HOME=/root TERM=xterm-256color LANG=C.UTF-8 PATH=/opt/pollux:/opt/gemini/node_modules/.bin:/usr/bin:/bin GEMINI_API_KEY=none GEMINI_MODEL=gemini-2.5-flash GOOGLE_GEMINI_BASE_URL=http://%s GORACE=atexit_sleep_ms=10 \
			sh -c 'cd /workspaces/app && pollux "$@"; echo "exit code $?"; ls /tmp/gemini/ide 2>&1; sleep 1' pollux run --attach --socket /run/pollux/%s --map /workspaces/app=%s -- gemini
	`, root, w.project, filepath.Dir(socket), filepath.Dir(polluxBinary), bin, w.home, forwardEnv, modelSocket, self, containerModel, filepath.Base(socket), w.project)
	cli := w.run(w.project, nil, "unshare", "-n", "-m", "-p", "--fork", "--kill-child", "sh", "-ec", script)
	cli.expect("connected to the companion of Test Editor")
	cli.expect(ready)
	f.check(cli)
	w.wantFile(f.file, "one\nfrom far away\n")
	cli.prompt("/quit")
	cli.expect("exit code 0")
	cli.expect("No such file") // the discovery directory does not exist
}

// ssh makes this machine reachable as a host named far, with a real sshd that
// needs no port, and returns the ssh configuration. Commands there have the world's
// temporary directory, and the variables of more.
func (w *world) ssh(more ...string) (config string) {
	w.t.Helper()
	sshd, err := exec.LookPath("/usr/sbin/sshd")
	if err != nil || os.Getuid() != 0 {
		if os.Getenv("POLLUX_E2E") == "require" && os.Getuid() == 0 {
			w.t.Fatal(err)
		}
		w.t.Skip("needs sshd, and root")
	}
	dir := filepath.Join(w.home, "ssh")
	systest.MakeDir(w.t, dir)
	os.MkdirAll("/run/sshd", 0o755)
	for _, key := range []string{"host", "user"} {
		succeed(w.t, exec.Command("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", filepath.Join(dir, key)))
	}
	env := ""
	for _, kv := range append([]string{"PATH=" + filepath.Dir(polluxBinary) + ":/usr/bin:/bin"}, w.env...) {
		if k, _, _ := strings.Cut(kv, "="); k == "PATH" && env == "" || k == "TMPDIR" || k == "XDG_RUNTIME_DIR" {
			env += " " + kv
		}
	}
	for _, kv := range more {
		env += " " + kv
	}
	for name, text := range map[string]string{
		"sshd":   fmt.Sprintf("HostKey %s/host\nAuthorizedKeysFile %[1]s/user.pub\nStrictModes no\nUsePAM no\nPidFile none\nAllowStreamLocalForwarding yes\nSetEnv%s\n", dir, env),
		"config": fmt.Sprintf("Host far\n  ProxyCommand %s -i -e -f %s/sshd 2>%[2]s/log\n  IdentityFile %[2]s/user\n  StrictHostKeyChecking no\n  UserKnownHostsFile /dev/null\n  LogLevel ERROR\n  IdentitiesOnly yes\n  BatchMode yes\n", sshd, dir),
	} {
		systest.WriteFile(w.t, filepath.Join(dir, name), text)
	}
	return filepath.Join(dir, "config")
}

// mirror creates the CLI's host: another copy of the project, and a temporary
// directory without a companion.
func (w *world) mirror() (dir string, env []string) {
	w.t.Helper()
	dir, tmp := filepath.Join(w.home, "mirror"), filepath.Join(w.home, "tmp")
	systest.MakeDir(w.t, tmp)
	systest.WriteFile(w.t, filepath.Join(dir, "f.txt"), "one\n")
	return dir, append(w.withCLI(), "TMPDIR="+tmp, "XDG_RUNTIME_DIR="+tmp)
}

// The companion runs on another host, which ssh reaches. Then the editor's host forwards the
// companion's socket to the CLI's host, where each agent finds it.
func TestRemoteSSH(t *testing.T) {
	var here string
	w := newWorld(t, write(&here, "one\ntwo\n"))
	config := w.ssh()
	dir, env := w.mirror()
	here = filepath.Join(dir, "f.txt")
	f := remoteCLI{world: w, file: w.file("f.txt", "one\n"), here: here}
	attach := func() *terminal {
		return w.run(dir, append(env, "POLLUX_SSH=ssh -F "+config),
			"bash", "-c", `"$0" "$@"; echo "exit code $?"`, polluxBinary, "run", "--attach", "--ssh", "far", "--map", dir+"="+w.project, "--", "gemini")
	}
	early := attach() // it reports that before it starts the CLI
	early.expect("no companion is running for " + w.project)
	early.expect("exit code 1")
	f.editor = w.edit(nil)
	cli := attach()
	cli.expect("connected to the companion of Test Editor")
	cli.expect(ready)
	f.check(cli)
	w.wantFile(here, "one\nfrom far away\n")
	w.wantFile(f.file, "one\n") // on another host
	cli.prompt("/quit")
	cli.expect("exit code 0")
	for _, pattern := range []string{"tmp/gemini/ide/*", "tmp/pollux/*.sock", "tmp/pollux-*"} {
		if left, _ := filepath.Glob(filepath.Join(w.home, pattern)); len(left) > 0 {
			t.Errorf("left behind: %v", left)
		}
	}

	forwarded := filepath.Join(w.home, "tmp", "fwd.sock")
	ssh := exec.Command("ssh", "-F", config, "-N", "-R", forwarded+":"+f.editor.info.Env[editor.EnvSocket], "far")
	if err := ssh.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ssh.Process.Kill(); ssh.Wait() })
	waitFor(t, "the forwarded socket", func() bool { _, err := os.Stat(forwarded); return err == nil })
	publisher := w.run(dir, env, "bash", "-c", `"$0" "$@"; echo "exit code $?"`, polluxBinary, "connect", "--publish", "--socket", forwarded, "--map", dir+"="+w.project)
	publisher.expect("connected to the companion of Test Editor; agents started in " + dir)
	// Doctor looks for a companion and connects to it as the CLI does.
	p := &patient{world: w, dir: dir, bin: filepath.Dir(geminiCLI(t)), env: append(env, "REMOTE_CONTAINERS=1"), parts: []string{"gemini"}}
	p.wantUnwell(nil)
	publisher.keys("\x03")
	publisher.expect("exit code 0")
}
