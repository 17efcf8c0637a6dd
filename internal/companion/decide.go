package companion

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"
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
func (c *Companion) check(a editor.DiffAccept, ev event) (d *diff, now file, res editor.DiffAcceptResult, err error) {
	if !isText(a.Content) {
		return nil, now, res, errors.New("the text holds NUL bytes or invalid UTF-8: remove them, then accept again")
	}
	c.mu.Lock()
	d = c.diffs[a.ID]
	err = d.refusesLocked(ev)
	c.mu.Unlock()
	if d != nil && a.Content != "" && !errors.Is(err, errAccepted) && !errors.Is(err, errNotice) {
		c.keep(d, a.Content)
	}
	if err != nil {
		return nil, now, res, err
	}
	if ev == evAccept {
		if why := d.session.Refuses(a.Content, d.original, d.proposal.Text); why != "" {
			return d, now, editor.DiffAcceptResult{Status: editor.StatusRefused, Message: why}, nil
		}
	}
	now, err = d.target.read()
	if err != nil {
		return nil, now, res, fmt.Errorf("%s: %w", d.proposal.Path, err)
	}
	changed := filepath.Base(d.proposal.Path) + " has changed on disk since the change was proposed."
	switch {
	case now.version == d.base.version:
	case ev == evAccept && d.proposal.ReadOnly != "":
		res = editor.DiffAcceptResult{Status: editor.StatusRefused, Message: fmt.Sprintf(
			"%s %s would overwrite that: reject the change, and ask for it again.", changed, d.agent)}
	case now.version != a.Overwrite:
		res = editor.DiffAcceptResult{Status: editor.StatusConflict, Version: now.version,
			Disk:    d.session.Shown(now.text, d.proposal.Text),
			Message: changed}
	}
	return d, now, res, nil
}

// isText reports whether a file may get the text.
func isText(text string) bool { return utf8.ValidString(text) && !strings.ContainsRune(text, 0) }

// refusesLocked returns why the event cannot happen to the diff now.
func (d *diff) refusesLocked(ev event) error {
	switch {
	case d == nil || d.companion.diffs[d.id] != d:
		return errNoDiff
	case d.notice != "":
		return errNotice
	case d.saving:
		return errSaving
	case d.state == journal.Accepted:
		return errAccepted
	case ev == evAccept && d.state == journal.Orphaned:
		return fmt.Errorf("%s, which proposed this, has ended: save it with diff/save, or discard it with diff/reject",
			d.agent)
	case ev == evSave && d.state == journal.Open:
		return fmt.Errorf("%s still waits for this diff: accept or reject it", d.agent)
	}
	return nil
}

// accept accepts a diff: its agent receives the text and writes it.
func (c *Companion) accept(a editor.DiffAccept) (editor.DiffAcceptResult, error) {
	d, now, res, err := c.check(a, evAccept)
	if err != nil || res.Status != "" {
		return res, err
	}
	delivered := make(chan error, 1)
	c.mu.Lock()
	if err := d.refusesLocked(evAccept); err != nil {
		c.mu.Unlock()
		return res, err
	}
	c.stepLocked(d, evAccept)
	d.content, d.entry.text, d.entry.unwritten = a.Content, &a.Content, true
	c.watch.soon(d.path(), now.state)
	// Queued under the lock, so that no later answer for the path overtakes it.
	// The journal already has the text; it gets the state a moment later.
	answer := d.answer(a.Content)
	d.session.Resolve(d.proposal, Outcome{Accepted: true, Text: answer}, func(err error) { delivered <- err })
	c.mu.Unlock()
	c.syncEntry(d)
	c.settling.start(func() { c.settle(d, answer, now.state, delivered) })
	return editor.DiffAcceptResult{Status: editor.StatusAccepted}, nil
}

const (
	// writtenTimeout is how long the agent may take to write the file after it
	// has received the accept. Gemini CLI takes some 10 ms.
	writtenTimeout = 3 * time.Second
	// lateWrittenTimeout is how long after that a late write is still noticed.
	lateWrittenTimeout = 10 * time.Minute
	// closingWrittenTimeout is how long a companion that shuts down waits for
	// it.
	closingWrittenTimeout = time.Second
)

// settle watches the file of an accepted diff until it holds the accepted text,
// and ends the diff. Only the file shows whether the agent wrote it: after a
// Ctrl-C in its terminal, an agent may ignore the answer and send nothing.
func (c *Companion) settle(d *diff, text string, since fileState, delivered chan error) {
	w := &writing{diff: d, text: text, since: since, seen: since, first: true, states: prober[fileState]{ask: stateOf}}
	err := c.awaitWritten(w, delivered, writtenTimeout, lookSoonInterval)
	if err == nil {
		c.settled(d, evWritten)
		return
	}
	c.log.Info("an accepted change was not written", "err", err)
	c.settled(d, evUnwritten)
	c.tell("warning", fmt.Sprintf(
		"%s was accepted, but %s: %s does not hold the text. To write it: pollux journal restore %s",
		filepath.Base(d.proposal.Path), err, d.proposal.Path, d.id))
	if errors.Is(err, errGone) {
		return
	}
	if c.awaitWritten(w, nil, lateWrittenTimeout, lookInterval) == nil {
		c.setUnwritten(d, false)
		c.tell("info", d.proposal.Path+" was written now, with the text that you accepted.")
	}
}

