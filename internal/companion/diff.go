package companion

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"pollux/internal/companion/journal"
	"pollux/internal/editor"
	"pollux/internal/jsonrpc"
	"pollux/internal/paths"
)

// A diff is one proposal that waits for the user. Its states are the
// journal's:
//
//	          accept                     the agent receives the user's text
//	         ┌──────> Accepted ──> written, or unwritten
//	         │ reject                    the agent is notified
//	         ├──────> Rejected <───────┐
//	         │ supersede               │ the agent proposed again for the file
//	Open ────┼──────> Superseded       │
//	         │ close                   │ the agent asked for the text and has it
//	         ├──────> Closed           │
//	         │ fail                    │ the agent is notified: no view can show it
//	         ├──────> Failed           │
//	         │ gone            discard │ the agent is disconnected
//	         └──────> Orphaned ────────┤
//	                              save └──> Saved: Pollux wrote the file
//
// A session receives one answer to a diff, unless it ends before:
// [Session.Resolve], or the result of [Companion.Withdraw], or the error of
// [Companion.Propose]. If the messages to its agent name only the path, it sends
// none for a superseded diff: the agent would take it for the answer to the new
// diff.
//
// An accepted diff stays until its file holds the accepted text or does not
// get it in time: see [expected]. In the second case [Companion.save] can still write it.
//
// Diffs are keyed by session and clean path: two agents may propose for one file, and
// each waits for its own answer.
type diff struct {
	id        string
	companion *Companion
	session   Session   // nil for a change outside Pollux
	rules     TextRules // the session's
	agent     string    // its name, such as "Gemini CLI"
	client    string    // its name and version
	proposal  Proposal
	target    target
	base      file
	original  string // the file's text as surfaces show it
	notice    string // why it cannot be displayed; the user answers it in the terminal
	outside   string // the workspace, if the file is outside it
	opened    time.Time
	ended     chan struct{} // closed when the state changes from Open
	record    *journal.Record
	missed    *diff // in a diff that misses keeps: the accepted one, if the journal lacks its text

	// Guarded by Companion.mu:
	state   journal.State
	shown   bool   // it is in the journal, and surfaces may show it
	saving  bool   // its file is being written
	viewer  *conn  // the only client that shows it: see openOutside; never changes
	created bool   // it shows a file that did not exist before; never changes
	content string // the user's text so far
	kept    string // the text that the journal keeps
	lacking bool   // the file does not hold the text that the user accepted
	editor  *conn  // the client that edited last
}

// view returns a diff as surfaces see it now. It reports false if the diff has ended.
func (c *Companion) view(id string) (editor.Diff, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	d := c.diffs[id]
	if d == nil || !d.shown {
		return editor.Diff{}, false
	}
	return d.viewLocked(), true
}

// An event changes the state of a diff.
type event struct {
	from   []journal.State
	to     journal.State
	reason string // why surfaces close the diff; "" if it is kept
}

var (
	ifOpen           = []journal.State{journal.Open}
	ifAccepted       = []journal.State{journal.Accepted}
	ifOrphaned       = []journal.State{journal.Orphaned}
	ifOpenOrOrphaned = []journal.State{journal.Open, journal.Orphaned}

	evAccept    = &event{ifOpen, journal.Accepted, ""}
	evWritten   = &event{ifAccepted, journal.Accepted, editor.ReasonAccepted}
	evUnwritten = &event{ifAccepted, journal.Accepted, editor.ReasonUnwritten}
	evReject    = &event{ifOpenOrOrphaned, journal.Rejected, editor.ReasonRejected}
	evSupersede = &event{ifOpenOrOrphaned, journal.Superseded, editor.ReasonSuperseded}
	evClose     = &event{ifOpen, journal.Closed, editor.ReasonClosed}
	evFail      = &event{ifOpen, journal.Failed, editor.ReasonFailed}
	evGone      = &event{ifOpen, journal.Orphaned, ""}
	evSave      = &event{ifOrphaned, journal.Saved, editor.ReasonSaved}
	evEnd       = &event{ifOpen, journal.Orphaned, editor.ReasonEnded} // the user cannot decide any more
)

