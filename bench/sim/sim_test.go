package main

import (
	"bytes"
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"
)

// small returns a day of a small team that needs more than its quota at times.
func small(how sharing) config {
	return config{
		Sharing: how, Sessions: 30, Hosts: 5, PerSession: 40, Quota: 12, Limit: 3, Slots: 2,
		Latency: 5 * time.Millisecond, DownTime: 5 * time.Minute, Seed: 7,
	}
}

func (c config) plan() []*call { return plan(c.Seed, c.Sessions, c.PerSession) }

var failures = map[string]func(*config){
	"no failure":  func(*config) {},
	"no fallback": func(c *config) { c.NoFallback = true },
	"lost host":   func(c *config) { c.Lost = busyHour + 20*time.Minute },
	"server down": func(c *config) { c.Down = busyHour + 20*time.Minute },
	"both": func(c *config) {
		c.Down = busyHour + 20*time.Minute
		c.Lost = c.Down + time.Minute
	},
	"lost just before": func(c *config) {
		c.Lost = busyHour + 20*time.Minute
		c.Down = c.Lost + time.Second
	},
	"slow messages": func(c *config) { c.Latency = 2 * time.Second },
}

// days runs a test for all kinds of sharing with all failures.
func days(t *testing.T, f func(t *testing.T, cfg config)) {
	for _, how := range sharings {
		for name, change := range failures {
			t.Run(fmt.Sprintf("%s/%s", how, name), func(t *testing.T) {
				cfg := small(how)
				change(&cfg)
				f(t, cfg)
			})
		}
	}
}

func TestEveryCallEnds(t *testing.T) {
	days(t, func(t *testing.T, cfg config) {
		calls := cfg.plan()
		r := simulate(cfg, calls)
		asked := len(calls)
		if cfg.Lost > 0 { // a lost host asks nothing
			asked = len(r.calls)
			if asked < len(calls)*9/10 || asked == len(calls) {
				t.Errorf("%d of %d calls were asked", asked, len(calls))
			}
		}
		ended := 0
		for _, n := range r.ends {
			ended += n
		}
		if ended != asked || len(r.calls) != asked {
			t.Errorf("%d calls asked, %d ended, %d listed", asked, ended, len(r.calls))
		}
		if r.leftSlots != 0 {
			t.Errorf("%d slots are not free at the end", r.leftSlots)
		}
		for _, o := range r.calls {
			if o.wait < 0 || o.wait > callTimeout {
				t.Fatalf("a call of session %d waited %s", o.session, o.wait)
			}
		}
	})
}

func TestNeverMoreThanTheLimit(t *testing.T) {
	days(t, func(t *testing.T, cfg config) {
		limits := map[sharing]int{
			perSession: cfg.Sessions * cfg.Limit,
			perHost:    cfg.Hosts * cfg.Limit,
			careful:    cfg.Hosts * cfg.Limit,
			allHosts:   cfg.Slots,
			firstCome:  cfg.Slots,
			byRate:     cfg.Hosts * cfg.Limit,
		}
		limit := limits[cfg.Sharing]
		if cfg.Down > 0 { // each host has its own limit, and what it ran before
			limit = max(limit, cfg.Hosts*cfg.Limit+cfg.Slots)
		}
		if r := simulate(cfg, cfg.plan()); r.most > limit {
			t.Errorf("%d calls at once, the limit is %d", r.most, limit)
		}
	})
}

func TestSameSeedSameResult(t *testing.T) {
	days(t, func(t *testing.T, cfg config) {
		a, b := simulate(cfg, cfg.plan()), simulate(cfg, cfg.plan())
		if !reflect.DeepEqual(a, b) {
			t.Error("two runs with the same seed differ")
		}
		if a.fairness() != b.fairness() {
			t.Error("the fairness of two runs with the same seed differs")
		}
		cfg.Seed++
		if c := simulate(cfg, cfg.plan()); reflect.DeepEqual(a, c) {
			t.Error("two runs with different seeds are equal")
		}
	})
}

