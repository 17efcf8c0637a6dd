package mcp

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// servePipes serves an agent on a pair of pipes, with an hour of grace. Its tool returns once the
// agent's side has ended.
func servePipes(t *testing.T, in io.Reader, out io.Writer) (s *Session, served chan bool) {
	t.Helper()
	srv := New(Config{Log: slog.New(slog.DiscardHandler), MaxSessions: 1, Grace: time.Hour})
	over := make(chan bool)
	s, err := srv.NewSession(Dialect{
		Tools: []Tool{{Name: "wait", Schema: "{}", Concurrent: true, Run: func(ctx context.Context, _ *Call) (*Result, error) {
			select {
			case <-over:
				return Text("over"), nil
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}}},
		InputEnded: func() { close(over) },
	})
	if err != nil {
		t.Fatal(err)
	}
	served = make(chan bool)
	go func() {
		defer close(served)
		s.Serve(Pipes(in, out, 1<<10))
	}()
	return s, served
}

const hellos = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":` + hello + "}\n"

// An agent that closes its side gets all answers. A line that is too long ends nothing.
func TestPipes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in, theirs := io.Pipe()
		ours, out := io.Pipe()
		_, served := servePipes(t, in, out)
		go func() {
			io.WriteString(theirs, hellos+"\n"+strings.Repeat("x", 2<<10)+"\n"+`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"wait"}}`)
			theirs.Close()
		}()
		lines := bufio.NewScanner(ours)
		for _, want := range []string{`"id":1,`, `"id":null,"error":{"code":-32600,"message":"a message is longer than 1024 bytes: send less"}`, `"text":"over"`} {
			if !lines.Scan() || !strings.Contains(lines.Text(), want) {
				t.Errorf("%s, want %s", lines.Text(), want)
			}
		}
		<-served
	})
}

// An agent that closes its side and does not read is given up after a time. So is one that does
// neither when the session ends.
func TestPipesToADeafAgent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in, theirs := io.Pipe()
		ours, out := io.Pipe()
		_, served := servePipes(t, in, out)
		fmt.Fprint(theirs, hellos)
		theirs.Close()
		began := time.Now()
		<-served
		if took := time.Since(began); took != time.Hour {
			t.Errorf("it took %s", took)
		}
		ours.Close()
	})
	synctest.Test(t, func(t *testing.T) {
		in, theirs := io.Pipe()
		ours, out := io.Pipe()
		s, served := servePipes(t, in, out)
		fmt.Fprint(theirs, hellos)
		s.End()
		<-served
		theirs.Close()
		ours.Close()
	})
}