// states holds the states of diffs that are kept, as surfaces see them.
var states = map[journal.State]string{
	journal.Open: editor.StateOpen, journal.Accepted: editor.StateAccepted, journal.Orphaned: editor.StateOrphaned,
}

// stepLocked makes the transition, if there is one, and notifies every
// surface. It drops the diff or keeps it in its new state. answers collects the
// surfaces' answers to diff/close.
func (c *Companion) stepLocked(d *diff, ev *event) (answers *closing, ok bool) {
	if c.diffs[d.id] != d || !slices.Contains(ev.from, d.state) {
		return nil, false
	}
	if d.state == journal.Open {
		close(d.ended)
	}
	d.state = ev.to
	reason := ev.reason
	if reason == "" {
		for _, s := range c.viewersLocked(d) {
			s.notify(editor.MethodDiffChanged, editor.DiffChange{ID: d.id, State: states[ev.to]})
		}
		return nil, true
	}
	delete(c.diffs, d.id)
	if !d.shown && d.notice == "" {
		return nil, true
	}
	if ev == evReject && d.viewer != nil {
		reason = editor.ReasonKept
	}
	answers = newClosing(c.viewersLocked(d), editor.DiffClose{ID: d.id, Reason: reason})
	if d.notice != "" {
		return nil, true // it closes no view: it withdraws the message
	}
	if ev == evReject || ev == evSupersede || ev == evEnd {
		known, lastEditor := d.content, d.editor
		c.background(func() {
			if text := answers.lastText(d, lastEditor, known); text != known {
				c.keep(d, func() { d.kept = text })
			}
		})
	}
	return answers, true
}

// step makes the transition that ends a diff, if there is one, and writes the state to the journal.
func (c *Companion) step(d *diff, ev *event) (ok bool) {
	c.mu.Lock()
	_, ok = c.stepLocked(d, ev)
	c.mu.Unlock()
	c.end(d)
	return ok
}

// A closing collects the surfaces' answers to one diff/close.
type closing struct {
	surfaces []*conn
	answers  chan closeAnswer
}

type closeAnswer struct {
	from *conn
	text *string
}

func newClosing(surfaces []*conn, p editor.DiffClose) *closing {
	cl := &closing{surfaces, make(chan closeAnswer, len(surfaces))}
	for _, s := range surfaces {
		s.closeDiff(p, func(text *string) { cl.answers <- closeAnswer{s, text} })
	}
	return cl
}

