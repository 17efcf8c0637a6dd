// Package tui is the review in a terminal: a client of the adapter protocol,
// as an editor's plugin is, for ssh and for a pane beside the CLI.
//
// It shows one diff at a time, what differs with a few lines around it: side
// by side where there is room, else one below the other. A hunk that the user
// took back stays in sight, to be taken again. Free editing is left to the
// user's editor. Leaving decides nothing.
package tui

import (
	"context"
	"errors"
	"io"
	"sync"

	tea "charm.land/bubbletea/v2"

	"pollux/internal/adapter"
)

// A Config says what to show and where.
type Config struct {
	In  io.Reader
	Out io.Writer
	Env []string
	// Dial connects to the companion.
	Dial func(adapter.Handler) (*adapter.Client, error)
	// Version is this program's.
	Version string
	// Editor is the shell command, given a file, for free editing.
	Editor string
	// Once ends it when nothing waits any more.
	Once bool
	// Options are further ones of the program's, for tests.
	Options []tea.ProgramOption
}

// ErrEnded means that the companion has ended.
var ErrEnded = errors.New("the companion has ended")

// Run reviews until the user leaves, the context ends, or the companion does,
// which is [ErrEnded].
func Run(ctx context.Context, cfg Config) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	texts := &texts{byID: make(map[string]string)}
	inbox := &inbox{wake: make(chan struct{}, 1)}
	client, err := cfg.Dial(adapter.Handler{
		DiffOpen: func(d adapter.Diff) error {
			texts.set(d.ID, d.Text())
			inbox.put(opened(d))
			return nil
		},
		DiffClose: func(c adapter.DiffClose) *string {
			inbox.put(closed(c))
			return texts.take(c.ID)
		},
		DiffChanged: func(c adapter.DiffChange) {
			if c.Content != nil {
				texts.set(c.ID, *c.Content)
			}
			inbox.put(changed(c))
		},
		Clients: func(c adapter.Clients) { inbox.put(clis(len(c.Clients))) },
		Message: func(m adapter.Message) { inbox.put(said(m.Text)) },
	})
	if err != nil {
		return err
	}
	defer client.Close()
	m := &model{ctx: ctx, cfg: cfg, client: client, texts: texts, width: 80, height: 24}
	p := tea.NewProgram(m, append([]tea.ProgramOption{
		tea.WithContext(ctx), tea.WithInput(cfg.In), tea.WithOutput(cfg.Out), tea.WithEnvironment(cfg.Env),
	}, cfg.Options...)...)
	var pump sync.WaitGroup
	pump.Go(func() { inbox.deliver(ctx, p.Send) })
	pump.Go(func() {
		select {
		case <-client.Done():
			p.Send(ended{})
		case <-ctx.Done():
		}
	})
	if _, err := client.Initialize(ctx, adapter.InitializeParams{
		Client: adapter.Implementation{Name: "pollux review", Version: cfg.Version}, Diff: true,
	}); err != nil {
		cancel()
		pump.Wait()
		return err
	}
	_, err = p.Run()
	cancel()
	pump.Wait()
	switch {
	case m.gone:
		return ErrEnded
	case errors.Is(err, tea.ErrProgramKilled), errors.Is(err, tea.ErrInterrupted):
		return nil
	}
	return err
}

// texts are the texts of the diffs as they are now. The program's loop stands
// still while the user's editor runs; the companion wants answers all the
// same.
type texts struct {
	mu   sync.Mutex
	byID map[string]string
}

func (t *texts) set(id, text string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.byID[id] = text
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

// An inbox carries what the companion says to the program's loop, without
// making the connection wait for it.
type inbox struct {
	mu    sync.Mutex
	queue []tea.Msg
	wake  chan struct{}
}

func (i *inbox) put(msg tea.Msg) {
	i.mu.Lock()
	i.queue = append(i.queue, msg)
	i.mu.Unlock()
	select {
	case i.wake <- struct{}{}:
	default:
	}
}

func (i *inbox) deliver(ctx context.Context, send func(tea.Msg)) {
	for {
		i.mu.Lock()
		queue := i.queue
		i.queue = nil
		i.mu.Unlock()
		for _, msg := range queue {
			send(msg)
		}
		select {
		case <-i.wake:
		case <-ctx.Done():
			return
		}
	}
}

// What the loop is told.
type (
	opened  adapter.Diff
	closed  adapter.DiffClose
	changed adapter.DiffChange
	clis    int
	said    string
	ended   struct{}
	// decided is the companion's answer to an accept or reject.
	decided struct {
		id     string
		result adapter.DiffAcceptResult
		err    error
	}
	// edited is what the user's editor left.
	edited struct {
		id, path, text string
		err            error
	}
)
