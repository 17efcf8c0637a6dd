package sock

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"pollux/internal/sys/systest"
)

// listenAs listens on a socket as another user.
func listenAs(t *testing.T, path string, uid int) net.Listener {
	t.Helper()
	var l net.Listener
	err := systest.AsUser(t, uid, func() (err error) {
		l, err = net.Listen("unix", path)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// The listening process counts, not the owner of the socket file.
func TestTrustedPeer(t *testing.T) {
	systest.NeedRoot(t)
	dir := systest.ShortDir(t)
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
		if tt.owner != 0 {
			continue // Dial refuses it before it connects
		}
		conn, err = Dial(t.Context(), path)
		if err == nil {
			conn.Close()
		}
		if errors.Is(err, ErrForeign) == tt.trusted || tt.trusted && err != nil {
			t.Errorf("%s: Dial returns %v", name, err)
		}
	}
}

// The process at the other end counts, as it was when the connection began.
func TestPeerOf(t *testing.T) {
	dir := systest.ShortDir(t)
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

// The user who made the other end of a connection counts. A socket that was closed has
// root as its user in the kernel's table.
func TestPeerUser(t *testing.T) {
	for _, network := range []string{"127.0.0.1:0", "[::1]:0"} {
		for _, uid := range []int{0, 12345, overflowUID} {
			l, err := net.Listen("tcp", network)
			if err != nil {
				t.Skip(err) // no IPv6
			}
			defer l.Close()
			if network[0] == '1' && !SeesSocket(l) {
				t.Error("the listener is not visible")
			}
			var client net.Conn
			if err := systest.AsUser(t, uid, func() (err error) {
				client, err = net.Dial("tcp", l.Addr().String())
				return err
			}); err != nil {
				t.Fatal(err)
			}
			defer client.Close()
			conn, err := l.Accept()
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			if got, ok := PeerUser(conn.LocalAddr(), conn.RemoteAddr()); ok != (uid != overflowUID) || ok && got != uid {
				t.Errorf("%s: the peer is user %d, %v; want %d", network, got, ok, uid)
			}
			// Its process has closed it, but the connection lasts until this end is closed.
			client.Close()
			if got, ok := PeerUser(conn.LocalAddr(), conn.RemoteAddr()); ok {
				t.Errorf("%s: a closed socket belongs to user %d", network, got)
			}
		}
	}
	if _, ok := PeerUser(&net.UnixAddr{}, &net.TCPAddr{}); ok {
		t.Error("a unix socket has a user")
	}
}

// BenchmarkPeerUser looks for a connection among thousands.
func BenchmarkPeerUser(b *testing.B) {
	var table strings.Builder
	line := "  12: 0100007F:1F90 0100007F:%04X 01 00000000:00000000 00:00000000 00000000  1000        0 12345 1 0000000000000000 20 4 30 10 -1\n"
	for i := range 5000 {
		table.WriteString(strings.Replace(line, "%04X", strconv.FormatInt(int64(i+10000), 16), 1))
	}
	text := table.String()
	local, remote := netip.MustParseAddrPort("127.0.0.1:8080"), netip.MustParseAddrPort("127.0.0.1:1")
	for b.Loop() {
		if _, ok := socketIn(text, local, remote); ok {
			b.Fatal("the socket is missing")
		}
	}
}
