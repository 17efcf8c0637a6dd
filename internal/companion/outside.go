package companion

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"pollux/internal/companion/journal"
	"pollux/internal/editor"
	"pollux/internal/paths"
)

const (
	// gitInterval is the time between two questions to git, at least, and gitShare how many
	// times as long as its answer took.
	gitInterval = 5 * time.Second
	gitShare    = 40
	// maxOutsideFiles limits the files that are looked at.
	maxOutsideFiles = 500
	// maxOutsideFile limits the size of a file whose earlier text is kept, and
	// maxOutsideTexts the size of all of them together, in bytes.
	maxOutsideFile  = 1 << 20
	maxOutsideTexts = 16 << 20
)

// An outside lists the changes outside Pollux: files of the workspace that changed while an
// agent was connected or ran, and that neither an accepted proposal nor an editor wrote. An agent
// that does not ask makes such changes, and so do git, formatters and other editors. The
// list does not guess which.
//
// The watcher looks at the files that are open in an editor, have a proposal, or have changes that
// git reports, each of them once a second while an agent is connected. It leaves out ignored
// files.
type outside struct {
	c *Companion

	asking sync.Mutex // held while git is asked; taken first

	mu    sync.Mutex // taken last
	git   map[string]*gitRoot
	files map[string]*outsideFile
	texts int               // the size of the earlier texts
	moved map[string]string // by path of an open file: where Pollux looks instead, see place
	full  bool              // a file was left out
}

// An outsideFile is a file as Pollux knows it: its earlier state.
type outsideFile struct {
	learn  bool      // the state at the next look becomes the earlier one
	opened time.Time // when an editor opened it, which is why Pollux knows it

	version string // see file; that of its fileState if its text cannot be read
	exists  bool
	text    string
	why     string // why text is missing
	git     bool   // the text is git's, whose line endings may differ

	seen  fileState // when the file was compared last
	since time.Time // when a change was found; zero without a change
}

func newOutside(c *Companion) *outside {
	return &outside{c: c, git: make(map[string]*gitRoot), files: make(map[string]*outsideFile), moved: make(map[string]string)}
}

// forget drops all that is known about files that are not listed.
func (o *outside) forget() {
	o.mu.Lock()
	defer o.mu.Unlock()
	clear(o.git)
	for path, f := range o.files {
		if f.since.IsZero() {
			o.dropLocked(path)
		}
	}
	clear(o.moved)
	o.full = false
}

func (o *outside) dropLocked(path string) {
	if f := o.files[path]; f != nil {
		o.texts -= len(f.text)
		delete(o.files, path)
	}
}

// setLocked replaces what is known about a file.
func (o *outside) setLocked(path string, f *outsideFile) {
	o.dropLocked(path)
	if len(o.files) >= maxOutsideFiles {
		o.full = true
		return
	}
	if o.texts+len(f.text) > maxOutsideTexts {
		f.text, f.why = "", "the earlier texts of all files together are too large"
	}
	o.texts += len(f.text)
	o.files[path] = f
}

// due returns the files to look at: all of them, or only those that Pollux has to learn.
func (o *outside) due(open []string, all bool) (due []string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, path := range open {
		path, ok := cleanPath(path)
		if _, moved := o.moved[path]; ok && !moved && o.files[path] == nil {
			o.setLocked(path, &outsideFile{learn: true, opened: time.Now()})
		}
	}
	for path, f := range o.files {
		if all || f.learn {
			due = append(due, path)
		}
	}
	return due
}

// compare finds out whether a file has changed, given its present state. settled says that the file
// has had this state for a while. compare reports whether the list has changed.
func (o *outside) compare(path string, state fileState, settled bool) bool {
	o.mu.Lock()
	f := o.files[path]
	same := f == nil || !f.learn && f.seen == state
	o.mu.Unlock()
	if same || !f.learn && (!settled || o.c.expects(path)) {
		return false
	}
	var now *outsideFile
	roots := o.c.Roots()
	place := path
	if f.learn {
		place = o.place(path, roots)
	}
	if place == path {
		now = readOutside(path, state, roots)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.files[path] != f:
		return false
	case place != path:
		o.dropLocked(path)
		o.moved[path] = place
		if place == "" || o.files[place] != nil {
			return false
		}
		o.setLocked(place, &outsideFile{learn: true, opened: f.opened})
		return true
	case now == nil:
		return false
	case f.learn:
		if !f.opened.IsZero() && now.seen != state { // it was written between the look and the reading
			now = withoutText(state, "it changed before Pollux had read it")
		}
		now.opened = f.opened
		o.setLocked(path, now)
		return false
	}
	was, existed := f.since.IsZero(), f.seen.exists
	f.seen = state
	switch {
	case now.version == f.version, f.git && f.why == "" && now.exists && SameLines(now.text, f.text):
		f.since = time.Time{}
	case f.since.IsZero():
		f.since = time.Now()
	}
	return was != f.since.IsZero() || existed != state.exists
}

