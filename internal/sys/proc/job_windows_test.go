package proc

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/windows"

	"pollux/internal/sys/systest"
)

// systemPrograms are the program of batch files, and the processes of a tree.
var systemPrograms = map[string]func() error{
	"arguments": writeArguments,
	"foreground": func() error { // as pollux run
		child, err := child("agent")
		if err != nil {
			return err
		}
		RunForeground(context.Background(), child, time.Second)
		fmt.Println("the agent has ended")
		return nil
	},
	"npm": func() error { // as Node.js, which starts pollux run in a job
		child, err := child("foreground")
		if err != nil {
			return err
		}
		_, err = startJob(child, windows.JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE|
			windows.JOB_OBJECT_LIMIT_BREAKAWAY_OK|windows.JOB_OBJECT_LIMIT_SILENT_BREAKAWAY_OK)
		if err != nil {
			return err
		}
		return child.Wait()
	},
	"background": func() error { // as pollux bridge
		child, err := child("agent")
		if err != nil {
			return err
		}
		c, err := StartChild(child)
		if err != nil {
			return err
		}
		<-c.Done()
		return nil
	},
	"agent": func() error {
		child, err := child("sleeper")
		if err != nil {
			return err
		}
		if os.Getenv("SYS_TEST_DETACH") != "" {
			child, err = StartDetached(child)
		} else {
			err = child.Start()
		}
		if err != nil {
			return err
		}
		fmt.Printf("agent %d\nsleeper %d\n", os.Getpid(), child.Process.Pid)
		if os.Getenv("SYS_TEST_END") == "" {
			time.Sleep(time.Hour)
		}
		return nil
	},
	"window": func() error {
		var info windows.StartupInfo
		if err := windows.GetStartupInfo(&info); err != nil {
			return err
		}
		hidden := info.Flags&windows.STARTF_USESHOWWINDOW != 0 && info.ShowWindow == windows.SW_HIDE
		return os.WriteFile(os.Getenv("SYS_TEST_WINDOW"), []byte(fmt.Sprintf("hidden: %v", hidden)), 0o600)
	},
	"sleeper": func() error {
		time.Sleep(time.Hour)
		return nil
	},
	"interruptible": func() error {
		c := make(chan os.Signal, 1)
		signal.Notify(c, os.Interrupt)
		fmt.Println("listens")
		<-c
		fmt.Println("interrupted")
		return systest.ExitCode(7)
	},
}

// child returns a command that starts one of these programs. It has the
// streams of this one.
func child(name string) (*exec.Cmd, error) {
	self, err := os.Executable()
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), systest.ProgramVar+"="+name)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	return cmd, err
}

// A tree holds the processes that one program has started.
type tree struct {
	cmd   *exec.Cmd
	lines *bufio.Reader
	pids  map[string]int
	open  map[string]windows.Handle
}

// grow starts a process, and waits until its tree has the agent and the sleeper.
func grow(t *testing.T, role string, env ...string) *tree {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	cmd := systest.Program(t, role)
	cmd.Env = append(cmd.Env, env...)
	cmd.Stdout, cmd.Stderr = w, w
	err = cmd.Start()
	w.Close()
	if err != nil {
		t.Fatal(err)
	}
	tr := &tree{cmd, bufio.NewReader(r), make(map[string]int), make(map[string]windows.Handle)}
	for len(tr.pids) < 2 {
		role, pid, _ := strings.Cut(tr.line(t), " ")
		if role != "agent" && role != "sleeper" {
			continue
		}
		n, err := strconv.Atoi(pid)
		if err != nil {
			t.Fatal(err)
		}
		h, err := windows.OpenProcess(windows.SYNCHRONIZE|windows.PROCESS_TERMINATE, false, uint32(n))
		if err != nil { // it has ended already
			if h, err = windows.CreateEvent(nil, 1, 1, nil); err != nil {
				t.Fatal(err)
			}
		}
		tr.pids[role], tr.open[role] = n, h
		t.Cleanup(func() {
			windows.TerminateProcess(h, 1)
			windows.CloseHandle(h)
		})
	}
	return tr
}

func (tr *tree) line(t *testing.T) string {
	t.Helper()
	line, err := tr.lines.ReadString('\n')
	if err != nil {
		t.Fatalf("%q, %v", line, err)
	}
	return strings.TrimSpace(line)
}

// ends reports whether a process ends.
func (tr *tree) ends(role string, timeout time.Duration) bool {
	event, err := windows.WaitForSingleObject(tr.open[role], uint32(timeout.Milliseconds()))
	return err == nil && event == windows.WAIT_OBJECT_0
}

const treeTimeout = time.Minute

