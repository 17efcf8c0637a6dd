package cli

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"pollux/internal/sys"
	"pollux/internal/sys/systest"
)

// Ctrl-C ends a companion with success, and nothing is left behind.
func TestCtrlC(t *testing.T) {
	tmp, project := t.TempDir(), t.TempDir()
	systest.SetTemp(t, tmp)
	systest.SetHome(t, t.TempDir())
	t.Setenv("POLLUX_STATE_DIR", t.TempDir())
	t.Setenv("POLLUX_RUNTIME_DIR", shortDir(t))
	cmd := exec.Command("pollux", "ide", "--standalone")
	cmd.Dir = project
	systest.OwnConsole(cmd)
	stderr, err := cmd.StderrPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(stderr)
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			t.Fatalf("it has shown no link: %q, %v", line, err)
		}
		if strings.Contains(line, "/review/#") {
			break
		}
	}
	discovery := filepath.Join(tmp, "gemini", "ide", "*.json")
	if files, _ := filepath.Glob(discovery); len(files) == 0 {
		t.Error("there is no discovery file")
	}
	// Another program presses the keys: on Windows it leaves its console for that.
	if out, err := exec.Command("interrupt", strconv.Itoa(cmd.Process.Pid)).CombinedOutput(); err != nil {
		cmd.Process.Kill()
		t.Errorf("%v: %s", err, out)
	}
	rest, _ := io.ReadAll(lines)
	if err := cmd.Wait(); err != nil {
		t.Errorf("%v: %s", err, rest)
	}
	if files, _ := filepath.Glob(discovery); len(files) > 0 {
		t.Errorf("left behind: %q", files)
	}
}

// shortDir returns a directory for sockets, whose paths must be short.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := sys.ShortTempDir("px")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}
