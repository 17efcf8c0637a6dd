package companion

import (
	"cmp"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"pollux/internal/editor"
	"pollux/internal/paths"
)

// debounceDelay is how long a change waits for more before agents receive it
// (companion-spec II). It runs from the first change, not from the last, so
// that they still receive twenty updates a second while a cursor key is held.
const debounceDelay = 50 * time.Millisecond

// maxHookFiles bounds the files kept for one source of events, open or closed, since
// hooks do not always report a closed file.
const maxHookFiles = 40

// A store joins what all editors have open into one [Context].
//
// An update is cheap: it replaces the snapshot of its source and, if none is
// pending, starts the debounce. The store checks, filters and sorts the files
// only when the debounce ends, and calls changed only if the context differs by
// more than times. It leaves out files on a disk that does not answer, until
// the disk answers.
type store struct {
	changed  func()
	excluded *prober
	maxFiles int // 0 for no limit

	flushMu sync.Mutex // one flush at a time; taken before mu

	mu      sync.Mutex
	sources map[any]snapshot // by the snapshots' sender
	hooks   map[string]hooks // by the events' source
	pending *time.Timer
	closed  bool
	current Context
}

type snapshot struct {
	editor.Snapshot
	at int64 // when it arrived, in Unix milliseconds
}

func newStore(exclude func(string) bool, maxFiles int, changed func()) *store {
	s := &store{changed: changed, maxFiles: maxFiles, sources: make(map[any]snapshot), hooks: make(map[string]hooks)}
	ask := func(path string) bool { return !regular(path) || exclude(path) }
	s.excluded = newProber(ask, func() { s.change(func() {}) })
	return s
}

// update replaces what a source has open. A snapshot without trusted keeps the earlier value.
func (s *store) update(source any, snap editor.Snapshot) {
	s.change(func() {
		snap.Trusted = cmp.Or(snap.Trusted, s.sources[source].Trusted)
		s.sources[source] = snapshot{snap, time.Now().UnixMilli()}
	})
}

// forget drops a source whose client has left.
func (s *store) forget(source any) {
	s.change(func() { delete(s.sources, source) })
}

// event applies what a shell hook reports to the snapshot kept for its source.
func (s *store) event(e editor.ContextEvent) {
	s.change(func() {
		h := s.hooks[e.Source]
		if !h.add(e, time.Now().UnixMilli()) {
			return
		}
		s.hooks[e.Source] = h
		key := eventSource(e.Source)
		if h.quit == h.last {
			delete(s.sources, key)
			return
		}
		snap := s.sources[key]
		snap.Files, snap.at = h.files(), time.Now().UnixMilli()
		s.sources[key] = snap
	})
}

type eventSource string

// hooks has what the hooks of one source have reported. A hook starts a process for each event,
// so an event may arrive after a later one.
type hooks struct {
	events []hookEvent // the last one of each file, in their order
	focus  uint64      // the number of the last event "focus"
	quit   uint64      // the number of the last event "quit"
	last   uint64      // the highest number
}

type hookEvent struct {
	editor.ContextEvent
	at int64 // in Unix milliseconds, at most that of the next event
}

// add applies an event that has arrived at a time in Unix milliseconds. It reports false if
// the event has no effect, because of a later one.
func (h *hooks) add(e editor.ContextEvent, at int64) bool {
	if e.Number == 0 {
		e.Number = h.last + 1
	}
	later := func(o hookEvent) bool { return o.Number > e.Number }
	if e.Number < h.quit || slices.ContainsFunc(h.events, func(o hookEvent) bool { return o.Path == e.Path && later(o) }) {
		return false
	}
	h.last = max(h.last, e.Number)
	if e.Event == "quit" {
		h.quit = e.Number
		h.events = slices.DeleteFunc(h.events, func(o hookEvent) bool { return !later(o) })
		return true
	}
	if e.Event == "focus" {
		h.focus = max(h.focus, e.Number)
	}
	events := slices.DeleteFunc(h.events, func(o hookEvent) bool { return o.Path == e.Path })
	i := slices.IndexFunc(events, later)
	if i < 0 {
		i = len(events)
	} else {
		at = min(at, events[i].at)
	}
	events = slices.Insert(events, i, hookEvent{e, at})
	h.events = events[max(len(events)-maxHookFiles, 0):]
	return true
}

// files returns the open files.
func (h *hooks) files() (files []editor.File) {
	for _, e := range h.events {
		if e.Event == "focus" {
			files = append(files, editor.File{
				Path: e.Path, Focused: e.at, Active: e.Number == h.focus, Cursor: e.Cursor, Selection: e.Selection, Range: e.Range,
			})
		}
	}
	return files
}

