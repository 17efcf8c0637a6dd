package companion

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"pollux/internal/companion/journal"
	"pollux/internal/editor"
	"pollux/internal/hunk"
	"pollux/internal/ide/geminiide"
)

// A diff is one proposal that waits for the user. Its states are the
// journal's:
//
//	          accept                     the CLI receives the user's text
//	         ┌──────> Accepted ──> written, or unwritten
//	         │ reject                    the CLI is notified
//	         ├──────> Rejected <───────┐
//	         │ supersede               │ the CLI proposed again for the file
//	Open ────┼──────> Superseded       │
//	         │ close                   │ the CLI asked for the text and has it
//	         ├──────> Closed           │
//	         │ fail                    │ the CLI is notified: no view can show it
//	         ├──────> Failed           │
//	         │ gone            discard │ the CLI has ended
//	         └──────> Orphaned ────────┤
//	                              save └──> Saved: Pollux wrote the file
//
// A CLI receives one answer to a diff: the notification, closeDiff's result, or
// openDiff's error. A superseded diff gets none, since an answer, which names
// only the path, would be taken for the new one's.
//
// An accepted diff stays until its file holds the accepted text, or has not
// got it in time: see [Companion.settle].
//
// Diffs are keyed by session and path: two CLIs may propose for one file, and
// each waits for its own answer.
type diff struct {
	id        string
	companion *Companion
	session   *geminiide.Session
	client    string
	req       geminiide.OpenDiffRequest
	target    target
	base      file
	notice    string // why it cannot be displayed; the terminal answers it
	opened    time.Time
	ended     chan struct{} // closed when the state is no longer Open
	entry     entry         // what the journal has

	// Guarded by Companion.mu:
	state   journal.State
	shown   bool   // it is in the journal, and surfaces may show it
	saving  bool   // its file is being written
	content string // the user's text so far
	editor  *door  // who edited last
}

type event string

const (
	evAccept    event = "accept"
	evWritten   event = "written"
	evUnwritten event = "unwritten"
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
	journal.Accepted: {
		evWritten:   journal.Accepted,
		evUnwritten: journal.Accepted,
	},
	journal.Orphaned: {
		evReject: journal.Rejected,
		evSave:   journal.Saved,
	},
}

// reasons of the events that end a diff.
var reasons = map[event]string{
	evWritten: editor.ReasonAccepted, evUnwritten: editor.ReasonUnwritten, evReject: editor.ReasonRejected,
	evSupersede: editor.ReasonSuperseded, evClose: editor.ReasonClosed, evFail: editor.ReasonFailed, evSave: editor.ReasonSaved,
}

// states of the diffs that are kept, for surfaces.
var states = map[journal.State]string{
	journal.Open: editor.StateOpen, journal.Accepted: editor.StateAccepted, journal.Orphaned: editor.StateOrphaned,
}

// stepLocked makes the transition, if there is one, and notifies every
// surface. The diff is dropped, or kept in its new state. answers carries what
// the surfaces answer to diff/close.
func (c *Companion) stepLocked(d *diff, ev event) (answers *closing, ok bool) {
	next, ok := transitions[d.state][ev]
	if !ok || c.diffs[d.id] != d {
		return nil, false
	}
	if d.state == journal.Open {
		close(d.ended)
	}
	d.state = next
	reason, ends := reasons[ev]
	if !ends {
		for _, s := range c.surfacesLocked() {
			s.notify(editor.MethodDiffChanged, editor.DiffChange{ID: d.id, State: states[next]})
		}
		return nil, true
	}
	delete(c.diffs, d.id)
	if !d.shown {
		return nil, true
	}
	answers = newClosing(c.surfacesLocked(), editor.DiffClose{ID: d.id, Reason: reason})
	if ev == evReject || ev == evSupersede {
		known, editor := d.content, d.editor
		c.background(func() {
			if text := answers.lastText(editor, known, d.req.NewContent); text != known {
				c.keep(d, text)
			}
		})
	}
	return answers, true
}

// A closing collects what surfaces answer to one diff/close.
type closing struct {
	surfaces []*door
	answers  chan closeAnswer
}

type closeAnswer struct {
	from *door
	text *string
}

func newClosing(surfaces []*door, p editor.DiffClose) *closing {
	cl := &closing{surfaces, make(chan closeAnswer, len(surfaces))}
	for _, s := range surfaces {
		s.closeDiff(p, func(text *string) { cl.answers <- closeAnswer{s, text} })
	}
	return cl
}

// lastText returns the text with edits that Pollux had not received yet: one
// that is neither known nor the bare proposal. Where a surface edited last,
// only its answer counts, since the others may not have followed. lastText
// waits at most closeTimeout; without such a text it returns known.
func (cl *closing) lastText(editor *door, known, proposal string) string {
	if cl == nil {
		return known
	}
	if !slices.Contains(cl.surfaces, editor) {
		editor = nil
	}
	timeout := time.NewTimer(closeTimeout)
	defer timeout.Stop()
	for range cl.surfaces {
		select {
		case a := <-cl.answers:
			if editor != nil && a.from != editor {
				continue
			}
			if a.text != nil && *a.text != known && *a.text != proposal {
				return *a.text
			}
			if editor != nil {
				return known
			}
		case <-timeout.C:
			return known
		}
	}
	return known
}

