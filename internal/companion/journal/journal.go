// Package journal stores every proposal and the user's edits of it, so that
// nothing is lost when an agent, an editor or Pollux ends unexpectedly.
//
// An entry consists of up to four files: ID.json, ID.proposal, ID.original with the
// file before the change, and, once the user has changed something, ID.edited. All
// have mode 0600. Each is written atomically but not synced, so the journal survives
// a killed process, but not always a power cut. ID.json describes the entry and is
// written after the proposal.
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
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"pollux/internal/lazy"
	"pollux/internal/sys/disk"
	"pollux/internal/sys/proc"
)

// A State is how the diff of an entry ended, or Open.
type State string

// The states an entry can be in.
const (
	Open       State = "open"
	Accepted   State = "accepted"
	Rejected   State = "rejected"
	Superseded State = "superseded" // the agent made a new proposal for the file
	Closed     State = "closed"     // the user answered in the agent's terminal
	Orphaned   State = "orphaned"   // the agent disconnected before the user decided
	Saved      State = "saved"      // Pollux wrote the file after the agent had ended
	Failed     State = "failed"     // no editor could show it
	Replaced   State = "replaced"   // the content of a file before a restore
)

// An Ending is how a change ended that the agent closed.
type Ending string

// The endings that the file shows, some seconds later.
const (
	InTerminal Ending = "accepted"  // the file holds the text
	Refused    Ending = "rejected"  // the file is as it was before
	Withdrawn  Ending = "withdrawn" // the same, and the agent did not close it for an answer
)

// An Entry describes one proposal.
type Entry struct {
	ID   string    `json:"id"`
	Time time.Time `json:"time"`
	// Path is the file to change, and Real the same path with the symbolic links
	// of that time resolved, or "" if unknown.
	Path   string `json:"path"`
	Real   string `json:"real,omitempty"`
	Client string `json:"client,omitempty"`
	State  State  `json:"state"`
	// Unwritten means that the user accepted the text, but the file does not
	// contain it.
	Unwritten bool `json:"unwritten,omitempty"`
	Edited    bool `json:"edited,omitempty"`
	// Ending says how a Closed change ended; empty if that is not known.
	Ending Ending `json:"ending,omitempty"`
	// CRLF means that the agent writes the lines of the file with CRLF, although
	// the text in the journal has LF. A restore does the same.
	CRLF bool `json:"crlf,omitempty"`
	// BOM means that the file gets a byte order mark, although the text in the
	// journal may have none. An empty text gets none.
	BOM bool `json:"bom,omitempty"`
	// PID is the process of the companion.
	PID int `json:"pid"`
	// Bytes is the size of the text that a restore would write.
	Bytes int64 `json:"bytes"`
}

// A Journal is a directory of entries. Several goroutines and several processes may
// use it at the same time.
//
// Lock order: pruning.mu, pruning.running, mu. All of them are held only for the
// files of the journal; no caller may hold a lock that requests need.
type Journal struct {
	dir   string
	prune pruning

	mu sync.Mutex // held to change or delete an entry

	failedMu sync.Mutex
	failed   []*Record // their last writes failed, the oldest first
}

// New returns the journal in dir. The first write creates dir.
func New(dir string) *Journal { return &Journal{dir: dir} }

// Default returns the user's journal.
func Default() (*Journal, error) {
	dir, err := disk.StateDir()
	if err != nil {
		return nil, err
	}
	return New(filepath.Join(dir, "journal")), nil
}

// IsDefault reports whether j is the user's journal.
func (j *Journal) IsDefault() bool {
	user, err := Default()
	return err == nil && user.dir == j.dir
}

var validID = lazy.Regexp(`^[0-9a-z]{9,}-[0-9a-z]{6}$`)

var lastID atomic.Int64 // in milliseconds

// NewID returns an ID for a new entry. IDs sort by time. Those of one process sort
// correctly even within a millisecond.
func NewID() string {
	for {
		last := lastID.Load()
		now := max(time.Now().UnixMilli(), last+1)
		if lastID.CompareAndSwap(last, now) {
			return fmt.Sprintf("%09s-%s", strconv.FormatInt(now, 36), strings.ToLower(rand.Text()[:6]))
		}
	}
}