// place returns the path without links at which to look at a file, or "" if it is ignored or outside
// the workspace.
func (o *outside) place(path string, roots []string) string {
	real, err := within(diskTimeout, func() (string, error) { return paths.Real(path), nil })
	if err != nil || !o.concerns(real, roots) {
		return ""
	}
	return real
}

// concerns reports whether a file is in the workspace and not ignored.
func (o *outside) concerns(path string, roots []string) bool {
	inside := slices.ContainsFunc(roots, func(root string) bool { return paths.Contains(root, path) })
	if !inside {
		return false
	}
	excluded, err := within(diskTimeout, func() (bool, error) { return o.c.exclude.excluded(path, roots), nil })
	return err == nil && !excluded
}

// readOutside returns a file in its present state, or nil if its disk does not answer.
func readOutside(path string, state fileState, roots []string) *outsideFile {
	t, err := newTarget(path, roots)
	if err == nil && state.size > maxOutsideFile {
		err = errors.New("it is larger than 1 MiB")
	}
	var now file
	if err == nil {
		now, err = t.read()
	}
	switch {
	case errors.Is(err, errNoAnswer):
		return nil
	case err != nil:
		return withoutText(state, err.Error())
	}
	return &outsideFile{exists: now.exists, seen: now.state, version: now.version, text: now.text}
}

// withoutText returns a file in a state whose text is missing. why says why.
func withoutText(state fileState, why string) *outsideFile {
	return &outsideFile{exists: state.exists, seen: state, version: fmt.Sprint(state), why: why}
}

// account takes files off the list: the user knows these changes, for example because Pollux or an
// editor wrote them. The states at the next look are those that later states are compared with.
func (o *outside) account(paths ...string) {
	if !o.c.cfg.Outside {
		return
	}
	o.mu.Lock()
	for _, path := range paths {
		path, ok := cleanPath(path)
		if place, moved := o.moved[path]; moved {
			path = place
		}
		if ok && path != "" {
			o.setLocked(path, &outsideFile{learn: true})
		}
	}
	o.mu.Unlock()
	o.c.watch.wake.Set()
}

// dismiss takes a file off the list, or all files if path is empty.
func (o *outside) dismiss(path string) {
	o.mu.Lock()
	var listed []string
	for p, f := range o.files {
		if (path == "" || p == path) && !f.since.IsZero() {
			listed = append(listed, p)
		}
	}
	if path == "" {
		o.full = false
	}
	o.mu.Unlock()
	o.account(listed...)
}

// seen takes a file off the list. The user has seen its state of then; later changes are listed.
func (o *outside) seen(path string, then file) {
	o.mu.Lock()
	o.setLocked(path, &outsideFile{
		version: then.version, exists: then.exists, text: then.text, seen: then.state,
	})
	o.mu.Unlock()
	o.c.watch.wake.Set()
}

// file returns a listed file.
func (o *outside) file(path string) (outsideFile, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	f := o.files[path]
	if f == nil || f.since.IsZero() {
		return outsideFile{}, false
	}
	return *f, true
}

// list returns the changed files, the oldest change first.
func (o *outside) list() editor.Outside {
	o.mu.Lock()
	defer o.mu.Unlock()
	list := editor.Outside{Files: []editor.OutsideFile{}, More: o.full}
	for path, f := range o.files {
		if f.since.IsZero() {
			continue
		}
		change := editor.OutsideChanged
		switch {
		case !f.exists:
			change = editor.OutsideCreated
		case !f.seen.exists:
			change = editor.OutsideDeleted
		}
		list.Files = append(list.Files, editor.OutsideFile{
			Path: path, Change: change, Since: f.since.UnixMilli(), Notice: f.why,
		})
	}
	slices.SortFunc(list.Files, func(a, b editor.OutsideFile) int {
		return cmp.Or(cmp.Compare(a.Since, b.Since), cmp.Compare(a.Path, b.Path))
	})
	return list
}

// outsideLocked returns the list for clients.
func (c *Companion) outsideLocked() editor.Outside {
	list := c.outside.list()
	var manual []string
	for _, s := range c.sessions {
		name, _ := s.Client()
		for _, k := range c.host.Agents() {
			if k.Name == name && k.Manual != "" && c.silentLocked(s) == "" && !slices.Contains(manual, k.Manual) {
				manual = append(manual, k.Manual)
			}
		}
	}
	list.Manual = strings.Join(manual, ", and ")
	return list
}

// announce sends the list to all clients.
func (o *outside) announce() {
	o.c.mu.Lock()
	defer o.c.mu.Unlock()
	o.c.notifyLocked(editor.MethodOutside, o.c.outsideLocked())
}

// expects reports whether the file may change: a proposal for it is open, or an agent may write it
// after the user's answer.
func (c *Companion) expects(path string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.anyLocked(func(d *diff) bool { return d.state == journal.Open && d.target.actual() == path }) != nil ||
		slices.ContainsFunc(c.expected, func(x *expected) bool { return !x.late() && x.target.actual() == path })
}
