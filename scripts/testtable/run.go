package main

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"
)

// An event is a line of `go test -json`; see `go doc test2json` and `go help buildjson`.
type event struct {
	Action      string
	Package     string
	ImportPath  string // of a build
	FailedBuild string // the ImportPath of the build that failed
	Test        string
	Elapsed     float64 // in seconds
	Output      string
}

// A run is what `go test` did.
type run struct {
	packages map[string]*pkg
	builds   map[string]*strings.Builder // the output of builds by ImportPath
	other    strings.Builder             // lines that are not JSON
}

// A pkg is one package of a run.
type pkg struct {
	name    string
	action  string // pass, fail or skip; empty until the package ends
	elapsed time.Duration
	failed  string // the build that failed
	output  strings.Builder
	tests   map[string]*test
}

// A test is a test or a subtest.
type test struct {
	name   string
	action string // pass, fail or skip; empty if the process ended first
	output strings.Builder
}

// counts are numbers of tests.
type counts struct{ passed, failed, skipped int }

// read reads the events of a run. It calls ended for each package that ends.
func read(r io.Reader, ended func(*pkg)) (*run, error) {
	result := &run{packages: make(map[string]*pkg), builds: make(map[string]*strings.Builder)}
	lines := bufio.NewReader(r)
	for {
		line, err := lines.ReadBytes('\n')
		if len(bytes.TrimSpace(line)) > 0 {
			var e event
			if json.Unmarshal(line, &e) != nil || e.Action == "" {
				result.other.Write(line)
			} else if p := result.add(e); p != nil && e.Test == "" && p.action != "" {
				ended(p)
			}
		}
		if err == io.EOF {
			return result, nil
		} else if err != nil {
			return nil, err
		}
	}
}

// add returns the package of the event, or nil.
func (r *run) add(e event) *pkg {
	if e.Package == "" {
		if e.Action == "build-output" {
			if r.builds[e.ImportPath] == nil {
				r.builds[e.ImportPath] = new(strings.Builder)
			}
			r.builds[e.ImportPath].WriteString(e.Output)
		}
		return nil
	}
	p := r.packages[e.Package]
	if p == nil {
		p = &pkg{name: e.Package, tests: make(map[string]*test)}
		r.packages[e.Package] = p
	}
	ends := e.Action == "pass" || e.Action == "fail" || e.Action == "skip"
	if e.Test == "" {
		switch {
		case e.Action == "output":
			p.output.WriteString(e.Output)
		case ends:
			p.action, p.failed = e.Action, e.FailedBuild
			p.elapsed = time.Duration(e.Elapsed * float64(time.Second))
		}
		return p
	}
	t := p.tests[e.Test]
	if t == nil {
		t = &test{name: e.Test}
		p.tests[e.Test] = t
	}
	switch {
	case e.Action == "output":
		t.output.WriteString(e.Output)
	case ends && t.action != "fail": // one of several runs with -count
		t.action = e.Action
	}
	return p
}

func (r *run) sorted() []*pkg {
	return slices.SortedFunc(maps.Values(r.packages), func(a, b *pkg) int { return cmp.Compare(a.name, b.name) })
}

// passed reports whether there are packages and all of them passed.
func (r *run) passed() bool {
	for _, p := range r.packages {
		if p.bad() {
			return false
		}
	}
	return len(r.packages) > 0
}

func (p *pkg) bad() bool { return p.action != "pass" && p.action != "skip" }

func (p *pkg) sorted() []*test {
	return slices.SortedFunc(maps.Values(p.tests), func(a, b *test) int { return cmp.Compare(a.name, b.name) })
}

// leaf reports whether a test has no subtests.
func (p *pkg) leaf(t *test) bool {
	for name := range p.tests {
		if strings.HasPrefix(name, t.name+"/") {
			return false
		}
	}
	return true
}

// failures returns the tests that failed or did not end, without those that have a
// subtest that did.
func (p *pkg) failures() (failed []*test) {
	bad := func(t *test) bool { return t.action == "fail" || t.action == "" }
	for _, t := range p.sorted() {
		below := slices.ContainsFunc(slices.Collect(maps.Values(p.tests)), func(sub *test) bool {
			return bad(sub) && strings.HasPrefix(sub.name, t.name+"/")
		})
		if bad(t) && !below {
			failed = append(failed, t)
		}
	}
	return failed
}

