// Command sim simulates a day of a team whose sessions share the quota of one
// account, and prints the tables of docs/SCALE.md.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"
)

func main() {
	base := config{Sessions: 500, Hosts: 50, Limit: 3, DownTime: 5 * time.Minute}
	days := flag.Int("days", 3, "how many days to simulate for each row")
	flag.Uint64Var(&base.Seed, "seed", 1, "the first day's `seed`")
	flag.Float64Var(&base.PerSession, "calls", 40, "calls of a session in a day, on average")
	flag.IntVar(&base.Quota, "quota", 150, "requests per minute that the account allows")
	flag.DurationVar(&base.Latency, "latency", 5*time.Millisecond, "how long a message to or from the server takes")
	flag.Parse()
	if *days < 1 || base.PerSession <= 0 || base.Quota < 1 || base.Latency < 0 {
		fmt.Fprintln(os.Stderr, "sim: -days, -calls and -quota must be greater than 0, and -latency not negative")
		os.Exit(2)
	}
	if flag.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "sim: unexpected argument %q; run it with -h to see its flags\n", flag.Arg(0))
		os.Exit(2)
	}
	base.Slots = slotsFor(base.Quota)
	newStudy(base, *days, os.Stdout).print()
}

// A study prints tables about variations of a day.
type study struct {
	base config
	days int
	out  io.Writer

	plans   map[planned][]*call
	results map[config]*result
}

func newStudy(base config, days int, out io.Writer) *study {
	return &study{base: base, days: days, out: out, plans: map[planned][]*call{}, results: map[config]*result{}}
}

// planned holds the inputs of a plan.
type planned struct {
	seed     uint64
	sessions int
}

// plan returns the plan of a day, and makes it only once.
func (s *study) plan(seed uint64, sessions int) []*call {
	key := planned{seed, sessions}
	if s.plans[key] == nil {
		s.plans[key] = plan(seed, sessions, s.base.PerSession)
	}
	return s.plans[key]
}

var sharings = []sharing{perSession, perHost, careful, allHosts, firstCome, byRate}

func (s *study) print() {
	b := s.base
	fmt.Fprintf(s.out, "%d sessions on %d hosts; a session asks %.0f calls a day; a call takes %.1f s and sends %d requests, on average\n"+
		"The account allows %d requests a minute; the calls of the busiest hour need %.0f\n"+
		"%d slots for all hosts, %d otherwise; %s to or from the server; %d days from seed %d\n",
		b.Sessions, b.Hosts, b.PerSession, meanCall().Seconds(), meanRequests,
		b.Quota, s.demand(b.Sessions), b.Slots, b.Limit, b.Latency, s.days, b.Seed)
	s.compare("A day, by who shares the limit", func(*config) {})
	s.compare("The same day without a fallback model", func(c *config) { c.NoFallback = true })
	s.slots()
	s.sizes()
	s.failures()
	s.messages()
}

// demand returns how many requests a minute the calls of the busiest hour need.
func (s *study) demand(sessions int) float64 {
	n := 0
	for day := range s.days {
		for _, c := range s.plan(s.base.Seed+uint64(day), sessions) {
			if busyHour <= c.asked && c.asked < busyHour+time.Hour {
				n += len(c.work)
			}
		}
	}
	return float64(n) / 60 / float64(s.days)
}

// run simulates the days with a change of the base, each such change only once.
func (s *study) run(change func(*config)) *result {
	cfg := s.base
	change(&cfg)
	if s.results[cfg] == nil {
		all := &result{}
		for day := range s.days {
			today := cfg
			today.Seed += uint64(day)
			all.add(simulate(today, s.plan(today.Seed, today.Sessions)))
		}
		s.results[cfg] = all
	}
	return s.results[cfg]
}

// table prints rows whose cells are separated by tabs, under a title.
func (s *study) table(title, header string, rows func(row func(cells ...any))) {
	fmt.Fprintf(s.out, "\n%s\n\n", title)
	w := tabwriter.NewWriter(s.out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, strings.ReplaceAll(header, "|", "\t")+"\t")
	rows(func(cells ...any) {
		for _, c := range cells {
			switch c := c.(type) {
			case float64:
				fmt.Fprintf(w, "%.1f\t", c)
			case time.Duration:
				fmt.Fprintf(w, "%.1f s\t", c.Seconds())
			default:
				fmt.Fprintf(w, "%v\t", c)
			}
		}
		fmt.Fprintln(w)
	})
	w.Flush()
}

func everything(outcome) bool { return true }

func (s *study) compare(title string, change func(*config)) {
	var results []*result
	for _, how := range sharings {
		results = append(results, s.run(func(c *config) { c.Sharing = how; change(c) }))
	}
	s.table(title+": calls in percent, 429s and wasted requests per 100 calls",
		"shared by|answered|by fallback|no slot|timeout|429s|wasted|at once|peak|fairness", func(row func(...any)) {
			for i, how := range sharings {
				r := results[i]
				row(how, r.percent(byModel), r.percent(byFallback), r.percent(queuedOut), r.percent(timedOut),
					r.per100(r.refused), r.per100(r.wasted), r.most, r.busiest(s.days), fmt.Sprintf("%.3f", r.fairness()))
			}
		})
	s.table("The same calls: the wait beyond a call's own work; its p95 in sessions that ask one by one (light) or many at once (heavy)",
		"shared by|p50|p95|p99|light p95|heavy p95", func(row func(...any)) {
			for i, how := range sharings {
				r := results[i]
				all := r.waits(everything)
				row(how, quantile(all, .5), quantile(all, .95), quantile(all, .99),
					quantile(r.waits(func(o outcome) bool { return !heavy(o.session) }), .95),
					quantile(r.waits(func(o outcome) bool { return heavy(o.session) }), .95))
			}
		})
}

