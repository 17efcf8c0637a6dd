package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"

	"pollux/internal/editor"
	"pollux/internal/ide/geminiide/client"
	"pollux/internal/sys/proc"
	"pollux/internal/sys/systest"
)

// A place is where a test starts companions.
type place struct{ project, discovery string }

// newPlace makes a private home with a project.
func newPlace(t *testing.T) place {
	t.Helper()
	tmp := t.TempDir()
	project := systest.Dir(t)
	systest.SetTemp(t, tmp)
	systest.SetHome(t, t.TempDir())
	t.Setenv("POLLUX_RUNTIME_DIR", systest.ShortDir(t))
	t.Setenv("POLLUX_STATE_DIR", t.TempDir())
	t.Setenv(editor.EnvSocket, "")
	return place{project, filepath.Join(tmp, "gemini", "ide", "*.json")}
}

// files returns the discovery files.
func (p place) files() []string {
	files, _ := filepath.Glob(p.discovery)
	return files
}

// start starts pollux, and waits until it shows a line with that text on the stream.
func (p place) start(t *testing.T, stream func(*exec.Cmd) (io.ReadCloser, error), text string, args ...string) (*exec.Cmd, *bufio.Reader) {
	t.Helper()
	cmd := exec.Command("pollux", args...)
	cmd.Dir = p.project
	systest.OwnConsole(cmd)
	out, err := stream(cmd)
	if err == nil {
		cmd.Stdin, err = os.Open(os.DevNull)
	}
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill() })
	for lines := bufio.NewReader(out); ; {
		line, err := lines.ReadString('\n')
		if err != nil {
			t.Fatalf("it did not show %q, but %q, %v", text, line, err)
		}
		if strings.Contains(line, text) {
			return cmd, lines
		}
	}
}

// standalone starts a companion, and waits until it is found.
func (p place) standalone(t *testing.T) (*exec.Cmd, *bufio.Reader) {
	t.Helper()
	return p.start(t, (*exec.Cmd).StderrPipe, "/review/#", "ide", "--standalone")
}

// Ctrl-C ends a companion with success, and nothing is left behind.
func TestCtrlC(t *testing.T) {
	p := newPlace(t)
	cmd, lines := p.standalone(t)
	if len(p.files()) == 0 {
		t.Error("there is no discovery file")
	}
	// Another program presses the keys: on Windows it leaves its console for that.
	if out, err := exec.Command("ctrlc", strconv.Itoa(cmd.Process.Pid)).CombinedOutput(); err != nil {
		cmd.Process.Kill()
		t.Errorf("%v: %s", err, out)
	}
	rest, _ := io.ReadAll(lines)
	if err := cmd.Wait(); err != nil {
		t.Errorf("%v: %s", err, rest)
	}
	if left := p.files(); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
}

// A killed `pollux run` takes its agent and its companion with it. What the user has edited is
// in the journal.
func TestKilledRun(t *testing.T) {
	p := newPlace(t)
	file := filepath.Join(p.project, "a.txt")
	const proposed, edited = "proposed\n", "edited by the user\n"
	systest.WriteFile(t, file, "before\n")
	cmd, lines := p.start(t, (*exec.Cmd).StdoutPipe, "proposed", "run", "--no-browser", "--", "stub", "propose", file, proposed)
	text := filepath.Join(t.TempDir(), "text")
	systest.WriteFile(t, text, edited)
	edit := exec.Command("decide", "edit")
	edit.Env = append(os.Environ(), "FILE="+file, "TEXT="+text)
	if out, err := edit.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}

	stale := p.files()
	if len(stale) == 0 {
		t.Fatal("there is no discovery file")
	}
	companion := companionPID(t)
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if runtime.GOOS != "darwin" { // where nothing ends the agent
		io.Copy(io.Discard, lines) // until the agent has ended, which has this pipe too
	}
	cmd.Wait()

	p.ends(t, companion)
	next, _ := p.standalone(t)
	files := p.files()
	if len(files) == 0 || slices.ContainsFunc(files, func(f string) bool { return slices.Contains(stale, f) }) {
		t.Errorf("the discovery files are %q after %q", files, stale)
	}
	next.Process.Kill()
	next.Wait()
	show := exec.Command("pollux", "journal", "show", "@")
	show.Dir = p.project
	if out, err := show.CombinedOutput(); string(out) != edited || err != nil {
		t.Errorf("the journal has %q, %v", out, err)
	}
	if now, err := os.ReadFile(file); string(now) != "before\n" || err != nil {
		t.Errorf("the file has %q, %v", now, err)
	}
}

