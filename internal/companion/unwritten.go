package companion

import (
	"fmt"
	"slices"
	"time"

	"pollux/internal/companion/journal"
	"pollux/internal/editor"
)

// A missing is an accepted diff whose agent did not write the file in time, and the
// warning that says so. Only the journal has its texts.
type missing struct {
	*diff
	look    look      // for a late write
	until   time.Time // when to stop looking; zero to not look
	warning editor.Message
}

// maxMissing limits the diffs that diff/save can still write, and their warnings. The oldest
// are dropped.
const maxMissing = 64

// light returns what diff/save needs of an accepted diff.
func (d *diff) light() *diff {
	return &diff{
		id: d.id, companion: d.companion, session: d.session, rules: d.rules, agent: d.agent, proposal: d.proposal, target: d.target, base: d.base,
	}
}

// misses warns the user that the file of an accepted diff does not hold the text, and looks
// for a late write. last is the last look at the file.
func (c *Companion) misses(d *diff, last look, warning string) {
	light := d.light()
	light.proposal.Text, light.base.text = "", ""
	m := &missing{
		diff: light, look: last,
		warning: editor.Message{Level: "warning", Text: warning, Diff: d.id, Unwritten: true},
	}
	if d.record != nil && d.record.Has(d.content) { // otherwise a late write cannot be told from another one
		m.until = time.Now().Add(lateWrittenTimeout)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.missing = append(c.missing, m)
	slices.SortFunc(c.missing, func(a, b *missing) int { return byAge(a.diff, b.diff) })
	if len(c.missing) > maxMissing {
		c.missing = slices.Delete(c.missing, 0, 1)
	}
	c.showLocked(m.warning)
	if !c.watchingLate {
		c.watchingLate = true
		c.settling.start(c.watchLate)
	}
}

// missed returns the diff with that ID whose file lacks the accepted text, or nil.
func (c *Companion) missed(id string) *diff {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, m := range c.missing {
		if m.id == id {
			return m.diff
		}
	}
	return nil
}

// withdrawLocked withdraws the warnings that match. It reports whether there are any.
func (c *Companion) withdrawLocked(match func(*missing) bool) (found bool) {
	c.missing = slices.DeleteFunc(c.missing, func(m *missing) bool {
		if !match(m) {
			return false
		}
		found = true
		newClosing(c.surfacesLocked(), editor.DiffClose{ID: m.id, Reason: editor.ReasonAccepted})
		return true
	})
	return found
}

// outdate withdraws the warnings about a file that holds a newer accepted text.
func (c *Companion) outdate(path string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.withdrawLocked(func(m *missing) bool { return m.path() == path })
}

// writtenLate notes that a file holds the text of an accepted diff after all, and reports
// it once.
func (c *Companion) writtenLate(id, path string) {
	if err := c.journal.Finish(id, journal.Accepted, false); err != nil {
		c.log.Warn("the journal cannot be written", "err", err)
	}
	c.outside.account(path)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.withdrawLocked(func(m *missing) bool { return m.id == id }) {
		c.showLocked(editor.Message{Level: "info", Text: path + " was written now, with the text that you accepted."})
	}
}

// saveAccepted writes the text of an accepted diff that its agent did not write.
func (c *Companion) saveAccepted(m *diff, overwrite string) (res editor.DiffAcceptResult, err error) {
	d := m.light()
	now, err := d.target.read()
	if err != nil {
		return res, fmt.Errorf("%s: %w", d.path(), err)
	}
	text, err := c.journal.Text(d.id)
	if err == nil {
		d.proposal.Text, err = c.journal.Proposal(d.id)
	}
	if err != nil {
		return res, fmt.Errorf("the journal does not have the text (%w): ask %s for the change again", err, d.agent)
	}
	switch {
	case now.exists && d.rules.Holds(now.text, text):
		c.writtenLate(d.id, d.path())
		return editor.DiffAcceptResult{Status: editor.StatusAccepted}, nil
	case now.version != d.base.version && now.version != overwrite:
		return d.conflict(now), nil
	}
	d.base.text = now.text
	c.mu.Lock()
	saving := m.saving
	m.saving = true
	c.mu.Unlock()
	if saving {
		return res, errSaving
	}
	err = c.writeSoon(d, now, text, func(err error) {
		if err == nil {
			c.writtenLate(d.id, d.path())
		}
		c.mu.Lock()
		m.saving = false
		c.mu.Unlock()
	})
	if err != nil {
		return res, err
	}
	return editor.DiffAcceptResult{Status: editor.StatusAccepted}, nil
}
