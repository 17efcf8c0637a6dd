package companion

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"pollux/internal/adapter"
	"pollux/internal/discovery"
	"pollux/internal/hunk"
	"pollux/internal/ide"
	"pollux/internal/ideserver"
	"pollux/internal/journal"
	"pollux/internal/sys"
)

// A diff is one proposal that waits for the user. Its states are the
// journal's:
//
//	          accept                     the CLI is told, with the user's text
//	         ┌──────> Accepted
//	         │ reject                    the CLI is told
//	         ├──────> Rejected <───────┐
//	         │ supersede               │ the CLI proposed again for the file
//	Open ────┼──────> Superseded       │
//	         │ close                   │ the CLI asked for the text and has it
//	         ├──────> Closed           │
//	         │ fail                    │ the CLI is told: nobody can show it
//	         ├──────> Failed           │
//	         │ gone            discard │ the CLI has ended
//	         └──────> Orphaned ────────┤
//	                              save └──> Saved: Pollux wrote the file
//
// A CLI hears of a diff exactly once: by the notification, by closeDiff's
// answer, or by openDiff's error. A superseded diff is not answered, since the
// answer, which names only the path, would be taken for the new one's.
//
// Diffs are keyed by session and path: two CLIs may propose for one file, and
// each waits for its own answer.
type diff struct {
	id        string
	companion *Companion
	session   *ideserver.Session
	client    string
	req       ide.OpenDiffRequest
	base      file
	opened    time.Time
	ended     chan struct{} // closed when the state is no longer Open

	// Guarded by Companion.mu:
	state   journal.State
	shown   bool   // it is in the journal, and surfaces may show it
	content string // the user's text so far
	kept    string // the text that the journal has
	editor  *door  // who edited last
}

type event string

const (
	evAccept    event = "accept"
	evReject    event = "reject"
	evSupersede event = "supersede"
	evClose     event = "close"
	evFail      event = "fail"
	evGone      event = "gone"
	evSave      event = "save"
)

var transitions = map[journal.State]map[event]journal.State{
	journal.Open: {
		evAccept:    journal.Accepted,
		evReject:    journal.Rejected,
		evSupersede: journal.Superseded,
		evClose:     journal.Closed,
		evFail:      journal.Failed,
		evGone:      journal.Orphaned,
	},
	journal.Orphaned: {
		evReject: journal.Rejected,
		evSave:   journal.Saved,
	},
}

var reasons = map[event]string{
	evAccept: adapter.ReasonAccepted, evReject: adapter.ReasonRejected, evSupersede: adapter.ReasonSuperseded,
	evClose: adapter.ReasonClosed, evFail: adapter.ReasonFailed, evSave: adapter.ReasonSaved,
}

// stepLocked makes the transition, if there is one: the diff is dropped, or
// kept as an orphan, and every surface is told. The returned channels carry
// what the surfaces answer.
func (c *Companion) stepLocked(d *diff, ev event) (answers []<-chan *string, ok bool) {
	next, ok := transitions[d.state][ev]
	if !ok {
		return nil, false
	}
	if d.state == journal.Open {
		close(d.ended)
	}
	d.state = next
	if next == journal.Orphaned {
		for _, s := range c.surfacesLocked() {
			s.notify(adapter.MethodDiffChanged, adapter.DiffChange{ID: d.id, State: adapter.StateOrphaned})
		}
		return nil, true
	}
	delete(c.diffs, d.id)
	if !d.shown {
		return nil, true
	}
	for _, s := range c.surfacesLocked() {
		answers = append(answers, s.closeDiff(adapter.DiffClose{ID: d.id, Reason: reasons[ev]}))
	}
	if ev == evReject || ev == evSupersede {
		known := d.content
		c.background(func() {
			if text := lastText(answers, known, d.req.NewContent); text != known {
				c.keep(d, text)
			}
		})
	}
	return answers, true
}