// The agent may be a child of the started program, as Qwen Code is.
func TestKilledRunOfALauncher(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("a killed process takes nothing or everything with it there")
	}
	p := newPlace(t)
	file := filepath.Join(p.project, "a.txt")
	cmd, lines := p.start(t, (*exec.Cmd).StdoutPipe, "proposed", "run", "--no-browser", "--",
		"sh", "-c", `stub propose "$0" text & wait`, file)
	companion := companionPID(t)
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	io.Copy(io.Discard, lines) // until the agent has ended, which has this pipe too
	cmd.Wait()
	p.ends(t, companion)
}

// ends waits for the end of a companion, which has then removed its discovery files.
func (p place) ends(t *testing.T, companion int) {
	t.Helper()
	systest.Until(t, func() bool { return proc.Ended(companion) })
	if left := p.files(); len(left) > 0 {
		t.Errorf("the companion has left %q", left)
	}
}

// companionPID returns the process of the only companion.
func companionPID(t *testing.T) int {
	t.Helper()
	sockets, err := editor.Sockets()
	if err != nil || len(sockets) != 1 {
		t.Fatalf("the companions' sockets are %q, %v", sockets, err)
	}
	name, _, _ := strings.Cut(filepath.Base(sockets[0]), "-")
	pid, err := strconv.Atoi(name)
	if err != nil {
		t.Fatal(err)
	}
	return pid
}

// fakeProposal plays an agent that proposes a change and waits to be killed.
func fakeProposal(path, text string) error {
	port, err := strconv.Atoi(os.Getenv("GEMINI_CLI_IDE_SERVER_PORT"))
	if err != nil {
		return err
	}
	ctx := context.Background()
	c, err := client.Dial(ctx, port, os.Getenv("GEMINI_CLI_IDE_AUTH_TOKEN"))
	if err != nil {
		return err
	}
	if err := c.OpenDiff(ctx, path, text); err != nil {
		return err
	}
	fmt.Println("proposed")
	time.Sleep(time.Hour)
	return nil
}

// A request to end is not lost while the agent of a remote companion starts. The discovery
// file is removed.
func TestSignalWhileAnAgentStarts(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("a process cannot send itself a signal there")
	}
	p := newPlace(t)
	p.standalone(t)
	before := p.files()
	self, err := os.FindProcess(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	var flags remoteFlags
	flags.maps = []string{here + "=" + p.project}
	err = withRemote(t.Context(), io.Discard, &flags, func(ctx context.Context, _ published) error {
		if files := p.files(); len(files) <= len(before) {
			t.Errorf("discovery files: %q", files)
		}
		if err := self.Signal(syscall.SIGTERM); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(time.Minute):
			return errors.New("the signal was lost")
		}
	})
	if files := p.files(); err != nil || !slices.Equal(files, before) {
		t.Errorf("%v; discovery files: %q", err, files)
	}
}

// A review in a terminal does not end without a word when the companion ends.
func TestReviewSaysThatTheCompanionHasEnded(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("there is no pty")
	}
	p := newPlace(t)
	companion, _ := p.standalone(t)
	review := exec.Command("pollux", "review")
	review.Dir = p.project
	review.Env = append(os.Environ(), "TERM=xterm")
	screen, err := pty.StartWithSize(review, &pty.Winsize{Rows: 24, Cols: 80})
	if err != nil {
		t.Fatal(err)
	}
	defer screen.Close()
	shown := ""
	buf := make([]byte, 4096)
	for ended := false; err == nil; {
		var n int
		n, err = screen.Read(buf)
		shown += string(buf[:n])
		if !ended && strings.Contains(shown, "No pending changes") {
			ended = true
			companion.Process.Kill()
		}
	}
	if err := review.Wait(); err != nil || !strings.Contains(shown, "the companion has ended: `pollux journal`") {
		t.Errorf("%v: %q", err, shown)
	}
}