// TestTurnsAreFair lets ten sessions ask eight calls each at the same time. Five
// slots grant fifty turns before the other calls give up.
func TestTurnsAreFair(t *testing.T) {
	var mixed []*call
	for range 8 {
		for s := range 10 {
			mixed = append(mixed, &call{session: s, asked: busyHour, work: []time.Duration{3100 * time.Millisecond}})
		}
	}
	inTurn := slices.Clone(mixed)
	slices.SortStableFunc(inTurn, func(a, b *call) int { return a.session - b.session })
	for _, tt := range []struct {
		name     string
		how      sharing
		calls    []*call
		min, max float64
	}{
		{"identical sessions", allHosts, mixed, 1, 1},
		{"one session after the other", allHosts, inTurn, .95, .99}, // the first one gets the free slots
		{"one session after the other, no turns", firstCome, inTurn, .6, .65},
	} {
		r := simulate(config{Sharing: tt.how, Sessions: 10, Hosts: 2, Quota: 1000, Limit: 3, Slots: 5}, tt.calls)
		if r.ends[byModel] != 50 || r.ends[byFallback] != 30 {
			t.Errorf("%s: calls ended as %v", tt.name, r.ends)
		}
		if f := r.fairness(); f < tt.min || f > tt.max {
			t.Errorf("%s: fairness %v, want %v to %v", tt.name, f, tt.min, tt.max)
		}
	}
}

// TestLostHost loses the host that holds all slots. They are free again when the
// leases expire.
func TestLostHost(t *testing.T) {
	long := []time.Duration{time.Minute}
	var calls []*call
	for range 2 {
		calls = append(calls, &call{session: 0, asked: busyHour, work: long})
	}
	const lostAfter = 10 * time.Second
	calls = append(calls, &call{session: 1, asked: busyHour + lostAfter, work: long})
	r := simulate(config{
		Sharing: allHosts, Sessions: 2, Hosts: 2, Quota: 1000, Limit: 3, Slots: 2, Lost: busyHour + lostAfter - 1,
	}, calls)
	if r.ends[lost] != 2 || r.ends[byModel] != 1 {
		t.Fatalf("calls ended as %v", r.ends)
	}
	wait := r.calls[2].wait
	if wait <= leaseTTL-renewInterval-time.Second || wait > leaseTTL {
		t.Errorf("the other host waited %s for a lease of %s", wait, leaseTTL)
	}
	if r.blocked < 2*(leaseTTL-renewInterval) || r.blocked > 2*leaseTTL {
		t.Errorf("two slots were blocked for %s in all", r.blocked)
	}
}

// TestServerDown checks that the hosts continue without the server, and that after
// it is back no slot is granted while more calls run than there are slots.
func TestServerDown(t *testing.T) {
	var calls []*call
	ask := func(at time.Duration, session int, work time.Duration) {
		calls = append(calls, &call{session: session, asked: busyHour + at, work: []time.Duration{work}})
	}
	ask(0, 0, 100*time.Second)
	ask(time.Second, 1, 100*time.Second) // waits for the only slot
	ask(11*time.Second, 1, time.Second)  // waits for the host's own limit
	ask(46*time.Second, 0, time.Second)  // the server is back; two calls run
	r := simulate(config{
		Sharing: allHosts, Sessions: 2, Hosts: 2, Quota: 1000, Limit: 1, Slots: 1,
		Down: busyHour + 10*time.Second, DownTime: 35 * time.Second,
	}, calls)
	if r.ends != [ends]int{byModel: 2, byFallback: 1, queuedOut: 1} {
		t.Errorf("calls ended as %v", r.ends)
	}
	if r.most != 2 {
		t.Errorf("%d calls at once, want 2", r.most)
	}
	if i := slices.IndexFunc(r.calls, func(o outcome) bool { return o.asked == busyHour+time.Second }); r.calls[i].wait != 9*time.Second {
		t.Errorf("the call that waited when the server went down waited %s, want 9s", r.calls[i].wait)
	}
}

// TestQuota checks that the model never answers more than the quota in a minute.
func TestQuota(t *testing.T) {
	w := window{limit: 3}
	var taken []time.Duration
	for now := time.Duration(0); now < 5*time.Minute; now += 7 * time.Second {
		if w.delay(now) == 0 {
			w.take(now)
			taken = append(taken, now)
		} else if w.delay(now+w.delay(now)) != 0 {
			t.Fatalf("at %s the delay is too short", now)
		}
	}
	for i := 3; i < len(taken); i++ {
		if taken[i]-taken[i-3] < time.Minute {
			t.Errorf("four from %s to %s", taken[i-3], taken[i])
		}
	}
	if len(taken) < 12 {
		t.Errorf("only %d in five minutes", len(taken))
	}
}

