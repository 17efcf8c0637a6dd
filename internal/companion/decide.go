package companion

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"pollux/internal/companion/journal"
	"pollux/internal/editor"
)

var (
	errNoDiff = errors.New("there is no such diff: it was answered already, or its agent closed it; " +
		"`pollux journal` has the last text that Pollux received")
	errAccepted = errors.New("this change was accepted already: the agent has to write the file now")
	errSaving   = errors.New("this change is being saved already")
	errNotice   = errors.New("this change cannot be displayed: answer in the terminal")
)

// check returns the diff of a decision and the current content of its file. If
// the user cannot decide now, the result has a status. In any case, check first
// writes the text to the journal.
func (c *Companion) check(a editor.DiffAccept, ev *event) (d *diff, now file, res editor.DiffAcceptResult, err error) {
	if !isText(a.Content) {
		return nil, now, res, errors.New("the text holds NUL bytes or invalid UTF-8: remove them, then accept again")
	}
	c.mu.Lock()
	d = c.diffs[a.ID]
	err = d.refusesLocked(ev)
	c.mu.Unlock()
	if d != nil && a.Content != "" && !errors.Is(err, errAccepted) && !errors.Is(err, errNotice) {
		c.keep(d, func() { d.kept = a.Content })
	}
	if err != nil {
		return nil, now, res, err
	}
	if ev == evAccept {
		if why := d.rules.Refuses(a.Content, d.original, d.proposal.Text); why != "" {
			return d, now, editor.DiffAcceptResult{Status: editor.StatusRefused, Message: why}, nil
		}
	}
	now, err = d.target.read()
	if err != nil {
		return nil, now, res, fmt.Errorf("%s: %w", d.path(), err)
	}
	switch {
	case now.version == d.base.version:
	case ev == evAccept && d.proposal.ReadOnly != "":
		res = editor.DiffAcceptResult{Status: editor.StatusRefused, Message: fmt.Sprintf(
			"%s %s would overwrite that: reject the change, and ask for it again.", d.conflict(now, d.proposal.Text).Message, d.agent)}
	case now.version != a.Overwrite:
		res = d.conflict(now, d.proposal.Text)
	}
	return d, now, res, nil
}

// conflict returns the answer to a decision on a file that has changed.
func (d *diff) conflict(now file, proposed string) editor.DiffAcceptResult {
	since, happened := "proposed", "has changed on disk"
	if d.viewer != nil {
		since = "shown"
	}
	if !now.exists {
		happened = "was deleted"
	}
	return editor.DiffAcceptResult{
		Status: editor.StatusConflict, Version: now.version, Disk: d.rules.Shown(now.text, proposed), Deleted: !now.exists,
		Message: fmt.Sprintf("%s %s since the change was %s.", filepath.Base(d.path()), happened, since),
	}
}

// isText reports whether a file may get the text.
func isText(text string) bool { return utf8.ValidString(text) && !strings.ContainsRune(text, 0) }

// refusesLocked returns why the event cannot happen to the diff now.
func (d *diff) refusesLocked(ev *event) error {
	switch {
	case d == nil || d.companion.diffs[d.id] != d:
		return errNoDiff
	case d.notice != "":
		return errNotice
	case d.saving:
		return errSaving
	case d.state == journal.Accepted:
		return errAccepted
	case ev == evAccept && d.viewer != nil:
		return errAlreadyMade
	case ev == evAccept && d.state == journal.Orphaned:
		return fmt.Errorf("%s, which proposed this, is disconnected: save it with diff/save, or discard it with diff/reject",
			d.agent)
	case ev == evSave && d.state == journal.Open:
		return fmt.Errorf("%s still waits for this diff: accept or reject it", d.agent)
	case ev == evSave && d.outside != "":
		return fmt.Errorf("%s is outside the workspace: `pollux journal restore %s` writes it, diff/reject discards the change",
			d.target.actual(), d.id)
	}
	return nil
}

// accept accepts a diff: its agent receives the text and writes it.
func (c *Companion) accept(a editor.DiffAccept) (editor.DiffAcceptResult, error) {
	d, now, res, err := c.check(a, evAccept)
	if err != nil || res.Status != "" {
		return res, err
	}
	x := &expected{diff: d, text: a.Content, since: now.state, read: unseen}
	c.mu.Lock()
	if err := d.refusesLocked(evAccept); err != nil {
		c.mu.Unlock()
		return res, err
	}
	d.content, d.kept, d.lacking = a.Content, a.Content, true
	c.stepLocked(d, evAccept)
	c.expectLocked(x)
	// Queued under the lock, so that no later answer for the path overtakes it.
	// The journal already has the text; it gets the state a moment later.
	o := Outcome{Accepted: true, Text: d.answer(a.Content)}
	d.session.Resolve(d.proposal, o, func(err error) { c.answered(x, err) })
	c.hurryLocked()
	c.mu.Unlock()
	c.sync(d)
	return editor.DiffAcceptResult{Status: editor.StatusAccepted}, nil
}