// Add writes a new entry and returns its ID. It sets PID and Bytes, and the ID,
// the time and the state Open unless they are given. From time to time it deletes
// entries beyond the limits, in the background.
func (j *Journal) Add(e Entry, proposal string) (id string, err error) {
	j.pruneSometimes(int64(len(proposal)))
	j.mu.Lock()
	defer j.mu.Unlock()
	if err := disk.PrivateDir(j.dir); err != nil {
		return "", j.unwritable(err)
	}
	if e.Time.IsZero() {
		e.Time = time.Now()
	}
	e.ID, e.PID, e.Bytes = cmp.Or(e.ID, NewID()), os.Getpid(), int64(len(proposal))
	e.State = cmp.Or(e.State, Open)
	// Write the text first, so that every listed entry has one.
	if err := j.write(e.ID, "proposal", proposal); err != nil {
		return "", err
	}
	return e.ID, j.put(e)
}

// Edit stores the proposal with the user's edits so far.
func (j *Journal) Edit(id, text string) error {
	return j.change(id, func(e *Entry) error {
		e.Edited, e.Bytes = true, int64(len(text))
		return j.write(id, "edited", text)
	})
}

// Finish records how the diff ended, and whether the file lacks a text that the
// user accepted.
func (j *Journal) Finish(id string, s State, unwritten bool) error {
	return j.change(id, func(e *Entry) error { e.State, e.Unwritten = s, unwritten; return nil })
}

