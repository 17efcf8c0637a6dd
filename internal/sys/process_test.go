package sys

import (
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

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
			dir, err := filepath.EvalSymlinks(t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			_, port, _ := net.SplitHostPort(l.Addr().String())
			host := "127.0.0.1"
			if strings.HasPrefix(network, "[") {
				host = "::1"
			}
			cmd := program(t, "dial")
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
			if got := WorkingDir(pid); got != dir {
				t.Errorf("it is in %q, want %q", got, dir)
			}
			if !Within(pid, os.Getpid()) || !Within(pid, pid) || Within(os.Getpid(), pid) {
				t.Error("the ancestors are wrong")
			}
			// The same port, but nobody has it.
			_, port, _ = net.SplitHostPort(conn.RemoteAddr().String())
			if pid := PeerProcess(conn.LocalAddr(), net.JoinHostPort("127.0.0.9", port)); pid != 0 {
				t.Errorf("a connection that does not exist has process %d", pid)
			}
		})
	}
}

func TestUnknownProcesses(t *testing.T) {
	for _, pid := range []int{0, -1, 1 << 30} {
		if dir := WorkingDir(pid); dir != "" {
			t.Errorf("process %d is in %q", pid, dir)
		}
		if Within(pid, os.Getpid()) {
			t.Errorf("process %d is below this one", pid)
		}
	}
	if pid := PeerProcess(&net.UnixAddr{}, "@"); pid != 0 {
		t.Errorf("a unix socket has peer %d", pid)
	}
}

// A process that has ended, but whose parent does not notice, exists and does not run.
func TestEnded(t *testing.T) {
	cmd := exec.Command(os.Args[0], "-test.run=^$")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	pid := cmd.Process.Pid
	if Ended(os.Getpid()) || !Ended(0) {
		t.Error("this process has ended, or process 0 has not")
	}
	io.Copy(io.Discard, out)
	for runtime.GOOS != "windows" && !Ended(pid) {
		runtime.Gosched()
	}
	if runtime.GOOS != "windows" && !Alive(pid) { // it has no such processes
		t.Error("the process no longer exists")
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	if !Ended(pid) {
		t.Error("the process still runs")
	}
}

func TestMemoryOfProcess(t *testing.T) {
	if got := Memory(os.Getpid()); got < 1<<20 || got > 1<<40 {
		t.Errorf("this process has %d bytes", got)
	}
	if got := Memory(1 << 30); got != 0 {
		t.Errorf("a process that does not exist has %d bytes", got)
	}
}
