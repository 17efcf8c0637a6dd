package companion_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"pollux/internal/companion"
	"pollux/internal/companion/journal"
	"pollux/internal/editor"
	"pollux/internal/sys/systest"
)

// A CLI whose user pressed Ctrl-C ignores the accept: the user read "accepted", and
// no program had written the file.
func TestAcceptedButNotWritten(t *testing.T) {
	t.Parallel()
	w, c, e, path := newReview(t)
	other := w.view()
	d := w.propose(c, e, path, "new\n")
	e.Accepts(d, "mine\n")
	for _, view := range []*companion.View{e, other} {
		if ch := systest.Receive(t, view.Changed); ch.ID != d.ID || ch.State != editor.StateAccepted {
			t.Errorf("after the accept: %+v", ch)
		}
	}
	_, err := other.Accept(t.Context(), editor.DiffAccept{ID: d.ID, Content: "yours\n"})
	systest.WantError(t, err, "accepted already")
	systest.WantError(t, other.Reject(t.Context(), d.ID), "accepted already")
	w.journal.Records(d.ID, journal.Accepted, true)
	for _, view := range []*companion.View{e, other} {
		view.WantClosed(d, editor.ReasonUnwritten)
		view.Reads(path, "pollux journal restore "+d.ID)
	}
	w.journal.Records(d.ID, journal.Accepted, true)
	w.journal.Keeps(d.ID, "mine\n")

	// A suspended CLI that continues writes it after all.
	w.file("f", "mine\n")
	e.Reads("was written now")
	w.journal.Records(d.ID, journal.Accepted, false)
}

func TestAcceptedAndWritten(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c, e := w.connect(), w.view()
	for _, tt := range []struct{ old, proposed, accepted, written string }{
		{"old\n", "new\n", "mine\n", "mine\n"},
		{"old\r\n", "new\n", "new\n", "new\r\n"},
		{"\uFEFFold\n", "new\n", "new\n", "\uFEFFnew\n"},
		{"same\n", "new\n", "same\n", "same\n"}, // all is undone: nothing changes
	} {
		t.Logf("%+q", tt)
		path := w.file("f", tt.old)
		d := w.propose(c, e, path, tt.proposed)
		e.Accepts(d, tt.accepted)
		c.outcome()
		if tt.written != tt.old {
			w.file("f", tt.written)
		}
		e.WantClosed(d, editor.ReasonAccepted)
		w.journal.Records(d.ID, journal.Accepted, false)
	}
	e.ReadsNoMore()
}

// The user accepts and immediately leaves the editor; the CLI writes meanwhile.
func TestAcceptAndLeave(t *testing.T) {
	defer companion.SetClosing(companion.SetClosing(time.Minute)) // parallel tests run later
	w, c, e, path := newReview(t)
	d := w.propose(c, e, path, "new\n")
	e.Accepts(d, "new\n")
	go func() {
		<-c.outcomes
		os.WriteFile(path, []byte("new\n"), 0o644)
	}()
	w.Close()
	w.journal.Records(d.ID, journal.Accepted, false)
}

// openDiff failed for these files. The CLI then reported an internal bug and
// dropped the yes that its user gave in the terminal.
func TestWhatCannotBeDisplayedIsAnsweredInTheTerminal(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c, e := w.connect(), w.view()
	big := w.file("big", "")
	if err := errors.Join(os.Truncate(big, 64<<20+1), os.Mkdir(filepath.Join(w.project, "dir"), 0o755)); err != nil {
		t.Fatal(err)
	}
	w.file("binary", "a\x00b")
	w.file("latin", "caf\xe9")
	w.file("text", "text\n")
	for _, tt := range []struct{ name, link, proposal, closed, says string }{
		{"binary", "", "new\n", "new\n", "not UTF-8"},
		// A yes in the terminal converted the file without a word.
		{"latin", "", "new\n", "new\n", "the agent would write it as UTF-8"},
		{"big", "", "new\n", "new\n", "larger than 64 MiB"},
		{"dir", "", "new\n", "new\n", "directory"},
		// These are not even looked at.
		{"../outside", "", "new\n", "new\n", "not inside the workspace"},
		{"zero", "/dev/zero", "new\n", "new\n", "not inside the workspace"},
		{"up/outside", "..", "new\n", "new\n", "not inside the workspace"},
		{"dangling", "nothing", "new\n", "new\n", "link to nothing"},
		{"dangles/f", "nothing", "new\n", "new\n", "link to nothing"},
		// The CLI replaces an empty text with its own.
		{"text", "", "a\x00b", "", "NUL"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.link != "" { // the first part of the name is a link
				first, _, _ := strings.Cut(tt.name, "/")
				systest.Link(t, tt.link, filepath.Join(w.project, first))
			}
			path := filepath.Join(w.project, filepath.FromSlash(tt.name))
			if err := c.openDiff(path, tt.proposal); err != nil {
				t.Fatal(err)
			}
			e.Reads(tt.says, path, "in the terminal")
			diffs := w.Status().Diffs
			if len(diffs) != 1 || !strings.Contains(diffs[0].Notice, tt.says) {
				t.Fatalf("status has %+v", diffs)
			}
			late := w.view()
			late.Reads(tt.says)
			late.Client.Close()
			_, err := e.Accept(t.Context(), editor.DiffAccept{ID: diffs[0].ID, Content: "x"})
			systest.WantError(t, err, "in the terminal")
			c.closes(path, tt.closed)
		})
	}
	if len(e.Opened) > 0 {
		t.Errorf("shown: %+v", <-e.Opened)
	}

	// The change waits in the terminal. A view that leaves does not answer it,
	// and a CLI that ends leaves nothing to save.
	path := filepath.Join(w.project, "latin")
	if err := c.openDiff(path, "new\n"); err != nil {
		t.Fatal(err)
	}
	id := w.Status().Diffs[0].ID
	e.Client.Close()
	<-e.Client.Done()
	c.closes(path, "new\n")
	if err := c.openDiff(path, "newer\n"); err != nil {
		t.Fatal(err)
	}
	c.leave()
	systest.Until(t, func() bool { return len(w.Status().Diffs) == 0 })
	if entry, err := w.journal.Get(id); err != nil || entry.State != journal.Closed {
		t.Errorf("the journal has %+v, %v", entry, err)
	}
}