// lastText waits for what surfaces answer to diff/close, no longer than
// closeAck, and returns the text that holds edits nobody told of before: one
// that is neither what was known nor the bare proposal.
func lastText(answers []<-chan *string, known, proposal string) string {
	late := time.After(closeAck)
	for _, answer := range answers {
		select {
		case text := <-answer:
			if text != nil && *text != known && *text != proposal {
				return *text
			}
		case <-late:
			return known
		}
	}
	return known
}

// openAck bounds the wait for an editor to say that it shows a diff. One that
// is busy for longer is taken at its word: it has been told.
const openAck = 2 * time.Second

// closeAck bounds the wait for the text as the user left it.
const closeAck = time.Second

// OpenDiff implements [ideserver.Backend].
func (c *Companion) OpenDiff(ctx context.Context, s *ideserver.Session, req ide.OpenDiffRequest) error {
	if err := c.reviewable(req.FilePath); err != nil {
		return err
	}
	d := &diff{
		id: journal.NewID(), companion: c, session: s, client: clientName(s), req: req,
		opened: time.Now(), ended: make(chan struct{}), state: journal.Open, content: req.NewContent, kept: req.NewContent,
	}
	var err error
	if d.base, err = readFile(req.FilePath); err != nil {
		return err
	}

	// Registered before it is written down, so that a closeDiff that follows
	// at once finds it.
	c.mu.Lock()
	if c.closing {
		c.mu.Unlock()
		return errors.New("the companion is shutting down: answer in the terminal")
	}
	old := c.openLocked(s, req.FilePath)
	if old != nil {
		c.stepLocked(old, evSupersede)
	}
	c.diffs[d.id] = d
	c.mu.Unlock()
	if old != nil {
		c.record(old)
	}

	_, err = c.journal.Add(journal.Entry{
		ID: d.id, Path: req.FilePath, Client: d.client,
		CRLF: eol(d.base.text) == "crlf", BOM: strings.HasPrefix(d.base.text, bom),
	}, req.NewContent)
	if err != nil {
		c.tell("warning", "This proposal is not in the journal: "+err.Error())
	}

	c.mu.Lock()
	if d.state != journal.Open { // closed in the meantime
		c.mu.Unlock()
		c.record(d)
		return nil
	}
	d.shown = true
	var acks []<-chan error
	view := d.viewLocked()
	for _, s := range c.surfacesLocked() {
		acks = append(acks, s.openDiff(view))
	}
	c.mu.Unlock()
	shown := make(chan error, 1)
	c.background(func() { shown <- c.firstShown(d, acks) })
	select {
	case err = <-shown:
	case <-time.After(openAck):
		// The CLI is told yes; should it turn out to be no, it must not wait.
		c.background(func() {
			if err := <-shown; err != nil {
				c.tell("error", err.Error())
				c.reject(d.id)
			}
		})
		return nil
	}
	if err == nil {
		return nil
	}
	c.mu.Lock()
	_, failed := c.stepLocked(d, evFail)
	c.mu.Unlock()
	if !failed {
		return nil
	}
	c.record(d)
	return err
}

// openLocked is the diff that a session has open for a path, or nil: there is
// one at the most, since a second supersedes the first.
func (c *Companion) openLocked(s *ideserver.Session, path string) *diff {
	for _, d := range c.diffs {
		if d.session == s && d.req.FilePath == path && d.state == journal.Open {
			return d
		}
	}
	return nil
}

// clientName names a CLI to the user. Gemini CLI and Qwen Code give their
// transport's name for their own.
func clientName(s *ideserver.Session) string {
	name, version := s.Client()
	if name == "streamable-http-client" || name == "stdio-client" {
		name = "CLI"
	}
	return strings.TrimSpace(name + " " + version)
}

// firstShown waits until one surface shows the diff, or it has ended. It fails
// when no surface can show it.
func (c *Companion) firstShown(d *diff, acks []<-chan error) error {
	err := errors.New("no editor that shows diffs is attached to Pollux: answer in the terminal, or start `pollux run`")
	for _, ack := range acks {
		select {
		case e := <-ack:
			if e == nil {
				return nil
			}
			err = fmt.Errorf("the editor cannot show the diff: %w", e)
		case <-d.ended:
			return nil
		}
	}
	if c.page() {
		return nil // it waits on the review page
	}
	return err
}

