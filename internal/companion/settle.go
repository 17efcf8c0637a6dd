package companion

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"pollux/internal/companion/journal"
	"pollux/internal/crash"
)

const (
	// writtenTimeout is how long the agent may take to write the file after it
	// has received the accept. Gemini CLI takes some 10 ms.
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

// settle looks at the file of an accepted diff until it holds the accepted text, and ends the
// diff. Only the file shows whether the agent wrote it: after a Ctrl-C in its terminal, an
// agent may ignore the answer and send nothing. The agent has some seconds after delivered
// says that it has the answer. since is the state of the file at the accept.
//
// Each accepted diff has its own goroutine, so that a hung disk delays no other diff.
func (c *Companion) settle(d *diff, since fileState, delivered <-chan error) {
	defer crash.Report()
	l := look{target: d.target, seen: since}
	holds := func(text string) bool { return d.rules.Holds(text, d.content) }
	tick := time.NewTicker(lookSoonInterval)
	defer tick.Stop()
	ending := c.ctx.Done()
	var over <-chan time.Time // nil until the agent has the answer
	gone := false
	for !c.looks(&l, newBudget(), holds) {
		select {
		case <-tick.C:
		case err := <-delivered:
			switch {
			case err != nil:
				gone, over = true, time.After(0)
			case over == nil:
				over = time.After(writtenTimeout)
			}
		case <-d.hurry:
			over = time.After(0)
		case <-ending:
			ending = nil
			if !gone {
				over = time.After(closingWrittenTimeout)
			}
		case <-over:
			if c.looks(&l, newBudget(), holds) {
				c.written(d)
			} else {
				c.unwritten(d, l, since, gone)
			}
			return
		}
	}
	c.written(d)
}

// A look is a file that an agent may write, as it was seen last.
type look struct {
	target target
	seen   fileState
	read   bool // in the state seen
}

// looks reads a file if its state has changed, and reports whether its text then passes
// holds. It does not wait for a disk that does not answer.
func (c *Companion) looks(l *look, left *budget, holds func(text string) bool) bool {
	state, ok := c.states.get(l.target.path, left)
	if !ok || state == l.seen && l.read {
		return false
	}
	now, err := l.target.read()
	if err != nil {
		return false
	}
	l.seen, l.read = now.state, true
	return now.exists && holds(now.text)
}

// hurryLocked gives the oldest accepted diffs no more time if the texts of all of them are
// too large. It spares the newest.
func (c *Companion) hurryLocked() {
	bytes := 0
	accepted := c.diffsLocked(func(d *diff) bool { return d.state == journal.Accepted })
	for i, d := range slices.Backward(accepted) {
		bytes += acceptedSize + len(d.content) + len(d.proposal.Text) + len(d.original)
		if bytes > c.maxAccepted && i < len(accepted)-1 {
			d.hurry.Set()
		}
	}
}

// written ends an accepted diff whose file holds the text.
func (c *Companion) written(d *diff) {
	d.record.SetUnwritten(false)
	c.sync(d)
	c.outdate(d.target.path)
	c.outside.account(d.target.path)
	c.settled(d, evWritten)
}

// unwritten ends an accepted diff whose file does not hold the text in time. last is the last
// look at it, since its state at the accept, and gone says that the agent ended before it
// received the answer.
func (c *Companion) unwritten(d *diff, last look, since fileState, gone bool) {
	err := d.notWritten()
	switch {
	case gone:
		err = errors.New("its agent ended before it received that")
	case last.seen != since:
		err = errors.New("something else was written")
	case c.undecided(d.session) != "":
		err = fmt.Errorf("%s has not written it (it may wait for your answer to its other changes)", d.agent)
	}
	c.log.Info("an accepted change was not written", "err", err)
	c.sync(d) // only the journal has the text from now on
	c.settled(d, evUnwritten)
	c.misses(d, last, fmt.Sprintf(
		"%s was accepted, but %s: %s does not hold the text. To write it: pollux journal restore %s",
		filepath.Base(d.target.path), err, d.target.path, d.id))
}

// settled ends an accepted diff on the surfaces.
func (c *Companion) settled(d *diff, ev event) {
	c.mu.Lock()
	c.stepLocked(d, ev)
	c.mu.Unlock()
	c.log.Info("a diff ended", "state", ev)
}

// watchLate notices when a file is written late: when it holds the text of an accepted diff
// that the user was warned about.
func (c *Companion) watchLate() {
	defer crash.Report()
	for {
		select {
		case <-time.After(lookInterval):
		case <-c.ctx.Done():
			return
		}
		c.mu.Lock()
		late := slices.DeleteFunc(slices.Clone(c.missing), func(m *missing) bool { return time.Now().After(m.until) })
		c.watchingLate = len(late) > 0
		c.mu.Unlock()
		if len(late) == 0 {
			return
		}
		left := newBudget()
		for _, m := range late {
			if c.looks(&m.look, left, func(onDisk string) bool {
				text, err := c.journal.Text(m.id)
				return err == nil && m.rules.Holds(onDisk, text)
			}) {
				c.writtenLate(m.id, m.target.path)
			}
		}
	}
}

// notWritten returns an error that says who did not write the file.
func (d *diff) notWritten() error {
	err := fmt.Errorf("%s did not write it", d.agent)
	if why := d.rules.Unwritten(); why != "" {
		err = fmt.Errorf("%w (%s)", err, why)
	}
	return err
}
