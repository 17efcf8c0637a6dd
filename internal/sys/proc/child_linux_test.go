package proc

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"pollux/internal/sys/systest"

	"golang.org/x/sys/unix"
)

var systemPrograms = map[string]func() error{"reuse": reusePID}

// A late Stop killed another program that had got the PID of a child. In a PID
// namespace the test can choose the next PID.
func TestStopSparesReusedPID(t *testing.T) {
	cmd := systest.Program(t, "reuse")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	if os.Getuid() != 0 {
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}}
	}
	out, err := cmd.CombinedOutput()
	// qemu, which emulates another processor, makes no namespaces: EINVAL.
	if errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.EINVAL) || bytes.Contains(out, []byte("not possible here")) {
		t.Skipf("no PID namespace with its own /proc: %v %s", err, out)
	}
	if err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

// reusePID stops a child whose PID another program has got, and reports whether
// that program survives.
func reusePID() error {
	if err := errors.Join(
		syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""),
		syscall.Mount("proc", "/proc", "proc", 0, ""),
		os.WriteFile("/proc/sys/kernel/ns_last_pid", []byte("99"), 0),
	); err != nil {
		return fmt.Errorf("not possible here: %w", err)
	}
	c, err := StartChild(exec.Command("true"))
	if err != nil {
		return err
	}
	<-c.Done()
	var other *exec.Cmd
	for range 100 { // a thread of this process may take the number
		if err := os.WriteFile("/proc/sys/kernel/ns_last_pid", []byte(strconv.Itoa(c.PID()-1)), 0); err != nil {
			return err
		}
		other = exec.Command("sleep", "60")
		other.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		if err := other.Start(); err != nil {
			return err
		}
		if other.Process.Pid == c.PID() {
			break
		}
		other.Process.Kill()
		other.Wait()
	}
	if other.Process.Pid != c.PID() {
		return fmt.Errorf("not possible here: PID %d does not come back", c.PID())
	}
	c.Stop(0)
	if err := other.Process.Kill(); err != nil {
		return err
	}
	other.Wait()
	if sig := other.ProcessState.Sys().(syscall.WaitStatus).Signal(); sig != syscall.SIGKILL {
		return fmt.Errorf("a late Stop sent %q to the program that has the PID now", sig)
	}
	return nil
}

// started starts a shell that prints PIDs, and returns them.
func started(t *testing.T, script string, n int) (*Child, []int) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	cmd := exec.Command("sh", "-c", script)
	cmd.Stdout = w
	c, err := StartChild(cmd)
	w.Close()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Stop(0) })
	lines := bufio.NewScanner(r)
	var pids []int
	for len(pids) < n && lines.Scan() {
		pid, err := strconv.Atoi(strings.TrimSpace(lines.Text()))
		if err != nil {
			t.Fatal(err)
		}
		pids = append(pids, pid)
	}
	if len(pids) < n {
		t.Fatalf("the program names %v", pids)
	}
	return c, pids
}

// awaitEnd waits for the end of a process, which may not be a child.
func awaitEnd(t *testing.T, pid int) {
	t.Helper()
	fd, err := unix.PidfdOpen(pid, 0)
	if err == unix.ESRCH {
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	for {
		if _, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, -1); err != unix.EINTR {
			return
		}
	}
}

// Stop ends what a child leaves behind in its group.
func TestGroupEndsWithChild(t *testing.T) {
	c, pids := started(t, `sleep 600 & echo $!`, 1)
	<-c.Done()
	awaitEnd(t, pids[0])
	if code := c.ExitCode(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// Stop reaches what a launcher started that ignores signals, and processes that
// have left the group.
func TestStopReachesTree(t *testing.T) {
	c, pids := started(t, `trap "" TERM; setsid sh -c 'echo $$; exec sleep 600' & sleep 600 & echo $!; wait; wait`, 2)
	c.Stop(0)
	<-c.Done()
	for _, pid := range pids {
		awaitEnd(t, pid)
	}
	if code := c.ExitCode(); code != 128+9 {
		t.Errorf("exit code %d", code)
	}
}

// A launcher such as Qwen Code's uses little memory itself.
func TestMemoryOfTree(t *testing.T) {
	c, pids := started(t, `sh -c 'sleep 600 & echo $!; echo $$; wait' & wait`, 2)
	// The memory of a process that starts changes.
	var got, sum int64
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		got, sum = TreeMemory(c.PID()), 0
		for _, pid := range append(pids, c.PID()) {
			sum += Memory(pid)
		}
		if got == sum && sum > Memory(c.PID()) {
			return
		}
	}
	t.Errorf("got %d bytes, want %d", got, sum)
}

// SignalTree signals no process that is not a child.
func TestSignalTreeSignalsOnlyChildren(t *testing.T) {
	_, pids := started(t, `sleep 600 & echo $!; wait`, 1)
	grandchild := pids[0]
	if err := SignalTree(grandchild, syscall.SIGKILL); !errors.Is(err, os.ErrProcessDone) {
		t.Errorf("a process that is not our child: %v", err)
	}
	if _, err := Lookup(grandchild); err != nil {
		t.Errorf("it is gone: %v", err)
	}
}
