package journal

import (
	"errors"
	"io/fs"
	"log/slog"
	"slices"
	"sync"
)

// A Change is the subject of a [Record].
type Change struct {
	Entry
	Proposal, Original string
	// InFile means that the file holds the proposal: it gets an entry only once the user has
	// changed the text.
	InFile bool
}

// A Record keeps the entry of one change up to date. A write may fail, and the user may delete the
// entry. So [Record.Flush] writes everything that is missing, and a failed write is repeated
// with the next one, and after the next success of another record: nothing else would write a change
// that has ended.
//
// Lock order: writing, the locks of want, the journal's locks.
type Record struct {
	journal *Journal
	log     *slog.Logger
	change  Change
	want    func() Content

	writing sync.Mutex // held while the entry is written
	exists  bool
	has     Content // as written
	warned  bool    // Flush has returned a text that is missing
}

// A Content is the part of an entry that changes.
type Content struct {
	Text      string // the proposal with the user's edits
	State     State
	Unwritten bool // the file does not hold the text that the user accepted
}

// Record returns the record of a change, whose entry is not written yet. want returns what the
// entry should have now.
func (j *Journal) Record(c Change, want func() Content, log *slog.Logger) *Record {
	return &Record{journal: j, log: log, change: c, want: want}
}

// Has reports whether the journal has the text.
func (r *Record) Has(text string) bool {
	r.writing.Lock()
	defer r.writing.Unlock()
	return r.exists && r.has.Text == text
}

// Flush writes what the entry lacks, and returns the state that it should have. If it cannot write
// a text, lost is that text; nil if it has returned one since the last success.
func (r *Record) Flush() (state State, lost *string, err error) {
	state, lost, err = r.flush()
	for _, other := range r.journal.retries(r, err) {
		if _, _, err := other.flush(); err != nil {
			r.journal.retries(other, err)
		}
	}
	return state, lost, err
}

// maxFailed limits the records whose failed writes are repeated: they have whole texts.
const maxFailed = 64

// retries notes how a record's last write ended. After a success, it returns the records to write
// again.
func (j *Journal) retries(r *Record, err error) (others []*Record) {
	j.failedMu.Lock()
	defer j.failedMu.Unlock()
	j.failed = slices.DeleteFunc(j.failed, func(f *Record) bool { return f == r })
	if err == nil {
		others, j.failed = j.failed, nil
		return others
	}
	j.failed = append(j.failed, r)
	j.failed = j.failed[max(0, len(j.failed)-maxFailed):]
	return nil
}

func (r *Record) flush() (state State, lost *string, err error) {
	r.writing.Lock()
	defer r.writing.Unlock()
	want := r.want()
	err = r.write(want)
	if errors.Is(err, fs.ErrNotExist) {
		r.exists = false // deleted since
		err = r.write(want)
	}
	switch {
	case err == nil:
		r.warned = false
	case !r.warned && (!r.exists || r.has.Text != want.Text):
		r.warned, lost = true, &want.Text
	}
	return want.State, lost, err
}

// write writes what the entry lacks. The caller holds writing.
func (r *Record) write(want Content) error {
	c := &r.change
	if c.InFile && !r.exists && want.Text == c.Proposal {
		return nil
	}
	if !r.exists {
		e := c.Entry
		e.State = want.State
		if _, err := r.journal.Add(e, c.Proposal); err != nil {
			return err
		}
		if err := r.journal.SetOriginal(e.ID, c.Original); err != nil {
			r.log.Warn("the journal lacks the text before a change", "err", err)
		}
		r.exists, r.has = true, Content{Text: c.Proposal, State: want.State}
	}
	if r.has.Text != want.Text {
		if err := r.journal.Edit(c.ID, want.Text); err != nil {
			return err
		}
		r.has.Text = want.Text
	}
	if r.has != want {
		if err := r.journal.Finish(c.ID, want.State, want.Unwritten); err != nil {
			return err
		}
		r.has = want
	}
	return nil
}
