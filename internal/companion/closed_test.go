package companion

import (
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"pollux/internal/companion/journal"
	"pollux/internal/editor"
	"pollux/internal/sys/systest"
)

// After a "No" in the agent's terminal, the journal said that the file holds another text
// now, as if another program had written it.
func TestHowAClosedChangeEnded(t *testing.T) {
	synctest.Test(t, testHowAClosedChangeEnded)
}

func testHowAClosedChangeEnded(t *testing.T) {
	c, v, s := newReview(t)
	ids := make(map[string]string)
	for _, tt := range []struct {
		name  string
		end   func(path string) (string, error)
		write string
		want  journal.Ending
	}{
		{"no", func(path string) (string, error) { return c.Withdraw(s, path) }, "", journal.Refused},
		{"yes", func(path string) (string, error) { return c.Withdraw(s, path) }, "new\n", journal.InTerminal},
		{"hangup", func(path string) (string, error) { return c.Abandon(s, path) }, "", journal.Withdrawn},
		{"yes of an older agent", func(path string) (string, error) { return c.Abandon(s, path) }, "new\n", journal.InTerminal},
		{"something else", func(path string) (string, error) { return c.Withdraw(s, path) }, "other\n", ""},
	} {
		path := filepath.Join(c.dir, tt.name)
		systest.WriteFile(t, path, "old\n")
		ids[tt.name] = c.propose(t, s, v, Proposal{Path: path, Text: "new\n"}).ID
		if _, err := tt.end(path); err != nil {
			t.Fatal(err)
		}
		if tt.write != "" {
			systest.WriteFile(t, path, tt.write)
		}
		defer func() {
			if e, err := c.journal.Get(ids[tt.name]); err != nil || e.State != journal.Closed || e.Ending != tt.want {
				t.Errorf("%s: the journal has %+v, %v; want %q", tt.name, e, err, tt.want)
			}
		}()
	}
	c.close()
}

// close lets enough time pass that the companion knows how a closed change ended.
func (b *bare) close() {
	time.Sleep(writtenTimeout + 2*lookSoonInterval)
	synctest.Wait()
}

// The answer "don't ask again" in the agent's terminal. Pollux said so only in a later status.
func TestDontAskAgainInTheTerminal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, h := newSilent(t, "")
		v := c.view(t)
		s := newFakeSession()
		s.pid, s.dir = 1, c.dir
		c.connect(t, s)
		path := filepath.Join(c.dir, "a")
		c.propose(t, s, v, Proposal{Path: path, Text: "new\n"})
		synctest.Wait() // the agent asked, and is known to
		h.why.Store(`"don't ask again"`)
		if _, err := c.Withdraw(s, path); err != nil {
			t.Fatal(err)
		}
		systest.WriteFile(t, path, "new\n")
		c.close()
		if m := v.Reads(); m.Text != `"don't ask again"` {
			t.Errorf("the view reads %q", m.Text)
		}
	})
}

// Claude Code writes its own text after a "Yes" in its terminal. What the user had edited was
// only in the journal, and no view said so.
func TestYesInTheTerminalWithoutTheEdits(t *testing.T) {
	for _, tt := range []struct {
		name, edited, written string
		warns                 bool
	}{
		{"without them", "new, and mine\n", "new\n", true},
		{"with them", "new, and mine\n", "new, and mine\n", false},
		{"no edits", "new\n", "new\n", false},
		{"no", "new, and mine\n", "old\n", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, v, s := newReview(t)
				path := filepath.Join(c.dir, "f")
				systest.WriteFile(t, path, "old\n")
				d := c.propose(t, s, v, Proposal{Path: path, Text: "new\n"})
				v.Edits(d, tt.edited)
				if _, err := c.Withdraw(s, path); err != nil {
					t.Fatal(err)
				}
				systest.WriteFile(t, path, tt.written)
				systest.Receive(t, v.Closed)
				c.close()
				c.journal.Records(d.ID, journal.Closed, tt.warns)
				if !tt.warns {
					v.ReadsNoMore()
					return
				}
				if m := v.Reads("without your edits"); m.Diff != d.ID || !m.Unwritten {
					t.Errorf("the message is %+v", m)
				}
				v.Saves(d, "")
				systest.WantFile(t, path, tt.edited)
				c.settled(t, v, d)
			})
		})
	}
}

// The terminal of `pollux run` was closed while a change was pending. The journal and the
// page said that the user had rejected it.
func TestEndIsNoRejection(t *testing.T) {
	c, v, s := newReview(t)
	path := filepath.Join(c.dir, "f")
	d := c.propose(t, s, v, Proposal{Path: path, Text: "new\n"})
	c.Stop()
	v.WantClosed(d, editor.ReasonEnded)
	if got := systest.Receive(t, s.outcomes); got.Outcome != (Outcome{}) {
		t.Errorf("the agent received %+v", got)
	}
	c.journal.Records(d.ID, journal.Orphaned, false)
}
