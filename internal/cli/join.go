package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"pollux/internal/editor"
	"pollux/internal/ide"
	"pollux/internal/sys/proc"
	"pollux/internal/termtext"
)

// joined is the client name of a `pollux run` that uses the companion of another one.
const joined = "pollux run"

// otherRun returns the socket of the companion that another `pollux run`, or `pollux ide
// --standalone`, has started for the working directory, or "". It also returns the name of an
// editor that has a companion for the directory, or "", and the directory above it in which
// another `pollux run` works, or "".
func otherRun(ctx context.Context) (socket, inEditor, above string) {
	all, dir, err := editor.ListFor(ctx, self(), "")
	if err != nil {
		return "", "", "" // the new companion reports it
	}
	for _, c := range all {
		switch {
		case c.Stopped:
		case c.Editor != editor.NoEditor:
			inEditor = cmp.Or(inEditor, termtext.Line(c.Editor.DisplayName, 40))
		case slices.Equal(c.Roots, []string{dir}):
			socket = cmp.Or(socket, c.Socket)
		case len(c.Roots) == 1:
			above = cmp.Or(above, c.Roots[0])
		}
	}
	return socket, inEditor, above
}

// A reached is a companion as `pollux run` uses it.
type reached struct {
	Env   map[string]string // leads the agent to it, and other programs to its socket
	Notes []string
	Link  string // opens the review page once; "" if there is none
	// Editor is the editor that shows the changes; "" if only the page does.
	Editor string
}

// reach returns an error if the agent with that command cannot connect.
func reach(h *ide.Host, agent string) (reached, error) {
	if err := h.Failure(agent); err != nil {
		return reached{}, err
	}
	link, _ := h.Link()
	return reached{Env: h.Env(), Notes: h.Notes(), Link: link}, nil
}

// startCompanion starts the companion of `pollux run` as a background process. It runs until
// leave is called or this process ends, and longer while another `pollux run` uses it: see
// [serveRuns]. agent is the command of the agent, and args are the user's flags for the
// companion.
func startCompanion(ctx context.Context, streams IO, agent string, args []string) (c reached, leave func(), err error) {
	exe, err := os.Executable()
	if err != nil {
		return c, nil, err
	}
	in, held, err := os.Pipe()
	if err != nil {
		return c, nil, err
	}
	cmd := exec.Command(exe, append([]string{"ide", "--standalone", "--run", agent}, args...)...)
	cmd.Stdin = in
	line, rest, err := proc.StartReporting(ctx, cmd)
	in.Close()
	if err != nil {
		held.Close()
		return c, nil, fmt.Errorf("the companion could not be started: %w", err)
	}
	if json.Unmarshal([]byte(line), &c) != nil {
		held.Close()
		more, _ := io.ReadAll(rest)
		rest.Close()
		return c, nil, errors.New(strings.TrimSpace(line + "\n" + string(more)))
	}
	output := make(chan []byte, 1)
	expect := noticeEnd(func() {
		data, _ := io.ReadAll(rest)
		output <- data
	}, func() { showEnded(ctx, streams, ide.LaunchOf(agent).Title, false) })
	return c, func() {
		expect()
		defer proc.LeaveInterruptToChild()() // it is about to end
		if len(output) > 0 {
			say(streams.Err, "the companion ended before the agent: see `pollux log`")
		}
		fmt.Fprintln(held, "left")
		held.Close()
		defer time.AfterFunc(leaveTimeout, func() { rest.Close() }).Stop()
		streams.Err.Write(<-output)
		rest.Close()
	}, nil
}

// noticeEnd calls ended when wait has returned, unless expect was called before.
func noticeEnd(wait, ended func()) (expect func()) {
	var expected atomic.Bool
	go func() {
		if wait(); !expected.Load() {
			ended()
		}
	}()
	return func() { expected.Store(true) }
}

// noticeLosses calls lost each time that the agent has lost a remote companion, until stop is
// called. The agent may connect again in between. The connection is lost before a companion
// counts as gone, unless the agent was not connected.
func noticeLosses(p published, lost func()) (stop func()) {
	done := make(chan struct{})
	go func() {
		for noticed := false; ; noticed = true {
			select {
			case <-p.lost:
				lost()
			case <-p.gone:
				if !noticed {
					lost()
				}
				return
			case <-done:
				return
			}
		}
	}()
	return func() { close(done) }
}