// TestUsedUpQuota asks for six requests of three calls, with a quota of four.
func TestUsedUpQuota(t *testing.T) {
	var calls []*call
	for s := range 3 {
		calls = append(calls, &call{session: s, asked: busyHour, work: []time.Duration{time.Second, time.Second}})
	}
	for _, tt := range []struct {
		noFallback      bool
		ends            [ends]int
		refused, wasted int
		min, max        time.Duration // the longest wait
	}{
		{false, [ends]int{byModel: 1, byFallback: 2}, 2, 2, time.Second, time.Second},
		{true, [ends]int{byModel: 3}, 2, 0, 59 * time.Second, 59 * time.Second * 6 / 5},
	} {
		r := simulate(config{Sharing: perHost, Sessions: 3, Hosts: 1, Quota: 4, Limit: 3, NoFallback: tt.noFallback}, calls)
		if r.ends != tt.ends || r.refused != tt.refused || r.wasted != tt.wasted {
			t.Errorf("without fallback %t: ends %v, %d refused, %d wasted", tt.noFallback, r.ends, r.refused, r.wasted)
		}
		if w := quantile(r.waits(everything), 1); w < tt.min || w > tt.max {
			t.Errorf("without fallback %t: the longest wait is %s", tt.noFallback, w)
		}
	}
}

func TestCarefulQueue(t *testing.T) {
	q := newQueue(4)
	q.careful = true
	q.refused(0, time.Second)
	q.refused(500*time.Millisecond, time.Second) // of a request sent before
	if q.limit != 2 || q.until != time.Second {
		t.Fatalf("limit %d, until %s", q.limit, q.until)
	}
	for range 20 {
		q.answered()
	}
	if q.limit != 4 {
		t.Errorf("limit %d after many answers, want 4", q.limit)
	}
	for i := range 10 {
		q.refused(time.Duration(i)*time.Hour, time.Second)
	}
	if q.limit != 1 {
		t.Errorf("limit %d after many 429s, want 1", q.limit)
	}
}

func TestTurns(t *testing.T) {
	tasks := []*task{}
	q := newQueue(1)
	for i, s := range []int{5, 5, 5, 8, 9, 8} {
		tasks = append(tasks, &task{id: i, call: &call{session: s}})
		q.add(tasks[i])
	}
	q.remove(tasks[4])
	q.remove(tasks[4])
	var got []int
	for _, next := range q.all() {
		got = append(got, next.id)
	}
	if want := []int{0, 3, 1, 5, 2}; !slices.Equal(got, want) {
		t.Errorf("turns %v, want %v", got, want)
	}
}

func TestJain(t *testing.T) {
	for _, tt := range []struct {
		shares []float64
		want   float64
	}{
		{nil, 1}, {[]float64{0, 0}, 1}, {[]float64{.5, .5, .5}, 1}, {[]float64{1, 0, 0, 0}, .25}, {[]float64{1, 3}, .8},
	} {
		if got := jain(tt.shares); got != tt.want {
			t.Errorf("jain(%v) = %v, want %v", tt.shares, got, tt.want)
		}
	}
}

func TestQuantile(t *testing.T) {
	sorted := []time.Duration{1, 2, 3, 4}
	for q, want := range map[float64]time.Duration{0: 1, .5: 3, .95: 4, 1: 4} {
		if got := quantile(sorted, q); got != want {
			t.Errorf("quantile %v = %d, want %d", q, got, want)
		}
	}
	if got := quantile(nil, .5); got != 0 {
		t.Errorf("quantile of nothing = %d", got)
	}
}

// TestPlan checks the figures that the tables' first lines promise.
func TestPlan(t *testing.T) {
	calls := plan(1, 500, 40)
	if n := len(calls); n < 19_000 || n > 21_000 {
		t.Errorf("%d calls, want about 20,000", n)
	}
	var requests int
	var all time.Duration
	for i, c := range calls {
		if c.asked < 0 || c.asked > 25*time.Hour || i > 0 && c.asked < calls[i-1].asked {
			t.Fatalf("call %d is asked at %s", i, c.asked)
		}
		requests += len(c.work)
		all += c.alone()
	}
	if mean := float64(requests) / float64(len(calls)); mean < 2.8 || mean > 3.1 {
		t.Errorf("%.2f requests a call", mean)
	}
	if mean := all / time.Duration(len(calls)); mean < meanCall()*9/10 || mean > meanCall()*11/10 {
		t.Errorf("a call takes %s, want about %s", mean, meanCall())
	}
}

func TestTables(t *testing.T) {
	tables := func() string {
		var out bytes.Buffer
		newStudy(small(""), 1, &out).print()
		return out.String()
	}
	if a, b := tables(), tables(); a != b || len(a) < 1000 {
		t.Errorf("two runs print\n%s\nand\n%s", a, b)
	}
}
