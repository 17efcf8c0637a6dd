package companion

import (
	"fmt"
	"slices"
	"time"

	"pollux/internal/companion/journal"
	"pollux/internal/editor"
)

// maxUnwritten limits the diffs that diff/save can still write, and their warnings. The oldest
// are dropped.
const maxUnwritten = 64

// misses warns the user that a file does not hold the text that the user accepted, and expects a
// late write. base is the file that diff/save replaces; the sentence after the warning calls the text
// what.
func (c *Companion) misses(x *expected, base file, warning, what string) {
	light := diff{ // what diff/save needs
		id: x.id, companion: c, session: x.session, rules: x.rules, agent: x.agent,
		proposal: x.proposal, target: x.target, base: base,
	}
	light.proposal.Text, light.base.text = "", ""
	if x.record.Has(x.text) {
		warning += fmt.Sprintf(" To write %s: pollux journal restore %s", what, x.id)
	} else {
		light.missed, light.kept = x.diff, x.text
		warning += fmt.Sprintf(" The journal cannot keep %s: make room on the disk, and write the file before Pollux ends.", what)
	}
	m := &expected{
		diff: &light, since: x.since, read: x.read,
		warning: &editor.Message{Level: "warning", Text: warning, Diff: x.id, Unwritten: true},
		until:   time.Now().Add(lateWrittenTimeout),
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.expectLocked(m)
	if late := c.unwrittenLocked(); len(late) > maxUnwritten {
		c.dropLocked(late[0])
	}
	c.showLocked(*m.warning)
}

// unwrittenLocked returns the diffs whose files lack the accepted text, the oldest first.
func (c *Companion) unwrittenLocked() []*expected {
	return slices.DeleteFunc(slices.Clone(c.expected), func(x *expected) bool { return !x.late() })
}

// missed returns the diff with that ID whose file lacks the accepted text, or nil.
func (c *Companion) missed(id string) *diff {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, x := range c.unwrittenLocked() {
		if x.id == id {
			return x.diff
		}
	}
	return nil
}

// withdrawLocked withdraws the warnings about diffs that match. It reports whether there are any.
func (c *Companion) withdrawLocked(match func(*diff) bool) (found bool) {
	for _, x := range c.unwrittenLocked() {
		if match(x.diff) {
			found = true
			c.dropLocked(x)
			newClosing(c.surfacesLocked(), editor.DiffClose{ID: x.id, Reason: editor.ReasonAccepted})
		}
	}
	return found
}

// writtenLate notes that a file holds the text of an accepted diff after all, and reports
// it once.
func (c *Companion) writtenLate(d *diff) {
	if m := d.missed; m != nil { // its record still has something to write
		c.keep(m, func() { m.state, m.lacking = journal.Accepted, false })
	} else if err := c.journal.Finish(d.id, journal.Accepted, false); err != nil {
		c.log.Warn("the journal cannot be written", "err", err)
	}
	c.outside.account(d.target.actual())
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.withdrawLocked(func(other *diff) bool { return other.id == d.id }) {
		c.showLocked(editor.Message{Level: "info", Text: d.path() + " was written now, with the text that you accepted."})
	}
}

// textsOf returns the text of an accepted diff, and the agent's.
func (c *Companion) textsOf(d *diff) (text, proposed string, err error) {
	if d.missed != nil {
		return d.kept, d.missed.proposal.Text, nil
	}
	if text, err = c.journal.Text(d.id); err == nil {
		proposed, err = c.journal.Proposal(d.id)
	}
	return text, proposed, err
}

// saveAccepted writes the text of an accepted diff that its agent did not write.
func (c *Companion) saveAccepted(d *diff, overwrite string) (res editor.DiffAcceptResult, err error) {
	now, err := d.target.read()
	if err != nil {
		return res, fmt.Errorf("%s: %w", d.path(), err)
	}
	text, proposed, err := c.textsOf(d)
	if err != nil {
		return res, fmt.Errorf("the journal does not have the text (%w): ask %s for the change again", err, d.agent)
	}
	switch {
	case now.exists && d.rules.Holds(now.text, text):
		c.writtenLate(d)
		return editor.DiffAcceptResult{Status: editor.StatusAccepted}, nil
	case now.version != d.base.version && now.version != overwrite:
		return d.conflict(now, proposed), nil
	}
	c.mu.Lock()
	saving := d.saving
	d.saving = true
	c.mu.Unlock()
	if saving {
		return res, errSaving
	}
	return c.writeSoon(d, now, d.rules.Answer(text, now.text, proposed), func() { c.writtenLate(d) })
}
