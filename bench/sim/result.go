package main

import (
	"slices"
	"time"
)

// A result counts the outcomes of a day, or of several.
type result struct {
	ends    [ends]int
	calls   []outcome
	refused int // requests answered 429
	wasted  int // requests that were answered for nothing
	served  [24]int
	most    int // calls at once

	granted  int // slots
	waited   int // calls that did not get a slot at once
	renewals int // of leases
	blocked  time.Duration
	// leftSlots is the number of slots that are not free at the end.
	leftSlots int
}

// An outcome is how one call ended.
type outcome struct {
	session int
	asked   time.Duration
	wait    time.Duration // beyond the time that its work takes, or until it gave up
	how     end
}

func (r *result) serve(now time.Duration) { r.served[min(int(now.Hours()), 23)]++ }

func (r *result) count(held time.Duration) {
	r.granted++
	r.renewals += int(held / renewInterval)
}

func (r *result) end(t *task, how end, now time.Duration) {
	o := outcome{session: t.session, asked: t.asked, wait: now - t.asked, how: how}
	if how == byModel || how == byFallback {
		o.wait -= t.alone()
	} else if !t.fellBack {
		r.wasted += t.request
	}
	r.ends[how]++
	r.calls = append(r.calls, o)
}

// add adds another day.
func (r *result) add(day result) {
	for how, n := range day.ends {
		r.ends[how] += n
	}
	r.calls = append(r.calls, day.calls...)
	r.refused += day.refused
	r.wasted += day.wasted
	for h, n := range day.served {
		r.served[h] += n
	}
	r.most = max(r.most, day.most)
	r.granted += day.granted
	r.waited += day.waited
	r.renewals += day.renewals
	r.blocked += day.blocked
}

// percent returns the share of calls that ended in one of the ways.
func (r *result) percent(hows ...end) float64 {
	n := 0
	for _, how := range hows {
		n += r.ends[how]
	}
	return 100 * float64(n) / float64(max(1, len(r.calls)))
}

// per100 returns a number per 100 calls.
func (r *result) per100(n int) float64 { return 100 * float64(n) / float64(max(1, len(r.calls))) }

// busiest returns the requests per minute that the model answered in the busiest hour.
func (r *result) busiest(days int) float64 {
	return float64(slices.Max(r.served[:])) / 60 / float64(days)
}

// waits returns the waits of the calls that keep selects, the shortest first.
func (r *result) waits(keep func(outcome) bool) (waits []time.Duration) {
	for _, o := range r.calls {
		if keep(o) {
			waits = append(waits, o.wait)
		}
	}
	slices.Sort(waits)
	return waits
}

// quantile returns the value below which the share q of the sorted values is.
func quantile(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]
}

// fairness returns Jain's index over the share of each session's calls that the
// model answered: 1 if all are treated alike, 1/n if one of n gets everything. It
// is about the busiest hour; at other times there is enough for all.
func (r *result) fairness() float64 {
	asked, answered := map[int]float64{}, map[int]float64{}
	for _, o := range r.between(busyHour, busyHour+time.Hour).calls {
		asked[o.session]++
		if o.how == byModel {
			answered[o.session]++
		}
	}
	// The order of a sum of floating-point numbers matters to its last digits.
	shares := make([]float64, 0, len(asked))
	for s, n := range asked {
		shares = append(shares, answered[s]/n)
	}
	slices.Sort(shares)
	return jain(shares)
}

func jain(shares []float64) float64 {
	var sum, squares float64
	for _, x := range shares {
		sum += x
		squares += x * x
	}
	if squares == 0 {
		return 1
	}
	return sum * sum / (float64(len(shares)) * squares)
}
