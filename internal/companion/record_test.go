package companion_test

import (
	"os"
	"path/filepath"
	"testing"

	"pollux/internal/companion"
	"pollux/internal/companion/journal"
	"pollux/internal/editor"
	"pollux/internal/sys/systest"
)

// breakJournal makes the journal unwritable, as a full disk does, and returns a
// function that makes it writable again.
func (w *world) breakJournal() (repair func()) {
	w.t.Helper()
	w.journal.Wait() // Windows moves and removes nothing that is open
	dir := filepath.Join(filepath.Dir(w.project), "journal")
	move := func(from, to string) {
		w.t.Helper()
		if err := os.Rename(from, to); err != nil && !os.IsNotExist(err) {
			w.t.Fatal(err)
		}
	}
	move(dir, dir+".away")
	systest.WriteFile(w.t, dir, "")
	return func() {
		w.t.Helper()
		w.journal.Wait()
		systest.Remove(w.t, dir)
		move(dir+".away", dir)
	}
}

// A text that could not be written is written at the next event. It used to be
// marked as kept before the write, so the same text was never written.
func TestTextIsWrittenLater(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		next  func(w *world, c *cli, e *companion.View, d editor.Diff)
		text  string
		state journal.State
	}{
		"edit":   {func(w *world, _ *cli, e *companion.View, d editor.Diff) { e.Edits(d, "mine, and more\n") }, "mine, and more\n", journal.Open},
		"accept": {func(w *world, _ *cli, e *companion.View, d editor.Diff) { e.Accepts(d, "mine\n") }, "mine\n", journal.Accepted},
		"reject": {func(w *world, _ *cli, e *companion.View, d editor.Diff) { e.Rejects(d) }, "mine\n", journal.Rejected},
		"close":  {func(_ *world, c *cli, _ *companion.View, d editor.Diff) { c.closes(d.Path, "mine\n") }, "mine\n", journal.Closed},
	} {
		t.Run(name, func(t *testing.T) {
			w, c, e, path := newReview(t)
			d := w.propose(c, e, path, "new\n")
			repair := w.breakJournal()
			e.Edits(d, "m\n")
			e.Edits(d, "mine\n")
			e.Reads(path, "not kept", "not a directory", "check that ", "next edit")
			e.ReadsNoMore()
			repair()
			tt.next(w, c, e, d)
			e.Settle()
			w.journal.Keeps(d.ID, tt.text)
			w.journal.Records(d.ID, tt.state, tt.state == journal.Accepted) // which no agent has written

			// The next failure is reported again.
			if tt.state == journal.Open {
				repair = w.breakJournal()
				e.Edits(d, "again\n")
				e.Reads("not kept")
				repair()
			}
		})
	}
}

// A change has ended, and its text could not be written: it is written with the next change.
func TestTextOfAnEndedChangeIsWrittenLater(t *testing.T) {
	w, c, e, path := newReview(t)
	d := w.propose(c, e, path, "new\n")
	repair := w.breakJournal()
	e.Edits(d, "mine\n")
	e.Reads("not kept")
	e.Rejects(d)
	e.Settle()
	repair()
	w.propose(c, e, path, "another\n")
	e.Settle()
	w.journal.Keeps(d.ID, "mine\n")
	w.journal.Records(d.ID, journal.Rejected, false)
}

// The disk is full when the user accepts, and the agent does not write the file: the user can.
func TestAcceptedOnAFullDisk(t *testing.T) {
	w, c, e, path := newReview(t)
	d := w.propose(c, e, path, "new\n")
	repair := w.breakJournal()
	e.Accepts(d, "mine\n")
	e.Reads("not kept")
	c.leave()
	e.Reads("make room on the disk")
	if _, err := e.Save(t.Context(), editor.DiffAccept{ID: d.ID}); err == nil {
		t.Error("the file was replaced, and its old text is not kept")
	}
	systest.WantFile(t, path, "old\n")
	repair()
	if res, err := e.Save(t.Context(), editor.DiffAccept{ID: d.ID}); err != nil || res.Status != editor.StatusAccepted {
		t.Errorf("save = %+v, %v", res, err)
	}
	systest.WantFile(t, path, "mine\n")
	w.propose(w.connect(), e, w.file("g", "x\n"), "another\n") // writes again what could not be written
	e.Settle()
	w.journal.Records(d.ID, journal.Accepted, false)
}

