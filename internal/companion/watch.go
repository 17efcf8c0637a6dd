package companion

import (
	"io/fs"
	"os"
	"slices"
	"sync"
	"time"

	"pollux/internal/editor"
	"pollux/internal/outbox"
	"pollux/internal/sys/disk"
)

// A watcher notices that files change: files that the editors have open, files that an agent is
// about to write, and those that should hold a text that the user accepted. It polls, which works
// on every file system.
//
// One goroutine, run, decides which files to look at. Each look has its own goroutine, which
// hands the result to run. So a disk that does not answer delays the looks at its own files only.
//
// The editors receive every change. These rules say who made it, the first that applies:
//
//   - A file that holds an [expected] text was written by its agent, as the user wants.
//   - While a proposal for a file is open, or a text is expected, nothing is decided.
//   - A file that an editor or Pollux has saved ([outside.account]) has the user's change.
//   - Any other change of the workspace was made [outside] Pollux.
type watcher struct {
	c     *Companion
	stat  func(path string) fileState
	wake  outbox.Signal
	slots chan bool // a value for each look that has not taken lookSoonInterval yet
	found chan sight
	done  chan struct{} // closed when run has ended

	// Used by run only:
	looked time.Time      // when looks were started last
	full   time.Time      // when looks at the open files were started last
	active bool           // an agent was connected or ran then
	more   int            // how often to look at the open files after that
	list   editor.Outside // as it was announced

	mu    sync.Mutex // taken last
	files map[string]*watched
}

// A watched is a file as the watcher knows it.
type watched struct {
	known fileState // the last state that counts; unseen before the first look
	next  fileState // another state that may not last; unseen without one
	looks int       // how often it was seen
	asked time.Time // when the look began that has not found anything yet; zero without one
}

// A sight is the result of a look at a file.
type sight struct {
	path  string
	at    time.Time // when the look began
	state fileState
	file  *file // the file in this state; nil if it was not read, or cannot be read
	lists bool  // the list of changes outside Pollux has changed
}

// A fileState identifies a state of a file.
type fileState struct {
	exists       bool
	readOnly     bool
	size         int64
	modified, at int64
	id           uint64
}

// unseen is the state of no file.
var unseen = fileState{size: -1}

func newFileState(info fs.FileInfo) fileState {
	at, id := disk.Stamp(info)
	return fileState{true, info.Mode().Perm()&0o200 == 0, info.Size(), info.ModTime().UnixNano(), at, id}
}

func stateOf(path string) fileState {
	info, err := os.Stat(path)
	if err != nil {
		return fileState{}
	}
	return newFileState(info)
}

const (
	lookInterval     = time.Second           // at open files, and for late writes
	lookSoonInterval = 25 * time.Millisecond // at files that an agent is about to write
	urgentTimeout    = 5 * time.Second       // after an agent has announced a write
	// emptiedLooks is how often a file that has lost its text must look the same before that counts:
	// agents empty a file before they write it, and on a busy machine the pause is longer.
	emptiedLooks = 20
	// maxLooks limits the looks at the same time, except for those at slow disks.
	maxLooks = 8
	// lookTimeout is how long the decision about an expected text waits for the disk.
	lookTimeout = 2 * time.Second
)

func newWatcher(c *Companion) *watcher {
	return &watcher{
		c: c, stat: stateOf, wake: outbox.NewSignal(), files: make(map[string]*watched),
		slots: make(chan bool, maxLooks), found: make(chan sight), done: make(chan struct{}),
	}
}

// run looks at files until the companion has ended and expects no text any more.
func (w *watcher) run() {
	defer close(w.done)
	var tick <-chan time.Time
	for over := false; !over; {
		select {
		case s := <-w.found:
			if w.sees(s) {
				tick = time.After(lookSoonInterval)
			}
		case <-tick:
			tick, over = w.look()
		case <-w.wake:
			tick, over = w.look()
		}
	}
}

// A question says what a look must find out.
type question struct {
	before fileState   // the last state that counts, if the watcher does not know the file yet; or unseen
	target target      // to read the text
	read   []fileState // the text is needed if the file is in none of these states
	list   bool        // for the list of changes outside Pollux
	known  fileState   // as the watcher knows the file
}

// Questions are the files to look at now.
type questions map[string]*question

