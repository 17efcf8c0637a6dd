package wall

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"pollux/internal/sys/proc"
	"pollux/internal/sys/systest"
)

// parentRole makes the test binary a program that starts a child behind a wall.
const parentRole = "parent"

func isLauncher() bool { return len(os.Args) > 1 && os.Args[1] == Command }

// The launcher in these tests does not run on the first thread of its process.
func init() {
	if isLauncher() {
		runtime.LockOSThread()
	}
}

// The test binary is the launcher, too.
func TestMain(m *testing.M) {
	switch {
	case isLauncher():
		failed := make(chan error)
		go func() { failed <- Launch(os.Args[2:]) }()
		fmt.Fprintln(os.Stderr, <-failed)
		os.Exit(1)
	case len(os.Args) > 1 && os.Args[1] == parentRole:
		cmd := exec.Command("sleep", "600")
		err := Enclose(cmd, Self, Gate{})
		cmd.Stdout = os.Stdout // ends with the child
		if err == nil {
			_, err = proc.StartChild(cmd)
		}
		fmt.Println("started:", err)
		select {}
	}
	os.Exit(m.Run())
}

// If the program that started the launcher is killed, the child ends: it was not, because the
// signal for that belongs to the thread that becomes the child.
func TestParentIsKilled(t *testing.T) {
	needWall(t)
	parent := exec.Command(os.Args[0], parentRole)
	out, err := parent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	r := bufio.NewReader(out)
	if line, err := r.ReadString('\n'); line != "started: <nil>\n" || err != nil {
		t.Errorf("%q, %v", line, err)
	}
	systest.Until(t, func() bool { // the launcher has become the child
		children, _ := systest.Children(parent.Process.Pid)
		if len(children) == 0 {
			return false
		}
		name, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", children[0]))
		return string(name) == "sleep\n"
	})
	parent.Process.Kill()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		io.Copy(io.Discard, r)
		parent.Wait()
	}()
	select {
	case <-ended:
	case <-time.After(10 * time.Second):
		t.Error("the child outlives its parent")
	}
}

// needWall skips a test where the kernel has no Landlock. The machine on which all tests must
// run has it.
func needWall(t *testing.T) {
	t.Helper()
	if err := Available(); err != nil {
		if os.Getenv("POLLUX_E2E") == "require" && runtime.GOOS == "linux" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
}

// A place has a directory that a command may change, and one that it may not.
type place struct{ inside, outside string }

func newPlace(t *testing.T) place {
	t.Helper()
	root := t.TempDir()
	p := place{filepath.Join(root, "inside"), filepath.Join(root, "outside")}
	for _, dir := range []string{p.inside, p.outside} {
		systest.MakeDir(t, filepath.Join(dir, "empty"))
		systest.WriteFile(t, filepath.Join(dir, "file"), "old\n")
	}
	return p
}

// sh runs a line of the shell behind a wall, in the directory outside. The line names the
// other directory $in. sh returns what it prints.
func (p place) sh(t *testing.T, writable []string, line string) (string, error) {
	t.Helper()
	cmd := exec.Command("sh", "-c", line)
	cmd.Dir, cmd.Env = p.outside, append(os.Environ(), "in="+p.inside, "LC_ALL=C")
	if err := Enclose(cmd, Self, Gate{Writable: writable}); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	return out.String(), err
}

// state returns the names in a directory and the text of its file.
func state(t *testing.T, dir string) string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, e := range entries {
		b.WriteString(e.Name() + " ")
	}
	text, _ := os.ReadFile(filepath.Join(dir, "file"))
	return b.String() + string(text)
}

// Behind the wall a program cannot change a file outside in any way, and neither can the
// programs that it starts. The same lines work without the wall.
func TestOutside(t *testing.T) {
	needWall(t)
	for _, line := range []string{
		"echo new > file", "echo new >> file", ": > file", "echo new > other", "mkdir other", "rm file", "rmdir empty",
		"mv file other", "mv file empty/", "mv file $in/other", "mv $in/file other", "ln file other", "ln file $in/other",
		"ln -s file other", "mkfifo other", "cp file other", "sh -c 'sh -c \"echo new > file\"'", "(echo new > file) & wait $!",
		"nohup sh -c 'echo new > file'", "setsid -w sh -c 'echo new > file'", "cd empty && echo new > ../file",
		"echo new > /proc/self/cwd/file", "ln -s $PWD/file $in/link && echo new > $in/link",
	} {
		t.Run(line, func(t *testing.T) {
			p := newPlace(t)
			before := state(t, p.outside)
			out, err := p.sh(t, []string{p.inside}, line)
			if after := state(t, p.outside); after != before {
				t.Errorf("%q is now %q: %s", before, after, out)
			}
			if err == nil || !strings.Contains(out, "Permission denied") && !strings.Contains(out, "cross-device") {
				t.Errorf("%v: %s", err, out)
			}
			if after := state(t, p.inside); strings.Contains(after, "other") {
				t.Errorf("inside is %q", after)
			}
			p = newPlace(t)
			free := exec.Command("sh", "-c", line)
			free.Dir, free.Env = p.outside, append(os.Environ(), "in="+p.inside)
			if out, err := free.CombinedOutput(); err != nil || state(t, p.outside) == before && !strings.Contains(line, "$in") {
				t.Errorf("without the wall it changes nothing, so this test proves nothing: %v\n%s", err, out)
			}
		})
	}
}

