package queue

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"pollux/internal/agent"
	"pollux/internal/outbox"
)

const (
	// quotaInterval is the time after which a model is tried again if its service did
	// not say when the quota of the day is renewed.
	quotaInterval = 15 * time.Minute
	// minuteInterval is the same for a quota per minute.
	minuteInterval = time.Minute
)

// An account has one limit for all requests that use its quota.
type account struct {
	id     string
	starts *pacer

	mu      sync.Mutex // guards the fields below
	running []*ticket
	// waiting holds the callers that wait, the next one first. After its turn, a
	// caller goes to the end.
	waiting []*caller
	usedUp  map[string]UsedUp // by model
}

// A caller waits with one or more requests, the oldest first.
type caller struct {
	name    string
	tickets []*ticket
}

// A ticket is a request that runs or waits.
type ticket struct {
	limit   int
	since   time.Time
	granted bool          // it may run; guarded by account.mu
	news    outbox.Signal // set when it may run, or its position may have changed
}

func newAccount(id string) *account {
	return &account{id: id, starts: newPacer(), usedUp: make(map[string]UsedUp)}
}

// acquire waits for the turn of a request of a caller. It calls report with the position in the queue,
// counted from 1, whenever it changes.
func (a *account) acquire(ctx context.Context, row *agent.Explainer, name string, queue agent.Queue, report func(position int)) (*ticket, error) {
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	t := &ticket{limit: queue.Limit, since: time.Now(), news: outbox.NewSignal()}
	a.mu.Lock()
	a.addLocked(name, t)
	a.grantLocked()
	a.mu.Unlock()
	var limit <-chan time.Time
	if queue.Timeout > 0 {
		limit = time.After(queue.Timeout)
	}
	for reported := 0; ; {
		n, granted := a.position(t)
		if granted {
			return t, nil
		}
		if n != reported {
			reported = n
			report(n)
		}
		var err error
		select {
		case <-t.news:
			continue
		case <-ctx.Done():
			err = context.Cause(ctx)
		case <-limit:
			l := a.load()
			err = fmt.Errorf("no free slot within %s: %d calls are running and %d waiting; try again later, or "+
				"raise %sMAX_CONCURRENT (now %d)", queue.Timeout, l.Running, l.Waiting-1, row.VarPrefix, l.Limit)
		}
		a.release(t) // it may have been granted in the meantime
		return nil, err
	}
}

// addLocked adds a request at the end of its caller's requests.
func (a *account) addLocked(name string, t *ticket) {
	for _, c := range a.waiting {
		if c.name == name {
			c.tickets = append(c.tickets, t)
			return
		}
	}
	a.waiting = append(a.waiting, &caller{name, []*ticket{t}})
}

// limitLocked returns how many requests may run at the same time, or 0 for any number: the lowest
// limit of those that run or wait.
func (a *account) limitLocked() int {
	limit := 0
	see := func(tickets []*ticket) {
		for _, t := range tickets {
			if limit == 0 || t.limit > 0 && t.limit < limit {
				limit = t.limit
			}
		}
	}
	see(a.running)
	for _, c := range a.waiting {
		see(c.tickets)
	}
	return limit
}

// grantLocked lets the next requests run.
func (a *account) grantLocked() {
	for len(a.waiting) > 0 {
		if limit := a.limitLocked(); limit > 0 && len(a.running) >= limit {
			break
		}
		c := a.waiting[0]
		t := c.tickets[0]
		c.tickets = c.tickets[1:]
		a.waiting = a.waiting[1:]
		if len(c.tickets) > 0 {
			a.waiting = append(a.waiting, c)
		}
		a.running = append(a.running, t)
		t.granted = true
		t.news.Set()
	}
	for _, c := range a.waiting {
		for _, t := range c.tickets {
			t.news.Set()
		}
	}
}

// release takes a request out, whether it runs or waits.
func (a *account) release(t *ticket) {
	a.mu.Lock()
	defer a.mu.Unlock()
	is := func(other *ticket) bool { return other == t }
	a.running = slices.DeleteFunc(a.running, is)
	a.waiting = slices.DeleteFunc(a.waiting, func(c *caller) bool {
		c.tickets = slices.DeleteFunc(c.tickets, is)
		return len(c.tickets) == 0
	})
	a.grantLocked()
}

// position returns whether a request may run and, if not, how many turns it takes until it
// has its own. Callers take turns: a request waits for the requests that its caller asked
// before it, and for as many of each other caller.
func (a *account) position(t *ticket) (n int, granted bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for i, c := range a.waiting {
		round := slices.Index(c.tickets, t)
		if round < 0 {
			continue
		}
		n = round + 1
		for j, other := range a.waiting {
			switch {
			case j < i:
				n += min(len(other.tickets), round+1)
			case j > i:
				n += min(len(other.tickets), round)
			}
		}
	}
	return n, t.granted
}

// quota returns the quota of a model that is used up, or "".
func (a *account) quota(model string) agent.Kind {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !time.Now().Before(a.usedUp[model].Until) {
		delete(a.usedUp, model)
	}
	return a.usedUp[model].Kind
}

// refused remembers that the quota of models is used up. reset is the time until it is
// renewed, or 0 if it is unknown. An empty name among others is the default model.
func (a *account) refused(kind agent.Kind, reset time.Duration, requested, used string) {
	if reset <= 0 {
		reset = quotaInterval
		if kind == agent.QuotaMinute {
			reset = minuteInterval
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	until := time.Now().Add(reset)
	a.usedUp[requested] = UsedUp{requested, kind, until}
	if used != "" {
		a.usedUp[used] = UsedUp{used, kind, until}
	}
}

// answered forgets that the quota of a model was used up.
func (a *account) answered(requested, used string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.usedUp, requested)
	delete(a.usedUp, used)
}

func (a *account) load() Load {
	a.mu.Lock()
	defer a.mu.Unlock()
	l := Load{Account: a.id, Running: len(a.running), Limit: a.limitLocked()}
	for _, c := range a.waiting {
		l.Waiting += len(c.tickets)
		l.Callers = append(l.Callers, Waiting{c.name, len(c.tickets), c.tickets[0].since})
	}
	for _, u := range a.usedUp {
		if time.Now().Before(u.Until) {
			l.UsedUp = append(l.UsedUp, u)
		}
	}
	slices.SortFunc(l.UsedUp, func(a, b UsedUp) int { return cmp.Compare(a.Model, b.Model) })
	return l
}

// A pacer spaces out the starts of processes.
type pacer struct {
	turn chan struct{} // holds a token while a request waits to start
	last time.Time     // the last start; guarded by turn
}

func newPacer() *pacer { return &pacer{turn: make(chan struct{}, 1)} }

// wait waits until the caller may start: at least the interval, plus a random time of up
// to jitter, after the last start.
func (p *pacer) wait(ctx context.Context, interval, jitter time.Duration) error {
	select {
	case p.turn <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { <-p.turn }()
	if !p.last.IsZero() {
		next := p.last.Add(interval)
		if jitter > 0 {
			next = next.Add(rand.N(jitter + 1))
		}
		t := time.NewTimer(time.Until(next))
		defer t.Stop()
		select {
		case <-t.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	p.last = time.Now()
	return nil
}
