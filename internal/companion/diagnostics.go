package companion

import (
	"cmp"
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"pollux/internal/crash"
	"pollux/internal/editor"
	"pollux/internal/outbox"
	"pollux/internal/paths"
	"pollux/internal/termtext"
)

const (
	// answerTimeout is how long the editors may take to report diagnostics.
	answerTimeout = 300 * time.Millisecond
	// diagnosticsTimeout bounds a call of [Companion.Diagnostics]: the answers, and
	// reading the disk before and after them.
	diagnosticsTimeout = 400 * time.Millisecond

	maxDiagnosticFiles = 500
	maxFileDiagnostics = 250
	maxDiagnostics     = 5000 // of all files together
	// maxDiagnosticText and maxDiagnosticName are in bytes.
	maxDiagnosticText = 4 << 10
	maxDiagnosticName = 128
)

var errNoDiagnostics = errors.New("the editor does not report its diagnostics now: ask again in a moment")

// Diagnostics returns the problems that the editors report for a file, or for all files
// that they know if path is empty. It leaves out files outside the roots, and those that
// agents must not receive. A file without problems is in the result if an editor checks
// it.
//
// The files that are open come first, and the problems of each file are in the order of
// their severities and lines. The result is bounded. Editors that do not answer in time
// are left out; it is an error if none answers. If no attached editor reports diagnostics,
// the result is empty.
func (c *Companion) Diagnostics(ctx context.Context, path string) ([]editor.FileDiagnostics, error) {
	files, _, err := c.diagnostics(ctx, path)
	return files, err
}

// diagnostics also returns the names that the editors have for the file.
func (c *Companion) diagnostics(ctx context.Context, path string) (
	files []editor.FileDiagnostics, names []string, err error,
) {
	deadline := time.Now().Add(diagnosticsTimeout)
	if path != "" {
		// The agent's model chooses the path, and an editor that looks it up can cause side
		// effects: Emacs runs ssh for /ssh:host:/x, and Windows sends the user's credentials to
		// the server of a share.
		send, err := within(diagnosticsTimeout-answerTimeout, func() (bool, error) {
			_, ok := c.sends(c.Roots(), path)
			return ok, nil
		})
		if err != nil || !send {
			return nil, nil, err
		}
	}
	reported, err := c.reported(ctx, path)
	if err != nil || len(reported) == 0 {
		return nil, nil, err
	}
	type result struct {
		files []editor.FileDiagnostics
		names []string
	}
	r, err := within(time.Until(deadline), func() (r result, err error) {
		r.files, r.names = c.shareable(reported, path)
		return r, nil
	})
	limitDiagnostics(r.files, c.store.paths())
	return r.files, r.names, err
}

// reported returns the answers of the attached clients, one after the other.
func (c *Companion) reported(ctx context.Context, path string) (reported []editor.FileDiagnostics, err error) {
	type answer struct {
		files []editor.FileDiagnostics
		err   error
	}
	c.mu.Lock()
	clients := slices.DeleteFunc(slices.Clone(c.conns), func(d *conn) bool { return !d.params.Diagnostics })
	answers := make(chan answer, len(clients))
	for _, d := range clients {
		d.diagnostics(path, func(files []editor.FileDiagnostics, err error) { answers <- answer{files, err} })
	}
	c.mu.Unlock()
	timeout := time.NewTimer(answerTimeout)
	defer timeout.Stop()
	late := len(clients) > 0
	for range clients {
		select {
		case a := <-answers:
			if a.err == nil {
				reported, late = append(reported, a.files...), false
			}
			continue
		case <-timeout.C:
		case <-ctx.Done():
		}
		break
	}
	if late {
		return nil, errNoDiagnostics
	}
	return reported, nil
}

