package usage

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"pollux/internal/agent"
	"pollux/internal/jsonl"
	"pollux/internal/sys/disk"
)

// Counts are sums over calls.
type Counts struct {
	Calls int `json:"calls"`
	// Errors is the number of calls without a complete answer, by kind.
	Errors map[string]int `json:"errors"`
	// Fallbacks is the number of calls that asked the fallback model.
	Fallbacks    int   `json:"fallbacks"`
	InputTokens  int64 `json:"inputTokens"`
	CachedTokens int64 `json:"cachedTokens"`
	OutputTokens int64 `json:"outputTokens"`
	DurationMs   int64 `json:"durationMs"`
	QueuedMs     int64 `json:"queuedMs"`
}

// Failed returns the number of calls without a complete answer.
func (c Counts) Failed() (n int) {
	for _, calls := range c.Errors {
		n += calls
	}
	return n
}

func (c *Counts) add(l line) {
	c.Calls++
	if c.Errors == nil {
		c.Errors = make(map[string]int)
	}
	if l.Error != "" {
		c.Errors[l.Error]++
	}
	if l.Fallback {
		c.Fallbacks++
	}
	c.InputTokens += l.Input
	c.CachedTokens += l.Cached
	c.OutputTokens += l.Output
	c.DurationMs += l.DurationMs
	c.QueuedMs += l.QueuedMs
}

// A Row holds the counts of a model on a day. Model is the model that answered, or
// empty if it is unknown.
type Row struct {
	Day   string `json:"day"`
	Agent string `json:"agent"`
	Model string `json:"model"`
	Counts
}

// A Report holds the calls of some days. From and To are its first and last day,
// such as 2026-01-31.
type Report struct {
	From  string `json:"from"`
	To    string `json:"to"`
	Rows  []Row  `json:"rows"`
	Total Counts `json:"total"`
	// NotAsked is the number of calls that failed before an agent had their prompt, by kind.
	// Rows and Total do not count them.
	NotAsked map[string]int `json:"notAsked"`
	// Skipped is the number of lines that could not be read.
	Skipped int `json:"skippedLines"`
}

// Read returns the calls of the last days in a directory, today included.
func Read(dir string, days int, now time.Time) (Report, error) {
	y, m, d := now.Date()
	from := time.Date(y, m, d-days+1, 12, 0, 0, 0, now.Location()) // noon exists on every day
	r := reader{
		report: Report{
			From: from.Format(time.DateOnly), To: now.Format(time.DateOnly),
			Rows: []Row{}, Total: Counts{Errors: map[string]int{}}, NotAsked: map[string]int{},
		},
		rows: make(map[[3]string]*Row),
	}
	names, err := months(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return Report{}, unreadable(dir, err)
	}
	for _, name := range names {
		if name < month(from) {
			continue
		}
		path := filepath.Join(dir, name)
		if err := r.file(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return Report{}, unreadable(path, err)
		}
	}
	return r.finish(), nil
}

func unreadable(path string, err error) error {
	return fmt.Errorf("cannot read %s (%w): make it readable, or delete it", path, disk.Cause(err))
}

// A reader adds up lines. The key of rows is the day, the agent and the model.
type reader struct {
	report Report
	rows   map[[3]string]*Row
}

// file adds the lines of a file.
func (r *reader) file(path string) error {
	f, err := os.OpenFile(path, os.O_RDONLY|disk.NonBlock, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return cmp.Or(err, disk.ErrNotRegular)
	}
	lines := jsonl.NewReader(f, maxLine)
	for {
		data, err := lines.ReadLine()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case errors.As(err, new(*jsonl.TooLongError)):
			r.report.Skipped++
		case err != nil:
			return err
		default:
			r.line(data)
		}
	}
}

func (r *reader) line(data []byte) {
	// A process that sees a part of another's line begins with a line feed.
	if len(bytes.TrimSpace(data)) == 0 {
		return
	}
	l, ok := decode(data)
	if !ok {
		r.report.Skipped++
		return
	}
	day := l.Start.Format(time.DateOnly)
	if day < r.report.From {
		return
	}
	if l.NotAsked || agent.Kind(l.Error).BeforePrompt() { // older releases did not mark such calls
		r.report.NotAsked[l.Error]++
		return
	}
	key := [3]string{day, l.Agent, l.Model}
	if r.rows[key] == nil {
		r.rows[key] = &Row{Day: day, Agent: l.Agent, Model: l.Model}
	}
	r.rows[key].add(l)
	r.report.Total.add(l)
}

// finish returns the report with its rows in order.
func (r *reader) finish() Report {
	for _, row := range r.rows {
		r.report.Rows = append(r.report.Rows, *row)
	}
	slices.SortFunc(r.report.Rows, func(a, b Row) int {
		return cmp.Or(cmp.Compare(a.Day, b.Day), cmp.Compare(a.Agent, b.Agent), cmp.Compare(a.Model, b.Model))
	})
	return r.report
}