// reviewable checks the path of a request.
func (c *Companion) reviewable(path string) error {
	if !filepath.IsAbs(path) {
		return fmt.Errorf("filePath %q is relative: pass an absolute path", path)
	}
	roots := c.Roots()
	real := discovery.RealPath(path)
	if !slices.ContainsFunc(roots, func(r string) bool { return sys.Inside(r, real) }) {
		return fmt.Errorf("%s is not inside the workspace (%s): open its directory in the editor", path, strings.Join(roots, ", "))
	}
	return nil
}

// CloseDiff implements [ideserver.Backend]. The text is asked of the surfaces,
// whose last edits may not have been told yet.
func (c *Companion) CloseDiff(ctx context.Context, s *ideserver.Session, req ide.CloseDiffRequest) (string, error) {
	c.mu.Lock()
	d := c.openLocked(s, req.FilePath)
	if d == nil {
		c.mu.Unlock()
		return "", fmt.Errorf("no diff is open for %s", req.FilePath)
	}
	c.watch.soon(req.FilePath)
	known := d.content
	surfaces := c.surfacesLocked()
	answers, _ := c.stepLocked(d, evClose)
	if i := slices.Index(surfaces, d.editor); i >= 0 && answers != nil {
		answers = answers[i : i+1] // the others may not have followed
	}
	c.mu.Unlock()

	content := lastText(answers, known, d.req.NewContent)
	c.keep(d, content)
	c.record(d)
	return d.answer(content), nil
}

// answer is the text that the CLI is given.
func (d *diff) answer(content string) string {
	if content == "" {
		return "" // which the CLI takes for its own proposal
	}
	return withBOM(content, d.base.text, d.req.NewContent)
}

// edit keeps the text of a diff that the user is editing.
func (c *Companion) edit(from *door, ch adapter.DiffChange) {
	if ch.Content == nil {
		return
	}
	c.mu.Lock()
	d := c.diffs[ch.ID]
	if d == nil || d.content == *ch.Content {
		c.mu.Unlock()
		return
	}
	d.content, d.editor = *ch.Content, from
	for _, s := range c.surfacesLocked() {
		if s != from {
			s.diffChanged(d)
		}
	}
	c.mu.Unlock()
	c.keep(d, *ch.Content)
}

var (
	errNoDiff   = errors.New("there is no such diff: it was answered already, or its CLI closed it; `pollux journal` has the text")
	errOrphaned = errors.New("the CLI that proposed this has ended: save it with diff/save, or discard it with diff/reject")
	errNotGone  = errors.New("the CLI still waits for this diff: accept or reject it")
)

