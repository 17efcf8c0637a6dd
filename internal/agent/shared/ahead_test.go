package shared

import (
	"testing"
	"time"

	"pollux/internal/agent"
	"pollux/internal/agent/queue"
	"pollux/internal/sys/systest"
)

// A starter is a runner that reports for which workspaces it starts processes.
type starter struct {
	*script
	dirs chan string
}

func (s starter) Ahead(from agent.Source, dir string) { s.dirs <- from.Command + " in " + dir }

// A start ahead reaches the pool's runner for the bridge's own source. It counts as a use
// of the pool, which must not end before the first request.
func TestAheadReachesThePool(t *testing.T) {
	dir := systest.Dir(t)
	r := starter{say(), make(chan string, 1)}
	p := startPool(t, socket(t), r, time.Hour)
	c := newTestClient(t, p.path, nil)
	began := time.Now()
	c.Ahead(agent.Source{}, dir)
	if got, want := systest.Receive(t, r.dirs), "program in "+dir; got != want {
		t.Errorf("it starts %q, want %q", got, want)
	}
	if ends := p.status().Ends; ends.Before(began.Add(time.Hour)) {
		t.Errorf("the pool ends %s too early", began.Add(time.Hour).Sub(ends))
	}
}

// A start ahead starts nothing at a pool that ends.
func TestAheadStartsNothing(t *testing.T) {
	r := starter{say(), make(chan string, 1)}
	ending := newServer(queue.New(row, r), time.Minute)
	ending.stopping = true
	(&serverConn{server: ending, hello: testHello}).ahead(t.TempDir())
	if len(r.dirs) > 0 {
		t.Errorf("a pool that ends starts %s", <-r.dirs)
	}
}
