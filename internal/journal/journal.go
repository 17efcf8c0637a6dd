// Package journal keeps every proposal that was shown and every text that a
// user made of one, so that nothing is lost when a CLI, an editor or Pollux
// itself ends at the wrong moment.
//
// An entry is three files beside each other: ID.json, ID.proposal and, once
// the user has changed something, ID.edited. All are 0600, each is written
// atomically, and none is synced: the journal survives a killed process, not
// always a power cut.
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

// Bounds of a journal. The oldest entries go first; an entry whose diff is
// still open in a running companion stays.
const (
	MaxAge     = 14 * 24 * time.Hour
	MaxBytes   = 256 << 20
	MaxEntries = 1000
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
	// Path is the file the proposal is for.
	Path   string `json:"path"`
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
	dir string
	mu  sync.Mutex // entries are read, changed and written under it
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

// Add writes a new entry and returns its ID. Time, PID and Bytes are set here;
// the ID is a new one and the state is Open unless given. Old entries beyond
// the bounds go.
func (j *Journal) Add(e Entry, proposal string) (id string, err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if err := sys.PrivateDir(j.dir); err != nil {
		return "", fmt.Errorf("the journal cannot be written: %w", err)
	}
	e.Time = time.Now()
	e.ID, e.PID, e.Bytes = cmp.Or(e.ID, NewID()), os.Getpid(), int64(len(proposal))
	e.State = cmp.Or(e.State, Open)
	j.pruneLocked(e.Time, e.Bytes)
	if err := sys.WriteFile(j.file(e.ID, "proposal"), []byte(proposal)); err != nil {
		return "", fmt.Errorf("the journal cannot be written: %w", err)
	}
	return e.ID, j.put(e)
}

// Edit keeps the text that the user has made of the proposal so far.
func (j *Journal) Edit(id, text string) error {
	return j.change(id, func(e *Entry) error {
		e.Edited, e.Bytes = true, int64(len(text))
		return sys.WriteFile(j.file(id, "edited"), []byte(text))
	})
}

// Finish notes how the diff ended. It leaves Unwritten as it is.
func (j *Journal) Finish(id string, s State) error {
	return j.change(id, func(e *Entry) error { e.State = s; return nil })
}

// FinishUnwritten notes, in one step, that the user accepted the diff and that
// the file does not hold the text.
func (j *Journal) FinishUnwritten(id string) error {
	return j.change(id, func(e *Entry) error { e.State, e.Unwritten = Accepted, true; return nil })
}

// SetUnwritten notes whether the file lacks a text that the user accepted. It
// works in every state.
func (j *Journal) SetUnwritten(id string, unwritten bool) error {
	return j.change(id, func(e *Entry) error { e.Unwritten = unwritten; return nil })
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

// Get returns one entry. The error of an unknown ID names the next step.
func (j *Journal) Get(id string) (Entry, error) {
	e, err := j.get(id)
	if err != nil || e.State != Open || sys.Alive(e.PID) {
		return e, err
	}
	e.State = Orphaned // its companion was killed
	return e, nil
}

func (j *Journal) get(id string) (Entry, error) {
	var e struct {
		Entry
		Undelivered bool `json:"undelivered"` // the name of Unwritten in old entries
	}
	err := error(fs.ErrNotExist)
	if validID.MatchString(id) {
		var data []byte
		if data, err = os.ReadFile(j.file(id, "json")); err == nil {
			err = json.Unmarshal(data, &e)
		}
	}
	if errors.Is(err, fs.ErrNotExist) {
		return e.Entry, fmt.Errorf("the journal has no entry %q: `pollux journal` lists them", id)
	}
	e.Unwritten = e.Unwritten || e.Undelivered
	return e.Entry, err
}

func (j *Journal) put(e Entry) error {
	data, err := json.Marshal(e)
	if err != nil {
		return err
	}
	return sys.WriteFile(j.file(e.ID, "json"), append(data, '\n'))
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
func (j *Journal) Proposal(id string) (string, error) {
	if _, err := j.get(id); err != nil {
		return "", err
	}
	data, err := os.ReadFile(j.file(id, "proposal"))
	return string(data), err
}

// Text returns what the user had made of the proposal, or the proposal itself.
func (j *Journal) Text(id string) (string, error) {
	e, err := j.get(id)
	if err != nil {
		return "", err
	}
	ext := "proposal"
	if e.Edited {
		ext = "edited"
	}
	data, err := os.ReadFile(j.file(id, ext))
	return string(data), err
}

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
	if path == "" {
		path = e.Path
	}
	old, err := os.ReadFile(path)
	switch {
	case err == nil:
		if replaced, err = j.Add(Entry{Path: path, State: Replaced}, string(old)); err != nil {
			return "", err
		}
	case !errors.Is(err, fs.ErrNotExist):
		return "", err
	}
	if e.CRLF && !strings.Contains(text, "\r") {
		text = strings.ReplaceAll(text, "\n", "\r\n")
	}
	if e.BOM && !strings.HasPrefix(text, "\uFEFF") {
		text = "\uFEFF" + text
	}
	return replaced, sys.ReplaceFile(path, text)
}

// pruneLocked makes room for an entry of the given size.
func (j *Journal) pruneLocked(now time.Time, room int64) {
	names, err := os.ReadDir(j.dir)
	if err != nil {
		return
	}
	sizes := make(map[string]int64)
	for _, n := range names {
		id, _, _ := strings.Cut(n.Name(), ".")
		info, err := n.Info()
		if err != nil {
			continue
		}
		if validID.MatchString(id) {
			sizes[id] += info.Size()
		} else if ok, _ := filepath.Match(sys.TempPattern, n.Name()); ok && now.Sub(info.ModTime()) > time.Minute {
			os.Remove(filepath.Join(j.dir, n.Name()))
		}
	}
	var total int64
	ids := make([]string, 0, len(sizes))
	for id, size := range sizes {
		ids = append(ids, id)
		total += size
	}
	slices.Sort(ids) // oldest first
	count := len(ids)
	for _, id := range ids {
		e, err := j.get(id)
		tooMuch := total+room > MaxBytes || count >= MaxEntries
		tooOld := err != nil || now.Sub(e.Time) > MaxAge
		if !tooMuch && !tooOld {
			continue
		}
		if err == nil && e.State == Open && sys.Alive(e.PID) {
			continue
		}
		for _, ext := range []string{"json", "edited", "proposal"} {
			os.Remove(j.file(id, ext))
		}
		total -= sizes[id]
		count--
	}
}
