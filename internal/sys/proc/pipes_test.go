package proc

import (
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"pollux/internal/sys/systest"
)

func TestStartPiped(t *testing.T) {
	c, err := StartPiped(systest.Program(t, "copy"), Stdin|Stdout|Stderr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.ClosePipes()
	tail := KeepTail(c.Stderr, 100)
	if _, err := io.WriteString(c.Stdin, "hello"); err != nil {
		t.Fatal(err)
	}
	c.Stdin.Close()
	out, err := io.ReadAll(c.Stdout)
	if err != nil || string(out) != "hello" {
		t.Errorf("it wrote %q, %v", out, err)
	}
	<-c.Done()
	tail.Close(time.Minute)
	if got := string(tail.Bytes()); len(got) != 100 || !strings.HasSuffix(got, "xthe end") {
		t.Errorf("the tail is %q", got)
	}
	if code := c.ExitCode(); code != 3 {
		t.Errorf("its exit code is %d", code)
	}
}

// StartPiped creates only the requested pipes, and closes them when it fails.
func TestStartPipedFails(t *testing.T) {
	cmd := exec.Command("/nonexistent/command")
	if c, err := StartPiped(cmd, Stdin|Stdout); err == nil {
		t.Errorf("it started: %v", c)
	}
	if cmd.Stderr != nil {
		t.Error("it has a pipe that the test did not ask for")
	}
	if _, err := cmd.Stdin.(*os.File).Stat(); err == nil {
		t.Error("a pipe is left open")
	}
}

// Close does not wait for a process that holds the pipe open.
func TestTailOfOpenPipe(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	tail := KeepTail(r, 10)
	tail.Close(time.Millisecond)
	if got := tail.Bytes(); len(got) != 0 {
		t.Errorf("the tail is %q", got)
	}
}