// about returns the question about a file. The first state before a write counts.
func (q questions) about(path string, before fileState) *question {
	if q[path] == nil {
		q[path] = &question{before: before}
	}
	return q[path]
}

// look starts the looks that are due. It returns when to call it again, and whether the companion
// has ended and expects no text any more.
func (w *watcher) look() (again <-chan time.Time, over bool) {
	now, c := time.Now(), w.c
	if rest := lookSoonInterval - now.Sub(w.looked); rest > 0 {
		return time.After(rest), false
	}
	w.looked = now
	all := now.Sub(w.full) >= lookInterval
	if all {
		w.full = now
	}
	due := make(questions)
	c.mu.Lock()
	active := c.activeLocked()
	soon, late := c.askLocked(due, now, all)
	over = c.ending && !soon
	c.mu.Unlock()

	if active && !w.active {
		c.outside.forget()
		c.store.change(func() {}) // open files may have been removed
	}
	w.active = active
	on := active || w.more > 0
	switch {
	case active:
		w.more = 2 // a file has changed when it looks the same twice
	case all && on:
		w.more--
	}
	if on {
		open := c.store.paths()
		for _, path := range open {
			if all {
				due.about(path, unseen)
			}
		}
		if c.cfg.Outside {
			for _, path := range c.outside.due(open, all) {
				due.about(path, unseen).list = true
			}
			if all {
				c.background(c.outside.askGit)
			}
		}
	}
	if list := c.outside.list(); !slices.Equal(list.Files, w.list.Files) || list.More != w.list.More {
		w.list = list
		c.outside.announce()
	}
	if w.start(due, now, all) || soon {
		return time.After(lookSoonInterval), over
	}
	if on || late {
		again = time.After(lookInterval - now.Sub(w.full))
	}
	return again, over
}

// start starts the looks at files. It reports whether to look again soon.
func (w *watcher) start(due questions, now time.Time, all bool) (soon bool) {
	var hung []string
	w.mu.Lock()
	for path, f := range w.files {
		switch {
		case f.next != unseen:
			soon = true
			due.about(path, unseen)
		case all && due[path] == nil && f.asked.IsZero():
			delete(w.files, path)
		}
	}
	for path, q := range due {
		f := w.files[path]
		if f == nil {
			f = &watched{known: q.before, next: unseen}
			w.files[path] = f
		}
		switch {
		case f.asked.IsZero():
			f.asked, q.known = now, f.known
			go w.find(sight{path: path, at: now}, q)
		case now.Sub(f.asked) >= lookTimeout:
			hung = append(hung, path)
		}
	}
	w.mu.Unlock()
	for _, path := range hung {
		w.c.judge(sight{path: path, at: now, state: unseen})
	}
	return soon
}

// find looks at a file, and hands what it finds to run.
func (w *watcher) find(s sight, q *question) {
	w.slots <- true
	slow := time.AfterFunc(lookSoonInterval, func() { <-w.slots })
	s.state = w.stat(s.path)
	if slices.ContainsFunc(q.read, func(state fileState) bool { return state != s.state }) {
		if now, err := q.target.read(); err == nil {
			s.file, s.state = &now, now.state
		}
	}
	if q.list {
		s.lists = w.c.outside.compare(s.path, s.state, s.state == q.known)
	}
	if slow.Stop() {
		<-w.slots
	}
	select {
	case w.found <- s:
	case <-w.done:
	}
}

// sees notes what a look has found, and reports whether to look again soon.
func (w *watcher) sees(s sight) (soon bool) {
	w.mu.Lock()
	f := w.files[s.path]
	f.asked = time.Time{}
	changed := f.sees(s.state)
	soon = f.next != unseen || s.lists
	w.mu.Unlock()
	if changed {
		w.c.fileChanged(s.path, s.state)
	}
	w.c.judge(s)
	return soon
}

// sees notes the state of a file, and reports whether the file has changed: it looks the same
// twice, or [emptiedLooks] times if it was emptied, and differs from what it was. A reader in
// the middle of a write would get half of it.
func (f *watched) sees(now fileState) bool {
	switch {
	case f.known == unseen:
		f.known = now
	case now == f.known:
		f.next = unseen
	case now == f.next:
		f.looks++
		if now.exists && now.size == 0 && f.known.size > 0 && f.looks < emptiedLooks {
			return false
		}
		f.known, f.next = now, unseen
		return true
	default:
		f.next, f.looks = now, 1
	}
	return false
}
