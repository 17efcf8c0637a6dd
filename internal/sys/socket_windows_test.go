package sys

import (
	"crypto/rand"
	"errors"
	"io/fs"
	"testing"
)

// A pipe with a name that other programs know has one server at a time, which is the first
// one, and its name is free again once the server and its connections are closed.
func TestNamedPipe(t *testing.T) {
	name := `\\.\pipe\pollux-test-` + rand.Text()
	if _, err := DialSocket(t.Context(), name); !Refused(err) || !RefusesConnections(name) {
		t.Errorf("a pipe that nobody serves: %v", err)
	}
	l, err := ListenSocket(name)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if again, err := ListenSocket(name); !errors.Is(err, fs.ErrExist) {
		if err == nil {
			again.Close()
		}
		t.Errorf("a second listener: %v", err)
	}
	client, server := connect(t, l, name)
	l.Close()
	if _, err := ListenSocket(name); !errors.Is(err, fs.ErrExist) {
		t.Errorf("with an open connection: %v", err)
	}
	server.Close()
	client.Close()
	again, err := ListenSocket(name)
	if err != nil {
		t.Fatal(err)
	}
	again.Close()
}
