package systest

import (
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"
)

// receiveTimeout is longer than a busy machine needs for anything that a test waits for.
const receiveTimeout = 30 * time.Second

// Receive waits for the next value of a channel.
func Receive[T any](t testing.TB, c <-chan T) T {
	t.Helper()
	timeout := time.NewTimer(receiveTimeout)
	defer timeout.Stop()
	select {
	case v := <-c:
		return v
	case <-timeout.C:
		t.Fatal("nothing came")
		panic("unreachable")
	}
}

// WantError fails the test unless err is an error whose message contains all texts.
func WantError(t testing.TB, err error, texts ...string) {
	t.Helper()
	if err == nil {
		t.Errorf("there is no error, want %q", texts)
		return
	}
	for _, text := range texts {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("the error is %v, want %q", err, text)
		}
	}
}

// Serve handles each connection to a listener in a goroutine. The listener and the goroutines
// end with the test.
func Serve(t testing.TB, l net.Listener, handle func(net.Conn)) {
	var serving sync.WaitGroup
	t.Cleanup(func() { l.Close(); serving.Wait() })
	serving.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			serving.Go(func() { handle(conn) })
		}
	})
}

// FreePort returns a port of this machine on which no program listens.
func FreePort(t testing.TB) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// NeedRoot skips a test that gives files to other users.
func NeedRoot(t testing.TB) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
}

// Until waits until a condition holds.
func Until(t testing.TB, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(receiveTimeout); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it never became true")
		}
	}
}