// slots compares numbers of slots under the same quota.
func (s *study) slots() {
	s.table("All hosts share slots, by their number: calls in percent, 429s per 100 calls",
		"slots|answered|by fallback|429s|p50|p95", func(row func(...any)) {
			for _, percent := range []int{75, 100, 130, 175, 290} {
				n := max(1, s.base.Slots*percent/100)
				r := s.run(func(c *config) { c.Sharing, c.Slots = allHosts, n })
				all := r.waits(everything)
				row(n, r.percent(byModel), r.percent(byFallback), r.per100(r.refused), quantile(all, .5), quantile(all, .95))
			}
		})
}

// sizes compares teams of several sizes under the same quota.
func (s *study) sizes() {
	compared := []sharing{perSession, perHost, careful, allHosts, byRate}
	s.table("Teams of several sizes, and how much of the quota they need in the busiest hour: calls that the model answered, in percent (429s per 100 calls)",
		"sessions|hosts|needed|"+strings.Join(names(compared), "|"), func(row func(...any)) {
			for _, percent := range []int{20, 40, 60, 80, 100, 200} {
				n, hosts := s.base.Sessions*percent/100, s.base.Hosts*percent/100
				cells := []any{n, hosts, fmt.Sprintf("%.0f %%", 100*s.demand(n)/float64(s.base.Quota))}
				for _, how := range compared {
					r := s.run(func(c *config) { c.Sharing, c.Sessions, c.Hosts = how, n, hosts })
					cells = append(cells, fmt.Sprintf("%.1f (%.1f)", r.percent(byModel), r.per100(r.refused)))
				}
				row(cells...)
			}
		})
}

func names(all []sharing) (names []string) {
	for _, how := range all {
		names = append(names, string(how))
	}
	return names
}

// failures shows the minutes around a failure in the busiest hour.
func (s *study) failures() {
	const at = 10*time.Hour + 20*time.Minute
	s.table("All hosts share slots; the calls asked from 10:18 to 10:30 in percent, calls at once on the whole day",
		"failure|answered|by fallback|no slot|lost|p50|p95|slots blocked|at once", func(row func(...any)) {
			for _, f := range []struct {
				name   string
				change func(*config)
			}{
				{"none", func(*config) {}},
				{"the busiest host is lost", func(c *config) { c.Lost = at }},
				{"server down for 5 min, 3 per host", func(c *config) { c.Down = at }},
				{"server down for 5 min, 1 per host", func(c *config) { c.Down, c.Limit = at, 1 }},
				{"200 ms to or from the server", func(c *config) { c.Latency = 200 * time.Millisecond }},
			} {
				r := s.run(func(c *config) { c.Sharing = allHosts; f.change(c) })
				part := r.between(at-callTimeout, at+10*time.Minute)
				w := part.waits(everything)
				row(f.name, part.percent(byModel), part.percent(byFallback), part.percent(queuedOut), part.percent(lost),
					quantile(w, .5), quantile(w, .95),
					fmt.Sprintf("%.0f s", r.blocked.Seconds()/float64(s.days)), r.most)
			}
		})
}

// between returns the calls that were asked in a part of the day.
func (r *result) between(from, to time.Duration) (part result) {
	for _, o := range r.calls {
		if from <= o.asked && o.asked < to {
			part.calls = append(part.calls, o)
			part.ends[o.how]++
		}
	}
	return part
}

// messages counts the messages of the designs in docs/SCALE.md, which says what a
// step costs at a real server.
func (s *study) messages() {
	r := s.run(func(c *config) { c.Sharing = allHosts })
	n, hosts := float64(len(r.calls)), float64(s.base.Hosts)
	grants, waits, renewals := float64(r.granted)/n, float64(r.waited)/n, float64(r.renewals)/n
	s.table(fmt.Sprintf("Messages per call; a call has %.2f slots, %.2f waits and %.2f renewals", grants, waits, renewals),
		"design|sent and answered|delivered to watchers|in all", func(row func(...any)) {
			for _, d := range []struct {
				name            string
				own, broadcasts float64
			}{
				// To take, renew and return a slot is a request and its answer each; a
				// wait is two of them, to add it and to remove it. All hosts watch.
				{"slots in a bucket, waits in a stream", 2 * (2*grants + renewals + 2*waits), 2*grants + renewals + 2*waits},
				// A pull, the token, its return; a renewal has no answer.
				{"slots as messages of a work queue", 3*grants + renewals, 0},
				// A request, the turn; the return and its answer; a report.
				{"one pool grants turns to all", 4*grants + 2*renewals, 0},
			} {
				row(d.name, d.own, hosts*d.broadcasts, d.own+hosts*d.broadcasts)
			}
		})
}