// shareable returns the reported files that agents may receive, each once, and the names
// that the editors have for the file at path, if it is not empty. It reads the disk.
func (c *Companion) shareable(reported []editor.FileDiagnostics, path string) (
	files []editor.FileDiagnostics, names []string,
) {
	roots := c.Roots()
	actual := ""
	if path != "" {
		actual = paths.Real(path)
	}
	byPath := make(map[string]*editor.FileDiagnostics)
	for _, f := range reported {
		name, ok := c.sends(roots, f.Path)
		if !ok {
			continue
		}
		if actual != "" {
			if paths.Real(name) != actual {
				continue
			}
			names = append(names, filepath.Clean(f.Path))
			name = path
		}
		if byPath[name] == nil {
			if len(byPath) == maxDiagnosticFiles {
				continue
			}
			byPath[name] = &editor.FileDiagnostics{Path: name, Diagnostics: []editor.Diagnostic{}}
		}
		byPath[name].Diagnostics = append(byPath[name].Diagnostics, f.Diagnostics...)
	}
	for _, f := range byPath {
		f.Diagnostics = validDiagnostics(f.Diagnostics)
		files = append(files, *f)
	}
	return files, names
}

// sends reports whether agents may receive what the editors report about a file in one of
// the roots, and returns the name that [paths.In] returns. It reads the disk.
func (c *Companion) sends(roots []string, path string) (name string, ok bool) {
	if !filepath.IsAbs(path) || !utf8.ValidString(path) || paths.OnOtherServer(roots, path) {
		return "", false
	}
	name, ok = paths.In(roots, filepath.Clean(path))
	return name, ok && regular(name) && !c.excluded(name)
}

// limitDiagnostics sorts the files, open ones first, and limits the total of their
// diagnostics.
func limitDiagnostics(files []editor.FileDiagnostics, open []string) {
	rank := func(f editor.FileDiagnostics) int {
		if slices.Contains(open, f.Path) {
			return 0
		}
		return 1
	}
	slices.SortFunc(files, func(a, b editor.FileDiagnostics) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a.Path, b.Path))
	})
	left := maxDiagnostics
	for i := range files {
		files[i].Diagnostics = files[i].Diagnostics[:min(left, len(files[i].Diagnostics))]
		left -= len(files[i].Diagnostics)
	}
}

// severities are the severities of a diagnostic, the worst first.
var severities = []string{
	editor.SeverityError, editor.SeverityWarning, editor.SeverityInformation, editor.SeverityHint,
}

// validDiagnostics returns the problems of a file in the order of their severities and
// lines, each once, with values that agents can rely on.
func validDiagnostics(reported []editor.Diagnostic) []editor.Diagnostic {
	valid := make([]editor.Diagnostic, 0, len(reported))
	for _, d := range reported {
		d.Message = termtext.Text(d.Message)
		d.Message = strings.ToValidUTF8(d.Message[:min(len(d.Message), maxDiagnosticText)], "")
		if d.Message == "" {
			continue
		}
		d.Source, d.Code = termtext.Line(d.Source, maxDiagnosticName), termtext.Line(d.Code, maxDiagnosticName)
		if !slices.Contains(severities, d.Severity) {
			d.Severity = editor.SeverityError // as in the Language Server Protocol
		}
		d.Range.Start = editor.Cursor{Line: max(d.Range.Start.Line, 1), Character: max(d.Range.Start.Character, 1)}
		if validCursor(&d.Range.End) == nil || comparePositions(d.Range.End, d.Range.Start) < 0 {
			d.Range.End = d.Range.Start
		}
		valid = append(valid, d)
	}
	slices.SortStableFunc(valid, func(a, b editor.Diagnostic) int {
		return cmp.Or(
			cmp.Compare(slices.Index(severities, a.Severity), slices.Index(severities, b.Severity)),
			comparePositions(a.Range.Start, b.Range.Start), comparePositions(a.Range.End, b.Range.End),
			cmp.Compare(a.Source, b.Source), cmp.Compare(a.Code, b.Code), cmp.Compare(a.Message, b.Message),
		)
	})
	valid = slices.Compact(valid)
	return valid[:min(len(valid), maxFileDiagnostics)]
}

func comparePositions(a, b editor.Cursor) int {
	return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Character, b.Character))
}

const (
	// checkTimeout is how long the editors may take to check a file that an agent has
	// written.
	checkTimeout = 1400 * time.Millisecond
	// checkDelay is how long a report may be followed by another one: many programs
	// report first what they know immediately.
	checkDelay = 300 * time.Millisecond
	// clearDelay is how much longer that may take if the file has no problems: some
	// programs clear them when the editor reads the file again, and then check it.
	clearDelay = 500 * time.Millisecond
	// stateTimeout bounds a look at the file.
	stateTimeout = 50 * time.Millisecond
)