// A program behind the wall reads and runs everything, and changes what it is given.
func TestInside(t *testing.T) {
	needWall(t)
	for line, want := range map[string]string{
		"cat file": "old\n", "ls": "empty\nfile\n", "sh -c 'echo $0'": "sh\n",
		"echo new > $in/file; cat $in/file":                        "new\n",
		"mkdir $in/d && mv $in/file $in/d/other && ls $in/d":       "other\n",
		"rm -r $in/empty $in/file && ls $in":                       "",
		"cp file $in/copy && ln $in/copy $in/link && cat $in/link": "old\n",
		"echo x > /dev/null && echo y 2>/dev/null":                 "y\n",
		`printf '%s\n' "$in" | grep -c .`:                          "1\n",
	} {
		t.Run(line, func(t *testing.T) {
			p := newPlace(t)
			if got, err := p.sh(t, []string{p.inside}, line); got != want || err != nil {
				t.Errorf("got %q, %v; want %q", got, err, want)
			}
		})
	}
}

// A single file can be given, through a link too. A path that does not exist is skipped.
func TestFiles(t *testing.T) {
	needWall(t)
	p := newPlace(t)
	link := filepath.Join(p.inside, "link")
	systest.Link(t, filepath.Join(p.outside, "file"), link)
	out, err := p.sh(t, []string{filepath.Join(p.inside, "missing"), link}, "echo new > file; cat file; echo x > $in/file; echo x > $in/missing")
	if state(t, p.outside) != "empty file new\n" || state(t, p.inside) != "empty file link old\n" || err == nil {
		t.Errorf("outside is %q, inside %q: %s", state(t, p.outside), state(t, p.inside), out)
	}
}

// In a parent, only directories can be made.
func TestParents(t *testing.T) {
	needWall(t)
	p := newPlace(t)
	cmd := exec.Command("sh", "-c", "mkdir -p new/deep; echo x > new/deep/file; echo x > file; rmdir empty; mv new empty/; rm file; ln -s x y")
	cmd.Dir = p.outside
	if err := Enclose(cmd, Self, Gate{Parents: []string{p.outside, filepath.Join(p.outside, "missing")}}); err != nil {
		t.Fatal(err)
	}
	out, err := cmd.CombinedOutput()
	if got, want := state(t, p.outside), "empty file new old\n"; got != want || err == nil {
		t.Errorf("%q, want %q: %v\n%s", got, want, err, out)
	}
	if got, want := state(t, filepath.Join(p.outside, "new", "deep")), ""; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// Names of directories, arguments and variables reach the program unchanged.
func TestStrangePaths(t *testing.T) {
	needWall(t)
	for _, name := range []string{"a b", "--", "-x", "a,b", "a\nb", "'\"$(x)`", "\xff\xfe", "ä", "a=b:c", "%s\\"} {
		t.Run(fmt.Sprintf("%q", name), func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), name)
			systest.MakeDir(t, dir)
			cmd := exec.Command("sh", "-c", `printf %s "$1$V$*" > "$2/f"`, "--", name, dir)
			cmd.Env = []string{"V=" + name, "PATH=" + os.Getenv("PATH")}
			if err := Enclose(cmd, Self, Gate{Writable: []string{dir}}); err != nil {
				t.Fatal(err)
			}
			out, err := cmd.CombinedOutput()
			got, _ := os.ReadFile(filepath.Join(dir, "f"))
			if want := name + name + name + " " + dir; string(got) != want || err != nil {
				t.Errorf("got %q, want %q: %v\n%s", got, want, err, out)
			}
		})
	}
}

// The launcher becomes the program: the same process, with its exit code.
func TestSameProcess(t *testing.T) {
	needWall(t)
	cmd := exec.Command("sh", "-c", "echo $$; exit 7")
	if err := Enclose(cmd, Self, Gate{}); err != nil {
		t.Fatal(err)
	}
	out, _ := cmd.Output()
	if got, want := string(out), fmt.Sprintln(cmd.Process.Pid); got != want || cmd.ProcessState.ExitCode() != 7 {
		t.Errorf("process %q, want %q; exit code %d", got, want, cmd.ProcessState.ExitCode())
	}
}

// The launcher says what is wrong, and never runs a program without the wall.
func TestLaunchFails(t *testing.T) {
	for _, args := range [][]string{nil, {"/tmp"}, {"/tmp", separator}, {"/tmp", separator, "true"}, {"/tmp", separator, separator}} {
		if err := Launch(args); err == nil || !strings.Contains(err.Error(), "no command") {
			t.Errorf("%q: %v", args, err)
		}
	}
	if err := Enclose(exec.Command("true"), Self, Gate{Parents: []string{"relative"}}); err == nil {
		t.Error("a relative path was accepted")
	}
	if Available() != nil {
		if err := Launch([]string{separator, separator, "/bin/true"}); err == nil || err.Error() != Available().Error() {
			t.Errorf("got %v", err)
		}
		return
	}
	cmd := exec.Command("/does/not/exist")
	if err := Enclose(cmd, Self, Gate{}); err != nil {
		t.Fatal(err)
	}
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "/does/not/exist") {
		t.Errorf("%v: %s", err, out)
	}
}
