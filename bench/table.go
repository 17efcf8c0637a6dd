package main

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// A table holds what a measurement has measured: a row for each figure and a column for each
// program. Ratios are relative to the first column.
type table struct {
	title   string
	runs    int
	columns []string
	notes   []string // printed above the rows
	rows    []*row
}

// A row is a figure. It has a cell for each column, which may be empty.
type row struct {
	name, unit string
	cells      []cell
}

// A cell holds the samples of one program, or the reason for having no samples.
type cell struct {
	samples []float64
	reason  string
}

// A column adds the figures of one program to a table.
type column struct {
	*table
	index  int
	isPeer bool
}

// column adds a column.
func (t *table) column(name string) column {
	t.columns = append(t.columns, name)
	return column{table: t, index: len(t.columns) - 1}
}

// ours adds the columns of our program, and of what each row names in brackets.
func (t *table) ours() column {
	c := t.column("pollux")
	t.column("[compared to]")
	return c
}

// compare adds the peer's samples to the second column of one of our rows.
func (c column) compare(name, unit string, samples ...float64) {
	c.index = 1
	c.add(name, unit, samples...)
}

// peer adds the column of another program.
func (t *table) peer(argv []string) column {
	t.note("the peer is %s", strings.Join(argv, " "))
	c := t.column("peer")
	c.isPeer = true
	return c
}

// note adds a line above the rows.
func (t *table) note(format string, args ...any) {
	t.notes = append(t.notes, fmt.Sprintf(format, args...))
}

// add adds samples of a figure. A figure that the table does not have becomes its last row.
func (c column) add(name, unit string, samples ...float64) {
	cell := c.cell(name, unit)
	cell.samples = append(cell.samples, samples...)
}

// skip states why the program has no figure in a row.
func (c column) skip(name, reason string) { c.cell(name, "").reason = reason }

// fail returns an error of our program. A peer that cannot do something is none: its rows
// state the error.
func (c column) fail(err error, names ...string) error {
	if !c.isPeer {
		return err
	}
	line, _, _ := strings.Cut(err.Error(), "\n")
	for _, name := range names {
		c.skip(name, fmt.Sprintf("failed: %.80s", line))
	}
	return nil
}

func (c column) cell(name, unit string) *cell {
	i := slices.IndexFunc(c.rows, func(r *row) bool { return r.name == name })
	if i < 0 {
		i = len(c.rows)
		c.table.rows = append(c.table.rows, &row{name: name, unit: unit})
	}
	r := c.rows[i]
	for len(r.cells) <= c.index {
		r.cells = append(r.cells, cell{})
	}
	return &r.cells[c.index]
}

// median returns the median of some samples.
func median(samples []float64) float64 { return quantile(samples, 50) }

// quantile returns the value below which the given percentage of the samples lies.
func quantile(samples []float64, percent int) float64 {
	return slices.Sorted(slices.Values(samples))[len(samples)*percent/100]
}

// lines returns the rows as lines of equal columns.
func (t *table) lines() []string {
	grid := [][]string{append([]string{""}, t.columns...)}
	for _, r := range t.rows {
		line := []string{r.name}
		for i := range r.cells {
			line = append(line, r.text(i))
		}
		grid = append(grid, line)
	}
	widths := make([]int, len(t.columns)+1)
	for _, line := range grid {
		for i, text := range line {
			widths[i] = max(widths[i], utf8.RuneCountInString(text))
		}
	}
	var lines []string
	for _, line := range grid {
		var b strings.Builder
		for i, text := range line {
			fmt.Fprintf(&b, "%-*s   ", widths[i], text)
		}
		lines = append(lines, strings.TrimRight(b.String(), " "))
	}
	return lines
}

// text returns the text of a cell: the median, how far the samples spread, and the ratio to
// the first program.
func (r *row) text(i int) string {
	c := r.cells[i]
	if len(c.samples) == 0 {
		return c.reason
	}
	mid := median(c.samples)
	text := fmt.Sprintf("%6s %-2s%s", number(mid), r.unit, spread(c.samples))
	if i > 0 && len(r.cells[0].samples) > 0 {
		if base := median(r.cells[0].samples); base > 0 {
			text += " x" + number(mid/base)
		}
	}
	return strings.TrimRight(text, " ")
}

// spread returns the lowest and the highest of a few samples, and what most of many samples
// do not reach.
func spread(samples []float64) string {
	for _, many := range []struct{ samples, percent int }{{200, 99}, {20, 95}} {
		if len(samples) >= many.samples {
			return fmt.Sprintf(" (%d of 100 below %s)", many.percent, number(quantile(samples, many.percent)))
		}
	}
	if len(samples) == 1 {
		return ""
	}
	return fmt.Sprintf(" (%s to %s)", number(slices.Min(samples)), number(slices.Max(samples)))
}

// number returns three digits of a number, or more in front of the point.
func number(v float64) string {
	digits := 2
	switch {
	case v == math.Trunc(v) || math.Abs(v) >= 100:
		digits = 0
	case math.Abs(v) >= 10:
		digits = 1
	}
	return strconv.FormatFloat(v, 'f', digits, 64)
}

// text returns the table with its date and the machine that it was measured on.
func (t *table) text(at time.Time, machine string) string {
	runs := fmt.Sprintf("median of %d runs", t.runs)
	if t.runs == 1 {
		runs = "one run"
	}
	lines := []string{
		fmt.Sprintf("%s; %s", t.title, at.Format("2 January 2006")),
		machine + "; " + runs,
	}
	lines = append(append(lines, t.notes...), "")
	return strings.Join(append(lines, t.lines()...), "\n") + "\n"
}

// markers returns the lines around the block of a table in a document.
func markers(name string) (begin, end string) {
	return "<!-- bench:" + name + " -->\n", "<!-- /bench:" + name + " -->\n"
}

// replaceBlock replaces what is between the markers of a table with a block of code.
func replaceBlock(document, name, text string) (string, error) {
	begin, end := markers(name)
	before, rest, began := strings.Cut(document, begin)
	_, after, ended := strings.Cut(rest, end)
	if !began || !ended || strings.Count(document, begin)+strings.Count(document, end) != 2 {
		return "", fmt.Errorf("it needs one block for the table %q: write these two lines where the table belongs:\n%s%s",
			name, begin, end)
	}
	var block strings.Builder
	for line := range strings.Lines(text) {
		if line != "\n" {
			block.WriteString("    ")
		}
		block.WriteString(line)
	}
	return before + begin + block.String() + end + after, nil
}
