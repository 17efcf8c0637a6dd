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

	"pollux/internal/sys/systest"
)

// serveLines serves the agent at the other end of a connection, with an hour of grace. Its tool
// returns once the agent's side has ended.
func serveLines(t *testing.T) (s *Session, agent *systest.Duplex, served chan bool) {
	t.Helper()
	conn, agent := systest.Pipes()
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
		s.Serve(Lines(conn, 1<<10))
	}()
	return s, agent, served
}

const hellos = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":` + hello + "}\n"

// An agent that closes its side gets all answers. A line that is too long ends nothing.
func TestLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, agent, served := serveLines(t)
		go func() {
			io.WriteString(agent, hellos+"\n"+strings.Repeat("x", 2<<10)+"\n"+`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"wait"}}`)
			agent.CloseWrite()
		}()
		lines := bufio.NewScanner(agent)
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
func TestLinesToADeafAgent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, agent, served := serveLines(t)
		fmt.Fprint(agent, hellos)
		agent.CloseWrite()
		began := time.Now()
		<-served
		if took := time.Since(began); took != time.Hour {
			t.Errorf("it took %s", took)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		s, agent, served := serveLines(t)
		fmt.Fprint(agent, hellos)
		s.End()
		<-served
	})
}
