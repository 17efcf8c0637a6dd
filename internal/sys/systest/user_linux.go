package systest

import (
	"os"
	"runtime"
	"syscall"
	"testing"
)

// AsUser runs f on a thread of another user. The sockets that f makes belong to that user.
// It skips the test where it cannot change the user.
func AsUser(t testing.TB, uid int, f func() error) error {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	err := onThreadAs(uid, f)
	if err == syscall.EINVAL { // in a user namespace that has only one
		t.Skip("needs a second user")
	}
	return err
}

// onThreadAs runs f on a thread of another user, which then ends. It is never the main
// thread, whose user is that of the whole process, and which does not end.
func onThreadAs(uid int, f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		if syscall.Gettid() == os.Getpid() {
			defer runtime.UnlockOSThread()
			done <- onThreadAs(uid, f) // on another one, since this one is taken
			return
		}
		keep := ^uintptr(0)
		if _, _, errno := syscall.RawSyscall(syscall.SYS_SETRESUID, keep, uintptr(uid), keep); errno != 0 {
			done <- errno
			return
		}
		done <- f()
	}()
	return <-done
}
