package companion_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"pollux/internal/companion"
	"pollux/internal/editor"
	"pollux/internal/sys/systest"
)

// A deaf holds the standard streams of a plugin that reads nothing. Closing the
// pipe does not end a write.
type deaf struct {
	io.Reader
	released chan struct{}
}

func (d deaf) Write(b []byte) (int, error) { <-d.released; return 0, io.ErrClosedPipe }
func (d deaf) Close() error                { return nil }

func returns(t *testing.T, what string, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() { defer close(done); f() }()
	select {
	case <-done:
	case <-time.After(30 * time.Second):
		t.Fatal(what)
	}
}

const hello = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocol":1,"client":{"name":"x"},"diff":true}}` + "\n"

// A plugin that does not read and closes its input has ended. The companion
// waited for it forever, and so did the CLIs.
func TestDeafPluginEnds(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	conn := deaf{strings.NewReader(hello), make(chan struct{})}
	defer close(conn.released)
	returns(t, "the companion still serves a plugin that has ended", func() {
		companion.Serve(conn, func(editor.InitializeParams) (*companion.Companion, error) { return w.Companion, nil })
		w.Close()
	})
}

// pipe attaches a client that reads when the test does.
func (w *world) pipe() (conn net.Conn, ended <-chan struct{}) {
	w.t.Helper()
	mine, theirs := net.Pipe()
	done := make(chan struct{})
	go func() { defer close(done); w.Attach(theirs) }()
	w.t.Cleanup(func() { mine.Close(); <-done })
	if _, err := io.WriteString(mine, hello); err != nil {
		w.t.Fatal(err)
	}
	return mine, done
}

// A client that sends requests and does not read is disconnected before the
// answers use up the memory: 150 proposals of 4 MB took 2.4 GB.
func TestClientThatDoesNotReadIsGivenUp(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.connect()
	conn, ended := w.pipe()
	if err := c.openDiff(w.file("f", "old\n"), strings.Repeat("x", 4<<20)); err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		if _, err := fmt.Fprintf(conn, `{"jsonrpc":"2.0","id":%d,"method":"diff/list"}`+"\n", i+2); err != nil {
			break // given up already
		}
	}
	returns(t, "the client is still served", func() { <-ended })
}

// A slow client receives the changes that are pending when it reads, with their
// current texts, and none that were answered or replaced in the meantime.
func TestSlowClientGetsWhatStillWaits(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c, e := w.connect(), w.view()
	conn, _ := w.pipe()
	in := bufio.NewReader(conn)
	if _, err := in.ReadString('\n'); err != nil { // the answer to initialize
		t.Fatal(err)
	}
	io.WriteString(conn, `{"jsonrpc":"2.0","id":2,"method":"status"}`+"\n")
	systest.Until(t, func() bool { return w.Attached() == 2 })
	path := w.file("f", "old\n")
	for i := range 5 {
		if err := c.openDiff(path, fmt.Sprintf("new %d\n", i)); err != nil {
			t.Fatal(err)
		}
	}
	var last editor.Diff
	for range 5 {
		last = systest.Receive(t, e.Opened)
	}
	e.Edits(last, "edited\n")
	var opened []editor.Diff
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		var m struct {
			Method string
			ID     int64
			Params json.RawMessage
		}
		if err := json.Unmarshal([]byte(line), &m); err != nil {
			t.Fatal(err)
		}
		if m.Method == editor.MethodDiffOpen {
			var d editor.Diff
			json.Unmarshal(m.Params, &d)
			opened = append(opened, d)
		}
		if m.Method == editor.MethodDiffChanged {
			break // the last that was queued
		}
	}
	if len(opened) != 1 || opened[0].ID != last.ID || opened[0].Text() != "edited\n" {
		t.Errorf("the client was shown %+v", opened)
	}
}

// A companion that has decided to end takes no client, not even one whose connection it has
// accepted: `pollux run` would use it for an agent, and the companion would wait for its end.
func TestRetire(t *testing.T) {
	w := newWorld(t)
	conn, ended := w.pipe()
	go io.Copy(io.Discard, conn)
	systest.Until(t, func() bool { return len(w.Status().Surfaces) == 1 })
	left := w.Retire("x")
	conn.Close()
	returns(t, "the client has not left", func() { <-left; <-ended })

	late, theirs := net.Pipe()
	served := make(chan struct{})
	go func() { defer close(served); w.Attach(theirs) }()
	t.Cleanup(func() { late.Close(); <-served })
	io.WriteString(late, `{"jsonrpc":"2.0",`) // accepted
	if w.Retire("x") != nil {
		t.Error("a client that has left is attached")
	}
	io.WriteString(late, strings.TrimPrefix(hello, `{"jsonrpc":"2.0",`))
	go io.Copy(io.Discard, late)
	returns(t, "a client was attached", func() { <-served })
	returns(t, "the companion does not end", w.Close)
}
