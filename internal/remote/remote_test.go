package remote

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pollux/internal/editor"
	"pollux/internal/ide/geminiide"
	"pollux/internal/sys/disk"
	"pollux/internal/sys/sock"
	"pollux/internal/sys/systest"
)

func TestMain(m *testing.M) {
	if does, ok := commands[os.Getenv(envCommand)]; ok {
		does()
		os.Exit(0)
	}
	systest.VerifyTestMain(m)
}

// envCommand names the command that this program is.
const envCommand = "POLLUX_TEST_COMMAND"

// commands replace pollux connect at the other end, as mistakes of users do.
var commands = map[string]func(){
	"ssh without a host": func() { fmt.Fprintln(os.Stderr, "ssh: no such host"); os.Exit(255) },
	"startup file":       func() { fmt.Println("hello"); io.Copy(io.Discard, os.Stdin) },
	"echo":               func() { io.Copy(os.Stdout, os.Stdin) },
	"password":           func() { time.Sleep(time.Minute) },
	"old pollux":         func() { fmt.Fprintln(os.Stderr, "pollux: unknown command") },
	"error after the end": func() {
		os.Stdout.Close()
		time.Sleep(100 * time.Millisecond) // the output has ended
		fmt.Fprintln(os.Stderr, "late")
	},
}

// via returns one of the commands, for the system's shell.
func via(t *testing.T, name string) func() *exec.Cmd {
	t.Helper()
	self := systest.Self(t)
	t.Setenv(envCommand, name)
	return Via(quote(self))
}

// mustPaths returns pairs whose directories here need not exist.
func mustPaths(_ testing.TB, pairs ...string) (p Paths) {
	for _, pair := range pairs {
		here, there, _ := strings.Cut(pair, "=")
		p = append(p, Pair{clean(here), clean(there)})
	}
	return p
}

// The names that a remote companion sends cannot control the terminal.
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
		{dir: "/w"}, // the companion does not say
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
			t.Errorf("Windows names are equal in any case and with any slash: %q, %v", here, ok)
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

// unused is a protocol that must not be used.
type unused struct{ t *testing.T }

func (u unused) Greet(context.Context, io.ReadWriter) (string, []string, error) {
	u.t.Error("it greets")
	return "", nil, nil
}

func (u unused) Translate(_, _ func(string) (string, bool)) (_, _ func([]byte) []byte) {
	u.t.Error("it translates")
	return nil, nil
}

// Without pairs, no message changes.
func TestRelayWithoutPairs(t *testing.T) {
	const line = `{"method": "tools/call", "params": {"arguments": {"filePath": "/w/a"}}}` + "\n"
	agent, agentEnd := net.Pipe()
	companion, companionEnd := net.Pipe()
	done := make(chan error, 1)
	go func() { done <- Relay(t.Context(), agentEnd, companionEnd, nil, unused{t}) }()
	go io.WriteString(agent, line)
	if got, err := bufio.NewReader(companion).ReadString('\n'); got != line {
		t.Errorf("became %q, %v", got, err)
	}
	companion.Close()
	agent.Close()
	<-done
}

// listen returns the socket of a companion and a listener that leads to it. Both are closed at the
// end of the test.
func listen(t *testing.T) (companion net.Listener, f *Listener) {
	t.Helper()
	dir := systest.ShortDir(t)
	t.Setenv("POLLUX_RUNTIME_DIR", filepath.Join(dir, "run"))
	path := filepath.Join(dir, "companion.sock")
	companion, err := sock.Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { companion.Close() })
	if f, err = Listen(t.Context(), Target{Socket: path}, nil, unused{t}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.Close)
	return companion, f
}