// SetEnding records how a Closed change ended.
func (j *Journal) SetEnding(id string, how Ending) error {
	return j.change(id, func(e *Entry) error { e.Ending = how; return nil })
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

// MaxOriginal limits the size of an original that the journal keeps, in bytes.
const MaxOriginal = 1 << 20

// SetOriginal stores the text of the file before the change, unless it is too large.
func (j *Journal) SetOriginal(id, text string) error {
	if len(text) > MaxOriginal {
		return nil
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.write(id, "original", text)
}

// Get returns one entry. For an unknown ID the error matches [fs.ErrNotExist].
func (j *Journal) Get(id string) (Entry, error) {
	e, err := j.get(id)
	if err != nil || e.State != Open || proc.Alive(e.PID) {
		return e, err
	}
	e.State = Orphaned // its companion was killed
	return e, nil
}

// maxEntry limits the size of an ID.json in bytes.
const maxEntry = 1 << 20

func (j *Journal) get(id string) (Entry, error) {
	if !validID().MatchString(id) {
		return Entry{}, notFound(id)
	}
	var e Entry
	j.prune.reads.Add(1)
	data, err := disk.ReadFile(j.file(id, "json"), maxEntry)
	if errors.Is(err, fs.ErrNotExist) {
		return Entry{}, notFound(id)
	}
	if err != nil {
		return Entry{}, j.unreadable(err)
	}
	if err := json.Unmarshal(data, &e); err != nil {
		return Entry{}, fmt.Errorf("entry %s of the journal cannot be read: %w: "+
			"run `pollux journal show %s` for its text", id, err, id)
	}
	// A killed process may have written only the text.
	if info, err := os.Lstat(j.file(id, "edited")); err == nil {
		e.Edited, e.Bytes = true, info.Size()
	}
	return e, nil
}

// A notFound is an ID without an entry.
type notFound string

func (id notFound) Error() string {
	return fmt.Sprintf("the journal has no entry %q: run `pollux journal` for a list", string(id))
}

func (notFound) Is(err error) bool { return err == fs.ErrNotExist }

func (j *Journal) put(e Entry) error {
	data, err := json.Marshal(e)
	if err != nil {
		return err
	}
	return j.write(e.ID, "json", string(data)+"\n")
}

func (j *Journal) write(id, ext, text string) error {
	err := disk.WriteText(j.file(id, ext), text)
	if err != nil {
		return j.unwritable(err)
	}
	return nil
}

func (j *Journal) unreadable(err error) error {
	return fmt.Errorf("the journal cannot be read: %w: check that %s is a directory that you own, then try again",
		err, j.dir)
}

func (j *Journal) unwritable(err error) error {
	return fmt.Errorf("the journal cannot be written: %w: check that %s is a directory that you own, with free space",
		err, j.dir)
}

func (j *Journal) file(id, ext string) string { return filepath.Join(j.dir, id+"."+ext) }

// List returns the entries, newest first. It skips entries that cannot be read.
func (j *Journal) List() ([]Entry, error) {
	names, err := disk.ReadDir(j.dir)
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

// Left returns the entries after an ID that the user edited and cannot decide on any more,
// because their agent and their companion have ended. The newest comes first.
func (j *Journal) Left(after string) (left []Entry) {
	names, _ := disk.ReadDir(j.dir) // sorted
	for _, n := range slices.Backward(names) {
		id, ok := strings.CutSuffix(n.Name(), ".edited")
		if !ok || id <= after {
			continue
		}
		if e, err := j.Get(id); err == nil && e.State == Orphaned && !proc.Alive(e.PID) {
			left = append(left, e)
		}
	}
	return left
}

// Resolve returns the ID of an entry from an ID, from the start of one that no other
// entry has, or from "@" for the latest entry.
func (j *Journal) Resolve(ref string) (id string, err error) {
	if validID().MatchString(ref) || ref == "" {
		return ref, nil
	}
	names, err := disk.ReadDir(j.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	var found []string
	for _, n := range names {
		id, ext, _ := strings.Cut(n.Name(), ".")
		if !validID().MatchString(id) || ext != "json" && ext != "proposal" || slices.Contains(found, id) {
			continue
		}
		if ref == "@" && ext == "json" || strings.HasPrefix(id, ref) {
			found = append(found, id)
		}
	}
	switch {
	case len(found) == 0 && ref == "@":
		return "", errors.New("the journal is empty: it fills when an agent proposes a change")
	case len(found) == 0:
		return "", notFound(ref)
	case ref == "@":
		return slices.Max(found), nil
	case len(found) > 1:
		slices.Sort(found)
		return "", fmt.Errorf("%d entries of the journal start with %q, such as %s and %s: give more of the ID",
			len(found), ref, found[0], found[1])
	}
	return found[0], nil
}

// Original returns the text of the file before the change. If the journal does not have
// it, the error matches [fs.ErrNotExist].
func (j *Journal) Original(id string) (string, error) { return j.text(id, "original") }

// Proposal returns what the agent proposed.
func (j *Journal) Proposal(id string) (string, error) { return j.text(id, "proposal") }

// Text returns the proposal with the user's edits, if any.
func (j *Journal) Text(id string) (string, error) {
	// The file counts, not Entry.Edited: see get.
	text, err := j.text(id, "edited")
	if errors.Is(err, fs.ErrNotExist) {
		return j.Proposal(id)
	}
	return text, err
}

func (j *Journal) text(id, ext string) (string, error) {
	if !validID().MatchString(id) {
		return "", notFound(id)
	}
	data, err := disk.ReadFile(j.file(id, ext), MaxBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return "", notFound(id)
	}
	if err != nil {
		return "", j.unreadable(err)
	}
	return string(data), nil
}

// maxFile limits the files that a restore replaces, in bytes.
const maxFile = 64 << 20

// Restore writes the text of an entry to path, or to the path of the entry if path
// is "". It first adds the current content of the file to the journal and returns
// the ID of that entry, "" if there was no file.
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
	write := func() error { return disk.ReplaceFile(path, e.written(text)) }
	old, err := disk.ReadFile(path, maxFile)
	switch {
	case err == nil:
		replaced, err = j.Replace(Entry{Path: path, Real: path}, string(old), write)
	case errors.Is(err, fs.ErrNotExist):
		err = write()
	default:
		err = fmt.Errorf("the file cannot be replaced: %w: choose another with --to", err)
	}
	if err != nil {
		return replaced, err
	}
	if e.Unwritten && (path == e.Path || path == e.Real) {
		return replaced, j.change(id, func(e *Entry) error { e.Unwritten = false; return nil })
	}
	return replaced, nil
}

// Replace adds the present text of a file, whose paths e has, and then calls write to replace it.
// It removes the entry again if write fails and the file still holds the text.
func (j *Journal) Replace(e Entry, old string, write func() error) (id string, err error) {
	e.State = Replaced
	if id, err = j.Add(e, old); err != nil {
		return "", err
	}
	if err = write(); err == nil {
		return id, nil
	}
	if now, readErr := disk.ReadFile(e.Real, maxFile); readErr == nil && string(now) == old {
		j.remove(&files{id: id})
		id = ""
	}
	return id, err
}

// written returns a text as it is written to the entry's file.
func (e Entry) written(text string) string {
	if e.CRLF && !strings.Contains(text, "\r") {
		text = strings.ReplaceAll(text, "\n", "\r\n")
	}
	if e.BOM && text != "" && !strings.HasPrefix(text, "\uFEFF") {
		text = "\uFEFF" + text
	}
	return text
}

// InFile reports whether the entry's file holds the entry's text now. Line endings do not
// count: agents choose those of a file that they write as a whole.
func (j *Journal) InFile(e Entry) (bool, error) {
	text, err := j.Text(e.ID)
	if err != nil {
		return false, err
	}
	text = withLF(e.written(text))
	path := cmp.Or(e.Real, e.Path)
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case err != nil:
		return false, err
	case info.Size() < int64(len(text)), info.Size() > int64(len(text)+strings.Count(text, "\n")):
		return false, nil
	}
	data, err := disk.ReadFile(path, maxFile)
	return withLF(string(data)) == text, err
}

func withLF(text string) string { return strings.ReplaceAll(text, "\r\n", "\n") }
