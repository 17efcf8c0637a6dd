// Package term shows pending changes in a terminal: over ssh, or in a pane next to the
// agent. It is a client of the editor protocol, as an editor's plugin is.
//
// It shows one diff at a time, and only what differs with a few lines around it: side
// by side in wide terminals, otherwise one below the other. A hunk that the user has
// undone stays visible and can be taken again. For free editing it starts the user's
// editor. Leaving decides nothing.
package term

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"

	tea "charm.land/bubbletea/v2"

	"pollux/internal/editor"
	"pollux/internal/outbox"
	"pollux/internal/sys/proc"
)

// A Config says what to show and where.
type Config struct {
	In  io.Reader
	Out io.Writer
	Env []string
	// Dial connects to the companion.
	Dial func(editor.Handler) (*editor.Client, error)
	// Version is this program's version.
	Version string
	// Editor is the command that edits a file: see [shell.LineCommand].
	Editor string
	// Once ends the review when no changes are pending.
	Once bool
	// Options are more options of the program, for tests.
	Options []tea.ProgramOption
}

// ErrEnded means that the companion has ended. ErrLeft means that the user left a
// review with Once set while changes were pending.
var (
	ErrEnded = errors.New("the companion has ended")
	ErrLeft  = errors.New("changes are still pending")
)

// Run shows changes until the user leaves, the context ends, or the companion does. It
// returns nil, [ErrLeft] or [ErrEnded]. If the user's editor saved a text for a change
// that is no longer pending, the error names its file.
//
// One context ends everything: Run cancels it, closes the connection, and waits for
// every goroutine.
func Run(ctx context.Context, cfg Config) error {
	ctx, cancel := context.WithCancel(ctx)
	texts := newTexts()
	m := &model{ctx: ctx, cfg: cfg, texts: texts, width: 80, height: 24}
	defer proc.LeaveInterruptToChild()() // to the user's editor: here Ctrl-C is a key
	p := tea.NewProgram(m, append([]tea.ProgramOption{
		tea.WithContext(ctx), tea.WithInput(cfg.In), tea.WithOutput(cfg.Out), tea.WithEnvironment(cfg.Env),
		tea.WithoutSignalHandler(), // it blocks if a signal arrives while the program ends
	}, cfg.Options...)...)
	inbox := outbox.New(outbox.Limits[tea.Msg]{}, func(_ context.Context, msg tea.Msg) { p.Send(msg) }, nil)
	var client *editor.Client
	var group sync.WaitGroup
	stop := sync.OnceFunc(func() {
		cancel() // ends a Send
		if client != nil {
			client.Close()
		}
		texts.close()
		inbox.Close()
		group.Wait()
	})
	defer stop()
	client, err := cfg.Dial(editor.Handler{
		DiffOpen: func(d editor.Diff) error {
			texts.set(d.ID, d.Text())
			inbox.Put(opened(d))
			return nil
		},
		DiffClose: func(c editor.DiffClose) *string {
			inbox.Put(closed(c))
			return texts.take(c.ID)
		},
		DiffChanged: func(c editor.DiffChange) {
			if c.Content != nil {
				texts.set(c.ID, *c.Content)
			}
			inbox.Put(changed(c))
		},
		Clients: func(c editor.Clients) { inbox.Put(agents(c.Clients)) },
		Outside: func(o editor.Outside) { inbox.Put(outside(o)) },
		Message: func(m editor.Message) { inbox.Put(message{m.Level, m.Text, m.Diff}) },
	})
	if err != nil {
		return err
	}
	m.client, texts.client = client, client
	group.Go(func() {
		select {
		case <-client.Done():
			p.Send(ended{})
		case <-ctx.Done():
		}
	})
	if _, err := client.Initialize(ctx, editor.InitializeParams{
		Client: editor.Implementation{Name: "pollux review", Version: cfg.Version}, Diff: true,
	}); err != nil {
		return err
	}
	if status, err := client.Status(ctx); err == nil {
		m.roots = status.Roots // otherwise paths stay absolute
		m.unconnected = status.Unconnected
	}
	if cfg.Once {
		if pending, err := client.Diffs(ctx); err == nil && len(pending) == 0 {
			inbox.Put(nothingPending{})
		}
	}
	_, err = p.Run()
	stop()
	switch {
	case len(texts.kept) > 0:
		return fmt.Errorf("the text that you wrote is in %s: its change does not have it",
			strings.Join(texts.kept, ", "))
	case m.gone:
		return ErrEnded
	case err == nil && cfg.Once && m.left:
		return ErrLeft
	case errors.Is(err, tea.ErrProgramKilled), errors.Is(err, tea.ErrInterrupted):
		return nil
	}
	return err
}

