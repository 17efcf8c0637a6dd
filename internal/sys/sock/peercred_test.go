package sock

import (
	"net"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"pollux/internal/sys/systest"
)

// Each end of a connection knows the user and the process of the other end.
func TestPeers(t *testing.T) {
	if !knowsUsers && runtime.GOOS != "windows" {
		t.Skip("this system cannot tell")
	}
	dir := systest.ShortDir(t)
	path := filepath.Join(dir, "s")
	l, err := Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	client, server := connect(t, l, path)
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
	if _, ok := PeerOf(pipe); ok || knowsUsers && TrustedPeer(pipe, info) {
		t.Error("a pipe has a peer, or is trusted")
	}
}