// settled ends an accepted diff, first in the journal, then on the surfaces.
func (c *Companion) settled(d *diff, ev event) {
	if ev == evWritten {
		c.setUnwritten(d, false)
	}
	c.mu.Lock()
	c.stepLocked(d, ev)
	c.mu.Unlock()
	c.log.Info("a diff ended", "state", ev)
}

// A writing is a file that an agent is about to write.
type writing struct {
	*diff
	text  string
	since fileState // at the accept
	seen  fileState
	first bool // it has not been read yet

	states prober[fileState]
}

// written reports whether the file holds the text now. It reads the file only
// when it has changed.
func (w *writing) written() bool {
	state, ok := w.states.get(w.proposal.Path, newBudget())
	if !ok || state == w.seen && !w.first {
		return false
	}
	now, err := w.target.read()
	if err != nil {
		return false
	}
	w.seen, w.first = now.state, false
	return now.exists && w.session.Holds(now.text, w.text)
}

var (
	errGone      = errors.New("its agent ended before it received that")
	errOtherText = errors.New("something else was written")
)

// awaitWritten looks at the file at each interval until it holds the text, or
// returns why it does not. The timeout runs from the delivery of the accept, or
// from now if delivered is nil. When the companion ends, awaitWritten waits for
// only a moment.
func (c *Companion) awaitWritten(w *writing, delivered <-chan error, timeout, interval time.Duration) error {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	late := time.NewTimer(timeout)
	defer late.Stop()
	if delivered != nil {
		late.Stop()
	}
	ending := c.ctx.Done()
	for {
		if w.written() {
			return nil
		}
		select {
		case <-tick.C:
		case err := <-delivered:
			if err != nil {
				return errGone
			}
			if ending != nil {
				late.Reset(timeout)
			}
		case <-ending:
			ending = nil
			if delivered == nil {
				return w.notWritten()
			}
			late.Reset(closingWrittenTimeout)
		case <-late.C:
			switch {
			case w.written():
				return nil
			case w.seen != w.since:
				return errOtherText
			case c.waitsFor(w.session):
				return fmt.Errorf("%s has not written it (it may wait for your answer to its other changes)", w.agent)
			}
			return w.notWritten()
		}
	}
}

// notWritten returns an error that says who did not write the file.
func (d *diff) notWritten() error {
	err := fmt.Errorf("%s did not write it", d.agent)
	if why := d.session.Unwritten(); why != "" {
		err = fmt.Errorf("%w (%s)", err, why)
	}
	return err
}

// waitsFor reports whether an agent waits for a decision.
func (c *Companion) waitsFor(s Session) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, d := range c.diffs {
		if d.session == s && d.state == journal.Open {
			return true
		}
	}
	return false
}

// save writes an orphaned diff to its file.
func (c *Companion) save(a editor.DiffAccept) (editor.DiffAcceptResult, error) {
	d, now, res, err := c.check(a, evSave)
	if err != nil || res.Status != "" {
		return res, err
	}
	c.mu.Lock()
	if err = d.refusesLocked(evSave); err == nil {
		d.saving, d.content, d.entry.text = true, a.Content, &a.Content
	}
	c.mu.Unlock()
	if err != nil {
		return res, err
	}
	// A write on a mount that does not answer continues in the background: see
	// within.
	saved := make(chan error)
	gaveUp := make(chan struct{})
	go func() {
		err := c.write(d, now, a.Content)
		c.mu.Lock()
		d.saving = false
		if err == nil {
			c.stepLocked(d, evSave)
		}
		c.mu.Unlock()
		if err == nil {
			c.record(d)
		}
		select {
		case saved <- err:
		case <-gaveUp:
			if err == nil {
				c.tell("info", d.proposal.Path+" is saved now.")
			} else {
				c.tell("error", err.Error())
			}
		}
	}()
	timeout := time.NewTimer(diskTimeout)
	defer timeout.Stop()
	select {
	case err = <-saved:
	case <-timeout.C:
		close(gaveUp)
		err = fmt.Errorf("the file is not written yet: %w. Pollux keeps trying", errNoAnswer)
	}
	if err != nil {
		return res, err
	}
	return editor.DiffAcceptResult{Status: editor.StatusAccepted}, nil
}

// write writes the file of an orphaned diff. It first saves the old content of
// the file in the journal.
func (c *Companion) write(d *diff, now file, content string) error {
	if now.exists {
		e := journal.Entry{Path: d.path(), Real: d.target.actual(), State: journal.Replaced}
		if _, err := c.journal.Add(e, now.text); err != nil {
			return err
		}
	}
	if err := d.target.replace(d.session.Written(d.answer(content), now.text)); err != nil {
		return fmt.Errorf("the file cannot be written: %w", err)
	}
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
	c.record(d)
	return nil
}

// endLocked ends a diff that the user has not accepted. Its agent receives the
// outcome if it still waits for one.
func (c *Companion) endLocked(d *diff, ev event, o Outcome) {
	waits := d.state == journal.Open
	if _, ok := c.stepLocked(d, ev); ok && waits {
		d.session.Resolve(d.proposal, o, func(error) {})
	}
}

// rejectAllLocked answers every waiting agent, since an unanswered diff may
// block it forever. It leaves out diffs that are answered in the terminal. The
// texts stay in the journal. The caller records the diffs.
func (c *Companion) rejectAllLocked() (ended []*diff) {
	for _, d := range c.diffs {
		if d.state == journal.Open && d.notice == "" {
			c.endLocked(d, evReject, Outcome{})
			ended = append(ended, d)
		}
	}
	return ended
}
