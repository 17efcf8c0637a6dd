package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"pollux/internal/sys"
	"pollux/internal/termtext"
	"pollux/internal/view/tmux"
)

// readFirst tells the user of an agent that starts for the first time that Pollux has set its
// mode, and waits until the user has read what Pollux has printed, if the agent hides that. A
// file in the state directory names the agents that have started. With --attach it does not
// wait: the editor shows the changes, and may type into the agent's terminal.
func (s session) readFirst(ctx context.Context, streams IO, setsMode bool) error {
	if !s.agent.Hides && !setsMode || s.attached || !isTerminal(streams.In) || !isTerminal(streams.Err) {
		return nil
	}
	dir, err := sys.StateDir()
	if err != nil {
		return nil
	}
	file := filepath.Join(dir, "started")
	data, _ := sys.ReadFile(file, maxChoice)
	started := strings.Fields(string(data))
	if slices.Contains(started, s.agent.Name) {
		return nil
	}
	if setsMode {
		fmt.Fprintf(streams.Err, "pollux: %s starts in the mode in which it asks before it changes a file; "+
			"for its own mode, use --own-mode, or the setting run.own-mode (pollux config edit)\n", s.agent.Title)
	}
	if s.agent.Hides {
		ctx, stop := untilSignal(ctx)
		defer stop()
		fmt.Fprintf(streams.Err, "pollux: %s hides these lines; `pollux open` and `pollux status` show them again.\n"+
			"Press Enter to start it. Pollux does not wait here again. ", s.agent.Title)
		if _, err := readLine(ctx, bufio.NewReader(streams.In)); errors.Is(err, io.EOF) || ctx.Err() != nil {
			return interrupted
		}
	}
	text := strings.Join(append(started, s.agent.Name), "\n") + "\n"
	if err = sys.PrivateDir(dir); err == nil {
		err = sys.WriteFile(file, []byte(text))
	}
	if err != nil {
		fmt.Fprintf(streams.Err, "pollux: cannot remember that: %v\n", err)
	}
	return nil
}

// waitingInterval is the shortest time between two messages that a change waits.
const waitingInterval = 10 * time.Second

// waitingShower returns a function that tells the user that a change waits, where no view
// shows it: in the status line of tmux, or on the desktop. It leaves out messages that
// follow each other within [waitingInterval].
func waitingShower() func(ctx context.Context, agent, path string) {
	var mu sync.Mutex
	var last time.Time
	return func(ctx context.Context, agent, path string) {
		mu.Lock()
		soon := time.Since(last) < waitingInterval
		if !soon {
			last = time.Now()
		}
		mu.Unlock()
		if !soon {
			showWaiting(ctx, agent, path)
		}
	}
}

func showWaiting(ctx context.Context, agent, path string) {
	text := fmt.Sprintf("%s proposes a change to %s. Review it: pollux open, or pollux review",
		termtext.Line(agent, 64), termtext.Line(filepath.Base(path), 64))
	if os.Getenv("TMUX") != "" {
		tmux.Show(ctx, text)
		return
	}
	sys.Notify(ctx, "Pollux", text)
}
