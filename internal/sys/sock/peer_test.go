package sock

import (
	"bufio"
	"net"
	"os"
	"strings"
	"testing"

	"pollux/internal/sys/proc"
	"pollux/internal/sys/systest"
)

func TestMain(m *testing.M) {
	systest.Main(m, map[string]func() error{
		// Connects to $SYS_TEST_DIAL and waits for the end of the connection.
		"dial": func() error {
			conn, err := net.Dial("tcp", os.Getenv("SYS_TEST_DIAL"))
			if err != nil {
				return err
			}
			bufio.NewReader(conn).ReadString('\n')
			return nil
		},
	})
}

func TestPeerProcess(t *testing.T) {
	if !KnowsPeers {
		t.Skip("Pollux finds the process of a connection on Linux only")
	}
	for _, network := range []string{"127.0.0.1:0", "[::1]:0", "0.0.0.0:0"} {
		t.Run(network, func(t *testing.T) {
			l, err := net.Listen("tcp", network)
			if err != nil {
				t.Skip(err) // no IPv6
			}
			defer l.Close()
			dir := systest.Dir(t)
			_, port, _ := net.SplitHostPort(l.Addr().String())
			host := "127.0.0.1"
			if strings.HasPrefix(network, "[") {
				host = "::1"
			}
			cmd := systest.Program(t, "dial")
			cmd.Env, cmd.Dir = append(cmd.Env, "SYS_TEST_DIAL="+net.JoinHostPort(host, port)), dir
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			defer cmd.Wait()
			conn, err := l.Accept()
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			pid := PeerProcess(conn.LocalAddr(), conn.RemoteAddr().String())
			if pid != cmd.Process.Pid {
				t.Errorf("the peer is process %d, want %d", pid, cmd.Process.Pid)
			}
			if got := proc.WorkingDir(pid); got != dir {
				t.Errorf("it is in %q, want %q", got, dir)
			}
			if !proc.Within(pid, os.Getpid(), proc.AllAncestors) || !proc.Within(pid, pid, proc.AllAncestors) || proc.Within(os.Getpid(), pid, proc.AllAncestors) {
				t.Error("the ancestors are wrong")
			}
			// The same port, but unused.
			_, port, _ = net.SplitHostPort(conn.RemoteAddr().String())
			if pid := PeerProcess(conn.LocalAddr(), net.JoinHostPort("127.0.0.9", port)); pid != 0 {
				t.Errorf("a connection that does not exist has process %d", pid)
			}
		})
	}
}

func TestPeerProcessOfUnixSocket(t *testing.T) {
	if pid := PeerProcess(&net.UnixAddr{}, "@"); pid != 0 {
		t.Errorf("a unix socket has peer %d", pid)
	}
}
