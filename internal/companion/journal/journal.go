// Package journal keeps every proposal that was shown and every text that a
// user made of one, so that nothing is lost when a CLI, an editor or Pollux
// itself ends at the wrong moment.
//
// An entry is three files beside each other: ID.json, ID.proposal and, once
// the user has changed something, ID.edited. All are 0600, each is written
// atomically, and none is synced: the journal survives a killed process, not
// always a power cut. The json describes the entry and is written last.
package journal

import (
	"cmp"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"pollux/internal/sys"
)

// A State says how the entry's diff ended, or Open.
type State string

// The states an entry can be in.
const (
	Open       State = "open"
	Accepted   State = "accepted"
	Rejected   State = "rejected"
	Superseded State = "superseded" // the CLI proposed again for the file
	Closed     State = "closed"     // the user answered in the CLI
	Orphaned   State = "orphaned"   // the CLI ended before the user decided
	Saved      State = "saved"      // Pollux wrote the file, the CLI being gone
	Failed     State = "failed"     // no editor could show it
	Replaced   State = "replaced"   // a file's content before a restore
)

// An Entry describes one proposal.
type Entry struct {
	ID   string    `json:"id"`
	Time time.Time `json:"time"`
	// Path is the file the proposal is for, and Real the same without symbolic
	// links, as they were then; "" if unknown.
	Path   string `json:"path"`
	Real   string `json:"real,omitempty"`
	Client string `json:"client,omitempty"`
	State  State  `json:"state"`
	// Unwritten is set when the user accepted the text and the CLI did not write
	// it: the file does not hold it.
	Unwritten bool `json:"unwritten,omitempty"`
	Edited    bool `json:"edited,omitempty"`
	// CRLF is set when the file on disk ends its lines so; the text here ends
	// them with LF, as the CLI proposed it.
	CRLF bool `json:"crlf,omitempty"`
	// BOM is set when the file on disk starts with a byte order mark.
	BOM bool `json:"bom,omitempty"`
	// PID is the companion's process.
	PID int `json:"pid"`
	// Bytes is the size of the text that a restore would write.
	Bytes int64 `json:"bytes"`
}

// A Journal is a directory of entries. Its methods may be called at the same
// time, by several processes too.
type Journal struct {
	dir   string
	prune pruning

	mu sync.Mutex // entries are read, changed, written and deleted under it
}

// New returns the journal in dir, which is made on the first write.
func New(dir string) *Journal { return &Journal{dir: dir} }

// Default returns the user's journal.
func Default() (*Journal, error) {
	dir, err := sys.StateDir()
	if err != nil {
		return nil, err
	}
	return New(filepath.Join(dir, "journal")), nil
}

var validID = regexp.MustCompile(`^[0-9a-z]{9,}-[0-9a-z]{6}$`)

var lastID atomic.Int64 // in milliseconds

// NewID returns an ID for a new entry. IDs sort by time, those of one process
// also within a millisecond.
func NewID() string {
	for {
		last := lastID.Load()
		now := max(time.Now().UnixMilli(), last+1)
		if lastID.CompareAndSwap(last, now) {
			return fmt.Sprintf("%09s-%s", strconv.FormatInt(now, 36), strings.ToLower(rand.Text()[:6]))
		}
	}
}

// Add writes a new entry and returns its ID. PID and Bytes are set here; the
// ID is a new one, the time is now and the state is Open unless given. Entries
// beyond the bounds are deleted, now and then, in the background.
func (j *Journal) Add(e Entry, proposal string) (id string, err error) {
	j.pruneSometimes(int64(len(proposal)))
	j.mu.Lock()
	defer j.mu.Unlock()
	if err := sys.PrivateDir(j.dir); err != nil {
		var reason *fs.PathError // without the advice, which is for the temporary directory
		if errors.As(err, &reason) {
			err = reason
		}
		return "", j.unwritable(err)
	}
	if e.Time.IsZero() {
		e.Time = time.Now()
	}
	e.ID, e.PID, e.Bytes = cmp.Or(e.ID, NewID()), os.Getpid(), int64(len(proposal))
	e.State = cmp.Or(e.State, Open)
	// The text comes first: an entry that is listed has one.
	if err := j.write(e.ID, "proposal", []byte(proposal)); err != nil {
		return "", err
	}
	return e.ID, j.put(e)
}

// Edit keeps the text that the user has made of the proposal so far.
func (j *Journal) Edit(id, text string) error {
	return j.change(id, func(e *Entry) error {
		e.Edited, e.Bytes = true, int64(len(text))
		return j.write(id, "edited", []byte(text))
	})
}

// Finish records how the diff ended, and whether the file lacks a text that the
// user accepted.
func (j *Journal) Finish(id string, s State, unwritten bool) error {
	return j.change(id, func(e *Entry) error { e.State, e.Unwritten = s, unwritten; return nil })
}

func (j *Journal) change(id string, f func(*Entry) error) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	e, err := j.get(id)
	if err == nil {
		err = f(&e)
	}
	if err == nil {
		err = j.put(e)
	}
	return err
}

