package companion

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"pollux/internal/companion/journal"
	"pollux/internal/editor"
	"pollux/internal/sys/disk"
)

const (
	// writtenTimeout is how long the agent may take to write the file after it
	// has received the accept, or has closed the diff. Gemini CLI takes some 10 ms.
	writtenTimeout = 3 * time.Second
	// lateWrittenTimeout is how long after that a late write is still noticed.
	lateWrittenTimeout = 10 * time.Minute
)

// closingWrittenTimeout is how long a companion that shuts down waits until accepted changes
// are written. The tests shorten it.
var closingWrittenTimeout = time.Second

const (
	// maxAccepted limits the texts of accepted diffs in bytes. Beyond it, the oldest diffs
	// get no more time.
	maxAccepted = 64 << 20
	// acceptedSize is counted for a diff in addition to its texts.
	acceptedSize = 4 << 10
)

// An expected is a diff whose agent may write the file now. Only the file shows whether it does:
// after a Ctrl-C in its terminal, an agent may ignore the answer and send nothing. The watcher
// looks at the file and calls [Companion.judge]. There are three kinds:
//
//   - The user has accepted the change. The diff ends when the file holds the text, or the time
//     is over.
//   - The agent has closed the diff, since the user answered in its terminal. When the time is
//     over, the file shows what the answer was.
//   - The agent did not write an accepted text in time. The user has read a warning, can still
//     write the file with diff/save, and reads when it is written late. The journal
//     has the text, or memory if the journal cannot be written.
type expected struct {
	*diff
	text    string          // what the file should hold; "" for an unwritten change
	ending  journal.Ending  // how a closed change ended if the agent does not write the file
	warning *editor.Message // about an unwritten change
	since   fileState       // the file at the user's answer

	read fileState // the state whose text was compared last; used by the watcher only

	// Guarded by Companion.mu:
	until time.Time // the end of its time; zero while the agent does not have the answer
	gone  bool      // the agent disconnected before it had the answer
}

func (x *expected) late() bool { return x.warning != nil }

func (x *expected) accepted() bool { return x.warning == nil && x.ending == "" }

// over reports whether its time has ended at that moment. The caller holds Companion.mu.
func (x *expected) over(then time.Time) bool { return !x.until.IsZero() && !then.Before(x.until) }

func (c *Companion) expectLocked(x *expected) {
	c.expected = append(c.expected, x)
	slices.SortFunc(c.expected, func(a, b *expected) int { return byAge(a.diff, b.diff) })
	c.watch.wake.Set()
}

func (c *Companion) dropLocked(x *expected) {
	c.expected = slices.DeleteFunc(c.expected, func(other *expected) bool { return other == x })
}

// endsLocked ends its time at that moment, or earlier.
func (x *expected) endsLocked(then time.Time) {
	if x.until.IsZero() || then.Before(x.until) {
		x.until = then
	}
}

// answered notes that the agent has received an accept or, with an error, that it never will.
func (c *Companion) answered(x *expected, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if x.gone = err != nil; x.gone {
		x.endsLocked(time.Now())
	} else {
		x.endsLocked(time.Now().Add(writtenTimeout))
	}
	c.watch.wake.Set()
}

// hurryLocked gives the oldest accepted diffs no more time if the texts of all of them are
// too large. It spares the newest.
func (c *Companion) hurryLocked() {
	bytes := 0
	for _, x := range slices.Backward(c.expected) {
		if !x.accepted() {
			continue
		}
		newest := bytes == 0
		bytes += acceptedSize + len(x.text) + len(x.proposal.Text) + len(x.original)
		if bytes > c.maxAccepted && !newest {
			x.endsLocked(time.Now())
		}
	}
}

// endExpected ends the time of all expected texts soon, since the companion ends.
func (c *Companion) endExpected() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ending = true
	for _, x := range c.expected {
		switch {
		case x.accepted():
			x.endsLocked(time.Now().Add(closingWrittenTimeout))
		case !x.late():
			x.endsLocked(time.Now())
		}
	}
	c.watch.wake.Set()
}

// askLocked asks about the files that agents may write soon, which soon reports, and if all is set,
// about those that they may write late.
func (c *Companion) askLocked(due questions, now time.Time, all bool) (soon, late bool) {
	for _, x := range c.expected {
		if x.late() && x.over(now) {
			continue
		}
		soon, late = soon || !x.late(), late || x.late()
		if x.late() && !all {
			continue
		}
		q := due.about(x.target.path, x.since)
		if x.ending == "" || x.over(now) {
			q.target, q.read = x.target, append(q.read, x.read)
		}
	}
	for _, announced := range c.writes {
		if now.Before(announced.urgent) {
			soon = true
			due.about(announced.path, announced.before)
		}
	}
	return soon, late
}

