package companion

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"pollux/internal/companion/journal"
	"pollux/internal/crash"
	"pollux/internal/editor"
	"pollux/internal/outbox"
	"pollux/internal/paths"
)

const (
	// outsideInterval is the time between two looks at the files.
	outsideInterval = time.Second
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
// It looks at the files that are open in an editor, have a proposal, or have changes that
// git reports, each of them once a second while an agent is connected. It leaves out ignored
// files.
type outside struct {
	c      *Companion
	states prober[fileState]
	wake   outbox.Signal

	rounds sync.Mutex // held during a round, taken first
	git    map[string]*gitRoot

	mu      sync.Mutex // taken last
	started bool
	on      bool
	files   map[string]*outsideFile
	texts   int                  // the size of the earlier texts
	held    map[string]time.Time // files that an agent may write after an answer, and until when
	alien   map[string]bool      // open files that are ignored or outside the workspace
	full    bool                 // a file was left out
}

// An outsideFile is a file as Pollux knows it: its earlier state.
type outsideFile struct {
	version string // see file; that of its fileState if its text cannot be read
	exists  bool
	text    string
	why     string // why text is missing
	git     bool   // the text is git's, whose line endings may differ

	seen, last fileState // when the file was compared last, and at the last look
	since      time.Time // when a change was found; zero without a change
}

func newOutside(c *Companion) *outside {
	return &outside{
		c: c, states: prober[fileState]{ask: stateOf}, wake: outbox.NewSignal(),
		git: make(map[string]*gitRoot), files: make(map[string]*outsideFile), held: make(map[string]time.Time),
		alien: make(map[string]bool),
	}
}

// look turns the watching on or off. When it turns on, later changes count, and those that are
// listed already.
func (o *outside) look(on bool) {
	if !o.c.cfg.Outside {
		return
	}
	o.mu.Lock()
	changed, start := o.on != on, on && !o.started
	o.on, o.started = on, o.started || start
	o.mu.Unlock()
	if start {
		o.c.loops.start(func() {
			defer crash.Report()
			o.run(o.c.sending)
		})
	}
	if changed {
		o.wake.Set()
	}
}

func (o *outside) run(ctx context.Context) {
	was := false
	var tick <-chan time.Time
	for {
		o.mu.Lock()
		on := o.on
		o.mu.Unlock()
		switch {
		case on && !was:
			o.forget()
			o.learnOpen()
			o.round(ctx)
			tick = time.After(outsideInterval)
		case was && !on:
			o.round(ctx) // twice: a file has changed when it looks the same twice
			o.round(ctx)
			tick = nil
		case on:
			o.learnOpen() // now, because the next change may be an agent's
		}
		was = on
		select {
		case <-tick:
			o.round(ctx)
			tick = time.After(outsideInterval)
		case <-o.wake:
		case <-ctx.Done():
			return
		}
	}
}

// forget drops all that is known about files that are not listed.
func (o *outside) forget() {
	o.rounds.Lock()
	defer o.rounds.Unlock()
	clear(o.git)
	o.mu.Lock()
	defer o.mu.Unlock()
	for path, f := range o.files {
		if f.since.IsZero() {
			o.dropLocked(path)
		}
	}
	clear(o.alien)
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

// round looks at all files once, and announces the list if it changed.
func (o *outside) round(ctx context.Context) {
	o.rounds.Lock()
	defer o.rounds.Unlock()
	before := o.list()
	roots := o.c.Roots()
	all := o.openFiles()
	// An agent may have just created a file that the user opens.
	urgent := len(o.unknown(all)) > 0
	for _, root := range roots {
		o.askGit(ctx, root, urgent)
	}
	o.mu.Lock()
	for path := range o.files {
		all[path] = true
	}
	maps.DeleteFunc(o.held, func(_ string, until time.Time) bool { return time.Now().After(until) })
	o.mu.Unlock()
	left := newBudget()
	for path := range all {
		if ctx.Err() != nil {
			return
		}
		if state, ok := o.states.get(path, left); ok {
			o.compare(path, state, roots)
		}
	}
	if after := o.list(); !slices.Equal(before.Files, after.Files) || before.More != after.More {
		o.announce()
	}
}

// openFiles returns the files that the editors have open.
func (o *outside) openFiles() map[string]bool {
	open := make(map[string]bool)
	for _, path := range o.c.store.paths() {
		if path, ok := cleanPath(path); ok {
			open[path] = true
		}
	}
	return open
}

// unknown returns the files that Pollux has not looked at before.
func (o *outside) unknown(files map[string]bool) (unknown []string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for path := range files {
		if o.files[path] == nil && !o.alien[path] {
			unknown = append(unknown, path)
		}
	}
	return unknown
}

// learnOpen learns the open files.
func (o *outside) learnOpen() {
	roots := o.c.Roots()
	for _, path := range o.unknown(o.openFiles()) {
		o.learn(path, roots)
	}
}

// compare finds out whether a file has changed, given its present state.
func (o *outside) compare(path string, state fileState, roots []string) {
	o.mu.Lock()
	f := o.files[path]
	if f == nil {
		alien := o.alien[path]
		o.mu.Unlock()
		if !alien {
			o.learn(path, roots)
		}
		return
	}
	settled := f.last == state
	f.last = state
	_, held := o.held[path]
	same := f.seen == state
	o.mu.Unlock()
	if same || !settled || held || o.c.expects(path) {
		return
	}
	now, ok := readOutside(path, roots)
	if !ok {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.files[path] != f {
		return
	}
	f.seen = state
	switch {
	case now.version == f.version, f.git && f.why == "" && now.exists && SameLines(now.text, f.text):
		f.since = time.Time{}
	case f.since.IsZero():
		f.since = time.Now()
	}
}

// learn makes the present state of a file the one that later states are compared with.
func (o *outside) learn(path string, roots []string) {
	if !o.concerns(path, roots) {
		o.mu.Lock()
		o.alien[path] = true
		o.mu.Unlock()
		return
	}
	f, ok := readOutside(path, roots)
	if !ok {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.setLocked(path, f)
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

// readOutside returns a file as it is now. It reports false if its disk does not answer.
func readOutside(path string, roots []string) (*outsideFile, bool) {
	state, err := within(diskTimeout, func() (fileState, error) { return stateOf(path), nil })
	if err != nil {
		return nil, false
	}
	f := &outsideFile{exists: state.exists, seen: state, last: state}
	unread := func(why string) (*outsideFile, bool) {
		f.why, f.version = why, fmt.Sprint(state)
		return f, true
	}
	if state.size > maxOutsideFile {
		return unread("it is larger than 1 MiB")
	}
	t, err := newTarget(path, roots)
	if err != nil {
		return unread(err.Error())
	}
	now, err := t.read()
	if err != nil {
		return unread(err.Error())
	}
	f.version, f.text = now.version, now.text
	return f, true
}

// account does the same for a file that Pollux or an editor has written, and takes it off
// the list: the user knows that change.
func (o *outside) account(path string) {
	path, ok := cleanPath(path)
	if !ok || !o.c.cfg.Outside {
		return
	}
	o.mu.Lock()
	f := o.files[path]
	delete(o.held, path)
	o.mu.Unlock()
	roots := o.c.Roots()
	if f == nil && !o.concerns(path, roots) {
		return
	}
	now, ok := readOutside(path, roots)
	if !ok {
		return
	}
	o.mu.Lock()
	if o.files[path] != f { // accounted for in the meantime
		o.mu.Unlock()
		return
	}
	o.setLocked(path, now)
	listed := f != nil && !f.since.IsZero()
	o.mu.Unlock()
	if listed {
		o.announce()
	}
}

// hold allows an agent to write a file soon: the user wants that change.
func (o *outside) hold(path string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.held[path] = time.Now().Add(writtenTimeout + outsideInterval)
}

// dismiss takes a file off the list, or all files if path is empty. Their present state is
// the one that later states are compared with.
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
	for _, p := range listed {
		o.account(p)
	}
}

// seen takes a file off the list. The user has seen its state of then; later changes are listed.
func (o *outside) seen(path string, then file) {
	o.mu.Lock()
	o.setLocked(path, &outsideFile{
		version: then.version, exists: then.exists, text: then.text, seen: then.state, last: then.state,
	})
	o.mu.Unlock()
	o.announce()
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
	list := o.c.outsideLocked()
	for _, d := range o.c.conns {
		d.notify(editor.MethodOutside, list)
	}
}

// expects reports whether a proposal for the file is open or accepted: the file may change.
func (c *Companion) expects(path string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.anyLocked(func(d *diff) bool {
		return d.viewer == nil && d.path() == path && d.state != journal.Orphaned
	}) != nil
}