// redrawTimeout is how long an agent that has lost its companion may take to say so.
const redrawTimeout = time.Second

// showEnded says that the companion has ended, while the agent with that name uses the terminal.
// An attached agent may connect again: an editor starts another companion, and a network works
// again. Without tmux and a desktop, the text disturbs the agent's screen: otherwise the user would
// not notice that there are no reviews any more.
func showEnded(ctx context.Context, streams IO, agent string, attached bool) {
	text := fmt.Sprintf("the companion has ended, so the changes of %s have no review: end it, then start it again with pollux run", agent)
	if attached {
		text = fmt.Sprintf("%s has lost its companion, so its changes may have no review: type /ide in it (Ctrl-C first if it takes no answer to a change), or end it and start it again with pollux run --attach", agent)
	}
	if !show(ctx, text) {
		select { // the agent draws its screen again now, over this text
		case <-time.After(redrawTimeout):
		case <-ctx.Done():
		}
		fmt.Fprintf(streams.Err, "\r\npollux: %s\r\n", text) // the agent may have made the terminal raw
	}
}

// leaveTimeout limits how long [startCompanion] waits until the companion has ended.
const leaveTimeout = 10 * time.Second

// serveRuns runs the companion that [startCompanion] has started. Its first line of output is
// a [reached] in JSON. The end of the input says that the first `pollux run` has ended: what
// this companion prints then is for that terminal, until it closes its output. If there was no
// input, `pollux run` was killed, and its agent may be left. report prints how many warnings
// there were.
func serveRuns(ctx context.Context, streams IO, agent string, cfg ide.Config, report func(io.Writer)) error {
	cfg.Unconnected = ide.LaunchOf(agent).Unconnected()
	group := proc.GroupOf(os.Getppid())
	return guard(cfg, func(h *ide.Host) error {
		c, err := reach(h, agent)
		if err != nil {
			return err
		}
		if err := json.NewEncoder(streams.Out).Encode(c); err != nil {
			return err
		}
		err = await(ctx, func() error {
			if n, _ := io.Copy(io.Discard, streams.In); n == 0 {
				return errKilled
			}
			return nil
		})
		if errors.Is(err, errKilled) {
			group.End(editor.EnvSocket+"="+h.Env()[editor.EnvSocket], killDelay)
		}
		left := h.Companion.Retire(joined)
		if left != nil {
			say(streams.Out, "the companion keeps running for the agent in another terminal, and ends with it")
		}
		report(streams.Out)
		if out, ok := streams.Out.(io.Closer); ok && left != nil {
			out.Close()
		}
		for left != nil && ctx.Err() == nil {
			select {
			case <-left:
			case <-ctx.Done():
			}
			left = h.Companion.Retire(joined)
		}
		return nil
	})
}

// errKilled means that a `pollux run` has not said that it leaves.
var errKilled = errors.New("pollux run was killed")

// hold keeps a companion running until close is called. It returns an error if the companion
// is about to end, and calls ended if it ends before close.
func hold(ctx context.Context, socket string, ended func()) (close func(), err error) {
	ctx, cancel := context.WithTimeout(ctx, editor.AnswerTimeout)
	defer cancel()
	c, _, err := editor.Open(ctx, socket, editor.Implementation{Name: joined, Version: version()})
	if err != nil {
		return nil, err
	}
	if _, err = c.Status(ctx); err != nil { // answered only once the companion counts this client
		c.Close()
		return nil, err
	}
	expect := noticeEnd(func() { <-c.Done() }, ended)
	return func() { expect(); c.Close() }, nil
}

// joinCompanion returns the companion on a socket, and tells the user whose it is.
func joinCompanion(ctx context.Context, streams IO, socket string) (c reached, err error) {
	if c.Env, err = editor.AgentEnv(ctx, socket, self(), ide.EnvNames()); err != nil {
		return c, err
	}
	if st, link, err := editor.ReviewPage(ctx, socket, self()); err == nil { // the agent runs without it, too
		say(streams.Err, "connected to the companion of %s", companionName(st))
		c.Link = link.URL
		if st.Editor.Name != self().Name {
			c.Editor = st.Editor.DisplayName
		}
	}
	return c, nil
}
