package remote

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"pollux/internal/editor"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// mustPaths are pairs of which the directories here need not exist.
func mustPaths(_ testing.TB, pairs ...string) (p Paths) {
	for _, pair := range pairs {
		here, there, _ := strings.Cut(pair, "=")
		p = append(p, Pair{filepath.Clean(here), trim(there)})
	}
	return p
}

// The names of a companion elsewhere steer no terminal.
func TestFitShowsNamesPlainly(t *testing.T) {
	err := Paths{{"/here", "/there"}}.Fit([]string{"/a\x1b]0;t\a\u202eb\n"}, "/here")
	if err == nil || strings.ContainsAny(err.Error(), "\x1b\a\u202e\n") || !strings.Contains(err.Error(), "/a]0;tb") {
		t.Errorf("%q", err)
	}
}

func TestFit(t *testing.T) {
	for _, tt := range []struct {
		pairs, roots []string
		dir, says    string
	}{
		{roots: []string{"/app"}, dir: "/app/sub"},
		{dir: "/w"}, // it does not tell
		{roots: []string{"/app"}, dir: "/w", says: "--map /w=/app"},
		{roots: []string{"/app"}, dir: "/apps", says: "--map /apps=/app"},
		{pairs: []string{"/w=/app"}, roots: []string{"/other", "/app"}},
		{pairs: []string{"/w=/app/sub"}, roots: []string{"/app"}},
		{pairs: []string{"/w=/elsewhere"}, roots: []string{"/app"}, says: "--map /w=/app"},
		{pairs: []string{"/w=/home/me/src"}, roots: []string{"/home/me/src/app"}},
		{pairs: []string{"/go=/home/me/go", "/w=/app"}, roots: []string{"/app"}},
		{pairs: []string{"/host=/"}, roots: []string{"/app"}},
		{pairs: []string{`/mnt/c=C:\`}, roots: []string{`C:\app`}},
		{pairs: []string{`/w=C:/App`}, roots: []string{`c:\app`}},
	} {
		err := mustPaths(t, tt.pairs...).Fit(tt.roots, tt.dir)
		if (err == nil) != (tt.says == "") || err != nil && !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%v, %v, %s: %v, want %q", tt.pairs, tt.roots, tt.dir, err, tt.says)
		}
	}
}

func TestPaths(t *testing.T) {
	for _, tt := range []struct {
		pairs       []string
		here, there string // "" for one that no pair holds
		back        string // where the way back gives another name
	}{
		{here: "/a/b", there: "/a/b"},
		{pairs: []string{"/w=/home/me/app"}, here: "/w", there: "/home/me/app"},
		{pairs: []string{"/w=/home/me/app"}, here: "/w/x/y.go", there: "/home/me/app/x/y.go"},
		{pairs: []string{"/w/=/home/me/app/"}, here: "/w/x", there: "/home/me/app/x"},
		{pairs: []string{"/w=/app"}, here: "/wx/y"},
		{pairs: []string{"/w=/app"}, here: "/"},
		{pairs: []string{"/=/mnt/root"}, here: "/etc/x", there: "/mnt/root/etc/x"},
		{pairs: []string{"/w=/"}, here: "/w/etc/x", there: "/etc/x"},
		{pairs: []string{"/w=/a", "/w/sub=/b"}, here: "/w/sub/x", there: "/b/x"},
		{pairs: []string{"/w/sub=/b", "/w=/a"}, here: "/w/subx", there: "/a/subx"},
		{pairs: []string{`/mnt/c/app=C:\app`}, here: "/mnt/c/app/src/x.go", there: `C:\app\src\x.go`},
		{pairs: []string{`/mnt/c=C:\`}, here: "/mnt/c/app/x", there: `C:\app\x`},
		{pairs: []string{`/mnt/c=C:/`}, here: "/mnt/c/app/x", there: `C:\app\x`},
		{pairs: []string{`/w=\\wsl.localhost\Debian\w`}, here: "/w/x", there: `\\wsl.localhost\Debian\w\x`},
		{pairs: []string{"/w=/app"}, here: "/w/ä =x", there: "/app/ä =x"},
	} {
		p := mustPaths(t, tt.pairs...)
		there, ok := p.ToThere(tt.here)
		if there != tt.there || ok != (tt.there != "") {
			t.Errorf("%v: %s is %q (%v) there, want %q", tt.pairs, tt.here, there, ok, tt.there)
		}
		if !ok {
			continue
		}
		if here, ok := p.ToHere(there); here != tt.here || !ok {
			t.Errorf("%v: %s is %q (%v) here, want %q", tt.pairs, there, here, ok, tt.here)
		}
	}
	for _, there := range []string{`c:\App\x`, `C:/app/x`} {
		if here, ok := mustPaths(t, `/mnt/c/app=C:\app`).ToHere(there); here != "/mnt/c/app/x" || !ok {
			t.Errorf("Windows' names are alike in any case and with any slash: %q, %v", here, ok)
		}
	}
	if here, ok := mustPaths(t, "/w=/app").ToHere("/app/../etc/x"); ok {
		t.Errorf("a name leads out of its pair: %q", here)
	}
	if p, err := ParsePaths([]string{t.TempDir() + "=/app"}); err != nil || len(p) != 1 {
		t.Errorf("%v, %v", p, err)
	}
	for _, bad := range []string{"", "/a", "a=/b", "/a=b", "=/b", "/a=", "/no such directory=/b"} {
		if _, err := ParsePaths([]string{bad}); err == nil || !strings.Contains(err.Error(), "--map") {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// What goes through the relay, and what becomes of it.
func TestRelay(t *testing.T) {
	for _, tt := range []struct {
		name        string
		pairs       []string
		there       bool // from the CLI to the companion
		line, wants string
	}{
		{name: "openDiff", there: true, pairs: []string{"/w=/app"},
			line:  `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"openDiff","arguments":{"filePath":"/w/a.go","newContent":"/w/a.go <b>"}}}`,
			wants: `{"id":7,"jsonrpc":"2.0","method":"tools/call","params":{"arguments":{"filePath":"/app/a.go","newContent":"/w/a.go <b>"},"name":"openDiff"}}`},
		{name: "a path that is not there goes as it is", there: true, pairs: []string{"/w=/app"},
			line:  `{"id":7,"method":"tools/call","params":{"name":"closeDiff","arguments":{"filePath":"/etc/x","suppressNotification":true}}}`,
			wants: `{"id":7,"method":"tools/call","params":{"arguments":{"filePath":"/etc/x","suppressNotification":true},"name":"closeDiff"}}`},
		{name: "no pairs, no change", there: true,
			line:  `{"method": "tools/call", "params": {"arguments": {"filePath": "/w/a"}}}`,
			wants: `{"method": "tools/call", "params": {"arguments": {"filePath": "/w/a"}}}`},
		{name: "what is no call", there: true, pairs: []string{"/w=/app"},
			line: `{"id": 1, "method":"initialize","params":{"filePath":"/w/a"}}`, wants: `{"id": 1, "method":"initialize","params":{"filePath":"/w/a"}}`},
		{name: "what is no JSON", there: true, pairs: []string{"/w=/app"}, line: `filePath`, wants: `filePath`},
		{name: "accepted", pairs: []string{"/w=/app"},
			line:  `{"method":"ide/diffAccepted","params":{"filePath":"/app/a.go","content":"<x> /app/a.go"}}`,
			wants: `{"method":"ide/diffAccepted","params":{"content":"<x> /app/a.go","filePath":"/w/a.go"}}`},
		{name: "rejected", pairs: []string{"/w=/app"},
			line: `{"method":"ide/diffRejected","params":{"filePath":"/app/a.go"}}`, wants: `{"method":"ide/diffRejected","params":{"filePath":"/w/a.go"}}`},
		{name: "context", pairs: []string{"/w=/app"},
			line:  `{"method":"ide/contextUpdate","params":{"workspaceState":{"openFiles":[{"path":"/app/a","timestamp":5,"isActive":true,"cursor":{"line":1,"character":2}},{"path":"/home/me/notes","timestamp":4}],"isTrusted":true}}}`,
			wants: `{"method":"ide/contextUpdate","params":{"workspaceState":{"isTrusted":true,"openFiles":[{"cursor":{"line":1,"character":2},"isActive":true,"path":"/w/a","timestamp":5}]}}}`},
		{name: "an empty context", pairs: []string{"/w=/app"},
			line:  `{"method":"ide/contextUpdate","params":{"workspaceState":{"openFiles":[{"path":"/home/me/notes","timestamp":4}]}}}`,
			wants: `{"method":"ide/contextUpdate","params":{"workspaceState":{"openFiles":[]}}}`},
		{name: "an answer", pairs: []string{"/w=/app"},
			line: `{"id":7,"result":{"content":[{"type":"text","text":"{\"content\":\"/app\"}"}]}}`, wants: `{"id":7,"result":{"content":[{"type":"text","text":"{\"content\":\"/app\"}"}]}}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tr := &translator{paths: mustPaths(t, tt.pairs...), open: make(map[string]string)}
			f := tr.toHere
			if tt.there {
				f = tr.toThere
			}
			if got := strings.TrimRight(string(f([]byte(tt.line))), "\n"); got != tt.wants {
				t.Errorf("became\n%s\nwant\n%s", got, tt.wants)
			}
		})
	}
}

