package sys

import (
	"net"
	"os"
	"path/filepath"
	"testing"
)

// Each end of a connection knows the user and the process of the other end.
func TestPeers(t *testing.T) {
	if !knowsUsers {
		t.Skip("sockets are pipes on Windows, with a list of those who may connect")
	}
	dir, err := os.MkdirTemp("", "px") // short enough for a socket
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "s")
	l, err := ListenSocket(path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	client, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	server, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	for name, conn := range map[string]net.Conn{"server": client, "client": server} {
		if peer, ok := PeerOf(conn); !ok || peer != (Peer{UID: os.Getuid(), PID: os.Getpid()}) {
			t.Errorf("the %s is %+v, %v", name, peer, ok)
		}
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if !TrustedPeer(client, info) {
		t.Error("the server is not trusted")
	}
	pipe, _ := net.Pipe()
	if _, ok := PeerOf(pipe); ok || TrustedPeer(pipe, info) {
		t.Error("a pipe has a peer, or is trusted")
	}
}