const (
	// openTimeout bounds the wait for an editor to say that it shows a diff. A
	// busy one will: it has the message.
	openTimeout = 2 * time.Second
	// closeTimeout bounds the wait for the text as the user left it.
	closeTimeout = time.Second
)

// OpenDiff implements [geminiide.Backend]. A change that cannot be displayed is
// not an error: an error makes the CLI report a bug of its own and drop the
// user's answer in the terminal.
func (c *Companion) OpenDiff(ctx context.Context, s *geminiide.Session, req geminiide.OpenDiffRequest) error {
	if !filepath.IsAbs(req.FilePath) || filepath.Clean(req.FilePath) != req.FilePath {
		return fmt.Errorf("filePath %q is not a plain absolute path: pass one without . and ..", req.FilePath)
	}
	t, err := newTarget(req.FilePath, c.Roots())
	d := &diff{
		id: journal.NewID(), companion: c, session: s, client: clientName(s), req: req, target: t,
		opened: time.Now(), ended: make(chan struct{}), state: journal.Open, content: req.NewContent,
	}
	if err == nil {
		d.base, err = t.read()
	}
	switch {
	case err != nil:
		d.notice = err.Error()
	case len(req.NewContent) > maxFile:
		d.notice = fmt.Sprintf("the proposal is larger than %d MiB", maxFile>>20)
	case req.Binary != "":
		d.notice = req.Binary
		d.content = "" // so that the CLI writes its own
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

	c.syncEntry(d)

	c.mu.Lock()
	if d.state != journal.Open { // closed in the meantime
		c.mu.Unlock()
		c.record(d)
		return nil
	}
	if d.notice != "" {
		for _, s := range c.surfacesLocked() {
			s.notify(editor.MethodMessage, d.noticeMessage())
		}
		c.mu.Unlock()
		return nil
	}
	d.shown = true
	surfaces := c.surfacesLocked()
	acks := make(chan error, len(surfaces))
	view := d.viewLocked()
	for _, s := range surfaces {
		s.openDiff(view, func(err error) { acks <- err })
	}
	c.mu.Unlock()
	shown := make(chan error, 1)
	c.background(func() { shown <- c.firstShown(d, acks) })
	select {
	case err = <-shown:
	case <-time.After(openTimeout):
		// The CLI takes it for shown; should that fail, it must not wait.
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

// noticeMessage says that the diff cannot be displayed.
func (d *diff) noticeMessage() editor.Message {
	return editor.Message{Level: "warning", Text: fmt.Sprintf(
		"%s proposes a change to %s that cannot be displayed: %s. Answer in the terminal.", d.client, d.req.FilePath, d.notice)}
}

// openLocked is the diff that a session has open for a path, or nil: there is
// one at the most, since a second supersedes the first.
func (c *Companion) openLocked(s *geminiide.Session, path string) *diff {
	for _, d := range c.diffs {
		if d.session == s && d.req.FilePath == path && d.state == journal.Open {
			return d
		}
	}
	return nil
}

// clientName names a CLI to the user. Gemini CLI and Qwen Code give their
// transport's name for their own.
func clientName(s *geminiide.Session) string {
	name, version := s.Client()
	if name == "streamable-http-client" || name == "stdio-client" {
		name = "CLI"
	}
	return strings.TrimSpace(name + " " + version)
}

// firstShown waits until any surface shows the diff, or it has ended. It fails
// when every surface has failed to show it, with the last one's error.
func (c *Companion) firstShown(d *diff, acks chan error) error {
	err := errors.New("no editor that shows diffs is attached to Pollux: answer in the terminal, or start `pollux run`")
	for range cap(acks) {
		select {
		case e := <-acks:
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

// CloseDiff implements [geminiide.Backend]. It asks the surfaces for the text,
// since they may not have sent the last edits yet.
func (c *Companion) CloseDiff(ctx context.Context, s *geminiide.Session, req geminiide.CloseDiffRequest) (string, error) {
	c.mu.Lock()
	d := c.openLocked(s, req.FilePath)
	if d == nil {
		c.mu.Unlock()
		return "", fmt.Errorf("no diff is open for %s", req.FilePath)
	}
	if d.notice == "" { // else its state is not known
		c.watch.soon(req.FilePath, d.base.state)
	}
	known, editor := d.content, d.editor
	answers, _ := c.stepLocked(d, evClose)
	c.mu.Unlock()

	content := answers.lastText(editor, known, d.req.NewContent)
	if d.notice == "" {
		c.keep(d, content)
	}
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
func (c *Companion) edit(from *door, ch editor.DiffChange) {
	if ch.Content == nil {
		return
	}
	c.mu.Lock()
	d := c.diffs[ch.ID]
	if d == nil || d.notice != "" || d.saving || d.state == journal.Accepted || d.content == *ch.Content {
		c.mu.Unlock()
		return
	}
	d.content, d.editor, d.entry.text = *ch.Content, from, ch.Content
	for _, s := range c.surfacesLocked() {
		if s != from {
			s.diffChanged(d)
		}
	}
	c.mu.Unlock()
	c.syncEntry(d)
}

// hunks says where the text of a client's view differs from the original.
func (c *Companion) hunks(t editor.DiffText) (any, error) {
	original, _, err := c.texts(t.ID)
	if err != nil {
		return nil, err
	}
	res := editor.DiffHunks{Hunks: []editor.DiffHunk{}}
	for _, h := range hunk.Between(original, t.Content) {
		removed := hunk.Split(h.OldText(original))
		if removed == nil {
			removed = []string{}
		}
		res.Hunks = append(res.Hunks, editor.DiffHunk{
			Line: h.New, Lines: h.NewLines, Original: h.Old, OriginalLines: h.OldLines, Removed: removed,
		})
	}
	return res, nil
}

// takeHunk is the change that makes a hunk of a client's view what it is in
// the original, or in the proposal.
func (c *Companion) takeHunk(t editor.DiffTake) (any, error) {
	original, proposed, err := c.texts(t.ID)
	if err != nil {
		return nil, err
	}
	from, none := original, "nothing to undo in this line: it is as in the file"
	switch t.Take {
	case editor.TakeOriginal:
	case editor.TakeProposed:
		from, none = proposed, "nothing to take over in this line: it is as proposed"
	default:
		return nil, fmt.Errorf("unknown take %q: use original or proposed", t.Take)
	}
	h, ok := hunk.At(hunk.Between(from, t.Content), t.Line)
	if !ok {
		return nil, errors.New(none)
	}
	after := h.Replace(from, t.Content)
	return editor.DiffEdit{Line: h.New, Lines: h.NewLines, Text: h.OldText(from), EOL: strings.HasSuffix(after, "\n")}, nil
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

// maxOrphans bounds the proposals of ended CLIs that are still shown; the
// journal has the rest.
const maxOrphans = 50

// Gone implements [geminiide.Backend]: what a CLI that has ended proposed
// stays readable.
func (c *Companion) Gone(s *geminiide.Session) {
	c.mu.Lock()
	var ended, failed, orphans []*diff
	for _, d := range c.diffs {
		if d.session == s && d.state == journal.Open && !c.closing {
			if d.notice != "" { // nobody could save it
				c.stepLocked(d, evFail)
				failed = append(failed, d)
				continue
			}
			c.stepLocked(d, evGone)
			ended = append(ended, d)
		}
		if d.state == journal.Orphaned && !d.saving {
			orphans = append(orphans, d)
		}
	}
	slices.SortFunc(orphans, byAge)
	dropped := orphans[:max(0, len(orphans)-maxOrphans)]
	for _, d := range dropped {
		c.stepLocked(d, evReject)
	}
	c.clientsChangedLocked()
	c.mu.Unlock()
	for _, d := range append(failed, dropped...) {
		c.record(d)
	}
	for _, d := range ended {
		c.record(d)
		c.tell("warning", fmt.Sprintf("The CLI that proposed the change to %s has ended. The proposal is kept: save it or discard it.", d.req.FilePath))
	}
}

func byAge(a, b *diff) int { return strings.Compare(a.id, b.id) }

// statusLocked returns the diff without its text.
func (d *diff) statusLocked() editor.DiffStatus {
	return editor.DiffStatus{
		ID: d.id, Path: d.req.FilePath, State: states[d.state], Notice: d.notice, Client: d.client, Opened: d.opened.UnixMilli(),
	}
}

// viewLocked is the diff as surfaces see it.
func (d *diff) viewLocked() editor.Diff {
	st := d.statusLocked()
	var edited *string
	if d.content != d.req.NewContent {
		edited = new(string)
		*edited = d.content
	}
	return editor.Diff{
		ID: st.ID, Path: st.Path, State: st.State,
		Original: comparableTo(d.base.text, d.req.NewContent), Exists: d.base.exists, EOL: eol(d.base.text),
		Proposed: d.req.NewContent, Content: edited,
		Client: st.Client, Opened: st.Opened,
	}
}

// shownLocked returns every diff that surfaces may show, the oldest first.
func (c *Companion) shownLocked() []*diff {
	return c.diffsLocked(func(d *diff) bool { return d.shown })
}

// diffsLocked returns the diffs that match, the oldest first.
func (c *Companion) diffsLocked(match func(*diff) bool) []*diff {
	all := make([]*diff, 0, len(c.diffs))
	for _, d := range c.diffs {
		if match(d) {
			all = append(all, d)
		}
	}
	slices.SortFunc(all, byAge)
	return all
}