// texts holds the current texts of the pending diffs. The program's loop stops while
// the user's editor runs, but the companion needs answers during that time too. The
// user's edits reach the companion in order.
type texts struct {
	client *editor.Client
	edits  *outbox.Outbox[string] // IDs of diffs with unsent edits

	mu   sync.Mutex
	byID map[string]*text
	kept []string // files with texts of the user that their diffs do not have
}

// A text is the current text of a pending diff.
type text struct {
	string
	mine   bool // it is this client's, not another one's
	unsent bool
}

func newTexts() *texts {
	t := &texts{byID: make(map[string]*text)}
	t.edits = outbox.New(outbox.Limits[string]{}, t.send, nil)
	return t
}

// close ends the sending of edits. The connection must be closed.
func (t *texts) close() { t.edits.Close() }

// set stores a text that the companion sent.
func (t *texts) set(id, content string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.byID[id] = &text{string: content}
}

// get returns the text of a diff, and whether the user made it here.
func (t *texts) get(id string) (content string, mine, pending bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if it := t.byID[id]; it != nil {
		return it.string, it.mine, true
	}
	return "", false, false
}

// edit stores a text of the user, and queues it for the companion. It reports whether
// the diff is still pending.
func (t *texts) edit(id, content string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	it := t.byID[id]
	if it == nil {
		return false
	}
	*it = text{content, true, true}
	t.edits.Put(id)
	return true
}

// send sends the latest text of a diff, unless it was sent already.
func (t *texts) send(_ context.Context, id string) {
	t.mu.Lock()
	it := t.byID[id]
	if it == nil || !it.unsent {
		t.mu.Unlock()
		return
	}
	it.unsent = false
	content := it.string
	t.mu.Unlock()
	t.client.Edit(id, content)
}

// flush returns when all edits have been sent.
func (t *texts) flush(ctx context.Context) { t.edits.Drain(ctx) }

// keep remembers a file with a text that its diff does not have.
func (t *texts) keep(path string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.kept = append(t.kept, path)
}

// keeps reports whether there is such a file.
func (t *texts) keeps() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.kept) > 0
}

// take removes a diff and returns its text, or nil if it is not pending.
func (t *texts) take(id string) *string {
	t.mu.Lock()
	defer t.mu.Unlock()
	it := t.byID[id]
	if it == nil {
		return nil
	}
	delete(t.byID, id)
	return &it.string
}

// The messages that the program's loop receives.
type (
	opened  editor.Diff
	closed  editor.DiffClose
	changed editor.DiffChange
	agents  []editor.Agent // the connected ones
	outside editor.Outside // the changes outside Pollux
	message struct{ level, text, diff string }
	ended   struct{} // the companion has ended
	// rested means that no key was pressed during a part of settleDelay: look is the
	// number of the wait, part the number of its part.
	rested struct{ look, part int }
	// nothingPending means that there are no changes to wait for.
	nothingPending struct{}
	// decided is the companion's answer to an accept or reject.
	decided struct {
		id     string
		result editor.DiffAcceptResult
		err    error
	}
	// failed is an error for the user.
	failed struct{ err error }
	// edited means that the user's editor has ended. problem is empty if its text is known.
	edited struct{ id, problem string }
)