// A proposal that could not be written gets its entry with the first edit.
func TestEntryIsMadeLater(t *testing.T) {
	w := newWorld(t)
	c, e := w.connect(), w.view()
	path := w.file("f", "old\r\n")
	repair := w.breakJournal()
	d := w.propose(c, e, path, "new\n")
	e.Reads("The proposal for " + path + " is not kept")
	repair()
	e.Edits(d, "mine\n")
	wantEntry(t, w, d, "mine\n")
}

// An entry disappears while its diff is on the screen. Later edits were lost
// silently.
func TestEntryIsMadeAgain(t *testing.T) {
	w := newWorld(t)
	c, e := w.connect(), w.view()
	path := w.file("f", "old\r\n")
	d := w.propose(c, e, path, "new\n")
	dir := filepath.Join(filepath.Dir(w.project), "journal")
	w.journal.Wait()
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	e.Edits(d, "mine\n")
	wantEntry(t, w, d, "mine\n")

	// The same for a diff whose CLI has ended.
	c.leave()
	systest.Receive(t, e.Changed)
	e.Reads() // that it ended: the journal has the state
	w.journal.Wait()
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	e.Edits(d, "mine, and more\n")
	wantEntry(t, w, d, "mine, and more\n")
	w.journal.Records(d.ID, journal.Orphaned, false)
	e.ReadsNoMore()
}

func wantEntry(t *testing.T, w *world, d editor.Diff, text string) {
	t.Helper()
	w.journal.Keeps(d.ID, text)
	if got, err := w.journal.Proposal(d.ID); err != nil || got != d.Proposed {
		t.Errorf("the journal has the proposal %q, %v", got, err)
	}
	if entry, err := w.journal.Get(d.ID); err != nil || entry.Path != d.Path || entry.Real != d.Path || !entry.Edited || !entry.CRLF || entry.Time.UnixMilli() != d.Opened {
		t.Errorf("the entry is %+v, %v", entry, err)
	}
}

// A restore, which has only the journal, writes what a save by the agent's rules
// does.
func TestRestoreFollowsTheAgentsRules(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	e := w.view()
	for _, tt := range []struct{ old, proposed, saved, want string }{
		{"old\n", "new\n", "mine\n", "mine\n"},
		{"old\r\n", "new\n", "mine\n", "mine\r\n"},
		{"old\r\n", "new\n", "mine\r\n", "mine\r\n"},
		{"old\r\nold\n", "new\n", "mine\n", "mine\n"},
		{"\uFEFFold\n", "new\n", "mine\n", "\uFEFFmine\n"},
		{"\uFEFFold\r\n", "new\n", "mine\n", "\uFEFFmine\r\n"},
		{"\uFEFFold\n", "new\n", "", ""},
		{"old\n", "\uFEFFnew\n", "mine\n", "\uFEFFmine\n"},
	} {
		c, path := w.connect(), w.file("f", tt.old)
		d := w.propose(c, e, path, tt.proposed)
		c.leave()
		systest.Receive(t, e.Changed)
		e.Saves(d, tt.saved)
		systest.Receive(t, e.Closed)
		restored := filepath.Join(w.project, "restored")
		if _, err := w.journal.Restore(d.ID, restored); err != nil {
			t.Fatal(err)
		}
		for _, file := range []string{path, restored} {
			systest.WantFile(t, file, tt.want)
		}
	}
}
