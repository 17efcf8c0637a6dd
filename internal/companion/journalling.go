package companion

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"sync"

	"pollux/internal/discovery"
	"pollux/internal/journal"
)

// An entry is what the journal has of a diff.
//
// A write may fail, and an entry may be deleted. So keep and record only note
// what the journal should have, and save writes everything that it lacks: what
// failed once is written with whatever comes next.
type entry struct {
	text *string // what it should have, the proposal if nil; guarded by Companion.mu

	mu     sync.Mutex // held while the journal is written; taken before Companion.mu
	real   string     // the path without symbolic links, as they were first
	exists bool
	state  journal.State // as written
	kept   string        // the text as written
	told   bool          // the user has read that a text is missing
}

// keep writes the user's text to the journal, unless it is there.
func (c *Companion) keep(d *diff, text string) {
	c.mu.Lock()
	d.entry.text = &text
	c.mu.Unlock()
	c.save(d)
}

// record writes the diff's state to the journal.
func (c *Companion) record(d *diff) {
	state := c.save(d)
	c.log.Info("a diff ended", "state", state)
}

// save writes what the journal lacks of the diff, and returns the diff's state.
// When a text cannot be written, the user reads so once.
func (c *Companion) save(d *diff) journal.State {
	e := &d.entry
	e.mu.Lock()
	defer e.mu.Unlock()
	c.mu.Lock()
	state, text := d.state, d.req.NewContent
	if e.text != nil {
		text = *e.text
	}
	c.mu.Unlock()

	err := c.writeEntry(d, state, text)
	if errors.Is(err, fs.ErrNotExist) {
		e.exists = false // deleted since
		err = c.writeEntry(d, state, text)
	}
	if err == nil {
		e.told = false
		return state
	}
	c.log.Warn("the journal cannot be written", "err", err)
	if missing := !e.exists || e.kept != text; missing && !e.told {
		e.told = true
		what, next := "Your text", ""
		if text == d.req.NewContent {
			what = "The proposal"
		}
		if state == journal.Open || state == journal.Orphaned {
			next = ". Pollux tries again at your next edit."
		}
		c.tell("warning", fmt.Sprintf("%s for %s is not kept: %v%s", what, d.req.FilePath, err, next))
	}
	return state
}

// writeEntry writes what the entry lacks. The caller holds the entry's mu.
func (c *Companion) writeEntry(d *diff, state journal.State, text string) error {
	e := &d.entry
	if e.real == "" {
		e.real = discovery.RealPath(d.req.FilePath)
	}
	if !e.exists {
		_, err := c.journal.Add(journal.Entry{
			ID: d.id, Time: d.opened, Path: d.req.FilePath, Real: e.real, Client: d.client, State: state,
			CRLF: eol(d.base.text) == "crlf", BOM: strings.HasPrefix(d.base.text, bom),
		}, d.req.NewContent)
		if err != nil {
			return err
		}
		e.exists, e.state, e.kept = true, state, d.req.NewContent
	}
	if e.kept != text {
		if err := c.journal.Edit(d.id, text); err != nil {
			return err
		}
		e.kept = text
	}
	if e.state != state {
		if err := c.journal.Finish(d.id, state); err != nil {
			return err
		}
		e.state = state
	}
	return nil
}