// A listener serves several agents at the same time, refuses other clients, and
// leaves nothing behind.
func TestListener(t *testing.T) {
	companion, f := listen(t)
	systest.Serve(t, companion, func(conn net.Conn) { // repeats what it receives
		defer conn.Close()
		r := bufio.NewReader(conn)
		for {
			line, err := r.ReadString('\n')
			if err != nil {
				return
			}
			fmt.Fprintf(conn, "heard %s", line)
		}
	})
	if info, err := os.Stat(f.Socket); err != nil || !disk.Private(f.Socket, info) {
		t.Errorf("the socket: %v, %v", info, err)
	}
	dial := func(first string) *bufio.ReadWriter {
		conn, err := sock.Dial(t.Context(), f.Socket)
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
		t.Errorf("the editor protocol was answered %q", got)
	}
	f.Close()
	if _, err := one.ReadString('\n'); err == nil {
		t.Error("a connection outlives the listener")
	}
	if _, err := os.Stat(f.Socket); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket stays: %v", err)
	}
}

// The error for a command that reaches no companion quotes the command's standard
// error.
func TestGreetQuotesTheCommand(t *testing.T) {
	unknown := "found; install pollux there"
	if runtime.GOOS == "windows" {
		unknown = "; install pollux there" // after the words of cmd
	}
	for command, says := range map[string]string{
		"ssh without a host":  "answers there: ssh: no such host",
		"startup file":        "startup file",
		"echo":                "no companion answers there",
		"password":            "no answer in time",
		"no-such-command":     unknown,
		"error after the end": "answers there: late",
		"old pollux":          "install the same version of pollux there",
	} {
		start, timeout := Via(command), time.Minute
		if commands[command] != nil {
			start = via(t, command)
		}
		if command == "password" {
			timeout = 500 * time.Millisecond
		}
		ctx, cancel := context.WithTimeout(t.Context(), timeout)
		_, _, err := Target{Command: start}.Greet(ctx, geminiide.Remote{})
		cancel()
		systest.WantError(t, err, says)
	}
	_, _, err := Target{Socket: "/nowhere"}.Greet(t.Context(), geminiide.Remote{})
	systest.WantError(t, err, "pollux status --json")
}

// Closing a connection to a command that keeps running takes no time.
func TestCloseEndsACommand(t *testing.T) {
	conn, err := Start(via(t, "password")())
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if err := conn.Close(); err != nil || time.Since(began) > endTimeout/2 {
		t.Errorf("%v after %s", err, time.Since(began))
	}
	if n, err := conn.Read(make([]byte, 1)); err == nil {
		t.Errorf("read %d bytes", n)
	}
}

