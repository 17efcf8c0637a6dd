package tmux

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"pollux/internal/editor"
	"pollux/internal/jsonrpc"
)

// A fake is a tmux that reports its arguments, and ends a popup with the exit
// code that the test gives.
type fake struct {
	t     *testing.T
	calls chan net.Conn // of tmux
	popup net.Conn
	conn  *jsonrpc.Conn // the companion's end
}

// envFake makes the test binary the fake. It holds the address of the test.
const envFake = "TMUX_TEST_FAKE"

func beTmux(addr string) int {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		panic(err)
	}
	args := strings.Join(os.Args[1:], " ")
	fmt.Fprintln(conn, args)
	code := 0
	if strings.HasPrefix(args, "display-popup -E ") {
		fmt.Fscan(conn, &code)
	}
	return code
}

func newFake(t *testing.T) (*fake, net.Conn) {
	t.Helper()
	dir := t.TempDir()
	if err := copySelf(filepath.Join(dir, "tmux")); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f := &fake{t: t, calls: make(chan net.Conn)}
	var accepting sync.WaitGroup
	accepting.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			select {
			case f.calls <- conn:
			case <-t.Context().Done():
				conn.Close()
			}
		}
	})
	t.Cleanup(func() { l.Close(); accepting.Wait() })
	t.Setenv(envFake, l.Addr().String())
	t.Setenv("GORACE", "atexit_sleep_ms=10")
	t.Setenv("PATH", dir+string(filepath.ListSeparator)+os.Getenv("PATH"))
	mine, theirs := net.Pipe()
	f.conn = jsonrpc.NewConn(context.Background(), editor.NewStream(mine),
		jsonrpc.HandlerWithError(func(_ *jsonrpc.Conn, req *jsonrpc.Request) (any, error) {
			return editor.InitializeResult{Protocol: editor.ProtocolVersion}, nil
		}))
	t.Cleanup(func() { f.conn.Close() })
	return f, theirs
}

func (f *fake) open(id string) {
	f.t.Helper()
	if err := f.conn.Call(f.t.Context(), editor.MethodDiffOpen, editor.Diff{ID: id}, nil); err != nil {
		f.t.Fatal(err)
	}
}

func (f *fake) close(id string) {
	f.t.Helper()
	if err := f.conn.Call(f.t.Context(), editor.MethodDiffClose, editor.DiffClose{ID: id}, nil); err != nil {
		f.t.Fatal(err)
	}
}

// called waits for the next call of tmux.
func (f *fake) called(prefix string) {
	f.t.Helper()
	conn := <-f.calls
	f.t.Cleanup(func() { conn.Close() })
	line, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil || !strings.HasPrefix(line, prefix) {
		f.t.Fatalf("tmux %q, %v; want %q", line, err, prefix)
	}
	f.popup = conn
}

// exit ends the popup, which is the last call.
func (f *fake) exit(code int) { fmt.Fprintln(f.popup, code) }

// copySelf makes the test binary a program of another name, which has an extension on
// Windows.
func copySelf(path string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	if runtime.GOOS != "windows" {
		return os.Symlink(self, path)
	}
	data, err := os.ReadFile(self)
	if err != nil {
		return err
	}
	return os.WriteFile(path+".exe", data, 0o700)
}

func TestPopups(t *testing.T) {
	f, conn := newFake(t)
	stop, err := Popups(t.Context(), conn, editor.Implementation{Name: "test"}, "pollux", "review")
	if err != nil {
		t.Fatal(err)
	}
	const popup = "display-popup -E -w 95% -h 90% pollux review\n"
	f.open("a")
	f.called(popup)
	// A diff that comes while the popup is about to end gets another popup.
	f.open("b")
	f.close("a")
	f.exit(0)
	f.called(popup)
	// Without a pending diff there is no other popup until the next diff.
	f.close("b")
	f.exit(0)
	f.open("c")
	f.called(popup)
	// tmux shows no popup: the user gets one message, and the popup is tried again.
	f.exit(1)
	f.called("display-message ")
	f.called(popup)
	f.exit(1)
	f.called(popup)
	stop()
	f.called("display-popup -C\n")
}

// Without tmux the companion learns that the diff is not shown.
func TestPopupsWithoutTmux(t *testing.T) {
	f, conn := newFake(t)
	t.Setenv("PATH", t.TempDir())
	stop, err := Popups(t.Context(), conn, editor.Implementation{Name: "test"}, "pollux", "review")
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	if err := f.conn.Call(t.Context(), editor.MethodDiffOpen, editor.Diff{ID: "a"}, nil); err == nil {
		t.Error("a popup was shown")
	}
}

// The review has the caller's variables, and none of tmux's server that the caller lacks.
// Secrets are in no command line.
func TestInEnvironment(t *testing.T) {
	t.Setenv("VISUAL", "the server's")
	argv := InEnvironment([]string{"EDITOR=ed --x=y", "TMPDIR=/a b", "GEMINI_API_KEY=secret", "PATH=" + os.Getenv("PATH")},
		"sh", "-c", `echo "$EDITOR|$TMPDIR|${VISUAL-none}"`)
	if strings.Contains(strings.Join(argv, " "), "secret") {
		t.Errorf("a secret is in %q", argv)
	}
	if runtime.GOOS == "windows" {
		t.Skip("Windows has no env, as it has no tmux")
	}
	out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput()
	if err != nil || string(out) != "ed --x=y|/a b|none\n" {
		t.Errorf("the review has %q, %v", out, err)
	}
}