// An agent lived on after Pollux was killed.
func TestKilledPolluxLeavesNoProcess(t *testing.T) {
	for _, role := range []string{"foreground", "background"} {
		t.Run(role, func(t *testing.T) {
			tr := grow(t, role)
			if err := tr.cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			tr.cmd.Wait()
			for _, role := range []string{"agent", "sleeper"} {
				if !tr.ends(role, treeTimeout) {
					t.Errorf("the %s lives on", role)
				}
			}
		})
	}
}

// What an agent in the foreground has started for the user, such as a browser, stays when
// the agent ends. What a child has started does not.
func TestEndOfTheAgent(t *testing.T) {
	for role, stays := range map[string]bool{"foreground": true, "npm": true, "background": false} {
		t.Run(role, func(t *testing.T) {
			tr := grow(t, role, "SYS_TEST_END=1")
			if err := tr.cmd.Wait(); err != nil {
				t.Fatal(err)
			}
			if stays && tr.ends("sleeper", 0) {
				t.Error("the sleeper has ended")
			}
			if !stays && !tr.ends("sleeper", treeTimeout) {
				t.Error("the sleeper lives on")
			}
		})
	}
}

// The pool outlives the agent whose bridge started it, and the Pollux that runs the agent.
func TestDetachedProcessLeavesTheJob(t *testing.T) {
	tr := grow(t, "foreground", "SYS_TEST_DETACH=1")
	tr.cmd.Process.Kill()
	tr.cmd.Wait()
	if !tr.ends("agent", treeTimeout) {
		t.Error("the agent lives on")
	}
	if tr.ends("sleeper", 0) {
		t.Error("the detached process has ended")
	}
}

// RunForeground ends a tree that would keep running.
func TestForegroundIsEnded(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cmd := systest.Program(t, "agent")
	cmd.Stdout = w
	ended := make(chan error, 1)
	go func() {
		ended <- RunForeground(ctx, cmd, 10*time.Millisecond)
		w.Close()
	}()
	lines := bufio.NewScanner(r)
	for n := 0; n < 2 && lines.Scan(); {
		if strings.HasPrefix(lines.Text(), "agent ") || strings.HasPrefix(lines.Text(), "sleeper ") {
			n++
		}
	}
	cancel()
	if err := <-ended; err == nil {
		t.Error("the agent succeeded")
	}
	io.Copy(io.Discard, r) // until the last process has closed its end
}

// Stop lets a child clean up.
func TestStopInterruptsTheChild(t *testing.T) {
	if !hasConsole() {
		systest.SkipOnWine(t, "it ends a process at Ctrl-Break, and has no console without a terminal")
		t.Skip("signals need a console")
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	cmd := systest.Program(t, "interruptible")
	cmd.Stdout, cmd.Stderr = w, w
	c, err := StartChild(cmd)
	w.Close()
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(r)
	for lines.Scan() && lines.Text() != "listens" {
		t.Log(lines.Text())
	}
	if lines.Text() != "listens" {
		t.Error("the child has not started")
	}
	c.Stop(treeTimeout)
	rest, _ := io.ReadAll(r)
	if code := c.ExitCode(); code != 7 {
		t.Errorf("exit code %d; %s", code, rest)
	}
}

func TestMissingProgram(t *testing.T) {
	for program, want := range map[string]error{"none": exec.ErrNotFound, filepath.Join(t.TempDir(), "none.exe"): fs.ErrNotExist} {
		if _, err := StartChild(exec.Command(program)); !errors.Is(err, want) {
			t.Errorf("%s: %v", program, err)
		}
	}
}

// The browser was started with the request to hide its first window.
func TestBrowserIsVisible(t *testing.T) {
	self := systest.Self(t)
	file := filepath.Join(t.TempDir(), "window")
	t.Setenv("SYS_TEST_WINDOW", file)
	t.Setenv(systest.ProgramVar, "window")
	browser := exec.Command(self)
	Detach(browser)
	if err := browser.Run(); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(file); err != nil || string(got) != "hidden: false" {
		t.Errorf("the browser's window is %q, %v", got, err)
	}
	// The pool has nothing to show.
	cmd, err := StartDetached(exec.Command(self))
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(file); err != nil || string(got) != "hidden: true" {
		t.Errorf("the pool's window is %q, %v", got, err)
	}
}

// A child gets no window.
func TestChildrenHaveNoWindow(t *testing.T) {
	cmd := exec.Command("x")
	leadGroup(cmd)
	if hidden := cmd.SysProcAttr.CreationFlags&windows.CREATE_NO_WINDOW != 0; hidden == hasConsole() {
		t.Errorf("hidden: %v, in a console: %v", hidden, hasConsole())
	}
}
