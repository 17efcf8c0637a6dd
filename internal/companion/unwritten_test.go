package companion

import (
	"path/filepath"
	"testing"
	"time"

	"pollux/internal/companion/journal"
	"pollux/internal/editor"
	"pollux/internal/sys/systest"
)

// A lost is an accepted change whose agent ended before it wrote the file.
func (b *bare) lost(t *testing.T, v *View, s *fakeSession, path string) editor.Diff {
	t.Helper()
	d := b.propose(t, s, v, Proposal{Path: path, Text: "new\n"})
	v.Accepts(d, "mine\n")
	v.WantClosed(d, editor.ReasonUnwritten)
	if m := v.Reads(); m.Diff != d.ID || !m.Unwritten || m.Level != "warning" {
		t.Errorf("the message is %+v", m)
	}
	return d
}

// settled checks that the warning about a diff is withdrawn, once, and what the journal has.
func (b *bare) settled(t *testing.T, v *View, d editor.Diff) {
	t.Helper()
	if cl := systest.Receive(t, v.Closed); cl.ID != d.ID {
		t.Errorf("closed %+v, want %s", cl, d.ID)
	}
	if m := v.Reads("was written now"); m.Level != "info" {
		t.Errorf("the message is %+v", m)
	}
	b.journal.Records(d.ID, journal.Accepted, false)
	if _, err := v.Save(t.Context(), editor.DiffAccept{ID: d.ID}); err == nil {
		t.Error("it can be written again")
	}
	if len(v.Closed) > 0 || len(v.Messages) > 0 {
		t.Error("the view received more")
	}
}

// The user accepted a change that the agent did not write, and read only which command
// writes it.
func TestSaveUnwritten(t *testing.T) {
	t.Parallel()
	c, v, s := newReview(t)
	s.undelivered = true
	path := filepath.Join(c.dir, "f")
	save := func(d editor.Diff, version, want string) editor.DiffAcceptResult {
		t.Helper()
		res, err := v.Save(t.Context(), editor.DiffAccept{ID: d.ID, Overwrite: version})
		if err != nil || res.Status != want {
			t.Fatalf("save = %+v, %v; want %s", res, err, want)
		}
		return res
	}

	t.Run("it is written", func(t *testing.T) {
		systest.WriteFile(t, path, "old\n")
		d := c.lost(t, v, s, path)
		save(d, "", editor.StatusAccepted)
		systest.WantFile(t, path, "mine\n")
		c.settled(t, v, d)
		all, err := c.journal.List()
		if err != nil || all[0].State != journal.Replaced {
			t.Fatalf("the journal has %+v, %v", all, err)
		}
		c.journal.Keeps(all[0].ID, "old\n")
	})
	t.Run("not over a newer change", func(t *testing.T) {
		systest.WriteFile(t, path, "old\n")
		d := c.lost(t, v, s, path)
		systest.WriteFile(t, path, "newer\n")
		res := save(d, "", editor.StatusConflict)
		if res.Disk != "newer\n" {
			t.Errorf("the file is shown as %q", res.Disk)
		}
		systest.WantFile(t, path, "newer\n")
		save(d, "another version", editor.StatusConflict)
		save(d, res.Version, editor.StatusAccepted)
		systest.WantFile(t, path, "mine\n")
		c.settled(t, v, d)
	})
	t.Run("another program writes it", func(t *testing.T) {
		systest.WriteFile(t, path, "old\n")
		d := c.lost(t, v, s, path)
		if _, err := c.journal.Restore(d.ID, ""); err != nil {
			t.Fatal(err)
		}
		c.settled(t, v, d)
	})
	t.Run("a newer change is written", func(t *testing.T) {
		systest.WriteFile(t, path, "old\n")
		d := c.lost(t, v, s, path)
		s.undelivered = false
		d2 := c.propose(t, s, v, Proposal{Path: path, Text: "newer\n"})
		v.Accepts(d2, "newer\n")
		systest.WriteFile(t, path, "newer\n")
		closed := []string{systest.Receive(t, v.Closed).ID, systest.Receive(t, v.Closed).ID}
		if closed[0] != d.ID || closed[1] != d2.ID {
			t.Errorf("closed %q, want %q and %q", closed, d.ID, d2.ID)
		}
		if _, err := v.Save(t.Context(), editor.DiffAccept{ID: d.ID}); err == nil {
			t.Error("the older text can be written over the newer one")
		}
	})
}

// A page that is loaded again shows what is still to be written.
func TestPageLoadedAgain(t *testing.T) {
	c, v, s := newReview(t)
	s.undelivered = true
	d := c.lost(t, v, s, filepath.Join(c.dir, "f"))
	page := NewView(t, c.AttachPage)
	if m := page.Reads(); m.Diff != d.ID || !m.Unwritten {
		t.Errorf("the page reads %+v", m)
	}
	c.view(t).ReadsNoMore()
}

// The warning that a change cannot be displayed stayed after the user had answered in the
// terminal.
func TestNoticeIsWithdrawn(t *testing.T) {
	c, v, s := newReview(t)
	path := filepath.Join(c.dir, "f")
	c.proposes(t, s, Proposal{Path: path, Binary: "it is binary"})
	m := v.Reads()
	if m.Diff == "" || m.Unwritten {
		t.Errorf("the message is %+v", m)
	}
	if _, err := c.Withdraw(s, path); err != nil {
		t.Fatal(err)
	}
	if cl := systest.Receive(t, v.Closed); cl.ID != m.Diff {
		t.Errorf("closed %+v, want %s", cl, m.Diff)
	}
}

// A save on a slow disk does not replace what the user has saved in the meantime.
func TestSlowSave(t *testing.T) {
	t.Parallel()
	c, v, s := newReview(t)
	path := c.file(t, "f")
	d := c.propose(t, s, v, Proposal{Path: path, Text: "new\n"})
	c.Disconnect(s)
	v.Reads()
	c.mu.Lock()
	orphan := c.diffs[d.ID]
	c.mu.Unlock()
	now, err := orphan.target.read()
	if err != nil {
		t.Fatal(err)
	}
	systest.WriteFile(t, path, "saved since\n")
	systest.WantError(t, c.write(orphan, now, "new\n"), "has changed since you saved it")
	systest.WantFile(t, path, "saved since\n")
	if now, err = orphan.target.read(); err != nil {
		t.Fatal(err)
	}
	if err := c.write(orphan, now, "new\n"); err != nil {
		t.Error(err)
	}
	systest.WantFile(t, path, "new\n")
}

// The journal lacks the user's text, and the file holds the agent's: that is not the accepted one.
func TestTextInMemoryIsNotDropped(t *testing.T) {
	t.Parallel()
	c, v, s := newReview(t)
	path := c.file(t, "f")
	d := c.propose(t, s, v, Proposal{Path: path, Text: "new\n"})
	c.mu.Lock()
	x := &expected{diff: c.diffs[d.ID], text: "mine\n", read: unseen}
	c.mu.Unlock()
	c.misses(x, file{}, "It was accepted.", "yours")
	v.Reads("make room on the disk")
	c.judge(sight{path: path, at: time.Now(), state: fileState{exists: true, size: 4}, file: &file{text: "new\n", exists: true}})
	v.ReadsNoMore()
	if c.missed(d.ID) == nil {
		t.Error("the text in memory is lost")
	}
}