// accept accepts a diff, or saves an orphaned one to its file.
func (c *Companion) accept(a adapter.DiffAccept, ev event) (adapter.DiffAcceptResult, error) {
	var res adapter.DiffAcceptResult
	if !utf8.ValidString(a.Content) || strings.ContainsRune(a.Content, 0) {
		return res, errors.New("the text holds NUL bytes or invalid UTF-8: remove them, then accept again")
	}
	c.mu.Lock()
	d := c.diffs[a.ID]
	var state journal.State
	if d != nil {
		state = d.state
	}
	c.mu.Unlock()
	if d != nil && a.Content != "" {
		c.keep(d, a.Content) // whatever comes of it
	}
	switch {
	case d == nil:
		return res, errNoDiff
	case ev == evAccept && state == journal.Orphaned:
		return res, errOrphaned
	case ev == evSave && state == journal.Open:
		return res, errNotGone
	case ev == evAccept && a.Content == "" && d.req.NewContent != "":
		return adapter.DiffAcceptResult{Status: adapter.StatusEmpty,
			Message: "Gemini CLI takes an empty text for none and would write its own proposal. Reject the change and empty the file yourself."}, nil
	}
	now, err := readFile(d.req.FilePath)
	if err != nil {
		return res, err
	}
	if now.version != d.base.version && now.version != a.Overwrite {
		return adapter.DiffAcceptResult{Status: adapter.StatusConflict, Version: now.version,
			Disk:    comparableTo(now.text, d.req.NewContent),
			Message: filepath.Base(d.req.FilePath) + " has changed on disk since the change was proposed. Accept again to overwrite it."}, nil
	}
	if ev == evSave {
		if now.exists {
			if _, err := c.journal.Add(journal.Entry{Path: d.req.FilePath, State: journal.Replaced}, now.text); err != nil {
				return res, err
			}
		}
		if err := sys.ReplaceFile(d.req.FilePath, restored(d.answer(a.Content), now.text)); err != nil {
			return res, fmt.Errorf("the file cannot be written: %w", err)
		}
	}
	c.mu.Lock()
	if ev == evAccept {
		c.watch.soon(d.req.FilePath)
	}
	d.content = a.Content
	_, ok := c.stepLocked(d, ev)
	if ok && ev == evAccept {
		// Under the lock: no later answer for the path may be queued before it.
		d.session.Notify(ide.MethodDiffAccepted, ide.DiffAccepted{FilePath: d.req.FilePath, Content: d.answer(a.Content)}, c.delivered(d))
	}
	c.mu.Unlock()
	if !ok {
		return res, errNoDiff
	}
	c.record(d)
	return adapter.DiffAcceptResult{Status: adapter.StatusAccepted}, nil
}

// hunks says where the text of a client's view differs from the original.
func (c *Companion) hunks(t adapter.DiffText) (any, error) {
	original, _, err := c.texts(t.ID)
	if err != nil {
		return nil, err
	}
	res := adapter.DiffHunks{Hunks: []adapter.DiffHunk{}}
	for _, h := range hunk.Between(original, t.Content) {
		removed := hunk.Split(h.OldText(original))
		if removed == nil {
			removed = []string{}
		}
		res.Hunks = append(res.Hunks, adapter.DiffHunk{
			Line: h.New, Lines: h.NewLines, Original: h.Old, OriginalLines: h.OldLines, Removed: removed,
		})
	}
	return res, nil
}

// takeHunk is the change that makes a hunk of a client's view what it is in
// the original, or in the proposal.
func (c *Companion) takeHunk(t adapter.DiffTake) (any, error) {
	original, proposed, err := c.texts(t.ID)
	if err != nil {
		return nil, err
	}
	from, none := original, "nothing to undo in this line: it is as in the file"
	switch t.Take {
	case adapter.TakeOriginal:
	case adapter.TakeProposed:
		from, none = proposed, "nothing to take over in this line: it is as proposed"
	default:
		return nil, fmt.Errorf("unknown take %q: use original or proposed", t.Take)
	}
	h, ok := hunk.At(hunk.Between(from, t.Content), t.Line)
	if !ok {
		return nil, errors.New(none)
	}
	after := h.Replace(from, t.Content)
	return adapter.DiffEdit{Line: h.New, Lines: h.NewLines, Text: h.OldText(from), EOL: strings.HasSuffix(after, "\n")}, nil
}

// texts are the original and the proposal of a diff as clients see them.
func (c *Companion) texts(id string) (original, proposed string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	d := c.diffs[id]
	if d == nil {
		return "", "", errNoDiff
	}
	return comparableTo(d.base.text, d.req.NewContent), d.req.NewContent, nil
}

// reject rejects a diff, or discards an orphaned one.
func (c *Companion) reject(id string) error {
	c.mu.Lock()
	d := c.diffs[id]
	if d == nil {
		c.mu.Unlock()
		return errNoDiff
	}
	c.rejectLocked(d)
	c.mu.Unlock()
	c.record(d)
	return nil
}

func (c *Companion) rejectLocked(d *diff) {
	waits := d.state == journal.Open
	if _, ok := c.stepLocked(d, evReject); ok && waits {
		d.session.Notify(ide.MethodDiffRejected, ide.DiffRejected{FilePath: d.req.FilePath}, func(error) {})
	}
}

