package main

import (
	"maps"
	"math/rand/v2"
	"slices"
	"time"
)

// A sharing says who shares a limit.
type sharing string

const (
	perSession sharing = "session"               // as before the pool: each session has its own
	perHost    sharing = "host"                  // the pool
	careful    sharing = "host, backing off"     // the pool, with a limit that follows the 429s
	allHosts   sharing = "all hosts"             // leases of slots
	firstCome  sharing = "all hosts, first come" // the same, without turns between sessions
	byRate     sharing = "all hosts, rate"       // a limit of the starts per minute instead of slots
)

// Figures of the bridge, of Gemini CLI, and of the design in docs/SCALE.md.
const (
	callTimeout  = 120 * time.Second // of a call, from when it was asked
	queueTimeout = 30 * time.Second  // of the wait for a slot
	// A call that would have to wait longer than this for the quota goes to the
	// fallback model, if there is time for another attempt.
	retryTimeout      = 8 * time.Second
	minAttemptTimeout = 10 * time.Second
	// The CLI waits this long after a 429, or as long as the 429 says if that is
	// longer, and up to a fifth more; each time twice as long.
	retryDelay, maxRetryDelay = 5 * time.Second, 30 * time.Second

	leaseTTL      = 15 * time.Second
	renewInterval = leaseTTL / 3
	rebootTime    = 10 * time.Minute
)

// A config describes a day.
type config struct {
	Sharing         sharing
	Sessions, Hosts int
	PerSession      float64 // calls a day
	Quota           int     // requests in any minute
	Limit           int     // calls at once, of each that shares
	Slots           int     // calls at once, of all hosts
	NoFallback      bool
	Latency         time.Duration
	Lost            time.Duration // when a host is lost; 0: never
	Down            time.Duration // when the lease server goes down; 0: never
	DownTime        time.Duration
	Seed            uint64
}

// slotsFor returns how many calls at once use up a quota if all take the mean time.
func slotsFor(quota int) int {
	return max(1, int(float64(quota)/meanRequests*meanCall().Minutes()))
}

// An end is a way in which a call ends.
type end int

const (
	byModel    end = iota // answered by the model that was asked for
	byFallback            // answered by the fallback model
	queuedOut             // no free slot in time
	timedOut              // the quota or the work took too long
	lost                  // the host was lost
	ends
)

// A task is a call while it lasts.
type task struct {
	*call
	id       int
	queue    *queue // waits in it, or runs in it
	running  bool
	ended    bool
	fellBack bool
	granted  time.Duration
	request  int           // the next one
	delay    time.Duration // after the next 429
	delayed  time.Duration // in all, after 429s
	next     *event
	timeouts [2]*event
}

// A world is one day of all hosts.
type world struct {
	clock
	config
	rng   *rand.Rand
	quota window

	account *queue   // of all hosts
	local   []*queue // per session or per host
	down    bool
	gone    int // the host that is lost, or -1
	live    map[int]*task

	running int
	result  result
}

// simulate simulates a day with the calls that plan has made.
func simulate(cfg config, calls []*call) result {
	w := &world{config: cfg, rng: rand.New(rand.NewPCG(cfg.Seed, 2)), quota: window{limit: cfg.Quota}, gone: -1, live: map[int]*task{}}
	n := cfg.Hosts
	if cfg.Sharing == perSession {
		n = cfg.Sessions
	}
	for range n {
		q := newQueue(cfg.Limit)
		q.careful = cfg.Sharing == careful
		w.local = append(w.local, q)
	}
	w.account = newQueue(cfg.Slots)
	w.account.latency = cfg.Latency
	w.account.firstCome = cfg.Sharing == firstCome
	if cfg.Sharing == byRate {
		// The queue does not know how many requests a call will send.
		w.account.limit = cfg.Limit * cfg.Hosts
		w.account.rate = &window{limit: max(1, cfg.Quota/meanRequests)}
	}
	w.arrive(calls, 0)
	if cfg.Lost > 0 {
		w.at(cfg.Lost, w.lose)
	}
	if cfg.Down > 0 && w.shared() {
		w.at(cfg.Down, w.fail)
		w.at(cfg.Down+cfg.DownTime, w.restore)
	}
	w.run()
	w.result.leftSlots = w.account.running
	for _, q := range w.local {
		w.result.leftSlots += q.running
	}
	return w.result
}

// arrive asks the calls from the nth on, each at its time.
func (w *world) arrive(calls []*call, n int) {
	if n < len(calls) {
		w.at(calls[n].asked, func() {
			w.ask(&task{call: calls[n], id: n, delay: retryDelay})
			w.arrive(calls, n+1)
		})
	}
}

// shared reports whether all hosts share a limit, as long as the server runs.
func (w *world) shared() bool {
	return w.Sharing == allHosts || w.Sharing == firstCome || w.Sharing == byRate
}

func (w *world) host(t *task) int { return t.session * w.Hosts / w.Sessions }

// queueOf returns the queue in which a call waits now.
func (w *world) queueOf(t *task) *queue {
	switch {
	case w.shared() && !w.down:
		return w.account
	case w.Sharing == perSession:
		return w.local[t.session]
	}
	return w.local[w.host(t)]
}

func (w *world) ask(t *task) {
	if w.host(t) == w.gone {
		return
	}
	w.live[t.id] = t
	wait := queueTimeout
	if w.NoFallback && w.shared() {
		// Nothing else can answer, so the call waits as long as it can.
		wait = callTimeout - minAttemptTimeout
	}
	t.timeouts[0] = w.after(wait, func() {
		if t.granted == 0 {
			w.giveUp(t)
		}
	})
	t.timeouts[1] = w.after(callTimeout, func() { w.end(t, timedOut) })
	w.after(w.queueOf(t).latency, func() {
		if !t.ended {
			w.join(t)
		}
	})
}