// One view edits while another accepts: the journal has what was accepted.
func TestJournalHasTheAcceptedText(t *testing.T) {
	t.Parallel()
	w, c, e, path := newReview(t)
	other := w.view()
	for range 40 {
		d := w.propose(c, e, path, "new\n")
		var both sync.WaitGroup
		both.Go(func() { e.Accepts(d, "accepted\n") })
		both.Go(func() {
			for i := range 20 {
				other.Edit(d.ID, fmt.Sprintln("edited", i))
			}
			other.Status(t.Context()) // the edits have been handled
		})
		both.Wait()
		c.outcome()
		w.journal.Keeps(d.ID, "accepted\n")
	}
}

// A link that is made between the proposal and the decision does not lead out
// of the workspace.
func TestDecisionsStayInTheWorkspace(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	e := w.view()
	outside := filepath.Join(filepath.Dir(w.project), "outside")
	systest.MakeDir(t, outside)
	secret := filepath.Join(outside, "secret")
	systest.Link(t, outside, filepath.Join(t.TempDir(), "link")) // or skip the test
	for _, tt := range []struct {
		name         string
		before, then func(path string)
	}{
		{"a new file's directory becomes a link", func(path string) { os.Mkdir(filepath.Dir(path), 0o755) }, func(path string) {
			os.Remove(filepath.Dir(path))
			systest.TryLink(outside, filepath.Dir(path))
		}},
		{"the file becomes a link to one with its text", func(path string) {
			os.Mkdir(filepath.Dir(path), 0o755)
			os.WriteFile(path, []byte("same\n"), 0o644)
		}, func(path string) {
			os.Remove(path)
			systest.TryLink(secret, path)
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			os.WriteFile(secret, []byte("same\n"), 0o600)
			path := filepath.Join(w.project, "sub", "secret")
			os.RemoveAll(filepath.Dir(path))
			tt.before(path)
			c := w.connect()
			d := w.propose(c, e, path, "new\n")
			tt.then(path)
			for _, version := range []string{"", "absent"} {
				_, err := e.Accept(t.Context(), editor.DiffAccept{ID: d.ID, Content: "new\n", Overwrite: version})
				systest.WantError(t, err, "now leads to "+outside)
			}
			c.leave()
			systest.Receive(t, e.Changed)
			_, err := e.Save(t.Context(), editor.DiffAccept{ID: d.ID, Content: "new\n"})
			systest.WantError(t, err, "now leads to "+outside)
			systest.WantFile(t, secret, "same\n")
			e.Rejects(d)
		})
	}
}

// Two views save the text that a killed CLI left, and only one of them
// succeeds.
func TestSavedOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	views := []*companion.View{w.view(), w.view(), w.view(), w.view()}
	path := w.file("f", "old\n")
	for round := range 10 {
		w.file("f", "old\n")
		c := w.connect()
		d := w.propose(c, views[0], path, "new\n")
		c.leave()
		systest.Receive(t, views[0].Changed)
		saved := make(chan string, len(views))
		var all sync.WaitGroup
		for i, e := range views {
			all.Go(func() {
				text := fmt.Sprintln("saved by", i)
				res, err := e.Save(t.Context(), editor.DiffAccept{ID: d.ID, Content: text})
				if err == nil && res.Status == editor.StatusAccepted {
					saved <- text
				} else {
					t.Logf("round %d: view %d: %+v, %v", round, i, res, err)
				}
			})
		}
		all.Wait()
		if len(saved) != 1 {
			t.Fatalf("round %d: %d views read that they saved it", round, len(saved))
		}
		if got, err := os.ReadFile(path); err != nil || string(got) != <-saved {
			t.Fatalf("round %d: the file holds %q, %v, the text of another view", round, got, err)
		}
	}
}

// The first view hangs; the second has the user's last edits.
func TestAViewThatHangsHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c, hung, e := w.connect(), w.view(), w.view()
	path := w.file("f", "old\n")
	hung.Mu.Lock()
	defer hung.Mu.Unlock()

	acks := make(chan error, 2)
	acks <- nil // of the second; the first never comes
	if err := w.FirstShown(acks); err != nil {
		t.Error(err)
	}

	d1 := w.propose(c, e, path, "new\n")
	e.Types(d1, "typed\n")
	c.closes(path, "typed\n") // what was typed in the second view
}

// A plugin that reconnected while its old connection ended was shown the diff,
// which was then rejected.
func TestReattachKeepsTheDiff(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.connect()
	path := w.file("f", "old\n")
	for round := range 30 {
		old := w.view()
		w.propose(c, old, path, "new\n")
		again := make([]*companion.View, 8)
		var all sync.WaitGroup
		all.Go(func() { old.Client.Close(); <-old.Client.Done() })
		for i := range again {
			all.Go(func() { again[i] = w.view() })
		}
		all.Wait()
		for _, e := range again {
			diffs, err := e.Diffs(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if len(e.Opened) > 0 && len(diffs) == 0 {
				t.Fatalf("round %d: the diff that the editor shows was rejected", round)
			}
		}
		for _, e := range again {
			e.Client.Close()
		}
		c.outcome()
	}
}