// judge decides about the texts that a file should hold.
func (c *Companion) judge(s sight) {
	c.mu.Lock()
	all := slices.DeleteFunc(slices.Clone(c.expected), func(x *expected) bool { return x.target.path != s.path })
	c.mu.Unlock()
	for _, x := range all {
		if s.file != nil {
			x.read = s.state
		}
		c.mu.Lock()
		over := x.over(s.at)
		c.mu.Unlock()
		switch {
		case x.ending != "":
			if over {
				c.closed(x, s.file)
			}
		case s.file != nil && s.file.exists && c.holds(x, s.file.text):
			c.written(x)
		case over && !x.late():
			c.unwritten(x, s.state)
		}
	}
}

// holds reports whether a file holds the text that the user accepted.
func (c *Companion) holds(x *expected, onDisk string) bool {
	text := x.text
	if x.late() {
		var err error
		if text, _, err = c.textsOf(x.diff); err != nil {
			return false
		}
	}
	return x.rules.Holds(onDisk, text)
}

// written ends an expected diff whose file holds the text.
func (c *Companion) written(x *expected) {
	if x.late() {
		c.writtenLate(x.diff)
		return
	}
	c.keep(x.diff, func() { x.lacking = false })
	c.outside.account(x.target.actual())
	c.mu.Lock()
	c.withdrawLocked(func(old *diff) bool { return old.path() == x.path() }) // the file holds a newer text
	c.settledLocked(x, evWritten)
	c.mu.Unlock()
}

// settledLocked ends an accepted diff on the surfaces.
func (c *Companion) settledLocked(x *expected, ev *event) {
	c.dropLocked(x)
	c.stepLocked(x.diff, ev)
	c.log.Info("a diff ended", "reason", ev.reason)
}

// unwritten ends an accepted diff whose file does not hold the text in time. now is the state of
// the file.
func (c *Companion) unwritten(x *expected, now fileState) {
	err := x.notWritten()
	switch {
	case x.gone:
		err = errors.New("its agent disconnected before it received that")
	case now != x.since && now != unseen:
		err = errors.New("something else was written")
	case now.readOnly:
		err = fmt.Errorf("the file is read-only (%s makes it writable)", disk.MakeWritable)
	case c.undecided(x.session) != "":
		err = fmt.Errorf("%s has not written it (it may wait for your answer to its other changes)", x.agent)
	}
	c.log.Info("an accepted change was not written", "err", err)
	c.sync(x.diff) // the text is in the journal from now on, if it can be written
	c.mu.Lock()
	c.settledLocked(x, evUnwritten)
	c.mu.Unlock()
	c.misses(x, x.base, fmt.Sprintf(
		"%s was accepted, but %s: %s does not hold the text.", filepath.Base(x.target.path), err, x.target.path), "it")
}

// notWritten returns an error that says who did not write the file.
func (d *diff) notWritten() error {
	err := fmt.Errorf("%s did not write it", d.agent)
	if why := d.rules.Unwritten(); why != "" {
		err = fmt.Errorf("%w (%s)", err, why)
	}
	return err
}

// closed writes to the journal how a change ended after its agent closed the diff. After a yes, the
// agent has written text; now is the file, or nil if it cannot be read. An agent that does not read
// the user's edits has written its own text; then closed offers to write the edits.
func (c *Companion) closed(x *expected, now *file) {
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.dropLocked(x)
	}()
	how := x.ending
	switch {
	case now == nil:
		return
	case now.exists && x.rules.Holds(now.text, x.text):
		how = journal.InTerminal
		c.outside.account(x.target.actual())
	case now.exists && x.rules.Holds(now.text, x.proposal.Text):
		how = journal.InTerminal
		c.outside.account(x.target.actual())
		c.keep(x.diff, func() { x.lacking = true })
		// "Write the file" replaces the agent's text.
		c.misses(x, *now, fmt.Sprintf("%s was accepted in the terminal of %s, which wrote its own text, without your edits.",
			filepath.Base(x.path()), x.agent), "yours")
	case now.version != x.base.version:
		return
	case c.sending.Err() != nil && x.ending == journal.Refused:
		return // the agent may still write it
	}
	if err := c.journal.SetEnding(x.id, how); err != nil {
		c.log.Warn("the journal cannot be written", "err", err)
	}
	if how == journal.InTerminal {
		c.background(c.checkAsking) // the answer may have been "don't ask again"
	}
}
