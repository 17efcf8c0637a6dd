package bridge

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"strings"
	"testing"

	"pollux/internal/sys/systest"
)

// A wire is a client.
type wire struct {
	in    *systest.Duplex
	out   *bufio.Scanner
	ended chan error
}

func dial(t *testing.T, b *Bridge) *wire {
	t.Helper()
	conn, client := systest.Pipes()
	w := &wire{in: client, out: bufio.NewScanner(client), ended: make(chan error, 1)}
	go func() { w.ended <- NewServer(b).Run(context.Background(), conn) }()
	t.Cleanup(func() {
		client.CloseWrite()
		go io.Copy(io.Discard, client)
		<-w.ended
	})
	return w
}

func (w *wire) write(lines ...string) { io.WriteString(w.in, strings.Join(lines, "\n")+"\n") }

func (w *wire) want(t *testing.T, words ...string) {
	t.Helper()
	if !w.out.Scan() {
		t.Fatalf("the output ended before %q", words)
	}
	for _, word := range words {
		if !strings.Contains(w.out.Text(), word) {
			t.Errorf("no %q in %q", word, w.out.Text())
		}
	}
}

const hello = `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}`

func query(id, prompt string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":"tools/call","params":{"name":"query","arguments":{"prompt":%q}}}`, id, prompt)
}

// A client may write everything before it reads.
func TestJunkDoesNotBlock(t *testing.T) {
	w := dial(t, newTestBridge(t, answering("ok"), nil))
	w.write(hello)
	w.want(t, `"id":0`)
	for range 1000 {
		w.write("junk")
	}
	w.write(query("1", "hi"))
	for w.out.Scan() {
		if strings.Contains(w.out.Text(), `"id":1,`) {
			return
		}
	}
	t.Error("the query has no answer")
}

// Requests are answered even after the end of the input.
func TestEndOfInput(t *testing.T) {
	b := newTestBridge(t, hanging, nil)
	w := dial(t, b)
	w.write(hello)
	w.want(t, `"id":0`)
	go func() {
		w.write(query("1", "hi"), `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"ping"}}`)
		w.in.CloseWrite()
	}()
	got := ""
	for w.out.Scan() {
		got += w.out.Text() + "\n"
	}
	if !strings.Contains(got, `"id":2,`) || !strings.Contains(got, `"id":1,`) || !strings.Contains(got, "shutting down") {
		t.Errorf("got %q", got)
	}
}