// maxWrites bounds the writes of an agent that it does not ask about afterwards.
const maxWrites = 32

// A write is a file that an agent is about to write, and that an editor checks.
type write struct {
	session  Session
	path     string
	names    []string  // of the file, as the watcher and the editors call it
	before   fileState // before the agent has written it
	urgent   time.Time // until when the agent is likely to write it
	reported outbox.Signal

	// Guarded by Companion.mu:
	noticed bool // the editors know that the file was written
	awaited bool // AfterWrites waits for the check
}

// BeforeWrite announces that an agent is about to write a file, and returns what
// [Companion.Diagnostics] returns for the file now. [Companion.AfterWrites] waits for the check of
// the new text.
func (c *Companion) BeforeWrite(ctx context.Context, s Session, path string) ([]editor.FileDiagnostics, error) {
	files, names, err := c.diagnostics(ctx, path)
	if err != nil || len(files) == 0 {
		return files, err
	}
	w := &write{
		session: s, path: path, names: append(names, path), reported: outbox.NewSignal(),
		urgent: time.Now().Add(urgentTimeout),
	}
	if w.before, err = w.state(); err != nil {
		return files, nil // the write cannot be noticed
	}
	c.mu.Lock()
	if slices.Contains(c.sessions, s) {
		if own := c.writesLocked(s); len(own) == maxWrites {
			c.forgetLocked(own[:1])
		}
		c.writes = append(c.writes, w)
	}
	c.mu.Unlock()
	c.watch.wake.Set()
	return files, nil
}

// AfterWrites waits until editors have checked the files that an agent has written since it
// announced them, and forgets them. It waits a bounded time, and not for a file that has not changed.
func (c *Companion) AfterWrites(ctx context.Context, s Session) {
	c.mu.Lock()
	own := c.writesLocked(s)
	for _, w := range own {
		w.awaited = true
	}
	c.mu.Unlock()
	var waiting sync.WaitGroup
	for _, w := range own {
		waiting.Go(func() {
			defer crash.Report()
			c.awaitCheck(ctx, w)
		})
	}
	waiting.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.forgetLocked(own)
}

// writesLocked returns the writes of a session that nothing waits for, the oldest first.
func (c *Companion) writesLocked(s Session) []*write {
	return slices.DeleteFunc(slices.Clone(c.writes), func(w *write) bool { return w.session != s || w.awaited })
}

func (c *Companion) forgetLocked(all []*write) {
	c.writes = slices.DeleteFunc(c.writes, func(w *write) bool { return slices.Contains(all, w) })
}

func (w *write) state() (fileState, error) {
	return within(stateTimeout, func() (fileState, error) { return stateOf(w.path), nil })
}

// awaitCheck waits until an editor has reported the diagnostics of the written file.
func (c *Companion) awaitCheck(ctx context.Context, w *write) {
	if now, err := w.state(); err != nil || now == w.before {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	var quiet <-chan time.Time // receives if no report has followed for a while
	cleared := false
	for {
		select {
		case <-w.reported:
			cleared, quiet = false, time.After(checkDelay)
		case <-quiet:
			if cleared || c.problems(ctx, w.path) > 0 {
				return
			}
			cleared, quiet = true, time.After(clearDelay)
		case <-ctx.Done():
			return
		}
	}
}

// problems returns how many diagnostics a file has.
func (c *Companion) problems(ctx context.Context, path string) (n int) {
	files, _ := c.Diagnostics(ctx, path)
	for _, f := range files {
		n += len(f.Diagnostics)
	}
	return n
}

func (w *write) named(path string) bool { return slices.Contains(w.names, filepath.Clean(path)) }

// diagnosticsChanged handles a client's report that the diagnostics of files may have
// changed. A report from before the editors know of a write is about the old text.
func (c *Companion) diagnosticsChanged(changed []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, w := range c.writes {
		if w.noticed && slices.ContainsFunc(changed, w.named) {
			w.reported.Set()
		}
	}
}