// rejectAll answers every CLI that waits: an unanswered diff blocks it for
// good. The texts stay in the journal.
func (c *Companion) rejectAll() {
	c.mu.Lock()
	var ended []*diff
	for _, d := range c.diffs {
		if d.state == journal.Open {
			c.rejectLocked(d)
			ended = append(ended, d)
		}
	}
	c.mu.Unlock()
	for _, d := range ended {
		c.record(d)
	}
}

// delivered notes in the journal, and tells the user, when a CLI ended before
// it could hear that its change was accepted.
func (c *Companion) delivered(d *diff) func(error) {
	return func(err error) {
		if err == nil {
			return
		}
		if err := c.journal.Undelivered(d.id); err != nil {
			c.log.Warn("the journal cannot be written", "err", err)
		}
		c.tell("warning", fmt.Sprintf("The CLI ended before it heard that you accepted the change to %s, so the file does not hold it. To write it: pollux journal restore %s", d.req.FilePath, d.id))
	}
}

// maxOrphans bounds the proposals of ended CLIs that are still shown; the
// journal has the rest.
const maxOrphans = 50

// Gone implements [ideserver.Backend]: what a CLI that has ended proposed
// stays readable.
func (c *Companion) Gone(s *ideserver.Session) {
	c.mu.Lock()
	var ended, orphans []*diff
	for _, d := range c.diffs {
		if d.session == s && d.state == journal.Open && !c.closing {
			c.stepLocked(d, evGone)
			ended = append(ended, d)
		}
		if d.state == journal.Orphaned {
			orphans = append(orphans, d)
		}
	}
	slices.SortFunc(orphans, byAge)
	for _, d := range orphans[:max(0, len(orphans)-maxOrphans)] {
		c.stepLocked(d, evReject)
	}
	c.clientsChangedLocked()
	c.mu.Unlock()
	for _, d := range ended {
		c.record(d)
		c.tell("warning", fmt.Sprintf("The CLI that proposed the change to %s has ended. The proposal is kept: save it or discard it.", d.req.FilePath))
	}
}

func byAge(a, b *diff) int { return strings.Compare(a.id, b.id) }

// keep writes the user's text to the journal, unless it is there.
func (c *Companion) keep(d *diff, text string) {
	c.mu.Lock()
	same := d.kept == text
	d.kept = text
	c.mu.Unlock()
	if same {
		return
	}
	if err := c.journal.Edit(d.id, text); err != nil {
		c.log.Warn("the journal cannot be written", "err", err)
	}
}

// record writes the diff's state to the journal.
func (c *Companion) record(d *diff) {
	c.mu.Lock()
	state := d.state
	c.mu.Unlock()
	if err := c.journal.Finish(d.id, state); err != nil {
		c.log.Warn("the journal cannot be written", "err", err)
	}
	c.log.Info("a diff ended", "state", state)
}

// statusLocked is the diff without its text.
func (d *diff) statusLocked() adapter.DiffStatus {
	state := adapter.StateOpen
	if d.state == journal.Orphaned {
		state = adapter.StateOrphaned
	}
	return adapter.DiffStatus{ID: d.id, Path: d.req.FilePath, State: state, Client: d.client, Opened: d.opened.UnixMilli()}
}

// viewLocked is the diff as surfaces see it.
func (d *diff) viewLocked() adapter.Diff {
	st := d.statusLocked()
	var edited *string
	if d.content != d.req.NewContent {
		edited = new(string)
		*edited = d.content
	}
	return adapter.Diff{
		ID: st.ID, Path: st.Path, State: st.State,
		Original: comparableTo(d.base.text, d.req.NewContent), Exists: d.base.exists, EOL: eol(d.base.text),
		Proposed: d.req.NewContent, Content: edited,
		Client: st.Client, Opened: st.Opened,
	}
}

// shownLocked is every diff that surfaces may show, the oldest first.
func (c *Companion) shownLocked() []*diff {
	all := make([]*diff, 0, len(c.diffs))
	for _, d := range c.diffs {
		if d.shown {
			all = append(all, d)
		}
	}
	slices.SortFunc(all, byAge)
	return all
}
