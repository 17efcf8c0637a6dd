package companion

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"sync"

	"pollux/internal/companion/journal"
)

// An entry describes the journal's entry of a diff.
//
// A write may fail, and the user may delete an entry. So keep and record only note
// what the journal should have, and syncEntry writes everything that is missing. A
// failed write is repeated with the next one.
type entry struct {
	// What the journal should have, guarded by Companion.mu:
	text      *string // the proposal if nil
	unwritten bool    // the file does not hold the accepted text

	mu     sync.Mutex // held while the journal is written; taken before Companion.mu
	exists bool
	state  journal.State // as written
	lacks  bool          // unwritten, as written
	kept   string        // the text as written
	warned bool          // the user has read that a text is missing
}

// has reports whether the journal has the text.
func (e *entry) has(text string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.exists && e.kept == text
}

// keep writes the user's text to the journal, unless the journal has it.
func (c *Companion) keep(d *diff, text string) {
	c.mu.Lock()
	d.entry.text = &text
	c.mu.Unlock()
	c.syncEntry(d)
}

// setUnwritten writes to the journal whether the file lacks the accepted text.
func (c *Companion) setUnwritten(d *diff, unwritten bool) {
	c.mu.Lock()
	d.entry.unwritten = unwritten
	c.mu.Unlock()
	c.syncEntry(d)
}

// record writes the diff's state to the journal.
func (c *Companion) record(d *diff) {
	state := c.syncEntry(d)
	c.log.Info("a diff ended", "state", state)
}

// syncEntry writes what is missing from the diff's entry, and returns the
// diff's state. If a text cannot be written, it warns the user once.
func (c *Companion) syncEntry(d *diff) journal.State {
	e := &d.entry
	e.mu.Lock()
	defer e.mu.Unlock()
	c.mu.Lock()
	state, unwritten, text := d.state, e.unwritten, d.proposal.Text
	if e.text != nil {
		text = *e.text
	}
	c.mu.Unlock()

	err := c.writeEntry(d, state, unwritten, text)
	if errors.Is(err, fs.ErrNotExist) {
		e.exists = false // deleted since
		err = c.writeEntry(d, state, unwritten, text)
	}
	if err == nil {
		e.warned = false
		return state
	}
	c.log.Warn("the journal cannot be written", "err", err)
	if missing := !e.exists || e.kept != text; missing && !e.warned {
		e.warned = true
		what, next := "Your text", ""
		if text == d.proposal.Text {
			what = "The proposal"
		}
		if state == journal.Open || state == journal.Orphaned {
			next = ". Pollux tries again at your next edit."
		}
		c.tell("warning", fmt.Sprintf("%s for %s is not kept: %v%s", what, d.path(), err, next))
	}
	return state
}

// restored reports what a restore must add to a text, by the agent's rules: CRLF
// line endings and a byte order mark. Another process restores it, which does not
// have the rules.
func (d *diff) restored() (crlf, mark bool) {
	text, mark := strings.CutPrefix(d.session.Written(d.answer("text\n"), d.base.text), bom)
	return strings.HasSuffix(text, "\r\n"), mark
}

// writeEntry writes what the entry lacks. The caller holds the entry's mu.
func (c *Companion) writeEntry(d *diff, state journal.State, unwritten bool, text string) error {
	e := &d.entry
	if d.viewer != nil && !e.exists && text == d.proposal.Text {
		return nil // the file has it
	}
	if !e.exists {
		crlf, mark := d.restored()
		_, err := c.journal.Add(journal.Entry{
			ID: d.id, Time: d.opened, Path: d.path(), Real: d.target.actual(), Client: d.client, State: state,
			CRLF: crlf, BOM: mark,
		}, d.proposal.Text)
		if err != nil {
			return err
		}
		if err := c.journal.SetOriginal(d.id, d.original); err != nil {
			c.log.Warn("the journal lacks the text before a change", "err", err)
		}
		e.exists, e.state, e.lacks, e.kept = true, state, false, d.proposal.Text
	}
	if e.kept != text {
		if err := c.journal.Edit(d.id, text); err != nil {
			return err
		}
		e.kept = text
	}
	if e.state != state || e.lacks != unwritten {
		if err := c.journal.Finish(d.id, state, unwritten); err != nil {
			return err
		}
		e.state, e.lacks = state, unwritten
	}
	return nil
}
