package journal

import (
	"errors"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"pollux/internal/sys/disk"
	"pollux/internal/sys/proc"
)

// Limits of a journal. Pruning deletes the oldest entries first. It never deletes
// entries of diffs that a running companion shows, accepted texts that it has not seen in their
// files, or entries that it cannot read. Between two prunings a journal may exceed the limits by pruneAdds
// entries and pruneBytes.
const (
	MaxAge     = 14 * 24 * time.Hour
	MaxBytes   = 256 << 20
	MaxEntries = 1000
)

// A process prunes at its first Add, and again after any of these limits.
const (
	pruneInterval = time.Hour
	pruneAdds     = 100
	pruneBytes    = MaxBytes / 16
)

const (
	// maxGap limits how much a period without entries adds to the age of earlier
	// entries. The clock may have jumped forward, which must not make last week's
	// entries look two weeks old; the files' times come from the same clock.
	// After a long absence, entries stay longer.
	maxGap = MaxAge / 2
	// An incomplete entry or a temporary file older than unfinishedTTL is a
	// leftover. Another process may still be writing a younger one.
	unfinishedTTL = time.Hour
)

// leftTemp finds the temporary files of killed processes.
var leftTemp = disk.Leftovers{Pattern: disk.TempPattern, MinAge: unfinishedTTL}

// A pruning is the state of deleting entries beyond the limits.
type pruning struct {
	running sync.Mutex   // held while the goroutine runs
	reads   atomic.Int64 // entries that were opened; for tests

	mu    sync.Mutex
	last  time.Time
	adds  int   // since then
	bytes int64 // since then
}

// pruneSometimes starts a pruning if one is due. The caller is about to add an
// entry of that size.
func (j *Journal) pruneSometimes(size int64) {
	p := &j.prune
	p.mu.Lock()
	p.adds++
	p.bytes += size
	due := p.last.IsZero() || time.Since(p.last) > pruneInterval || p.adds > pruneAdds || p.bytes > pruneBytes
	if due = due && p.running.TryLock(); due {
		p.last, p.adds, p.bytes = time.Now(), 0, 0
	}
	p.mu.Unlock()
	if due {
		go func() {
			defer p.running.Unlock()
			j.pruneAt(time.Now())
		}()
	}
}

// Wait waits until nothing runs in the background.
func (j *Journal) Wait() {
	j.prune.running.Lock()
	defer j.prune.running.Unlock()
}

// files describes the files of one entry.
type files struct {
	id         string
	changed    time.Time // the latest time, of the one in the ID and the files' own
	age        time.Duration
	size       int64
	described  bool // ID.json exists
	unreadable bool
}

// pruneAt deletes entries beyond the limits. It opens only the entries to delete.
// It keeps those that it cannot read: the next attempt may succeed, and a newer
// Pollux may understand them.
func (j *Journal) pruneAt(now time.Time) {
	leftTemp.Remove(j.dir)
	var total int64
	entries := j.scan(now)
	for _, e := range entries {
		total += e.size
	}
	count := len(entries)
	for _, e := range entries {
		if total <= MaxBytes && count <= MaxEntries && e.age <= MaxAge {
			continue
		}
		if e.described || now.Sub(e.changed).Abs() > unfinishedTTL {
			j.remove(e)
		}
		total -= e.size
		count--
	}
}

// scan returns the entries of the directory, in the order in which to delete
// them.
func (j *Journal) scan(now time.Time) []*files {
	names, err := os.ReadDir(j.dir)
	if err != nil {
		return nil
	}
	byID := make(map[string]*files)
	for _, n := range names {
		id, ext, _ := strings.Cut(n.Name(), ".")
		if !validID().MatchString(id) {
			continue
		}
		info, err := n.Info()
		e := byID[id]
		if e == nil {
			e = &files{id: id, changed: timeOf(id)}
			byID[id] = e
		}
		if err != nil {
			e.unreadable = true
			continue
		}
		e.size += info.Size()
		e.described = e.described || ext == "json"
		if t := info.ModTime(); t.After(e.changed) {
			e.changed = t
		}
	}
	entries := make([]*files, 0, len(byID))
	for _, e := range byID {
		if !e.unreadable {
			entries = append(entries, e)
		}
	}
	slices.SortFunc(entries, func(a, b *files) int {
		if c := a.changed.Compare(b.changed); c != 0 {
			return c
		}
		return strings.Compare(a.id, b.id)
	})
	later, age := now, time.Duration(0)
	for _, e := range slices.Backward(entries) {
		if e.changed.Before(later) {
			age += min(later.Sub(e.changed), maxGap)
			later = e.changed
		}
		e.age = age
	}
	// Entries with a time in the future were written before the clock was set
	// back. They are older than the others.
	future := slices.IndexFunc(entries, func(e *files) bool { return e.changed.After(now.Add(unfinishedTTL)) })
	if future > 0 {
		entries = slices.Concat(entries[future:], entries[:future])
	}
	return entries
}

// timeOf returns the time in an ID.
func timeOf(id string) time.Time {
	digits, _, _ := strings.Cut(id, "-")
	ms, err := strconv.ParseInt(digits, 36, 64)
	if err != nil {
		return time.Time{}
	}
	return time.UnixMilli(ms)
}

// remove deletes an entry unless it cannot be read, or a running companion shows
// its diff or has not seen its accepted text in the file.
func (j *Journal) remove(f *files) {
	j.mu.Lock()
	defer j.mu.Unlock()
	e, err := j.get(f.id)
	switch {
	case errors.Is(err, fs.ErrNotExist) && !f.described:
	case err != nil:
		return
	case (e.State == Open || e.State == Orphaned || e.Unwritten) && proc.Alive(e.PID):
		return
	}
	for _, ext := range []string{"json", "edited", "original", "proposal"} {
		os.Remove(j.file(f.id, ext))
	}
}
