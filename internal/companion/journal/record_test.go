package journal

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"pollux/internal/sys/systest"
)

// An entry that the user has deleted comes back with everything in it, and a text that cannot be
// written is reported once.
func TestRecord(t *testing.T) {
	j := New(filepath.Join(t.TempDir(), "journal"))
	c := Change{Entry: Entry{ID: NewID(), Path: "/a", State: Open}, Proposal: "proposed"}
	keep := Content{"proposed", Open, false}
	r := j.Record(c, func() Content { return keep }, slog.New(slog.DiscardHandler))
	sync := func(wantLost string) {
		t.Helper()
		_, lost, err := r.Flush()
		if (lost != nil) != (wantLost != "") || lost != nil && *lost != wantLost {
			t.Errorf("Flush = %v, %v; want %q", lost, err, wantLost)
		}
	}
	want := func(text string, state State, unwritten bool) {
		t.Helper()
		got, err := j.Text(c.ID)
		if e, errGet := j.Get(c.ID); err != nil || errGet != nil || got != text || e.State != state || e.Unwritten != unwritten {
			t.Errorf("the journal has %q, %+v, %v, %v", got, e, err, errGet)
		}
	}
	sync("")
	want("proposed", Open, false)
	keep = Content{"mine", Accepted, true}
	sync("")
	want("mine", Accepted, true)
	if err := os.RemoveAll(j.dir); err != nil {
		t.Fatal(err)
	}
	keep = Content{"more", Accepted, false}
	sync("")
	want("more", Accepted, false)
	if err := os.RemoveAll(j.dir); err != nil {
		t.Fatal(err)
	}
	systest.WriteFile(t, j.dir, "")
	keep.Text = "lost"
	sync("lost")
	sync("")
	if r.Has("lost") {
		t.Error("it has a text that could not be written")
	}
	systest.Remove(t, j.dir)
	sync("")
	want("lost", Accepted, false)
}

// A change that the file holds already has no entry before the user changes the text.
func TestRecordInFile(t *testing.T) {
	j := New(filepath.Join(t.TempDir(), "journal"))
	c := Change{Entry: Entry{ID: NewID(), Path: "/a", State: Orphaned}, Proposal: "in the file", InFile: true}
	keep := Content{Text: "in the file", State: Orphaned}
	r := j.Record(c, func() Content { return keep }, slog.New(slog.DiscardHandler))
	if _, _, err := r.Flush(); err != nil || r.Has("in the file") {
		t.Errorf("at first it has an entry, %v", err)
	}
	keep.Text = "undone"
	if _, _, err := r.Flush(); err != nil || !r.Has("undone") {
		t.Errorf("it has no entry, %v", err)
	}
}
