package companion

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"pollux/internal/companion/journal"
	"pollux/internal/outbox"
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
	// maxFresh limits the texts of accepted diffs in bytes. Beyond it, the oldest diffs
	// get no more time.
	maxFresh = 64 << 20
	// writingSize is counted for a diff in addition to its texts.
	writingSize = 4 << 10
	// maxLate limits the files in which a late write is noticed. The oldest are dropped.
	maxLate = 64
)

// A settler watches the files of accepted diffs until they hold the accepted texts, and
// ends the diffs. Only the file shows whether the agent wrote it: after a Ctrl-C in its
// terminal, an agent may ignore the answer and send nothing.
//
// One goroutine serves all files, and runs while there are any. It waits for no file: each
// look at one has its own goroutine, which ends unless the disk hangs.
type settler struct {
	c     *Companion
	state func(path string) fileState
	limit int // of the texts of fresh writings, in bytes
	wake  outbox.Signal

	mu      sync.Mutex // taken last
	running bool
	fresh   []*writing // may be written in time; the oldest first
	late    []*writing // were not; the oldest first
}

// A writing is a file that an agent is about to write.
type writing struct {
	id      string
	target  target
	session Session
	since   fileState // at the accept

	// Guarded by settler.mu:
	diff     *diff     // nil for a late writing, whose text only the journal has
	text     string    // the accepted text
	deadline time.Time // zero until the agent has the answer
	gone     bool      // the agent ended before that
	seen     fileState
	read     bool // the file was read in the state seen
	holds    bool // it has the text
	looking  bool
	reading  bool      // the disk has answered the look
	looked   time.Time // when the last look began
}

// add starts to watch a file.
func (s *settler) add(w *writing) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.c.ctx.Err() != nil && !w.gone {
		w.deadline = time.Now().Add(closingWrittenTimeout)
	}
	s.fresh = append(s.fresh, w)
	bytes, now := 0, time.Now()
	for _, old := range slices.Backward(s.fresh) {
		bytes += writingSize + len(old.text) + len(old.diff.proposal.Text) + len(old.diff.original)
		if bytes > s.limit && old != w && (old.deadline.IsZero() || old.deadline.After(now)) {
			old.deadline = now
		}
	}
	if s.running {
		s.wake.Set()
		return
	}
	s.running = true
	s.c.settling.start(s.run)
}

// delivered notes that the agent has received the answer, or has ended before.
func (s *settler) delivered(w *writing, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case err != nil:
		w.gone, w.deadline = true, time.Now()
	case w.deadline.IsZero():
		w.deadline = time.Now().Add(writtenTimeout)
	}
}

func (s *settler) run() {
	defer s.c.onPanic()
	ending := s.c.ctx.Done()
	for {
		interval, ok := s.step()
		if !ok {
			return
		}
		select {
		case <-time.After(interval):
		case <-s.wake:
		case <-ending:
			ending = nil
			s.hurry()
		}
	}
}

// hurry lets the agents write for only a moment longer, and drops the late writings.
func (s *settler) hurry() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.late = nil
	for _, w := range s.fresh {
		if !w.gone {
			w.deadline = time.Now().Add(closingWrittenTimeout)
		}
	}
}