// giveUp ends the wait for a slot. If the wait was for the account's quota, the
// fallback model answers, which needs no slot.
func (w *world) giveUp(t *task) {
	if t.queue != w.account || w.NoFallback {
		w.end(t, queuedOut)
		return
	}
	t.queue.remove(t)
	t.queue = nil
	w.fallBack(t)
}

func (w *world) join(t *task) {
	t.queue = w.queueOf(t)
	t.queue.add(t)
	w.serve(t.queue)
	if !t.ended && t.granted == 0 {
		w.result.waited++
	}
}

// serve grants what a queue has to grant.
func (w *world) serve(q *queue) {
	q.wake.stop()
	for q.running < q.limit && len(q.turns) > 0 {
		delay := q.until - w.now
		if q.rate != nil {
			delay = max(delay, q.rate.delay(w.now))
		}
		if delay > 0 {
			q.wake = w.after(delay, func() { w.serve(q) })
			return
		}
		t := q.next()
		if q.rate != nil {
			q.rate.take(w.now)
		}
		q.running++
		t.granted = w.now
		w.after(q.latency, func() {
			if t.ended { // in the meantime
				return
			}
			t.running = true
			w.running++
			w.result.most = max(w.result.most, w.running)
			w.send(t)
		})
	}
}

// release gives back the slot of a call that has ended, or had no time to start.
func (w *world) release(t *task) {
	q := t.queue
	w.result.count(w.now - t.granted)
	w.after(q.latency, func() { w.vacate(q) })
}

// vacate grants a slot to the next call.
func (w *world) vacate(q *queue) {
	q.running--
	w.serve(q)
}

// send sends the next request of a call to the model.
func (w *world) send(t *task) {
	if t.request == len(t.work) {
		if t.fellBack {
			w.end(t, byFallback)
		} else {
			t.queue.answered()
			w.end(t, byModel)
		}
		return
	}
	if delay := w.quota.delay(w.now); delay > 0 && !t.fellBack {
		w.refuse(t, delay)
		return
	}
	if !t.fellBack {
		w.quota.take(w.now)
		w.result.serve(w.now)
	}
	t.delay = retryDelay
	t.next = w.after(t.work[t.request], func() {
		t.request++
		w.send(t)
	})
}

// refuse answers 429 to a request. The call tries again, or falls back. The
// fallback model has its own quota, which is never used up here.
func (w *world) refuse(t *task, delay time.Duration) {
	w.result.refused++
	t.queue.refused(w.now, delay)
	delay = time.Duration(float64(max(delay, t.delay)) * (1 + w.rng.Float64()/5))
	t.delay = min(maxRetryDelay, 2*t.delay)
	t.delayed += delay
	if t.delayed > retryTimeout && !w.NoFallback && t.asked+callTimeout-w.now >= minAttemptTimeout {
		w.fallBack(t)
		return
	}
	t.next = w.after(delay, func() { w.send(t) })
}

// fallBack asks a call's first request again, from the fallback model.
func (w *world) fallBack(t *task) {
	w.result.wasted += t.request
	t.fellBack = true
	t.request = 0
	w.send(t)
}

// end ends a call, wherever it is.
func (w *world) end(t *task, how end) {
	t.ended = true
	t.next.stop()
	t.timeouts[0].stop()
	t.timeouts[1].stop()
	delete(w.live, t.id)
	w.result.end(t, how, w.now)
	if t.queue == nil { // on its way to the server, or without a slot
		return
	}
	if t.running {
		w.running--
	}
	if t.granted == 0 {
		t.queue.remove(t)
		return
	}
	if how == lost && t.queue == w.account {
		// Nobody releases the slot. The lease was renewed some time ago.
		left := leaseTTL - time.Duration(w.rng.Int64N(int64(renewInterval)))
		w.result.blocked += left
		q := t.queue
		w.after(left, func() { w.vacate(q) })
		return
	}
	w.release(t)
}

// lose ends all calls of the host that runs most. It asks nothing until it is back.
func (w *world) lose() {
	running := make([]int, w.Hosts)
	for _, t := range w.live {
		if t.running {
			running[w.host(t)]++
		}
	}
	w.gone = slices.Index(running, slices.Max(running))
	for _, t := range w.tasks() {
		if w.host(t) == w.gone {
			w.end(t, lost)
		}
	}
	w.after(rebootTime, func() { w.gone = -1 })
}

// fail stops the server. Each host continues with its own limit, and counts
// the calls that it runs.
func (w *world) fail() {
	w.down = true
	w.move()
}

// restore starts the server again. The hosts report the calls that they run.
func (w *world) restore() {
	w.down = false
	w.move()
}

// move brings all calls to the queues that count now. Running calls keep
// running, even if there are more of them than the queue would have let run.
func (w *world) move() {
	for _, q := range append(slices.Clone(w.local), w.account) {
		q.all()
	}
	for _, t := range w.tasks() {
		if t.queue == nil {
			continue
		}
		from := t.queue
		t.queue = w.queueOf(t)
		if t.granted > 0 {
			from.running--
			t.queue.running++
		} else {
			t.queue.add(t)
		}
	}
	for _, q := range append(slices.Clone(w.local), w.account) {
		w.serve(q)
	}
}

// tasks returns the calls that have not ended, the first one asked first.
func (w *world) tasks() (tasks []*task) {
	for _, id := range slices.Sorted(maps.Keys(w.live)) {
		tasks = append(tasks, w.live[id])
	}
	return tasks
}
