package cli

import (
	"context"
	"errors"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"

	"golang.org/x/sync/errgroup"

	"github.com/creack/pty"

	"pollux/internal/sys/systest"
)

// In a narrow terminal, messages break between words, and a command in backticks stays whole.
func TestMessagesBreakBetweenWords(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("the test sets the terminal's width with stty")
	}
	t.Setenv("GORACE", "atexit_sleep_ms=10")
	t.Chdir(t.TempDir())
	out, _, err := systest.OnTerminal("sh", "-c", "stty cols 40; pollux journal --state new; pollux review </dev/null")
	const want = "pollux: review needs a terminal:\n`pollux status` lists pending changes,\n`pollux open` opens the review page\n"
	if err != nil || !strings.Contains(out, want) {
		t.Errorf("the terminal shows %q, %v; want %q", out, err, want)
	}
	for line := range strings.Lines(out) {
		if len(line) > 41 {
			t.Errorf("a line is too long: %q", line)
		}
	}
}

// An indentation continues in the lines that follow, and leaves room for the text.
func TestProseKeepsIndentations(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("there is no pty")
	}
	screen, terminal, err := pty.Open()
	if err == nil {
		err = pty.Setsize(terminal, &pty.Winsize{Rows: 24, Cols: 30})
	}
	if err != nil {
		t.Fatal(err)
	}
	defer screen.Close()
	defer terminal.Close()
	for text, want := range map[string]string{
		"  one two three four five six seven":                       "  one two three four five six\n  seven",
		strings.Repeat(" ", 24) + "-> use `pollux open --socket x`": "          -> use\n          `pollux open --socket x`",
		"https://example.com/" + strings.Repeat("x", 40) + " it":    "https://example.com/" + strings.Repeat("x", 40) + "\nit",
	} {
		if got := prose(terminal, text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

// A user who has started Pollux by its path is not told to type a command that the shell does
// not find.
func TestCommandsWorkAsTyped(t *testing.T) {
	if got := typed("open"); got != "pollux open" && runtime.GOOS != "windows" { // a copy of this program is on the PATH there
		t.Errorf("on the PATH: %q", got)
	}
	t.Setenv("PATH", t.TempDir())
	exe := systest.Self(t)
	if got := typed("open"); !strings.HasSuffix(got, " open") || !strings.Contains(got, filepath.Base(exe)) {
		t.Errorf("elsewhere: %q", got)
	}
}

// A command ends when its terminal is gone, unless the user has started it with nohup.
func TestHangup(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("a process cannot send itself a signal there")
	}
	t.Cleanup(func() { // only this undoes [signal.Ignore]
		c := make(chan os.Signal, 1)
		signal.Notify(c, syscall.SIGHUP)
		signal.Stop(c)
	})
	self, err := os.FindProcess(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	wantCause := func(want string, sent ...os.Signal) {
		t.Helper()
		for _, until := range []func(context.Context) (context.Context, context.CancelFunc){untilSignal, untilTerminated} {
			ctx, stop := until(t.Context())
			for _, s := range sent {
				if err := self.Signal(s); err != nil {
					t.Fatal(err)
				}
			}
			<-ctx.Done()
			if got := context.Cause(ctx).Error(); got != want {
				t.Errorf("it ended because %q, want %q", got, want)
			}
			stop()
		}
	}
	wantCause("hangup signal received", syscall.SIGHUP)
	signal.Ignore(syscall.SIGHUP) // as nohup does
	wantCause("terminated signal received", syscall.SIGHUP, syscall.SIGTERM)
}

// An MCP client that neither writes nor reads does not keep a command from ending.
func TestInterruptibleStreams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in, stdin := io.Pipe()
		stdout, out := io.Pipe()
		conn := IO{In: in, Out: out}.interruptible()
		var group errgroup.Group
		group.Go(func() error { _, err := conn.Read(make([]byte, 1)); return err })
		group.Go(func() error { _, err := conn.Write([]byte("x")); return err })
		synctest.Wait()
		conn.Close()
		if err := group.Wait(); !errors.Is(err, io.ErrClosedPipe) {
			t.Error(err)
		}
		stdin.Close()
		stdout.Close()
	})
}
