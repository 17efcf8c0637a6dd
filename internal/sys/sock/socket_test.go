package sock

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pollux/internal/sys/disk"
	"pollux/internal/sys/systest"
)

// connect returns both ends of a connection to a listener. On Windows the listener must
// wait for the client.
func connect(t *testing.T, l net.Listener, path string) (client, server net.Conn) {
	t.Helper()
	accepted := make(chan error, 1)
	go func() {
		var err error
		server, err = l.Accept()
		accepted <- err
	}()
	client, err := Dial(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	if err := <-accepted; err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Close() })
	return client, server
}

// A socket carries bytes both ways, refuses connections once the listener has ended, and can be
// left behind.
func TestSocket(t *testing.T) {
	path := filepath.Join(systest.ShortDir(t), "s")
	l, err := Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if info, err := os.Lstat(path); err != nil || info.Mode().Type() != FileType || !disk.Private(path, info) || !disk.Own(path, info) {
		t.Errorf("the file of the socket is %v, %v", info, err)
	}
	if again, err := Listen(path); err == nil {
		again.Close()
		t.Error("two listeners have one path")
	}
	if RefusesConnections(path) {
		t.Error("the socket refuses connections")
	}
	text := bytes.Repeat([]byte("0123456789"), 100_000)
	go Accept(l, func(conn net.Conn) {
		go func() {
			io.Copy(conn, conn)
			conn.Close()
		}()
	})
	conn, err := Dial(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	go func() {
		conn.Write(text)
		conn.(interface{ CloseWrite() error }).CloseWrite()
	}()
	if got, err := io.ReadAll(conn); err != nil || !bytes.Equal(got, text) {
		t.Errorf("%d bytes came back, %v", len(got), err)
	}
	l.SetUnlinkOnClose(false)
	l.Close()
	if _, err := Dial(t.Context(), path); !Refused(err) || !RefusesConnections(path) {
		t.Errorf("a socket without a listener: %v", err)
	}
	systest.Remove(t, path)
	if _, err := Dial(t.Context(), path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no socket: %v", err)
	}
	if l, err = Listen(path); err != nil {
		t.Fatal(err)
	}
	l.Close()
	if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket of a closed listener: %v", err)
	}
}

// IsSocket distinguishes a socket, with or without a listener, from another file and from a
// missing one.
func TestIsSocket(t *testing.T) {
	dir := systest.ShortDir(t)
	path := filepath.Join(dir, "s")
	l, err := Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	if is, err := IsSocket(path); !is || err != nil {
		t.Errorf("a socket: %v, %v", is, err)
	}
	l.Close()
	if is, err := IsSocket(path); !is || err != nil {
		t.Errorf("a socket without a listener: %v, %v", is, err)
	}
	for name, text := range map[string]string{"text": "mine", "empty": "", "large": strings.Repeat("x", 1<<20)} {
		path := filepath.Join(dir, name)
		systest.WriteFile(t, path, text)
		if is, err := IsSocket(path); is || err != nil {
			t.Errorf("the file %s: %v, %v", name, is, err)
		}
	}
	if is, err := IsSocket(dir); is || err != nil {
		t.Errorf("a directory: %v, %v", is, err)
	}
	if is, err := IsSocket(filepath.Join(dir, "none")); is || !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: %v, %v", is, err)
	}
}

func TestLeftoverSockets(t *testing.T) {
	dir := systest.ShortDir(t)
	rules := disk.Leftovers{Pattern: "*.sock", Type: FileType, Abandoned: RefusesConnections}
	listen := func(name string) Listener {
		l, err := Listen(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	live := listen("live.sock")
	defer live.Close()
	dead := listen("dead.sock")
	dead.SetUnlinkOnClose(false)
	dead.Close()
	systest.WriteFile(t, filepath.Join(dir, "file.sock"), "")
	if found := rules.Find(dir); !slices.Equal(found, []string{filepath.Join(dir, "dead.sock")}) {
		t.Errorf("found %q", found)
	}
}
