package companion

import (
	"cmp"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"pollux/internal/editor"
	"pollux/internal/ide/geminiide"
)

// debounce is how long a change waits for more before the CLI receives it
// (companion-spec II). It runs from the first change, not from the last, so
// that a held cursor key still reaches the CLI twenty times a second.
const debounce = 50 * time.Millisecond

// A store makes one [geminiide.Context] of what all editors have open.
//
// An update is cheap: it replaces its source's snapshot and, if none is
// pending, starts the debounce. Files are looked at on disk, filtered, sorted
// and cut only when the debounce ends, and changed is called only if the CLI
// would see a difference. A file on a disk that does not answer is left out
// until it does.
type store struct {
	changed  func()
	excluded prober[bool]

	flushing sync.Mutex // one flush at a time; taken before mu

	mu      sync.Mutex
	sources map[any]snapshot // by whoever sends the snapshots
	pending *time.Timer
	closed  bool
	current geminiide.Context
	sent    string // current as the CLI compares it
}

type snapshot struct {
	editor.Snapshot
	at int64 // when it came, in Unix milliseconds
}

func newStore(exclude func(string) bool, changed func()) *store {
	s := &store{changed: changed, sources: make(map[any]snapshot)}
	s.excluded = prober[bool]{
		ask:  func(path string) bool { return !regular(path) || exclude(path) },
		late: func(string) { s.change(func() {}) },
	}
	s.current = geminiide.Context{WorkspaceState: &geminiide.WorkspaceState{OpenFiles: []geminiide.File{}}}
	s.sent = comparable(s.current)
	return s
}

// update replaces what a source has open.
func (s *store) update(source any, snap editor.Snapshot) {
	s.change(func() { s.sources[source] = snapshot{snap, time.Now().UnixMilli()} })
}

// forget drops a source whose editor has gone.
func (s *store) forget(source any) {
	s.change(func() { delete(s.sources, source) })
}

// event applies what a shell hook reports to the snapshot kept for its source.
func (s *store) event(e editor.ContextEvent) {
	s.change(func() {
		key := eventSource(e.Source)
		now := time.Now().UnixMilli()
		snap := s.sources[key]
		// A fresh slice: a flush may be reading the old one.
		files := slices.DeleteFunc(slices.Clone(snap.Files), func(f editor.File) bool { return f.Path == e.Path })
		switch e.Event {
		case "quit":
			delete(s.sources, key)
			return
		case "focus":
			for i := range files {
				files[i].Active = false
			}
			files = append(files, editor.File{Path: e.Path, Focused: now, Active: true, Cursor: e.Cursor, Selection: e.Selection})
			// Hooks do not always tell of closed files.
			if extra := len(files) - 4*geminiide.MaxOpenFiles; extra > 0 {
				files = files[extra:]
			}
		}
		snap.Files, snap.at = files, now
		s.sources[key] = snap
	})
}

type eventSource string

func (s *store) change(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	f()
	if s.pending == nil {
		s.pending = time.AfterFunc(debounce, s.flush)
	}
}

func (s *store) flush() {
	s.flushing.Lock()
	defer s.flushing.Unlock()
	s.mu.Lock()
	s.pending = nil
	snaps := make([]snapshot, 0, len(s.sources))
	for _, snap := range s.sources {
		snaps = append(snaps, snap)
	}
	s.mu.Unlock()
	left := newPatience()
	context := build(snaps, func(path string) bool {
		excluded, ok := s.excluded.get(path, left)
		return excluded || !ok
	})
	key := comparable(context)
	s.mu.Lock()
	differs := key != s.sent && !s.closed
	if differs {
		s.current, s.sent = context, key
	}
	s.mu.Unlock()
	if differs {
		s.changed()
	}
}

// context returns the current context, which nobody may change.
func (s *store) context() geminiide.Context {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.current
}

// paths are the files that the editors have open, told to the CLI or not.
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

// comparable is the context without what makes no difference to the CLI: it
// takes only the files' order from the timestamps.
func comparable(c geminiide.Context) string {
	ws := *c.WorkspaceState
	ws.OpenFiles = slices.Clone(ws.OpenFiles)
	for i := range ws.OpenFiles {
		ws.OpenFiles[i].Timestamp = 0
	}
	data, err := json.Marshal(ws)
	if err != nil {
		panic(err) // strings and numbers
	}
	return string(data)
}

// regular reports whether the path is a regular file on disk.
func regular(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}

// build makes the context of the snapshots: the files that are not excluded,
// the last focused first, at most ten, the active one always the newest since
// the CLI takes no other for active.
func build(snaps []snapshot, exclude func(string) bool) geminiide.Context {
	ws := &geminiide.WorkspaceState{OpenFiles: []geminiide.File{}}
	slices.SortFunc(snaps, func(a, b snapshot) int { return cmp.Compare(a.at, b.at) })
	byPath := make(map[string]*geminiide.File)
	var active *geminiide.File
	for _, snap := range snaps {
		if snap.Trusted != nil {
			ws.IsTrusted = snap.Trusted
		}
		for _, f := range snap.Files {
			if !filepath.IsAbs(f.Path) || !utf8.ValidString(f.Path) {
				continue
			}
			path := filepath.Clean(f.Path)
			file := byPath[path]
			if file == nil {
				file = &geminiide.File{Path: path}
				byPath[path] = file
			}
			stamp := f.Focused
			if f.Active && stamp <= 0 {
				stamp = snap.at
			}
			file.Timestamp = max(file.Timestamp, stamp, 0)
			if f.Active && (active == nil || file.Timestamp >= active.Timestamp) {
				active = file
				file.Cursor, file.SelectedText = validCursor(f.Cursor), cut(f.Selection, geminiide.MaxSelectedText)
			}
		}
	}
	files := make([]*geminiide.File, 0, len(byPath))
	for _, f := range byPath {
		files = append(files, f)
	}
	slices.SortFunc(files, func(a, b *geminiide.File) int {
		if (a == active) != (b == active) {
			if a == active {
				return -1
			}
			return 1
		}
		return cmp.Or(cmp.Compare(b.Timestamp, a.Timestamp), strings.Compare(a.Path, b.Path))
	})
	if active != nil && len(files) > 1 {
		active.Timestamp = max(active.Timestamp, files[1].Timestamp+1)
	}
	for _, f := range files {
		if len(ws.OpenFiles) == geminiide.MaxOpenFiles {
			break
		}
		if exclude(f.Path) {
			continue
		}
		f.IsActive = f == active
		if !f.IsActive {
			f.Cursor, f.SelectedText = nil, ""
		}
		ws.OpenFiles = append(ws.OpenFiles, *f)
	}
	return geminiide.Context{WorkspaceState: ws}
}

func validCursor(c *editor.Cursor) *editor.Cursor {
	if c == nil || c.Line < 1 || c.Character < 1 {
		return nil
	}
	return c
}

// cut cuts s to at most limit bytes, at a character's boundary.
func cut(s string, limit int) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if len(s) <= limit {
		return s
	}
	for limit > 0 && !utf8.RuneStart(s[limit]) {
		limit--
	}
	return s[:limit]
}
