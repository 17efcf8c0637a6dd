// Package term is the review in a terminal: a client of the adapter protocol,
// as an editor's plugin is, for ssh and for a pane beside the CLI.
//
// It shows one diff at a time, what differs with a few lines around it: side
// by side where there is room, else one below the other. A hunk that the user
// took back stays in sight, to be taken again. Free editing is left to the
// user's editor. Leaving decides nothing.
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
)

// A Config says what to show and where.
type Config struct {
	In  io.Reader
	Out io.Writer
	Env []string
	// Dial connects to the companion.
	Dial func(editor.Handler) (*editor.Client, error)
	// Version is this program's.
	Version string
	// Editor is the shell command, given a file, for free editing.
	Editor string
	// Once ends it when nothing waits any more.
	Once bool
	// Options are further ones of the program's, for tests.
	Options []tea.ProgramOption
}

// ErrEnded means that the companion has ended, ErrLeft that the user left a
// review that was to end by itself.
var (
	ErrEnded = errors.New("the companion has ended")
	ErrLeft  = errors.New("something waits still")
)

// Run reviews until the user leaves, the context ends, or the companion does.
// The error then is nil, [ErrLeft] or [ErrEnded], unless there is a text that
// the user wrote in the editor and that reached nobody: then it names its file.
func Run(ctx context.Context, cfg Config) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	texts := newTexts()
	m := &model{ctx: ctx, cfg: cfg, texts: texts, width: 80, height: 24}
	p := tea.NewProgram(m, append([]tea.ProgramOption{
		tea.WithContext(ctx), tea.WithInput(cfg.In), tea.WithOutput(cfg.Out), tea.WithEnvironment(cfg.Env),
	}, cfg.Options...)...)
	inbox := outbox.New(outbox.Limits[tea.Msg]{}, func(_ context.Context, msg tea.Msg) { p.Send(msg) }, nil)
	defer func() {
		cancel() // ends a Send
		inbox.Close()
	}()
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
		Clients: func(c editor.Clients) { inbox.Put(clis(len(c.Clients))) },
		Message: func(m editor.Message) { inbox.Put(said{m.Level, m.Text}) },
	})
	if err != nil {
		return err
	}
	defer client.Close()
	m.client, texts.client = client, client
	var pump sync.WaitGroup
	pump.Go(func() { texts.deliver(ctx) })
	pump.Go(func() {
		select {
		case <-client.Done():
			p.Send(ended{})
		case <-ctx.Done():
		}
	})
	if _, err := client.Initialize(ctx, editor.InitializeParams{
		Client: editor.Implementation{Name: "pollux review", Version: cfg.Version}, Diff: true,
	}); err != nil {
		cancel()
		pump.Wait()
		return err
	}
	if cfg.Once {
		if waiting, err := client.Diffs(ctx); err == nil && len(waiting) == 0 {
			inbox.Put(none{})
		}
	}
	_, err = p.Run()
	cancel()
	pump.Wait()
	switch {
	case len(texts.kept) > 0:
		return fmt.Errorf("the text that you wrote is in %s: its change was decided on meanwhile", strings.Join(texts.kept, ", "))
	case m.gone:
		return ErrEnded
	case err == nil && cfg.Once && m.left:
		return ErrLeft
	case errors.Is(err, tea.ErrProgramKilled), errors.Is(err, tea.ErrInterrupted):
		return nil
	}
	return err
}

// texts are the texts of the diffs as they are now. The program's loop stands
// still while the user's editor runs; the companion wants answers all the
// same. What the user made of them reaches the companion in order.
type texts struct {
	client *editor.Client
	wake   outbox.Signal

	mu     sync.Mutex
	byID   map[string]string
	unsent []string // IDs
	kept   []string // files with texts of the user's that have no diff any more

	sending sync.Mutex
}

func newTexts() *texts {
	return &texts{byID: make(map[string]string), wake: outbox.NewSignal()}
}

// set is the companion's word.
func (t *texts) set(id, text string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.byID[id] = text
}

// edit is the user's, for a diff that waits still; it reports whether it does.
func (t *texts) edit(id, text string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, waits := t.byID[id]; !waits {
		return false
	}
	t.byID[id] = text
	t.unsent = append(t.unsent, id)
	t.wake.Set()
	return true
}

// keep remembers a file with a text that could not be edited in.
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

// flush returns when the companion has been told of all edits.
func (t *texts) flush(ctx context.Context) {
	t.sending.Lock()
	defer t.sending.Unlock()
	t.mu.Lock()
	ids, told := t.unsent, make(map[string]string)
	t.unsent = nil
	for _, id := range ids {
		if text, waits := t.byID[id]; waits {
			told[id] = text
		}
	}
	t.mu.Unlock()
	for id, text := range told {
		t.client.Edit(ctx, id, text)
	}
}

func (t *texts) deliver(ctx context.Context) {
	for {
		select {
		case <-t.wake:
			t.flush(ctx)
		case <-ctx.Done():
			return
		}
	}
}

func (t *texts) take(id string) *string {
	t.mu.Lock()
	defer t.mu.Unlock()
	text, ok := t.byID[id]
	if !ok {
		return nil
	}
	delete(t.byID, id)
	return &text
}

// What the loop is told.
type (
	opened  editor.Diff
	closed  editor.DiffClose
	changed editor.DiffChange
	clis    int
	said    struct{ level, text string }
	ended   struct{}
	// rested says that no key was pressed for a part of the time that settles
	// what is in view: how often that time has started, and which part it is.
	rested struct{ looks, part int }
	// none says that there is nothing to wait for.
	none struct{}
	// decided is the companion's answer to an accept or reject.
	decided struct {
		id     string
		result editor.DiffAcceptResult
		err    error
	}
	// edited is what the user's editor left, and what there is to say of it.
	edited struct{ id, text, problem string }
)