// count counts the tests without subtests, and others that failed on their own.
func (p *pkg) count() counts {
	c := counts{failed: len(p.failures())}
	for _, t := range p.tests {
		switch {
		case !p.leaf(t):
		case t.action == "pass":
			c.passed++
		case t.action == "skip":
			c.skipped++
		}
	}
	return c
}

// status returns one word on the package.
func (p *pkg) status() string {
	switch {
	case p.failed != "":
		return "does not build"
	case p.action == "":
		return "did not end"
	case p.action == "fail":
		return "failed"
	case len(p.tests) == 0:
		return "no tests"
	}
	return "ok"
}

func (p *pkg) progress() string {
	return fmt.Sprintf("%-15s %s (%.1f s)", p.status(), p.name, p.elapsed.Seconds())
}

// writeTable prints the packages that have tests or failed, and the sums.
func (r *run) writeTable(w io.Writer, markdown bool) {
	rows := [][]string{{"package", "passed", "failed", "skipped", "seconds", ""}}
	var sum counts
	var elapsed time.Duration
	for _, p := range r.sorted() {
		if len(p.tests) == 0 && !p.bad() {
			continue
		}
		c := p.count()
		status := p.status()
		if status == "ok" {
			status = ""
		}
		rows = append(rows, row(p.name, c, p.elapsed, status))
		sum.passed += c.passed
		sum.failed += c.failed
		sum.skipped += c.skipped
		elapsed += p.elapsed
	}
	rows = append(rows, row("total", sum, elapsed, ""))
	width := make([]int, len(rows[0]))
	for _, cells := range rows {
		for i, cell := range cells {
			width[i] = max(width[i], len(cell))
		}
	}
	for i, cells := range rows {
		line := ""
		for column, cell := range cells {
			n := width[column]
			if column == 0 || column == len(cells)-1 {
				n = -n // to the left
			}
			if markdown {
				line += "| "
			}
			line += fmt.Sprintf("%*s", n, cell)
			if markdown {
				line += " "
			} else {
				line += "  "
			}
		}
		if markdown {
			line += "|"
		}
		fmt.Fprintln(w, strings.TrimRight(line, " "))
		if markdown && i == 0 {
			fmt.Fprintln(w, "| --- | ---: | ---: | ---: | ---: | --- |")
		}
	}
}

func row(name string, c counts, elapsed time.Duration, status string) []string {
	return []string{name, fmt.Sprint(c.passed), fmt.Sprint(c.failed), fmt.Sprint(c.skipped), fmt.Sprintf("%.1f", elapsed.Seconds()), status}
}

// writeFailures prints the output of what failed.
func (r *run) writeFailures(w io.Writer) {
	io.WriteString(w, r.other.String())
	shown := make(map[string]bool)
	for _, p := range r.sorted() {
		if !p.bad() {
			continue
		}
		fmt.Fprintf(w, "=== %s: %s\n", p.name, p.status())
		if build := r.builds[p.failed]; build != nil && !shown[p.failed] {
			shown[p.failed] = true
			io.WriteString(w, build.String())
		}
		for _, t := range p.failures() {
			io.WriteString(w, t.output.String())
		}
		io.WriteString(w, p.output.String())
	}
}

// writeSkips prints the reasons of skipped tests.
func (r *run) writeSkips(w io.Writer) {
	for _, p := range r.sorted() {
		for _, t := range p.sorted() {
			if t.action == "skip" {
				fmt.Fprintf(w, "skipped: %s %s: %s\n", p.name, t.name, reason(t.output.String()))
			}
		}
	}
}

// reason returns what a test printed, without the lines of `go test` itself.
func reason(output string) string {
	var kept []string
	for line := range strings.Lines(output) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "=== ") || strings.HasPrefix(line, "--- ") {
			continue
		}
		kept = append(kept, line)
	}
	return strings.Join(kept, " ")
}
