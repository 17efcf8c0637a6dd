package doctor

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"pollux/internal/sys/systest"
)

// Checks run in the order of the parts, see what earlier ones found, and change nothing
// before Fix.
func TestExamine(t *testing.T) {
	fixed := 0
	first := func(_ context.Context, c *Checker) {
		c.Add(Finding{Check: "one", Status: Failed, Text: "evil\x1b[2J", Fix: "fix one", Apply: func() error { fixed++; return nil }})
	}
	second := func(_ context.Context, c *Checker) {
		if !c.Failed("other", "one") || c.Failed("other") || !c.Reported("one") || c.Reported("two") {
			t.Error("the second check does not see the first one's finding")
		}
		c.Add(Finding{Check: "two", Status: Warning, Fix: "fix two", Apply: func() error { return errors.New("cannot") }})
	}
	again := func(_ context.Context, c *Checker) {
		c.Add(Finding{Check: "two", Status: OK, Fix: "fix two", Apply: func() error { return nil }}) // listed once
	}
	third := func(_ context.Context, c *Checker) { c.OK("three", "fine") }
	var emitted []string
	done := func(_ Part, r Report) {
		for _, f := range r.Findings {
			emitted = append(emitted, f.Part+"/"+f.Check)
		}
	}
	report := Examine(t.Context(), Config{Done: done}, []Part{
		{Name: Companion, Checks: []Check{first, second, again}}, {Name: Bridge, Checks: []Check{third}},
	})
	if want := []string{"companion/one", "companion/two", "companion/two", "bridge/three"}; !slices.Equal(emitted, want) {
		t.Errorf("emitted %q, want %q", emitted, want)
	}
	if got := report.Findings[0].Text; got != "evil[2J" {
		t.Errorf("the text is %q", got)
	}
	if got := report.Fixes(); !slices.Equal(got, []string{"fix one", "fix two"}) || fixed != 0 {
		t.Errorf("fixes %q, fixed %d before Fix", got, fixed)
	}
	if err := report.Fix(); err == nil || err.Error() != "fix two: cannot" || fixed != 1 {
		t.Errorf("Fix: %v, fixed %d", err, fixed)
	}
}

// A companion ends while doctor asks, and its file with it. The other fixes are made.
func TestFixOfAFileThatIsGone(t *testing.T) {
	fixed := false
	report := Examine(t.Context(), Config{}, []Part{{Name: Companion, Checks: []Check{func(_ context.Context, c *Checker) {
		dir := t.TempDir()
		gone := filepath.Join(dir, "gone.json")
		if err := errors.Join(os.WriteFile(gone, nil, 0o644), systest.Share(dir)); err != nil {
			t.Fatal(err)
		}
		if !c.WarnOpen([]string{gone}, dir) {
			t.Error("the file is not open to others")
		}
		systest.Remove(t, gone)
		c.Add(Finding{Check: "other", Status: Warning, Fix: "fix it", Apply: func() error { fixed = true; return nil }})
	}}}})
	if err := report.Fix(); err != nil || !fixed {
		t.Errorf("%v; the other one: %v", err, fixed)
	}
}
