package bridge

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pollux/internal/agent"
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

func TestJunkOnTheWire(t *testing.T) {
	w := dial(t, newTestBridge(t, answering("ok"), nil))
	w.write(hello)
	w.want(t, `"id":0`, "pollux")
	for junk, code := range map[string]string{
		"warning: junk": "-32700", `{"jsonrpc":`: "-32700", "\xff": "-32700",
		"{}": "-32600", "[]": "-32600", "null": "-32600", "42": "-32600", `{"jsonrpc":"1.0","id":1,"method":"ping"}`: "-32600",
		`{"jsonrpc":"2.0","id":1.5,"method":"ping"}`: "-32600", `{"jsonrpc":"2.0","id":{},"method":"ping"}`: "-32600",
		`{"jsonrpc":"2.0","id":1,"method":"ping"} {"jsonrpc":"2.0","id":2,"method":"ping"}`: "-32700",
		`"` + strings.Repeat("x", maxMessage) + `"`:                                         "-32600",
	} {
		w.write(junk)
		w.want(t, code, `"id":null`)
	}
	w.write("", query(`"a"`, "hi"))
	w.want(t, `"id":"a"`, `"text":"ok"`)
	// One revision of the protocol supports batches.
	w.write(`[{"jsonrpc":"2.0","method":"notifications/initialized"},{"jsonrpc":"2.0","id":5,"method":"ping"}, {"jsonrpc":"2.0","id":6,"method":"ping"}]`)
	var got []string // in any order
	for range 2 {
		if !w.out.Scan() {
			t.Fatal("the output ended")
		}
		got = append(got, w.out.Text())
	}
	slices.Sort(got)
	if !strings.Contains(got[0], `"id":5`) || !strings.Contains(got[1], `"id":6`) {
		t.Errorf("got %q", got)
	}
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

// A cancelled call gets no answer, and its ID can be used again.
func TestCancelledCallsAreNotAnswered(t *testing.T) {
	started := make(chan struct{}, 1)
	b := newTestBridge(t, script(func(ctx context.Context, r agent.Request, _ func(agent.Event)) (agent.Result, error) {
		if r.Prompt == "hang" {
			started <- struct{}{}
			return hang(ctx)
		}
		return say("ok")
	}), nil)
	w := dial(t, b)
	w.write(hello)
	w.want(t, `"id":0`)
	w.write(query("7", "hang"))
	<-started
	w.write(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}`, query(`"7"`, "hi"))
	w.want(t, `"id":"7"`, `"text":"ok"`)
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

// A client closed the bridge's input without reading its output. The bridge
// could not write its last answers, and kept running forever.
func TestDeafClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newTestBridge(t, answering("ok"), nil)
		conn, client := systest.Pipes()
		ended := make(chan error, 1)
		go func() { ended <- NewServer(b).Run(context.Background(), conn) }()
		fmt.Fprintln(client, hello)
		for i := range 5 {
			fmt.Fprintln(client, query(fmt.Sprint(i+1), "hi"))
		}
		fmt.Fprintln(client, "{not json")
		client.CloseWrite()
		closed := time.Now()
		select {
		case <-ended:
			if took := time.Since(closed); took > answerTimeout+5*time.Second {
				t.Errorf("the bridge ended after %s", took)
			}
		case <-time.After(time.Hour):
			t.Error("the bridge does not end")
		}
	})
}