// A path comes back as the CLI gave it, even where its name there could be
// another one's here.
func TestPathsComeBackAsTheyWere(t *testing.T) {
	tr := &translator{paths: mustPaths(t, "/a=/b"), open: make(map[string]string)}
	tr.toThere([]byte(`{"method":"tools/call","params":{"name":"openDiff","arguments":{"filePath":"/b/x","newContent":""}}}`))
	got := string(tr.toHere([]byte(`{"method":"ide/diffRejected","params":{"filePath":"/b/x"}}`)))
	if !strings.Contains(got, `"filePath":"/b/x"`) {
		t.Errorf("came back as %s", got)
	}
}

func FuzzRelay(f *testing.F) {
	f.Add(`{"method":"tools/call","params":{"name":"openDiff","arguments":{"filePath":"/w/a"}}}`)
	f.Add(`{"method":"ide/contextUpdate","params":{"workspaceState":{"openFiles":[{"path":null}]}}}`)
	f.Add(`{"method":"ide/diffAccepted","params":null}`)
	p := mustPaths(f, "/w=/app")
	f.Fuzz(func(t *testing.T, line string) {
		tr := &translator{paths: p, open: make(map[string]string)}
		tr.toThere([]byte(line))
		tr.toHere([]byte(line))
	})
}

