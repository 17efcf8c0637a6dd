package main

import (
	"math"
	"math/rand/v2"
	"slices"
	"time"
)

// A call is one question of a session, as the day's plan has it: nothing that
// happens during the day changes it, so that all kinds of sharing get the same day.
type call struct {
	session int
	asked   time.Duration
	work    []time.Duration // how long the model takes for each request
}

// alone returns how long the call takes if nothing makes it wait.
func (c *call) alone() (d time.Duration) {
	for _, w := range c.work {
		d += w
	}
	return d
}

const (
	// meanRequests is the mean number of requests that a call sends to the model:
	// one, and one more after each use of tools.
	meanRequests = 3
	// A request takes 2 to 4 s as a rule, so that most calls take 2 to 20 s.
	medianRequest = 2600 * time.Millisecond
	requestSpread = 0.6 // the standard deviation of the logarithm
	maxRequests   = 12

	// One session in heavyEvery belongs to an agent that asks several questions at
	// once.
	heavyEvery  = 10
	burstDelay  = 200 * time.Millisecond
	lightBurst  = 1.5 // the mean number of calls in a burst
	heavyBurst  = 4
	maxBurst    = 8
	heavyBursts = 3 // a heavy session has this many times as many bursts
)

// hours is the share of a day's calls in each hour, in percent: a team in one
// time zone.
var hours = [24]float64{8: 5, 9: 11, 10: 15, 11: 13, 12: 6, 13: 9, 14: 14, 15: 12, 16: 9, 17: 4, 18: 2}

// busyHour is when the busiest hour begins.
const busyHour = 10 * time.Hour

// meanCall returns the mean time of a call that does not wait.
func meanCall() time.Duration {
	return time.Duration(meanRequests * float64(medianRequest) * math.Exp(requestSpread*requestSpread/2))
}

// plan returns the calls of a day, in the order of their times. A session asks
// perSession calls on average.
func plan(seed uint64, sessions int, perSession float64) []*call {
	rng := rand.New(rand.NewPCG(seed, 1))
	// A light session has one share of the bursts.
	lights := float64(heavyEvery - 1)
	share := perSession * heavyEvery / (lights*lightBurst + heavyBursts*heavyBurst)
	var calls []*call
	for s := range sessions {
		bursts, size := share, lightBurst
		if heavy(s) {
			bursts, size = share*heavyBursts, heavyBurst
		}
		for h, percent := range hours {
			for range poisson(rng, bursts*percent/100) {
				at := time.Duration((float64(h) + rng.Float64()) * float64(time.Hour))
				for range min(geometric(rng, size), maxBurst) {
					calls = append(calls, &call{session: s, asked: at, work: work(rng)})
					at += burstDelay
				}
			}
		}
	}
	slices.SortStableFunc(calls, func(a, b *call) int { return int(a.asked - b.asked) })
	return calls
}

// heavy reports whether a session asks in large bursts.
func heavy(session int) bool { return session%heavyEvery == 0 }

func work(rng *rand.Rand) []time.Duration {
	w := make([]time.Duration, min(geometric(rng, meanRequests), maxRequests))
	for i := range w {
		w[i] = time.Duration(float64(medianRequest) * math.Exp(rng.NormFloat64()*requestSpread))
	}
	return w
}

// geometric returns a number from 1 on.
func geometric(rng *rand.Rand, mean float64) int {
	return 1 + int(math.Log(1-rng.Float64())/math.Log(1-1/mean))
}

func poisson(rng *rand.Rand, mean float64) (n int) {
	for p := rng.Float64(); p > math.Exp(-mean); n++ {
		p *= rng.Float64()
	}
	return n
}
