package geminiide

import (
	"net"
	"os"
	"testing"

	"pollux/internal/companion"
	"pollux/internal/sys/proc"
	"pollux/internal/sys/sock"
)

// A server that is closed refuses a client, and the backend never has its session.
func TestRefusedClientIsNotConnected(t *testing.T) {
	b := newBackend()
	s := start(t, b, nil)
	s.Close(t.Context())
	client, server := net.Pipe()
	served := make(chan error, 1)
	go func() { served <- s.ServeConn(server) }()
	if _, err := client.Read(make([]byte, 1)); err == nil {
		t.Error("the connection goes on")
	}
	if err := <-served; err == nil || len(b.Joined) > 0 {
		t.Error("the client was not refused")
	}
}

// The process at the other end of the event stream, and its folder, are known.
func TestProcess(t *testing.T) {
	if !sock.KnowsPeers {
		t.Skip("this system cannot tell")
	}
	wd, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	b := newBackend()
	c := dial(t, start(t, b, nil)).initialize()
	session := <-b.Joined
	if p := session.Process(); p != (companion.Process{}) {
		t.Errorf("before the stream: %+v", p)
	}
	c.listen()
	if <-b.changed != session {
		t.Error("another session was announced")
	}
	want := companion.Process{PID: os.Getpid(), Dir: wd, Terminal: proc.Terminal(os.Getpid())}
	if p := session.Process(); p != want {
		t.Errorf("%+v, want %+v", p, want)
	}
}