// A front serves several at once, refuses what is no CLI, and leaves nothing.
func TestFront(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("POLLUX_RUNTIME_DIR", filepath.Join(dir, "run"))
	far, err := net.Listen("unix", filepath.Join(dir, "far.sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer far.Close()
	go func() {
		for {
			conn, err := far.Accept()
			if err != nil {
				return
			}
			go func() { // says what it heard
				defer conn.Close()
				r := bufio.NewReader(conn)
				for {
					line, err := r.ReadString('\n')
					if err != nil {
						return
					}
					fmt.Fprintf(conn, "heard %s", line)
				}
			}()
		}
	}()
	f, err := Listen(t.Context(), Door{Socket: filepath.Join(dir, "far.sock")}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(f.Socket); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the socket: %v, %v", info, err)
	}
	dial := func(first string) *bufio.ReadWriter {
		conn, err := net.Dial("unix", f.Socket)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		io.WriteString(conn, first)
		return bufio.NewReadWriter(bufio.NewReader(conn), bufio.NewWriter(conn))
	}
	one, two := dial(editor.MCPPreamble), dial(editor.MCPPreamble)
	for i, c := range []*bufio.ReadWriter{one, two} {
		hello, _ := c.ReadString('\n')
		fmt.Fprintf(c, "%d\n", i)
		c.Flush()
		if got, err := c.ReadString('\n'); hello != "heard "+editor.MCPPreamble || got != fmt.Sprintf("heard %d\n", i) {
			t.Errorf("heard %q, %q, %v", hello, got, err)
		}
	}
	if got, err := dial("{}\n{}\n").ReadString('\n'); err == nil {
		t.Errorf("the adapter protocol was answered %q", got)
	}
	f.Close()
	if _, err := one.ReadString('\n'); err == nil {
		t.Error("a connection outlives the front")
	}
	if _, err := os.Stat(f.Socket); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket stays: %v", err)
	}
}

// A command that does not lead to a companion says so in its own words.
func TestGreetTellsWhatTheCommandSaid(t *testing.T) {
	for command, says := range map[string]string{
		"echo 'ssh: no such host' >&2; exit 255": "answers there: ssh: no such host",
		"echo hello; cat >/dev/null":             "startup file",
		"cat":                                    "no companion answers there",
		"exec sleep 60":                          "no answer in time",
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		_, err := Door{Command: Via(command)}.Greet(ctx)
		cancel()
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want %q", command, err, says)
		}
	}
	if _, err := (Door{Socket: "/nowhere"}).Greet(t.Context()); err == nil || !strings.Contains(err.Error(), "pollux status --json") {
		t.Errorf("no socket: %v", err)
	}
}