func TestSSH(t *testing.T) {
	for _, tt := range []struct{ ssh, host, dir, want string }{
		{"", "-oProxyCommand=x", "/a b'c", `ssh|-o|BatchMode=yes|-T|--|-oProxyCommand=x|pollux connect --dir '/a b'\''c'`},
		{"ssh -F x", "h", "", "ssh|-F|x|-o|BatchMode=yes|-T|--|h|pollux connect"},
		{"", "h", `C:\a b`, `ssh|-o|BatchMode=yes|-T|--|h|pollux connect --dir "C:\a b"`},
		{"", "h", `C:\`, `ssh|-o|BatchMode=yes|-T|--|h|pollux connect --dir "C:\\"`},
	} {
		t.Setenv("POLLUX_SSH", tt.ssh)
		if got := strings.Join(SSH(tt.host, ConnectCommand(tt.dir))().Args, "|"); got != tt.want {
			t.Errorf("%s, want %s", got, tt.want)
		}
	}
}

// A listener notices when the companion removes its socket, or does not answer on it.
func TestListenerNoticesThatTheCompanionIsGone(t *testing.T) {
	for name, lose := range map[string]func(companion net.Listener){
		"its socket goes": func(companion net.Listener) { companion.Close() },
		"nobody answers": func(companion net.Listener) {
			companion.(sock.Listener).SetUnlinkOnClose(false)
			companion.Close()
		},
	} {
		t.Run(name, func(t *testing.T) {
			companion, f := listen(t)
			lose(companion)
			conn, err := sock.Dial(t.Context(), f.Socket)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			io.WriteString(conn, editor.MCPPreamble)
			<-f.Gone()
		})
	}
}

// A lost connection, as when the network fails, is noticed, unlike the end of the agent: also in the
// middle of a request, and if it is reset, since the companion has not read everything.
func TestListenerNoticesALostConnection(t *testing.T) {
	const call = `{"id":1,"method":"tools/call"}` + "\n"
	for name, tt := range map[string]struct {
		sent string
		read int // bytes
	}{"idle": {"", 0}, "reset": {"{}\n", 1}, "in a request": {call, len(call)}} {
		t.Run(name, func(t *testing.T) {
			companion, f := listen(t)
			// connect returns both ends of an agent's connection that has carried a message.
			connect := func() (agent, there net.Conn) {
				t.Helper()
				agent, err := sock.Dial(t.Context(), f.Socket)
				if err == nil {
					_, err = io.WriteString(agent, editor.MCPPreamble)
				}
				if err != nil {
					t.Fatal(err)
				}
				if there, err = companion.Accept(); err == nil {
					_, err = io.ReadFull(there, make([]byte, len(editor.MCPPreamble)))
				}
				if err == nil {
					_, err = io.WriteString(there, "{}\n")
				}
				if err == nil {
					_, err = bufio.NewReader(agent).ReadString('\n')
				}
				if err == nil {
					_, err = io.WriteString(agent, tt.sent)
				}
				if err == nil {
					_, err = io.ReadFull(there, make([]byte, tt.read))
				}
				if err != nil {
					t.Fatal(err)
				}
				return agent, there
			}
			agent, there := connect()
			agent.Close()
			if tt.sent == call {
				io.WriteString(there, `{"id":1,"result":{}}`+"\n")
			}
			io.Copy(io.Discard, there) // until the relay has ended
			there.Close()
			select {
			case <-f.Lost():
				t.Error("an agent that ends counts as a lost connection")
			default:
			}
			for range 2 { // the agent can connect again
				agent, there = connect()
				defer agent.Close()
				there.Close()
				select {
				case <-f.Lost():
				case <-time.After(5 * time.Second):
					t.Fatal("the lost connection was not noticed")
				}
			}
			select {
			case <-f.Gone():
				t.Error("the companion counts as gone")
			default:
			}
		})
	}
}

// A socket that another user could have put there is refused.
func TestForeignSocketsAreRefused(t *testing.T) {
	systest.NeedRoot(t) // Windows has none: another user must own the socket's pipe there
	for name, tt := range map[string]struct {
		mode  os.FileMode
		owner int // of the directory
		fine  bool
	}{
		"in a directory that all can write":   {0o777, 0, false},
		"in a directory of mine":              {0o700, 0, false},
		"in a directory of its owner's alone": {0o700, 65534, true}, // mounted into root's container
	} {
		dir := filepath.Join(t.TempDir(), "d")
		systest.MakeDir(t, dir)
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
		conn, err := Target{Socket: path}.Open(t.Context())
		if (err == nil) != tt.fine {
			t.Errorf("%s: %v", name, err)
		}
		if err == nil {
			conn.Close()
		}
		l.Close()
	}
}

// An agent that leaves before the companion has answered is no error.
func TestRelayOfAnAgentThatLeaves(t *testing.T) {
	agent, agentEnd := net.Pipe()
	companion, companionEnd := net.Pipe()
	done := make(chan error, 1)
	go func() { done <- Relay(t.Context(), agentEnd, companionEnd, nil, unused{t}) }()
	agent.Close()
	if err := <-done; err != nil {
		t.Errorf("the agent left: %v", err)
	}
	companion.Close()
	agent, agentEnd = net.Pipe()
	companion, companionEnd = net.Pipe()
	go func() { done <- Relay(t.Context(), agentEnd, companionEnd, nil, unused{t}) }()
	companion.Close()
	if err := <-done; !errors.Is(err, ErrSilent) {
		t.Errorf("the companion said nothing: %v", err)
	}
	agent.Close()
}

// An agent whose input has ended still receives the answers to its requests. A silent
// companion does not keep the relay running.
func TestRelayAnswersAfterTheEnd(t *testing.T) {
	const (
		call      = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}`
		second    = `{"method":"tools/call","params":{"name":"\"id\""},"jsonrpc":"2.0","id":"a"}`
		batch     = `[` + call + `,{"jsonrpc":"2.0","method":"notifications/initialized"},` + second + `]`
		notice    = `{"jsonrpc":"2.0","method":"ide/contextUpdate","params":{}}`
		cancelled = `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"a"}}`
		asked     = `{"jsonrpc":"2.0","id":1,"method":"roots/list"}` // by the companion, with its own id
		answer    = `{"jsonrpc":"2.0","id":1,"result":{}}`
		failure   = `{"id":"a","jsonrpc":"2.0","error":{"code":-1,"message":"no"}}`
	)
	for name, tt := range map[string]struct {
		sent, answers []string
		want          error
		waits         time.Duration
		ends          bool // the companion ends after its answers
	}{
		"an answer":               {[]string{call}, []string{notice, asked, answer}, nil, 0, false},
		"nothing sent":            {nil, nil, nil, 0, false},
		"a notification":          {[]string{notice}, nil, nil, 0, false},
		"an answer to a question": {[]string{answer}, nil, nil, 0, false},
		"two answers":             {[]string{call, second}, []string{failure, answer}, nil, 0, false},
		"a batch":                 {[]string{batch}, []string{"[" + answer + "," + failure + "]"}, nil, 0, false},
		"a cancelled request":     {[]string{call, second, cancelled}, []string{answer}, nil, 0, false},
		"no answer":               {[]string{call}, []string{notice}, ErrUnanswered, answerTimeout, false},
		"one answer of two":       {[]string{call, second}, []string{answer}, ErrUnanswered, answerTimeout, false},
		"the companion's end":     {[]string{call, second}, []string{answer}, ErrUnanswered, 0, true},
		"not JSON":                {[]string{`{"id":`}, nil, nil, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const thinks = 3 * time.Second
				companion, companionEnd := net.Pipe()
				go func() {
					lines := bufio.NewScanner(companion)
					for range tt.sent {
						if !lines.Scan() {
							t.Errorf("the companion has not received all: %v", lines.Err())
						}
					}
					for _, answer := range tt.answers {
						time.Sleep(thinks)
						io.WriteString(companion, answer+"\n")
					}
					if !tt.ends {
						lines.Scan() // the end of the relay
					}
					companion.Close()
				}()
				var out strings.Builder
				in := ""
				for _, line := range tt.sent {
					in += line + "\n"
				}
				start := time.Now()
				agent := struct {
					io.Reader
					io.Writer
					io.Closer
				}{strings.NewReader(in), &out, io.NopCloser(nil)}
				if err := Relay(t.Context(), agent, companionEnd, nil, unused{t}); !errors.Is(err, tt.want) || (err == nil) != (tt.want == nil) {
					t.Errorf("the error is %v, want %v", err, tt.want)
				}
				if got := strings.Split(strings.TrimSpace(out.String()), "\n"); strings.Join(got, "\n") != strings.Join(tt.answers, "\n") {
					t.Errorf("the agent receives %q", got)
				}
				if got, want := time.Since(start), max(tt.waits, time.Duration(len(tt.answers))*thinks); got != want {
					t.Errorf("it took %v, want %v", got, want)
				}
			})
		})
	}
}

// A Windows in another language reports an unknown command in that language.
func TestUnknownCommand(t *testing.T) {
	for text, want := range map[string]map[int]bool{
		"sh: 1: pollux: not found": {127: true, 1: false},
		`'pollux' is not recognized as an internal or external command, operable program or batch file.`:           {1: true},
		`Der Befehl "pollux" ist entweder falsch geschrieben oder konnte nicht gefunden werden.`:                   {1: true, 9009: true, 255: false},
		`'pollux' n'est pas reconnu en tant que commande interne ou externe, un programme exécutable`:              {1: true},
		`Die Benennung "pollux" wurde nicht erkannt. + FullyQualifiedErrorId : CommandNotFoundException`:           {1: true},
		`pollux: The term 'pollux' is not recognized as a name of a cmdlet, function, script file, or executable.`: {1: true},
		`pollux: no companion runs for C:\"pollux": start one`:                                                     {1: false},
		"Permission denied (publickey).": {255: false, 1: false},
	} {
		for code, want := range want {
			if unknownCommand(code, text) != want {
				t.Errorf("exit code %d, %q: %v", code, text, !want)
			}
		}
	}
}
