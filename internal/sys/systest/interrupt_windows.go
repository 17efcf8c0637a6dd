package systest

import (
	"fmt"
	"os/exec"
	"syscall"

	"golang.org/x/sys/windows"
)

// OwnConsole gives a command its own, invisible console. The command must not have been
// started.
func OwnConsole(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{CreationFlags: windows.CREATE_NO_WINDOW}
}

// Interrupt does to a process what Ctrl-C does. The process was started with [OwnConsole].
// The caller's process loses its own console.
func Interrupt(pid int) error {
	kernel := windows.NewLazySystemDLL("kernel32.dll")
	// A process has one console at most. This fails without one.
	kernel.NewProc("FreeConsole").Call()
	if ok, _, err := kernel.NewProc("AttachConsole").Call(uintptr(pid)); ok == 0 {
		return fmt.Errorf("AttachConsole: %w", err)
	}
	const ignore = 1 // Ctrl-C in this process
	if ok, _, err := kernel.NewProc("SetConsoleCtrlHandler").Call(0, ignore); ok == 0 {
		return fmt.Errorf("SetConsoleCtrlHandler: %w", err)
	}
	const all = 0 // the processes in this console
	return windows.GenerateConsoleCtrlEvent(windows.CTRL_C_EVENT, all)
}
