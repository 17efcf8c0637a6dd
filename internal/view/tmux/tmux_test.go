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
	"testing"

	"pollux/internal/editor"
)

// A fake is a tmux that reports its arguments, and ends a popup with the exit
// code that the test gives.
type fake struct {
	t     *testing.T
	calls *bufio.Reader
	codes *os.File
	conn  *editor.Conn // the companion's end
}

const script = `#!/bin/sh
echo "$*" >%[1]s/calls
case "$*" in
"display-popup -E "*) read -r code <%[1]s/codes; exit "$code" ;;
esac
`

func newFake(t *testing.T) (*fake, net.Conn) {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("there is no tmux")
	}
	dir := t.TempDir()
	pipe := func(name string) *os.File {
		path := filepath.Join(dir, name)
		if out, err := exec.Command("mkfifo", path).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		return f
	}
	if err := os.WriteFile(filepath.Join(dir, "tmux"), fmt.Appendf(nil, script, dir), 0o755); err != nil {
		t.Fatal(err)
	}
	f := &fake{t: t, calls: bufio.NewReader(pipe("calls")), codes: pipe("codes")}
	t.Setenv("PATH", dir+string(filepath.ListSeparator)+os.Getenv("PATH"))
	mine, theirs := net.Pipe()
	f.conn = editor.NewConn(context.Background(), editor.NewStream(mine),
		editor.HandlerWithError(func(_ context.Context, _ *editor.Conn, req *editor.Request) (any, error) {
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
	line, err := f.calls.ReadString('\n')
	if err != nil || !strings.HasPrefix(line, prefix) {
		f.t.Fatalf("tmux %q, %v; want %q", line, err, prefix)
	}
}

// exit ends the popup.
func (f *fake) exit(code int) { fmt.Fprintln(f.codes, code) }

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
		t.Skip("there is no env")
	}
	out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput()
	if err != nil || string(out) != "ed --x=y|/a b|none\n" {
		t.Errorf("the review has %q, %v", out, err)
	}
}