func (s *store) change(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	f()
	if s.pending == nil {
		s.pending = time.AfterFunc(debounceDelay, s.flush)
	}
}

func (s *store) flush() {
	s.flushMu.Lock()
	defer s.flushMu.Unlock()
	s.mu.Lock()
	s.pending = nil
	snaps := make([]snapshot, 0, len(s.sources))
	for _, snap := range s.sources {
		snaps = append(snaps, snap)
	}
	s.mu.Unlock()
	left := probeTimeout
	context := build(snaps, s.maxFiles, func(path string) bool {
		excluded, ok := s.excluded.get(path, &left)
		return excluded || !ok
	})
	s.mu.Lock()
	differs := !sameContext(context, s.current) && !s.closed
	if differs {
		s.current = context
	}
	s.mu.Unlock()
	if differs {
		s.changed()
	}
}

// context returns the current context. The caller must not change it.
func (s *store) context() Context {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.current
}

// paths returns the files that the editors have open, shared or not.
func (s *store) paths() (paths []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, snap := range s.sources {
		for _, f := range snap.Files {
			paths = append(paths, f.Path)
		}
	}
	return paths
}

func (s *store) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	if s.pending != nil {
		s.pending.Stop()
	}
}

// sameContext reports whether two contexts are equal except for times. Their
// order shows which file had the focus last.
func sameContext(a, b Context) bool {
	return len(a.Files) == len(b.Files) && reflect.DeepEqual(withoutTimes(a), withoutTimes(b))
}

func withoutTimes(c Context) Context {
	c.Files = append([]File{}, c.Files...)
	for i := range c.Files {
		c.Files[i].Focused = 0
	}
	return c
}

// regular reports whether the path is a regular file on disk.
func regular(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}

// build joins the snapshots into a context of at most maxFiles files: those
// that are not excluded, the active file first, then the last focused. An
// excluded file leaves no trace, not even the fact that it is active.
func build(snaps []snapshot, maxFiles int, exclude func(string) bool) Context {
	var context Context
	slices.SortFunc(snaps, func(a, b snapshot) int { return cmp.Compare(a.at, b.at) })
	byPath := make(map[string]*File)
	var active *File
	for _, snap := range snaps {
		if snap.Trusted != nil {
			context.Trusted = snap.Trusted
		}
		for _, f := range snap.Files {
			if !filepath.IsAbs(f.Path) || !utf8.ValidString(f.Path) {
				continue
			}
			path := filepath.Clean(f.Path)
			key := paths.Key(path)
			file := byPath[key]
			if file == nil {
				file = &File{Path: path}
				byPath[key] = file
			}
			focused := f.Focused
			if f.Active && focused <= 0 {
				focused = snap.at
			}
			file.Focused = max(file.Focused, focused, 0)
			if f.Active && (active == nil || file.Focused >= active.Focused) {
				active = file
				file.Cursor, file.Selection = validCursor(f.Cursor), strings.ToValidUTF8(f.Selection, "\uFFFD")
				file.Range = validRange(f)
			}
		}
	}
	files := make([]*File, 0, len(byPath))
	for _, f := range byPath {
		f.Active = f == active
		if !f.Active {
			f.Cursor, f.Selection, f.Range = nil, "", nil
		}
		files = append(files, f)
	}
	slices.SortFunc(files, func(a, b *File) int {
		if a.Active != b.Active {
			if a.Active {
				return -1
			}
			return 1
		}
		return cmp.Or(cmp.Compare(b.Focused, a.Focused), strings.Compare(a.Path, b.Path))
	})
	for _, f := range files {
		if maxFiles > 0 && len(context.Files) == maxFiles {
			break
		}
		if !exclude(f.Path) {
			context.Files = append(context.Files, *f)
		}
	}
	return context
}

// validRange returns where a file's selection is, or nil if it has none or the range is
// invalid.
func validRange(f editor.File) *editor.Range {
	r := f.Range
	if r == nil || f.Selection == "" || validCursor(&r.Start) == nil || validCursor(&r.End) == nil ||
		r.End.Line < r.Start.Line || r.End.Line == r.Start.Line && r.End.Character < r.Start.Character {
		return nil
	}
	return r
}

// validCursor returns the cursor, or nil if it is not a position in a file.
func validCursor(c *editor.Cursor) *editor.Cursor {
	if c == nil || c.Line < 1 || c.Character < 1 {
		return nil
	}
	return c
}
