package sys

import (
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
	"testing"
)

// listenAs listens on a socket as another user.
func listenAs(t *testing.T, path string, uid int) net.Listener {
	t.Helper()
	done := make(chan error, 1)
	var l net.Listener
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with its user
		keep := ^uintptr(0)
		if _, _, errno := syscall.RawSyscall(syscall.SYS_SETRESUID, keep, uintptr(uid), keep); errno != 0 {
			done <- errno
			return
		}
		var err error
		l, err = net.Listen("unix", path)
		done <- err
	}()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// The process that listens counts, whoever owns the socket file.
func TestTrustedPeer(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	dir, err := os.MkdirTemp("", "px") // which the other user can reach
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		listener, owner int
		trusted         bool
	}{
		"mine":                     {0, 0, true},
		"another's":                {65534, 65534, true}, // its directory decides
		"another's, now mine":      {65534, 0, false},
		"another's, now a third's": {65534, 65533, false},
	} {
		path := filepath.Join(dir, name)
		listenAs(t, path, tt.listener)
		if err := os.Chown(path, tt.owner, tt.owner); err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		conn, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		if got := TrustedPeer(conn, info); got != tt.trusted {
			t.Errorf("%s: %v, want %v", name, got, tt.trusted)
		}
		conn.Close()
	}
}

// The process at the other end counts, as it was when the connection began.
func TestPeerOf(t *testing.T) {
	dir, err := os.MkdirTemp("", "px") // which the other user can reach
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	users := []int{os.Getuid()}
	if os.Getuid() == 0 {
		users = append(users, 65534)
	}
	for _, uid := range users {
		path := filepath.Join(dir, strconv.Itoa(uid))
		listenAs(t, path, uid)
		conn, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if peer, ok := PeerOf(conn); !ok || peer != (Peer{UID: uid, PID: os.Getpid()}) {
			t.Errorf("the peer is %+v, %v; want user %d", peer, ok, uid)
		}
	}
}
