package geminiide

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pollux/internal/companion"
	"pollux/internal/ide/attach"
	"pollux/internal/sys/proc"
	"pollux/internal/sys/sock"
)

// A duplex is a connection without buffers: a write blocks until the other side
// reads. Each side can close its half.
type duplex struct {
	in, out net.Conn
	written *atomic.Int64 // counts the server's writes as they begin
}

func newDuplex() (client, server duplex) {
	a, b := net.Pipe()
	c, d := net.Pipe()
	var written atomic.Int64
	return duplex{a, c, &written}, duplex{d, b, &written}
}

func (d duplex) Read(b []byte) (int, error)         { return d.in.Read(b) }
func (d duplex) Write(b []byte) (int, error)        { d.written.Add(1); return d.out.Write(b) }
func (d duplex) Close() error                       { d.in.Close(); return d.out.Close() }
func (d duplex) LocalAddr() net.Addr                { return d.in.LocalAddr() }
func (d duplex) RemoteAddr() net.Addr               { return d.in.RemoteAddr() }
func (d duplex) SetReadDeadline(t time.Time) error  { return d.in.SetReadDeadline(t) }
func (d duplex) SetWriteDeadline(t time.Time) error { return d.out.SetWriteDeadline(t) }
func (d duplex) SetDeadline(t time.Time) error {
	d.in.SetDeadline(t)
	return d.out.SetDeadline(t)
}

// A single listener accepts one connection.
type single struct {
	net.Listener
	conns chan net.Conn
	once  sync.Once
}

func (l *single) Accept() (net.Conn, error) {
	if conn, ok := <-l.conns; ok {
		return conn, nil
	}
	return nil, net.ErrClosed
}
func (l *single) Close() error   { l.once.Do(func() { close(l.conns) }); return nil }
func (l *single) Addr() net.Addr { return &net.TCPAddr{} }

// unbuffered sends a client's request to the server over a duplex.
func unbuffered(t *testing.T, s *Server, req *http.Request) duplex {
	t.Helper()
	client, server := newDuplex()
	l := &single{conns: make(chan net.Conn, 1)}
	l.conns <- server
	s.http.Listeners = append(s.http.Listeners[:0], l)
	s.http.Serve()
	t.Cleanup(func() { client.Close(); l.Close() })
	if err := req.Write(client); err != nil {
		t.Fatal(err)
	}
	return client
}

// closeNow closes a server without waiting for what is queued.
func closeNow(s *Server) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	s.Close(ctx)
}

func closes(t *testing.T, what string, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() { defer close(done); f() }()
	select {
	case <-done:
	case <-time.After(20 * time.Second):
		t.Fatal(what + " did not return")
	}
}

// A client that closes its half of a stream that it does not read, and opens
// another stream, gets the context there, and does not delay Close.
func TestKeepAliveThatNobodyReads(t *testing.T) {
	b := newBackend()
	s := start(t, b, func(c *Config) { c.KeepAliveInterval = time.Millisecond })
	c := dial(t, s).initialize()
	first := unbuffered(t, s, c.request(t.Context(), "GET", ""))
	in := bufio.NewReader(first)
	for line := ""; line != emptyContext; {
		text, err := in.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		fmt.Sscanf(text, "data: %s", &line)
	}
	var begun int64
	for range 3 { // comments come
		begun = first.written.Load() // now, because the write after the last read may begin immediately
		if _, err := in.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
	}
	waitFor(t, func() bool { return first.written.Load() > begun }) // and the client does not read
	first.out.Close()
	waitFor(t, func() bool { // the next stream carries the context
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		res, err := c.http.Do(c.request(ctx, "GET", ""))
		if err != nil {
			return false
		}
		defer res.Body.Close()
		_, err = bufio.NewReader(io.LimitReader(res.Body, 1000)).ReadString('}')
		return err == nil
	})
	closes(t, "Close", func() { closeNow(s) })
}

// A client that does not read the answer to its request does not delay Close.
func TestAnswerThatNobodyReads(t *testing.T) {
	b := newBackend()
	s := start(t, b, nil)
	c := dial(t, s).initialize()
	<-b.session
	body := `{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{"name":"openDiff","arguments":{"filePath":"/f","newContent":"x"}}}`
	unbuffered(t, s, c.request(t.Context(), "POST", body))
	<-b.opened
	closes(t, "Close", func() { closeNow(s) })
}

// A CLI's name is shown to the user, so a name of 100 kB is shortened, and
// control characters are removed.
func TestClientNamesAreShort(t *testing.T) {
	b := newBackend()
	s := start(t, b, nil)
	for name, want := range map[string]string{
		"gemini":                     "gemini",
		strings.Repeat("x", 100_000): strings.Repeat("x", 64) + "...",
		"a\x1b[31m\u202e\nb":         "a[31m b",
		"\x1b":                       "?",
	} {
		c := dial(t, s)
		c.call("initialize", map[string]any{
			"protocolVersion": "2025-06-18", "capabilities": map[string]any{}, "clientInfo": map[string]any{"name": name, "version": name},
		})
		c.do(c.request(t.Context(), "POST", `{"jsonrpc":"2.0","method":"notifications/initialized"}`))
		session := <-b.session
		if gotName, gotVersion := session.Client(); gotName != want || gotVersion != want {
			t.Errorf("%.20q is shown as %.100q %.100q, want %q", name, gotName, gotVersion, want)
		}
	}
}

// A session was ending when the server was closed. Close did not wait for its
// Disconnect, which then came after the end of the companion.
func TestCloseWaitsForDisconnect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBackend()
		b.gone = make(chan *Session) // Disconnect waits until it is received
		s, err := New(Config{Companion: attach.Companion{Backend: b, Log: slog.New(slog.DiscardHandler), Version: "test"}})
		if err != nil {
			t.Fatal(err)
		}
		client, server := net.Pipe()
		go io.Copy(io.Discard, client)
		go s.ServeConn(server)
		initialize(t, client)
		<-b.session
		client.Close()
		synctest.Wait() // it is in Disconnect
		closed := make(chan bool, 1)
		go func() { s.Close(t.Context()); closed <- true }()
		synctest.Wait()
		if len(closed) > 0 {
			t.Error("Close returned before Disconnect")
		}
		<-b.gone
		synctest.Wait()
		if len(closed) < 1 && !t.Failed() {
			t.Error("Close does not return")
		}
	})
}

// initialize writes the first two messages of a client, and two pings. When it
// returns, the server has read the two messages.
func initialize(t *testing.T, client io.Writer) {
	t.Helper()
	for _, line := range []string{
		`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},` +
			`"clientInfo":{"name":"test","version":"1"}}}`,
		`{"jsonrpc":"2.0","method":"notifications/initialized"}`,
		`{"jsonrpc":"2.0","id":2,"method":"ping"}`,
		`{"jsonrpc":"2.0","id":3,"method":"ping"}`,
	} {
		if _, err := fmt.Fprintln(client, line); err != nil {
			t.Fatal(err)
		}
	}
}

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
	if err := <-served; err == nil || len(b.session) > 0 {
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
	session := <-b.session
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
