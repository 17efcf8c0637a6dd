package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"pollux/internal/agent/shared"
	"pollux/internal/bridge"
	"pollux/internal/config"
	"pollux/internal/paths"
	"pollux/internal/sys/disk"
	"pollux/internal/sys/sock"
)

// openHistory opens the history of conversations, unless the user keeps none.
func (a *asking) openHistory() error {
	v := loadSettings()
	if err := v.ErrFor(func(s config.Setting) bool { return s.Table() == "ask" }); err != nil {
		return err
	}
	if !v.Switch("ask.history") {
		if a.resume || a.in.SessionID != "" {
			return fmt.Errorf("%s turns the history off, so no conversation is kept: turn it on to continue one",
				v.Origin("ask.history"))
		}
		return nil
	}
	state, err := disk.StateDir()
	if err != nil {
		return err
	}
	a.history = bridge.NewHistory(filepath.Join(state, "ask"), func(err error) {
		say(a.streams.Err, "the conversation was not kept, so --continue will not find it: %s", err)
	})
	return nil
}

// find finds the conversation to continue. One of another bridge is copied: if it were
// continued as it is, it would end with this process.
func (a *asking) find(ctx context.Context, cfg bridge.Config) error {
	id := a.in.SessionID
	if a.resume {
		dir := a.in.WorkingDirectory
		last, err := a.history.Last(dir)
		if err != nil {
			return fmt.Errorf("the last conversation cannot be looked up (%w): try again, or ask without --continue", err)
		}
		if a.in.SessionID = last; last == "" {
			if dir == "" {
				dir, _ = os.Getwd()
			}
			return fmt.Errorf("there is no conversation to continue in %s: ask without --continue to start one", paths.Short(dir))
		}
		return nil
	}
	if id == "" {
		return nil
	}
	known, err := a.history.Has(id)
	if known {
		return nil
	}
	var data []byte
	if err == nil {
		data, err = a.pooled(ctx, cfg, id)
	}
	switch {
	case ctx.Err() != nil:
		return interrupted
	case err != nil:
		return fmt.Errorf("the conversation %q cannot be looked up (%w): try again, or ask without --session", id, err)
	case data == nil:
		return fmt.Errorf("there is no conversation %q: its ID is the sessionId of an answer, in `pollux ask --json` "+
			"or in a session of the pool that is still running", id)
	}
	copied, err := a.history.Add(data)
	if err != nil {
		return err
	}
	a.in.SessionID = copied
	say(a.streams.Err, "this continues a copy of the conversation: the other session does not see it")
	return nil
}

// pooled returns a conversation of another bridge, or nil. It asks the pool that the flags
// select or, without them, the one on this machine, which it does not start.
func (a *asking) pooled(ctx context.Context, cfg bridge.Config, id string) ([]byte, error) {
	if a.there.away() {
		runner, err := a.there.open(cfg)
		if err != nil {
			return nil, err
		}
		defer runner.Close()
		return runner.(*shared.Client).Kept(ctx, id, 0)
	}
	path, err := shared.SocketPath(build())
	if err != nil {
		return nil, err
	}
	h := hello(cfg)
	client := shared.NewClient(shared.Config{Hello: &h, Log: cfg.Log, Connect: func(ctx context.Context) (io.ReadWriteCloser, error) {
		return sock.Dial(ctx, path)
	}})
	defer client.Close()
	data, err := client.Kept(ctx, id, 0)
	if shared.Ended(err) { // there is no pool
		return nil, nil
	}
	return data, err
}
