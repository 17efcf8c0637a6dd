package proc

import (
	"os/exec"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// A recorded process records the calls of its methods.
type recorded struct {
	mu    sync.Mutex
	done  []string
	ended chan struct{}
	// stubborn processes end only by force.
	stubborn bool
}

func (r *recorded) add(what string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.done = append(r.done, what)
}

func (r *recorded) wait() { <-r.ended }

func (r *recorded) terminate() {
	r.add("terminate")
	if !r.stubborn {
		close(r.ended)
	}
}

func (r *recorded) kill() {
	r.add("kill")
	close(r.ended)
}

func (r *recorded) reap() error {
	r.add("reap")
	return nil
}

// Stop signalled the PID and the group of a child that had been reaped, which
// could be another program's by then.
func TestStopSignalsNoReapedChild(t *testing.T) {
	for _, test := range []struct {
		name     string
		stubborn bool
		act      func(c *Child, p *recorded)
		want     []string
	}{
		{"it ended without a signal", false, func(c *Child, p *recorded) {
			close(p.ended)
			<-c.Done()
			c.Stop(0)
			c.Stop(time.Minute)
		}, []string{"reap"}},
		{"it ends when asked", false, func(c *Child, p *recorded) {
			c.Stop(time.Minute)
			c.Stop(0)
		}, []string{"terminate", "reap"}},
		{"it ends by force", true, func(c *Child, p *recorded) {
			c.Stop(1200 * time.Millisecond)
			c.Stop(0)
		}, []string{"terminate", "terminate", "terminate", "kill", "reap"}},
		{"a second Stop has less patience", true, func(c *Child, p *recorded) {
			go c.Stop(time.Hour)
			synctest.Wait()
			c.Stop(200 * time.Millisecond)
		}, []string{"terminate", "terminate", "kill", "reap"}},
		{"a second Stop has more patience", true, func(c *Child, p *recorded) {
			go c.Stop(200 * time.Millisecond)
			synctest.Wait()
			c.Stop(time.Hour)
		}, []string{"terminate", "terminate", "kill", "reap"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := &recorded{ended: make(chan struct{}), stubborn: test.stubborn}
				c := newChild(exec.Command("none"))
				go c.run(p)
				test.act(c, p)
				<-c.Done()
				synctest.Wait()
				if !slices.Equal(p.done, test.want) {
					t.Errorf("done with the process: %v, want %v", p.done, test.want)
				}
			})
		})
	}
}

// Stop returns even if the system does not release the process.
func TestStopGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &immortal{recorded{ended: make(chan struct{})}}
		c := newChild(exec.Command("none"))
		go c.run(p)
		begin := time.Now()
		c.Stop(time.Second)
		if took := time.Since(begin); took != time.Second+killTimeout {
			t.Errorf("Stop returned after %v", took)
		}
		close(p.ended)
		<-c.Done()
	})
}

type immortal struct{ recorded }

func (*immortal) terminate() {}
func (*immortal) kill()      {}
