package main

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// A table shows medians, how far the samples spread, ratios to the first program, and why
// a figure is missing.
func TestTable(t *testing.T) {
	table := &table{title: "A title", runs: 3}
	ours := table.column("pollux")
	ours.add("time", "ms", 2, 10, 4)
	ours.add("one sample", "MB", 20.94)
	ours.add("calls", "")
	ours.add("calls", "", 3)
	ours.add("nothing", "ms", 0)
	ours.add("many", "ms", slices.Repeat([]float64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, 2)...)
	ours.add("hundreds", "ms", slices.Repeat([]float64{1234.5}, 200)...)
	other := table.column("other")
	other.add("time", "ms", 401, 399.6, 400.4)
	other.add("nothing", "ms", 1)
	peer := table.peer([]string{"other", "--bridge"})
	for _, r := range table.rows {
		peer.skip(r.name, "needs its editor")
	}
	peer.add("time", "ms", 1)
	got := table.text(time.Date(2026, 2, 3, 0, 0, 0, 0, time.UTC), "go1.26, 2 cores")
	want := `A title; 3 February 2026
go1.26, 2 cores; median of 3 runs
the peer is other --bridge

             pollux                             other                         peer
time              4 ms (2 to 10)                   400 ms (400 to 401) x100        1 ms x0.25
one sample     20.9 MB                                                        needs its editor
calls             3                                                           needs its editor
nothing           0 ms                               1 ms                     needs its editor
many              6 ms (95 of 100 below 10)                                   needs its editor
hundreds       1234 ms (99 of 100 below 1234)                                 needs its editor
`
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	table.runs = 1
	if got := table.text(time.Time{}, ""); !strings.Contains(got, "; one run\n") {
		t.Errorf("got %s", got)
	}
}

// A peer that cannot do something has no figure; our program fails.
func TestFail(t *testing.T) {
	table := &table{}
	ours := table.column("pollux")
	ours.add("first", "ms", 1)
	ours.add("second", "ms", 1)
	failure := errors.New("not without an editor\nat line 1")
	if err := ours.fail(failure, "first"); err != failure {
		t.Errorf("got %v", err)
	}
	if err := table.peer([]string{"other"}).fail(failure, "first", "second"); err != nil {
		t.Errorf("got %v", err)
	}
	for _, r := range table.rows {
		if got, want := r.text(1), "failed: not without an editor"; got != want {
			t.Errorf("%s: got %q, want %q", r.name, got, want)
		}
	}
}

const document = `# Measurements

Words before.

<!-- bench:one -->
<!-- /bench:one -->

Words between.

<!-- bench:two -->
    2 ms
<!-- /bench:two -->

Words after.
`

// Only the block of the table changes, as often as it is written.
func TestReplaceBlock(t *testing.T) {
	want := strings.Replace(document, "<!-- bench:one -->\n", `<!-- bench:one -->
    The title

    1 ms
`, 1)
	got, err := replaceBlock(document, "one", "The title\n\n3 ms\n")
	if err == nil {
		got, err = replaceBlock(got, "one", "The title\n\n1 ms\n")
	}
	if err != nil || got != want {
		t.Errorf("got %v\n%s\nwant\n%s", err, got, want)
	}
	for name, broken := range map[string]string{
		"no block":          strings.ReplaceAll(document, "bench:two", "bench:three"),
		"no end":            strings.Replace(document, "<!-- /bench:two -->\n", "", 1),
		"two blocks":        document + "<!-- bench:two -->\n<!-- /bench:two -->\n",
		"end before begin":  "<!-- /bench:two -->\n<!-- bench:two -->\n",
		"end of another":    "<!-- bench:two -->\n<!-- /bench:one -->\n",
		"marker in a line":  "text <!-- bench:two --> <!-- /bench:two -->\n",
		"an empty document": "",
	} {
		got, err := replaceBlock(broken, "two", "2 ms\n")
		if err == nil || !strings.Contains(err.Error(), "\n<!-- bench:two -->\n<!-- /bench:two -->\n") {
			t.Errorf("%s: got %v\n%s", name, err, got)
		}
	}
}

// Each table is in the document as soon as it is measured.
func TestRun(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "doc.md")
	write(t, file, document)
	s := setup{binary: file} // any file
	measured := 0
	one := measurement{"one", "One", 2, func(table *table, _ setup) error {
		measured++
		table.column("pollux").add("time", "ms", float64(table.runs))
		return nil
	}}
	failing := measurement{"two", "Two", 1, func(*table, setup) error { return errors.New("no luck") }}
	if err := s.run([]measurement{one, failing}, 0, file); err == nil || err.Error() != "two: no luck" {
		t.Errorf("got %v", err)
	}
	got := read(t, file)
	before, rest, _ := strings.Cut(document, "<!-- /bench:one -->\n")
	if !strings.HasPrefix(got, before+"    One; ") || !strings.HasSuffix(got, rest) ||
		!strings.Contains(got, "\n    time        2 ms\n<!-- /bench:one -->\n") {
		t.Errorf("got\n%s", got)
	}
	if err := s.run([]measurement{one}, 7, ""); err != nil || read(t, file) != got {
		t.Errorf("without a document: %v", err)
	}
	// Nothing is measured if it cannot be written.
	three := one
	three.name = "three"
	measured = 0
	for name, err := range map[string]error{
		"no block":   s.run([]measurement{one, three}, 0, file),
		"no file":    s.run([]measurement{one}, 0, filepath.Join(dir, "none.md")),
		"no program": setup{binary: filepath.Join(dir, "none")}.run([]measurement{one}, 0, file),
	} {
		if err == nil || measured > 0 {
			t.Errorf("%s: got %v, and %d tables were measured", name, err, measured)
		}
	}
}

// The names of -of are those of the blocks in docs/BENCHMARKS.md, in that order.
func TestDocument(t *testing.T) {
	var names []string
	text := read(t, "../docs/BENCHMARKS.md")
	for _, m := range measurements {
		names = append(names, m.name)
		if _, err := replaceBlock(text, m.name, ""); err != nil {
			t.Error(err)
		}
	}
	if chosen, err := choose(names); err != nil || len(chosen) != len(names) {
		t.Errorf("got %d measurements, %v", len(chosen), err)
	}
	if _, err := choose([]string{"bridge", "other"}); err == nil || !strings.Contains(err.Error(), `"other"`) {
		t.Errorf("got %v", err)
	}
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, file string) string {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