// Get returns one entry. The error of an unknown ID names the next step and
// matches [fs.ErrNotExist].
func (j *Journal) Get(id string) (Entry, error) {
	e, err := j.get(id)
	if err != nil || e.State != Open || sys.Alive(e.PID) {
		return e, err
	}
	e.State = Orphaned // its companion was killed
	return e, nil
}

// maxEntry bounds an entry's description, in bytes.
const maxEntry = 1 << 20

func (j *Journal) get(id string) (Entry, error) {
	if !validID.MatchString(id) {
		return Entry{}, notFound(id)
	}
	var e struct {
		Entry
		Undelivered bool `json:"undelivered"` // the name of Unwritten in old entries
	}
	j.prune.reads.Add(1)
	data, err := sys.ReadFile(j.file(id, "json"), maxEntry)
	if errors.Is(err, fs.ErrNotExist) {
		return Entry{}, notFound(id)
	}
	if err != nil {
		return Entry{}, fmt.Errorf("the journal cannot be read: %w: check that %s is a directory of yours, then try again", err, j.dir)
	}
	if err := json.Unmarshal(data, &e); err != nil {
		return Entry{}, fmt.Errorf("the journal's entry %s cannot be read: %w: `pollux journal show %s` prints its text", id, err, id)
	}
	e.Unwritten = e.Unwritten || e.Undelivered
	// A process that was killed may have written the text alone.
	if info, err := os.Lstat(j.file(id, "edited")); err == nil {
		e.Edited, e.Bytes = true, info.Size()
	}
	return e.Entry, nil
}

// A notFound is the ID of an entry that the journal does not have.
type notFound string

func (id notFound) Error() string {
	return fmt.Sprintf("the journal has no entry %q: `pollux journal` lists them", string(id))
}

func (notFound) Is(err error) bool { return err == fs.ErrNotExist }

func (j *Journal) put(e Entry) error {
	data, err := json.Marshal(e)
	if err != nil {
		return err
	}
	return j.write(e.ID, "json", append(data, '\n'))
}

func (j *Journal) write(id, ext string, data []byte) error {
	err := sys.WriteFile(j.file(id, ext), data)
	if err != nil {
		return j.unwritable(err)
	}
	return nil
}

func (j *Journal) unwritable(err error) error {
	return fmt.Errorf("the journal cannot be written: %w: check that %s is a directory of yours with free space", err, j.dir)
}

func (j *Journal) file(id, ext string) string { return filepath.Join(j.dir, id+"."+ext) }

// List returns the entries, the newest first. Entries that cannot be read are
// left out.
func (j *Journal) List() ([]Entry, error) {
	names, err := os.ReadDir(j.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var all []Entry
	for _, n := range names {
		if id, ok := strings.CutSuffix(n.Name(), ".json"); ok {
			if e, err := j.Get(id); err == nil {
				all = append(all, e)
			}
		}
	}
	slices.SortFunc(all, func(a, b Entry) int { return strings.Compare(b.ID, a.ID) })
	return all, nil
}

// Proposal returns what the CLI proposed.
func (j *Journal) Proposal(id string) (string, error) { return j.text(id, "proposal") }

// Text returns what the user had made of the proposal, or the proposal itself.
func (j *Journal) Text(id string) (string, error) {
	// The files count, not the entry: see get.
	text, err := j.text(id, "edited")
	if errors.Is(err, fs.ErrNotExist) {
		return j.Proposal(id)
	}
	return text, err
}

func (j *Journal) text(id, ext string) (string, error) {
	if !validID.MatchString(id) {
		return "", notFound(id)
	}
	data, err := sys.ReadFile(j.file(id, ext), MaxBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return "", notFound(id)
	}
	if err != nil {
		return "", fmt.Errorf("the journal cannot be read: %w: check that %s is a directory of yours, then try again", err, j.dir)
	}
	return string(data), nil
}

// maxFile bounds the files that a restore replaces, in bytes.
const maxFile = 64 << 20

// Restore writes the entry's text to path, the entry's own where path is "".
// What the file held before goes into the journal first; its entry's ID is
// returned, "" where there was no file.
func (j *Journal) Restore(id, path string) (replaced string, err error) {
	e, err := j.get(id)
	if err != nil {
		return "", err
	}
	text, err := j.Text(id)
	if err != nil {
		return "", err
	}
	path = cmp.Or(path, e.Path)
	old, err := sys.ReadFile(path, maxFile)
	switch {
	case err == nil:
		if replaced, err = j.Add(Entry{Path: path, Real: path, State: Replaced}, string(old)); err != nil {
			return "", err
		}
	case !errors.Is(err, fs.ErrNotExist):
		return "", fmt.Errorf("the file cannot be replaced: %w: name another with --to", err)
	}
	if e.CRLF && !strings.Contains(text, "\r") {
		text = strings.ReplaceAll(text, "\n", "\r\n")
	}
	if e.BOM && !strings.HasPrefix(text, "\uFEFF") {
		text = "\uFEFF" + text
	}
	if err := sys.ReplaceFile(path, text); err != nil {
		return replaced, err
	}
	if e.Unwritten && (path == e.Path || path == e.Real) {
		return replaced, j.change(id, func(e *Entry) error { e.Unwritten = false; return nil })
	}
	return replaced, nil
}