func TestSSH(t *testing.T) {
	for _, tt := range []struct{ ssh, host, dir, want string }{
		{"", "-oProxyCommand=x", "/a b'c", `ssh|-o|BatchMode=yes|-T|--|-oProxyCommand=x|pollux connect --dir '/a b'\''c'`},
		{"ssh -F x", "h", "", "ssh|-F|x|-o|BatchMode=yes|-T|--|h|pollux connect"},
		{"", "h", `C:\a b`, `ssh|-o|BatchMode=yes|-T|--|h|pollux connect --dir "C:\a b"`},
	} {
		t.Setenv("POLLUX_SSH", tt.ssh)
		if got := strings.Join(SSH(tt.host, tt.dir)().Args, "|"); got != tt.want {
			t.Errorf("%s, want %s", got, tt.want)
		}
	}
}

// The companion takes its socket away, or nobody is behind it.
func TestFrontNoticesThatTheCompanionIsGone(t *testing.T) {
	for name, lose := range map[string]func(far net.Listener){
		"its socket goes": func(far net.Listener) { far.Close() },
		"nobody answers":  func(far net.Listener) { far.(*net.UnixListener).SetUnlinkOnClose(false); far.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			t.Setenv("POLLUX_RUNTIME_DIR", filepath.Join(dir, "run"))
			far, err := net.Listen("unix", filepath.Join(dir, "far.sock"))
			if err != nil {
				t.Fatal(err)
			}
			f, err := Listen(t.Context(), Door{Socket: filepath.Join(dir, "far.sock")}, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			lose(far)
			conn, err := net.Dial("unix", f.Socket)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			io.WriteString(conn, editor.MCPPreamble)
			<-f.Gone()
		})
	}
}

// A socket that anybody could have put there is not spoken to.
func TestForeignSocketsAreRefused(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	for name, tt := range map[string]struct {
		mode  os.FileMode
		owner int // of the directory
		fine  bool
	}{
		"in a directory that all can write":   {0o777, 0, false},
		"in a directory of mine":              {0o700, 0, false},
		"in a directory of its owner's alone": {0o700, 65534, true}, // mounted into a container of root's
	} {
		dir := filepath.Join(t.TempDir(), "d")
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, "s")
		l, err := net.Listen("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		for _, err := range []error{os.Chown(path, 65534, 65534), os.Chmod(dir, tt.mode), os.Chown(dir, tt.owner, tt.owner)} {
			if err != nil {
				t.Fatal(err)
			}
		}
		conn, err := Door{Socket: path}.Open(t.Context())
		if (err == nil) != tt.fine {
			t.Errorf("%s: %v", name, err)
		}
		if err == nil {
			conn.Close()
		}
		l.Close()
	}
}

// A CLI that leaves before the companion has answered has left, no more.
func TestRelayOfACLIThatLeaves(t *testing.T) {
	cli, cliEnd := net.Pipe()
	door, doorEnd := net.Pipe()
	done := make(chan error, 1)
	go func() { done <- Relay(cliEnd, doorEnd, nil) }()
	cli.Close()
	if err := <-done; err != nil {
		t.Errorf("the CLI left: %v", err)
	}
	door.Close()
	cli, cliEnd = net.Pipe()
	door, doorEnd = net.Pipe()
	go func() { done <- Relay(cliEnd, doorEnd, nil) }()
	door.Close()
	if err := <-done; !errors.Is(err, ErrSilent) {
		t.Errorf("the companion said nothing: %v", err)
	}
	cli.Close()
}