// save writes an orphaned diff to its file, or an accepted one that its agent has not
// written.
func (c *Companion) save(a editor.DiffAccept) (editor.DiffAcceptResult, error) {
	if d := c.missed(a.ID); d != nil {
		return c.saveAccepted(d, a.Overwrite)
	}
	d, now, res, err := c.check(a, evSave)
	if err != nil || res.Status != "" {
		return res, err
	}
	if d.viewer != nil && a.Content == d.proposal.Text {
		return editor.DiffAcceptResult{Status: editor.StatusAccepted}, c.reject(a.ID)
	}
	c.mu.Lock()
	if err = d.refusesLocked(evSave); err == nil {
		d.saving, d.content, d.kept = true, a.Content, a.Content
	}
	c.mu.Unlock()
	if err != nil {
		return res, err
	}
	return c.writeSoon(d, now, d.answer(a.Content), func() { c.step(d, evSave) })
}

// writeSoon writes a text to the file of a diff that is being saved, and then calls done. A write
// on a mount that does not answer continues in the background: see within.
func (c *Companion) writeSoon(d *diff, now file, text string, done func()) (res editor.DiffAcceptResult, err error) {
	_, err = withinOr(diskTimeout, func() (struct{}, error) {
		err := c.write(d, now, text)
		if err == nil {
			done()
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		d.saving = false
		return struct{}{}, err
	}, func(_ struct{}, err error) {
		if err == nil {
			c.tell("info", d.path()+" is saved now.")
		} else {
			c.tell("error", err.Error())
		}
	})
	switch {
	case err == nil:
		res.Status = editor.StatusAccepted
	case errors.Is(err, errNoAnswer):
		err = fmt.Errorf("the file is not written yet: %w. Pollux keeps trying", err)
	}
	return res, err
}

// write writes the file of a diff. It first saves the old content of the file in the
// journal.
func (c *Companion) write(d *diff, now file, text string) error {
	replace := func() (err error) {
		// The disk may have taken long.
		if again, err := d.target.readNow(); err != nil {
			return fmt.Errorf("%s: %w", d.path(), err)
		} else if again.version != now.version {
			return fmt.Errorf("%s has changed since you saved it: save it again", d.path())
		}
		if d.created && text == "" {
			err = d.target.remove()
		} else {
			err = d.target.replace(d.rules.Written(text, now.text))
		}
		if err != nil {
			err = fmt.Errorf("the file cannot be written: %w", err)
		}
		return err
	}
	var err error
	if now.exists {
		_, err = c.journal.Replace(journal.Entry{Path: d.path(), Real: d.target.actual()}, now.text, replace)
	} else {
		err = replace()
	}
	if err != nil {
		return err
	}
	c.outside.account(d.target.actual())
	return nil
}

// reject rejects a diff, or discards an orphaned one.
func (c *Companion) reject(id string) error {
	c.mu.Lock()
	d := c.diffs[id]
	if err := d.refusesLocked(evReject); err != nil {
		c.mu.Unlock()
		return err
	}
	c.endLocked(d, evReject, Outcome{})
	c.mu.Unlock()
	c.end(d)
	if d.viewer != nil {
		c.outside.seen(d.path(), d.base)
	}
	return nil
}

// endLocked ends a diff that the user has not accepted. Its agent receives the
// outcome if it still waits for one.
func (c *Companion) endLocked(d *diff, ev *event, o Outcome) {
	waits := d.state == journal.Open
	if _, ok := c.stepLocked(d, ev); ok && waits {
		d.session.Resolve(d.proposal, o, func(error) {})
	}
}

// rejectAllLocked answers every waiting agent, since an unanswered diff may
// block it forever. It leaves out diffs that are answered in the terminal. The
// texts stay in the journal, which does not say that the user rejected them. The caller
// records the diffs.
func (c *Companion) rejectAllLocked() (ended []*diff) {
	for _, d := range c.diffs {
		if d.state == journal.Open && d.notice == "" {
			c.endLocked(d, evEnd, Outcome{})
			ended = append(ended, d)
		}
	}
	return ended
}
