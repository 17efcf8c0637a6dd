package proc

import (
	"cmp"
	"errors"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/windows"
)

// leadGroup makes the child lead a process group. If this process has no console, the child
// gets one that is not visible.
func leadGroup(cmd *exec.Cmd) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.CreationFlags |= windows.CREATE_NEW_PROCESS_GROUP
	hideConsole(cmd)
}

func hideConsole(cmd *exec.Cmd) {
	if hasConsole() {
		return
	}
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.CreationFlags |= windows.CREATE_NO_WINDOW
}

// hasConsole reports whether this process started with a console.
var hasConsole = sync.OnceValue(func() bool {
	codePage, err := windows.GetConsoleCP()
	return err == nil && codePage != 0
})

func canAskToEnd() bool { return hasConsole() }

// A job is a process together with its descendants. Closing the last handle of the job
// object, ours, ends them. Until cmd is reaped, the system does not reuse its PID.
type job struct {
	cmd *exec.Cmd
	job windows.Handle
}

// startJob starts a command in a new job with these limits. What the command starts before it
// is in the job, within microseconds, would not be in it.
func startJob(cmd *exec.Cmd, limits uint32) (*job, error) {
	handle, err := windows.CreateJobObject(nil, nil)
	if err != nil {
		return nil, err
	}
	j := &job{cmd, handle}
	if err = j.limit(limits); err == nil {
		err = cmd.Start()
	}
	if err != nil {
		j.close()
		return nil, err
	}
	if err := j.add(); err != nil {
		cmd.Process.Kill()
		cmd.Wait()
		j.close()
		return nil, err
	}
	return j, nil
}

// add puts the process into the job, unless it has ended.
func (j *job) add() (err error) {
	noHandle := j.cmd.Process.WithHandle(func(h uintptr) {
		process := windows.Handle(h)
		err = windows.AssignProcessToJobObject(j.job, process)
		if event, _ := windows.WaitForSingleObject(process, 0); event == windows.WAIT_OBJECT_0 {
			err = nil
		}
	})
	return os.NewSyscallError("AssignProcessToJobObject", cmp.Or(err, noHandle))
}

func (j *job) limit(flags uint32) error {
	var limits windows.JOBOBJECT_EXTENDED_LIMIT_INFORMATION
	limits.BasicLimitInformation.LimitFlags = flags
	_, err := windows.SetInformationJobObject(j.job, windows.JobObjectExtendedLimitInformation,
		uintptr(unsafe.Pointer(&limits)), uint32(unsafe.Sizeof(limits)))
	return err
}

func (j *job) kill() { windows.TerminateJobObject(j.job, 1) }

func (j *job) close() { windows.CloseHandle(j.job) }

const (
	// emptyTimeout limits how long the end of a killed job may take.
	emptyTimeout = 2 * time.Second
	// emptyInterval is the time between two looks at a job that ends.
	emptyInterval = 2 * time.Millisecond
)

// empty kills what is left in the job and waits for its end: until then, the system does
// not let anyone remove the files that these processes have open.
func (j *job) empty() {
	j.kill()
	for deadline := time.Now().Add(emptyTimeout); time.Now().Before(deadline); time.Sleep(emptyInterval) {
		var info struct {
			TotalUserTime, TotalKernelTime, ThisPeriodTotalUserTime, ThisPeriodTotalKernelTime int64

			TotalPageFaultCount, TotalProcesses, ActiveProcesses, TotalTerminatedProcesses uint32
		}
		const basicAccounting = 1
		err := windows.QueryInformationJobObject(j.job, basicAccounting, uintptr(unsafe.Pointer(&info)), uint32(unsafe.Sizeof(info)), nil)
		if err != nil || info.ActiveProcesses == 0 {
			return
		}
	}
}

// wait waits for the process without reaping it.
func (j *job) wait() {
	j.cmd.Process.WithHandle(func(h uintptr) { windows.WaitForSingleObject(windows.Handle(h), windows.INFINITE) })
}

// A jobProcess is a [process] that leads its own process group.
type jobProcess struct{ *job }

func startLeader(cmd *exec.Cmd) (process, error) {
	j, err := startJob(cmd, windows.JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE)
	return jobProcess{j}, err
}

// terminate sends Ctrl-Break, the only signal for a group on Windows. It reaches only
// processes of this process's console. Without a console, the processes are killed.
func (p jobProcess) terminate() {
	if !canAskToEnd() {
		p.kill()
		return
	}
	windows.GenerateConsoleCtrlEvent(windows.CTRL_BREAK_EVENT, uint32(p.cmd.Process.Pid))
}

func (p jobProcess) reap() error {
	err := p.cmd.Wait()
	p.empty()
	p.close()
	return err
}

// A foregroundProcess is a [process] in the foreground.
type foregroundProcess struct{ *job }

// startForeground starts a command in a job that its children may leave if they ask for it,
// such as a pool.
func startForeground(cmd *exec.Cmd) (process, error) {
	j, err := startJob(cmd, windows.JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE|windows.JOB_OBJECT_LIMIT_BREAKAWAY_OK)
	return foregroundProcess{j}, err
}

// terminate does nothing: a Ctrl-Break would reach this process too.
func (p foregroundProcess) terminate() {}

// reap leaves alone what the command has started and left running, such as a browser.
func (p foregroundProcess) reap() error {
	err := p.cmd.Wait()
	p.limit(windows.JOB_OBJECT_LIMIT_BREAKAWAY_OK)
	p.close()
	return err
}

// Detach makes a command independent of this process's console. The command gets none, and
// its windows are visible.
func Detach(cmd *exec.Cmd) {
	attr := &syscall.SysProcAttr{CreationFlags: windows.DETACHED_PROCESS | windows.CREATE_NEW_PROCESS_GROUP}
	if cmd.SysProcAttr != nil { // of a batch file
		attr.CmdLine = cmd.SysProcAttr.CmdLine
	}
	cmd.SysProcAttr = attr
}

// startDetached starts a command outside of the job of this process, if that job allows it.
// The command shows no window.
func startDetached(cmd *exec.Cmd) (*exec.Cmd, error) {
	Detach(cmd)
	cmd.SysProcAttr.HideWindow = true
	again := *cmd // a command cannot be started twice
	attr := *cmd.SysProcAttr
	again.SysProcAttr = &attr
	cmd.SysProcAttr.CreationFlags |= windows.CREATE_BREAKAWAY_FROM_JOB
	err := cmd.Start()
	if !errors.Is(err, windows.ERROR_ACCESS_DENIED) {
		return cmd, err
	}
	return &again, again.Start()
}

// SignalTree kills a process. Children that it does not end itself stay.
func SignalTree(pid int, _ syscall.Signal) error {
	p, err := os.FindProcess(pid)
	if err != nil {
		return err
	}
	return p.Kill()
}