// lastText returns a text of the diff with edits that Pollux had not received before: one
// that is neither the known text nor the proposal. If a surface edited last,
// only its answer counts, since the others may lack its edits. lastText waits at
// most closeTimeout, and returns known if no surface has such a text. The journal
// receives one that comes later, for example from an editor that was suspended.
func (cl *closing) lastText(d *diff, lastEditor *conn, known string) string {
	if cl == nil {
		return known
	}
	if !slices.Contains(cl.surfaces, lastEditor) {
		lastEditor = nil
	}
	left := len(cl.surfaces)
	wait := func(over <-chan struct{}) (text string, answered bool) {
		for ; left > 0; left-- {
			select {
			case a := <-cl.answers:
				if lastEditor != nil && a.from != lastEditor {
					continue
				}
				if a.text != nil && *a.text != known && *a.text != d.proposal.Text {
					return *a.text, true
				}
				if lastEditor != nil {
					return known, true
				}
			case <-over:
				return known, false
			}
		}
		return known, true
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	text, answered := wait(ctx.Done())
	if c := d.companion; !answered {
		c.background(func() {
			if late, _ := wait(c.sending.Done()); late != known {
				c.keep(d, func() { d.kept = late })
				c.tell("warning", fmt.Sprintf("Your last edits of %s arrived after the change had ended. To write them: pollux journal restore %s", d.path(), d.id))
			}
		})
	}
	return text
}

const (
	// openTimeout bounds the wait for an editor to confirm that it shows a
	// diff. A busy editor has the message and shows it later.
	openTimeout = 2 * time.Second
	// closeTimeout bounds the wait for the editors' last edits.
	closeTimeout = time.Second
)

// Propose starts the review of an agent's proposal and returns when a client
// shows it. An error means that no client can show it: the agent gets no
// other answer. A change that cannot be displayed is not an error: the user
// answers it in the agent's terminal.
func (c *Companion) Propose(s Session, p Proposal) error {
	path, ok := cleanPath(p.Path)
	if !ok {
		return fmt.Errorf("the path %q is not a plain absolute path: pass one without ..", p.Path)
	}
	d := c.newDiff(s, p, path)

	// Registered before the journal has it, so that an immediate Withdraw finds it.
	c.mu.Lock()
	if c.closing {
		c.mu.Unlock()
		return errors.New("the companion is shutting down: answer in the terminal")
	}
	old := c.openLocked(s, p.Path)
	if old != nil {
		c.endLocked(old, evSupersede, Outcome{Superseded: true})
	}
	d.agent = c.nameLocked(s)
	c.diffs[d.id] = d
	c.actedLocked(s)
	c.askedLocked(s)
	c.mu.Unlock()
	if old != nil {
		c.end(old)
	}

	c.sync(d)

	c.mu.Lock()
	if d.state != journal.Open { // closed in the meantime
		c.mu.Unlock()
		c.end(d)
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
	for _, s := range surfaces {
		s.offer(d, func(err error) { acks <- err })
	}
	c.mu.Unlock()
	if len(surfaces) == 0 && c.cfg.Waiting != nil {
		c.background(func() { c.cfg.Waiting(c.sending, d.agent, d.proposal.Path) })
	}
	shown := make(chan error, 1)
	c.background(func() { shown <- c.firstShown(d, acks) })
	select {
	case err := <-shown:
		if err != nil && c.step(d, evFail) {
			return err
		}
	case <-time.After(openTimeout):
		// The agent continues as if the diff were shown. If no surface can show
		// it, reject it, so that the agent does not wait.
		c.background(func() {
			if err := <-shown; err != nil {
				c.tell("error", err.Error())
				c.reject(d.id)
			}
		})
	}
	return nil
}

// newDiff returns a diff for a proposal, with a notice if it cannot be displayed. path is the
// clean path.
func (c *Companion) newDiff(s Session, p Proposal, path string) *diff {
	roots := c.Roots()
	t, err := newTarget(path, roots)
	outside := ""
	if errors.Is(err, errOutside) && p.Hidden && !paths.OnOtherServer(roots, path) {
		outside = strings.Join(roots, ", ")
		t, err = newTarget(path, []string{existingDir(paths.Real(path))})
	}
	name, version := s.Client()
	d := &diff{
		id: journal.NewID(), companion: c, session: s, rules: s, client: strings.TrimSpace(cmp.Or(name, "the agent") + " " + version),
		proposal: p, target: t, outside: outside,
		opened: time.Now(), ended: make(chan struct{}), state: journal.Open, content: p.Text, kept: p.Text,
	}
	if err == nil {
		d.base, err = t.read()
		d.original = s.Shown(d.base.text, p.Text)
	}
	switch {
	case err != nil:
		d.notice = err.Error()
	case len(p.Text) > maxFile:
		d.notice = fmt.Sprintf("the proposal is larger than %d MiB", maxFile>>20)
	case p.Binary != "":
		d.notice = p.Binary
		d.content = "" // so that the agent uses its own
	}
	d.record = d.newRecord()
	return d
}

// outsideMessage returns a message that the file of a displayed diff is outside the workspace.
func (d *diff) outsideMessage() editor.Message {
	return editor.Message{Level: "warning", Diff: d.id, Text: fmt.Sprintf(
		"%s proposes a change outside the workspace (%s): %s", d.agent, d.outside, d.target.actual())}
}

// noticeMessage returns a message that the diff cannot be displayed.
func (d *diff) noticeMessage() editor.Message {
	next := "Answer in the terminal."
	if d.proposal.Hidden {
		next = "The terminal asks, but does not show it either: if in doubt, answer no."
	}
	return editor.Message{Level: "warning", Diff: d.id, Text: fmt.Sprintf(
		"%s proposes a change to %s that cannot be displayed: %s. %s",
		d.agent, d.path(), d.notice, next)}
}

// path returns the path of the file as editors name it. The agent may spell it in another
// way, and receives its own spelling in the answer.
func (d *diff) path() string {
	path, _ := cleanPath(d.proposal.Path)
	return path
}

// openLocked returns the diff that a session has open for a path in any spelling, or nil.
// There is at most one, since a second supersedes the first.
func (c *Companion) openLocked(s Session, path string) *diff {
	path, _ = cleanPath(path)
	return c.anyLocked(func(d *diff) bool { return d.session == s && d.path() == path && d.state == journal.Open })
}

// anyLocked returns a diff that matches, or nil.
func (c *Companion) anyLocked(match func(*diff) bool) *diff {
	for _, d := range c.diffs {
		if match(d) {
			return d
		}
	}
	return nil
}

// firstShown waits until a surface shows the diff, or the diff has ended. If
// every surface fails to show it, firstShown returns the last error.
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
	if c.cfg.Page {
		return nil // it waits on the review page
	}
	return err
}

// Withdraw ends the review of a proposal that was answered in the agent's
// terminal, and returns the text as the user left it. It asks the surfaces for
// it, since they may not have sent the last edits.
func (c *Companion) Withdraw(s Session, path string) (string, error) {
	return c.withdraw(s, path, journal.Refused)
}

// Abandon is Withdraw for a proposal that the agent gave up without an answer, for example
// because its terminal was closed.
func (c *Companion) Abandon(s Session, path string) (string, error) {
	return c.withdraw(s, path, journal.Withdrawn)
}

// withdraw ends the review of a proposal. unwritten is how it ended if the agent does not
// write the file.
func (c *Companion) withdraw(s Session, path string, unwritten journal.Ending) (string, error) {
	c.mu.Lock()
	d := c.openLocked(s, path)
	if d == nil {
		c.mu.Unlock()
		return "", fmt.Errorf("no diff is open for %s", path)
	}
	x := &expected{diff: d, since: d.base.state, read: unseen, ending: unwritten}
	if d.notice == "" { // otherwise its state is not known
		c.expectLocked(x)
	}
	known, lastEditor := d.content, d.editor
	answers, _ := c.stepLocked(d, evClose)
	c.mu.Unlock()

	content := answers.lastText(d, lastEditor, known)
	if d.notice == "" {
		c.keep(d, func() { d.kept = content })
	}
	c.end(d)
	c.mu.Lock()
	x.text = content
	x.endsLocked(time.Now().Add(writtenTimeout))
	c.mu.Unlock()
	return d.answer(content), nil
}

// answer returns the user's text as the agent receives it.
func (d *diff) answer(text string) string {
	return d.rules.Answer(text, d.base.text, d.proposal.Text)
}

// edit stores the text of a diff that the user is editing.
func (c *Companion) edit(from *conn, ch editor.DiffChange) {
	if ch.Content == nil {
		return
	}
	c.mu.Lock()
	d := c.diffs[ch.ID]
	if d == nil || d.notice != "" || d.proposal.ReadOnly != "" || d.saving || d.state == journal.Accepted || d.content == *ch.Content {
		c.mu.Unlock()
		return
	}
	d.content, d.kept, d.editor = *ch.Content, *ch.Content, from
	for _, s := range c.viewersLocked(d) {
		if s != from {
			s.diffChanged(d)
		}
	}
	c.mu.Unlock()
	c.sync(d)
}

// find returns the diff with that ID.
func (c *Companion) find(id string) (*diff, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	d := c.diffs[id]
	if d == nil {
		return nil, errNoDiff
	}
	return d, nil
}

// maxOrphans bounds the proposals of ended agents that are still shown. The
// journal has the rest.
const maxOrphans = 50

// Disconnect removes the session of an agent that has ended. Its proposals stay
// until the user saves or discards them. The session's calls of [Companion.Propose]
// must have returned.
func (c *Companion) Disconnect(s Session) {
	c.mu.Lock()
	c.sessions = slices.DeleteFunc(c.sessions, func(other Session) bool { return other == s })
	delete(c.asking, s)
	c.forgetLocked(c.writesLocked(s))
	var ended, failed, orphans []*diff
	for _, d := range c.diffs {
		if d.session == s && d.state == journal.Open && !c.closing {
			if d.notice != "" { // it could not be saved
				c.stepLocked(d, evFail)
				failed = append(failed, d)
				continue
			}
			c.stepLocked(d, evGone)
			ended = append(ended, d)
		}
		if d.state == journal.Orphaned && !d.saving && d.viewer == nil {
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
		c.end(d)
	}
	for _, d := range ended {
		c.end(d)
		next := "save it or discard it"
		if d.outside != "" {
			next = fmt.Sprintf("discard it, or write it with `pollux journal restore %s`", d.id)
		}
		c.show(editor.Message{Level: "warning", Diff: d.id, Text: fmt.Sprintf(
			"%s, which proposed the change to %s, is disconnected. The proposal is kept: %s.", d.agent, d.path(), next)})
	}
}

func byAge(a, b *diff) int { return strings.Compare(a.id, b.id) }

// statusLocked returns the diff without its text.
func (d *diff) statusLocked() editor.DiffStatus {
	state := states[d.state]
	if d.viewer != nil {
		state = editor.StateOutside
	}
	return editor.DiffStatus{
		ID: d.id, Path: d.path(), State: state, Notice: d.notice,
		Agent: d.agent, Client: d.client, Opened: d.opened.UnixMilli(),
	}
}

// viewLocked returns the diff as surfaces see it.
func (d *diff) viewLocked() editor.Diff {
	st := d.statusLocked()
	var edited *string
	if d.content != d.proposal.Text {
		text := d.content
		edited = &text
	}
	return editor.Diff{
		ID: st.ID, Path: st.Path, State: st.State,
		Original: d.original, Exists: d.base.exists, EOL: eol(d.base.text),
		Proposed: d.proposal.Text, Content: edited,
		Agent: st.Agent, Client: st.Client, Opened: st.Opened, ReadOnly: d.proposal.ReadOnly,
	}
}

// viewersLocked returns the clients that show the diff.
func (c *Companion) viewersLocked(d *diff) []*conn {
	if d.viewer != nil {
		return []*conn{d.viewer}
	}
	return c.surfacesLocked()
}

// visibleTo reports whether a client may show the diff.
func (d *diff) visibleTo(client *conn) bool {
	return d.shown && (d.viewer == nil || d.viewer == client)
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

// diffChanged sends the text of a diff as it is when the client reads it. A slow
// client receives only the last of many edits, and no edit of a diff that has
// ended.
func (d *conn) diffChanged(diff *diff) {
	c, id := diff.companion, diff.id
	d.mu.Lock()
	queued := d.changed[id]
	d.changed[id] = true
	d.mu.Unlock()
	if queued {
		return
	}
	d.out.Put(0, func(context.Context) {
		d.mu.Lock()
		delete(d.changed, id)
		d.mu.Unlock()
		c.mu.Lock()
		diff := c.diffs[id]
		if diff == nil {
			c.mu.Unlock()
			return
		}
		content := diff.content
		c.mu.Unlock()
		d.rpc.Notify(editor.MethodDiffChanged, editor.DiffChange{ID: id, Content: &content})
	})
}

var errEnded = errors.New("the change was answered before it could be shown")

// offer shows a diff; done receives the client's answer. The queue holds no
// texts: a slow client receives the diff in its current state, and nothing if
// the diff has ended. If the client leaves without an answer, done is called only
// after [Companion.detach], which rejects the diff if no other client shows it:
// otherwise chance would decide between a rejection and an error.
func (d *conn) offer(diff *diff, done func(error)) {
	c, id := diff.companion, diff.id
	if diff.outside != "" {
		d.notify(editor.MethodMessage, diff.outsideMessage())
	}
	d.out.Put(0, func(ctx context.Context) {
		view, ok := c.view(id)
		if !ok {
			done(errEnded)
			return
		}
		d.call(ctx, editor.MethodDiffOpen, view, nil, func(err error) {
			if ctx.Err() == nil && !errors.Is(err, jsonrpc.ErrClosed) {
				done(err)
				return
			}
			go func() {
				<-d.left
				done(err)
			}()
		})
	})
}

// closeDiff closes a diff; done receives the text as the user left it, or nil.
func (d *conn) closeDiff(p editor.DiffClose, done func(*string)) {
	d.out.Put(0, func(ctx context.Context) {
		res := new(editor.DiffCloseResult)
		d.call(ctx, editor.MethodDiffClose, p, res, func(error) { done(res.Content) })
	})
}

// keep changes what the journal keeps of a diff, and writes it.
func (c *Companion) keep(d *diff, change func()) {
	c.mu.Lock()
	change()
	c.mu.Unlock()
	c.sync(d)
}

// end writes the state of a diff that has ended to the journal.
func (c *Companion) end(d *diff) {
	state := c.sync(d)
	c.log.Info("a diff ended", "state", state)
}

// sync writes what is missing from the diff's entry in the journal, and returns the diff's state.
// If a text cannot be written, it warns the user once.
func (c *Companion) sync(d *diff) journal.State {
	state, lost, err := d.record.Flush()
	if err != nil {
		c.log.Warn("the journal cannot be written", "err", err)
	}
	if lost == nil {
		return state
	}
	what, next := "Your text", ". Pollux has it in memory, and tries again with the next change."
	if *lost == d.proposal.Text {
		what = "The proposal"
	}
	if state == journal.Open || state == journal.Orphaned {
		next = ". Pollux tries again at your next edit."
	}
	c.tell("warning", fmt.Sprintf("%s for %s is not kept: %v%s", what, d.path(), err, next))
	return state
}

// newRecord returns the journal's record of the diff. A restore must add what the agent's rules
// add to a text, CRLF line endings and a byte order mark: another process restores it, which does not
// have the rules.
func (d *diff) newRecord() *journal.Record {
	c := d.companion
	text, mark := strings.CutPrefix(d.rules.Written(d.answer("text\n"), d.base.text), bom)
	return c.journal.Record(journal.Change{
		Entry: journal.Entry{
			ID: d.id, Time: d.opened, Path: d.path(), Real: d.target.actual(), Client: d.client,
			CRLF: strings.HasSuffix(text, "\r\n"), BOM: mark,
		},
		Proposal: d.proposal.Text, Original: d.original, InFile: d.viewer != nil,
	}, d.keeps, c.log)
}

// keeps returns what the journal's entry should have.
func (d *diff) keeps() journal.Content {
	d.companion.mu.Lock()
	defer d.companion.mu.Unlock()
	return journal.Content{Text: d.kept, State: d.state, Unwritten: d.lacking}
}
