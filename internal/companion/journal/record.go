package journal

import (
	"errors"
	"io/fs"
	"log/slog"
	"sync"
)

// A Change is what a [Record] keeps an entry of.
type Change struct {
	Entry
	Proposal, Original string
	// InFile means that the file holds the proposal: it gets an entry only once the user has
	// changed the text.
	InFile bool
}

// A Record keeps the entry of one change up to date. A write may fail, and the user may delete the
// entry. So its methods only note what the entry should have, and [Record.Flush] writes everything
// that is missing. A failed write is repeated with the next one.
//
// A caller may hold any lock while it calls a method other than Flush and Has. Lock order: writing, the
// journal's locks; mu is taken last.
type Record struct {
	journal *Journal
	log     *slog.Logger
	change  Change

	mu   sync.Mutex
	want content

	writing sync.Mutex // held while the entry is written
	exists  bool
	has     content // as written
	warned  bool    // Flush has returned a text that is missing
}

type content struct {
	text      string
	state     State
	unwritten bool // the file does not hold the accepted text
}

// Record returns the record of a change, whose entry is not written yet.
func (j *Journal) Record(c Change, log *slog.Logger) *Record {
	return &Record{journal: j, log: log, change: c, want: content{text: c.Proposal, state: c.State}}
}

// SetText notes the user's text.
func (r *Record) SetText(text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.want.text = text
}

// Accept notes that the user has accepted a text, which the file does not hold yet.
func (r *Record) Accept(text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.want = content{text, Accepted, true}
}

// SetState notes how the diff ended.
func (r *Record) SetState(s State) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.want.state = s
}

// SetUnwritten notes whether the file lacks a text that the user accepted.
func (r *Record) SetUnwritten(unwritten bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.want.unwritten = unwritten
}

// Has reports whether the journal has the text.
func (r *Record) Has(text string) bool {
	r.writing.Lock()
	defer r.writing.Unlock()
	return r.exists && r.has.text == text
}

// Flush writes what the entry lacks, and returns the state that it should have. If it cannot write
// a text, lost is that text; nil if it has returned one since the last success.
func (r *Record) Flush() (state State, lost *string, err error) {
	r.writing.Lock()
	defer r.writing.Unlock()
	r.mu.Lock()
	want := r.want
	r.mu.Unlock()
	err = r.write(want)
	if errors.Is(err, fs.ErrNotExist) {
		r.exists = false // deleted since
		err = r.write(want)
	}
	switch {
	case err == nil:
		r.warned = false
	case !r.warned && (!r.exists || r.has.text != want.text):
		r.warned, lost = true, &want.text
	}
	return want.state, lost, err
}

// write writes what the entry lacks. The caller holds writing.
func (r *Record) write(want content) error {
	c := &r.change
	if c.InFile && !r.exists && want.text == c.Proposal {
		return nil
	}
	if !r.exists {
		e := c.Entry
		e.State = want.state
		if _, err := r.journal.Add(e, c.Proposal); err != nil {
			return err
		}
		if err := r.journal.SetOriginal(e.ID, c.Original); err != nil {
			r.log.Warn("the journal lacks the text before a change", "err", err)
		}
		r.exists, r.has = true, content{text: c.Proposal, state: want.state}
	}
	if r.has.text != want.text {
		if err := r.journal.Edit(c.ID, want.text); err != nil {
			return err
		}
		r.has.text = want.text
	}
	if r.has != want {
		if err := r.journal.Finish(c.ID, want.state, want.unwritten); err != nil {
			return err
		}
		r.has = want
	}
	return nil
}