// step starts the looks that are due, and settles what they and the time have decided. It
// returns when to call it again; ok is false if nothing is left.
func (s *settler) step() (interval time.Duration, ok bool) {
	var written, over []*writing
	now := time.Now()
	due := func(interval time.Duration) func(*writing) bool {
		return func(w *writing) bool {
			switch {
			case w.holds:
				written = append(written, w)
			case w.overLocked(now):
				over = append(over, w)
			default:
				if !w.looking && now.Sub(w.looked) >= interval {
					w.looking, w.looked = true, now
					go s.look(w, w.seen, w.read)
				}
				return false
			}
			return true
		}
	}
	s.mu.Lock()
	s.fresh = slices.DeleteFunc(s.fresh, due(lookSoonInterval))
	s.late = slices.DeleteFunc(s.late, due(lookInterval))
	s.mu.Unlock()
	for _, w := range written {
		s.written(w)
	}
	for _, w := range over {
		s.unwritten(w)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running = len(s.fresh)+len(s.late) > 0
	if len(s.fresh) > 0 {
		return lookSoonInterval, true
	}
	return lookInterval, s.running
}

// overLocked reports whether the deadline has passed. A last look comes after it, unless
// the disk hangs.
func (w *writing) overLocked(now time.Time) bool {
	if w.deadline.IsZero() || now.Before(w.deadline) {
		return false
	}
	return !w.looking && !w.looked.Before(w.deadline) || !w.reading && now.Sub(w.deadline) >= probeTimeout
}

// look looks at the file, and reads it if it has changed.
func (s *settler) look(w *writing, seen fileState, read bool) {
	defer s.c.onPanic()
	holds := false
	if state := s.state(w.target.path); state != seen || !read {
		s.mu.Lock()
		w.reading = true
		s.mu.Unlock()
		if now, err := w.target.read(); err == nil {
			seen, read = now.state, true
			holds = now.exists && s.holds(w, now.text)
		}
	}
	s.mu.Lock()
	w.seen, w.read, w.looking, w.reading = seen, read, false, false
	w.holds = w.holds || holds
	s.mu.Unlock()
	if holds {
		s.wake.Set()
	}
}

// holds reports whether a file that holds onDisk has the accepted text.
func (s *settler) holds(w *writing, onDisk string) bool {
	s.mu.Lock()
	text, late := w.text, w.diff == nil
	s.mu.Unlock()
	if late {
		var err error
		if text, err = s.c.journal.Text(w.id); err != nil {
			return false
		}
	}
	return w.session.Holds(onDisk, text)
}

// takeDiff returns the diff of a writing and drops its texts. It returns nil if the
// writing is late.
func (s *settler) takeDiff(w *writing) *diff {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := w.diff
	w.diff, w.text = nil, ""
	return d
}

// written settles a writing whose file holds the text.
func (s *settler) written(w *writing) {
	if d := s.takeDiff(w); d != nil {
		s.c.setUnwritten(d, false)
		s.c.outdate(w.target.path)
		s.c.outside.account(w.target.path)
		s.c.settled(d, evWritten)
		return
	}
	s.c.writtenLate(w.id, w.target.path)
}

// unwritten settles a writing whose file does not hold the text in time.
func (s *settler) unwritten(w *writing) {
	d := s.takeDiff(w)
	if d == nil {
		return
	}
	c := s.c
	s.mu.Lock()
	changed, gone := w.seen != w.since, w.gone
	s.mu.Unlock()
	err := d.notWritten()
	switch {
	case gone:
		err = errors.New("its agent ended before it received that")
	case changed:
		err = errors.New("something else was written")
	case c.waitsFor(w.session):
		err = fmt.Errorf("%s has not written it (it may wait for your answer to its other changes)", d.agent)
	}
	c.log.Info("an accepted change was not written", "err", err)
	c.syncEntry(d) // only the journal has the text from now on
	c.settled(d, evUnwritten)
	c.misses(d, fmt.Sprintf(
		"%s was accepted, but %s: %s does not hold the text. To write it: pollux journal restore %s",
		filepath.Base(w.target.path), err, w.target.path, w.id))
	if c.ctx.Err() != nil || !d.entry.has(d.content) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	w.deadline = time.Now().Add(lateWrittenTimeout)
	s.late = append(s.late, w)
	if len(s.late) > maxLate {
		s.late = slices.Delete(s.late, 0, 1)
	}
}

// settled ends an accepted diff on the surfaces.
func (c *Companion) settled(d *diff, ev event) {
	c.mu.Lock()
	c.stepLocked(d, ev)
	c.mu.Unlock()
	c.log.Info("a diff ended", "state", ev)
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
