// Package tmux shows the review of a companion in tmux: in a pane next to the
// agent, or in a popup whenever a change is pending. Both run `pollux review`.
package tmux

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"pollux/internal/editor"
)

// ExitLeft is the exit code of a `pollux review --once` that the user left
// while a change was pending.
const ExitLeft = 3

// retryDelay is the time until the next attempt to open a popup that tmux did not
// show.
const retryDelay = time.Second

// ownVariables are the variables that the review takes from the shell that started
// Pollux: tmux would give it the variables of its server. A command line is visible
// to other users, so the list has only names whose values are no secrets.
var ownVariables = []string{
	"PATH", "TMPDIR", "VISUAL", "EDITOR", "SHELL", "HOME", "NO_COLOR", "COLORTERM",
	"LANG", "LC_ALL", "LC_CTYPE", "LC_MESSAGES", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME",
	"XDG_CACHE_HOME", "XDG_RUNTIME_DIR", "DISPLAY", "WAYLAND_DISPLAY", "VIMINIT", "MYVIMRC", "NVIM_APPNAME", "VIRTUAL_ENV",
	"POLLUX_STATE_DIR", "POLLUX_RUNTIME_DIR",
}

// InEnvironment returns the command that runs a review with the variables of env,
// KEY=VALUE, that matter to it and to the user's editor.
func InEnvironment(env []string, review ...string) []string {
	values := make(map[string]string)
	for _, kv := range env {
		name, value, _ := strings.Cut(kv, "=")
		values[name] = value
	}
	argv := []string{"env"}
	var set []string
	for _, name := range ownVariables {
		if value, ok := values[name]; ok {
			set = append(set, name+"="+value)
		} else {
			argv = append(argv, "-u", name)
		}
	}
	return slices.Concat(argv, set, review)
}

// Split runs the review command in a new pane. The pane closes when the command
// ends.
func Split(review ...string) error {
	args := append([]string{"split-window", "-h", "-d"}, review...)
	if out, err := exec.Command("tmux", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("tmux cannot split the window (%s): enlarge it, or use --review popup", bytes.TrimSpace(out))
	}
	return nil
}

// showTime is how long [Show] shows its text.
const showTime = 10 * time.Second

// Show shows a text in the status line of the terminal that has this process's pane, until
// the user presses a key.
func Show(ctx context.Context, text string) error {
	args := []string{"display-message", "-d", strconv.FormatInt(showTime.Milliseconds(), 10)}
	if pane := os.Getenv("TMUX_PANE"); pane != "" {
		args = append(args, "-t", pane)
	}
	return exec.CommandContext(ctx, "tmux", append(args, "--", strings.ReplaceAll(text, "#", "##"))...).Run()
}

// Popups attaches to a companion over conn as the client self, and runs the
// review command in a popup whenever a change is pending. It returns a function
// that closes the popup, detaches and waits.
func Popups(ctx context.Context, conn io.ReadWriteCloser, self editor.Implementation,
	review ...string) (stop func(), err error) {
	ctx, cancel := context.WithCancel(ctx)
	p := &popups{
		argv:   append([]string{"display-popup", "-E", "-w", "95%", "-h", "90%"}, review...),
		opened: make(chan opened),
		closed: make(chan string),
	}
	client := editor.NewClient(conn, editor.Handler{
		DiffOpen:  func(d editor.Diff) error { return p.show(ctx, d.ID) },
		DiffClose: func(d editor.DiffClose) *string { p.forget(ctx, d.ID); return nil },
	})
	var work sync.WaitGroup
	work.Go(func() { p.run(ctx) })
	stop = func() {
		client.Close()
		cancel()
		work.Wait()
	}
	greeting, done := context.WithTimeout(ctx, editor.AnswerTimeout)
	defer done()
	if _, err := client.Initialize(greeting, editor.InitializeParams{Client: self, Diff: true}); err != nil {
		stop()
		return nil, err
	}
	return stop, nil
}

// popups opens a popup when a change is pending. Its state belongs to the
// goroutine of run.
type popups struct {
	argv   []string // arguments of tmux
	opened chan opened
	closed chan string // a diff's ID
}

// An opened reports a new diff. The goroutine of run answers on shown.
type opened struct {
	id    string
	shown chan error
}

func (p *popups) show(ctx context.Context, id string) error {
	o := opened{id, make(chan error, 1)}
	select {
	case p.opened <- o:
		return <-o.shown
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (p *popups) forget(ctx context.Context, id string) {
	select {
	case p.closed <- id:
	case <-ctx.Done():
	}
}

// run opens popups until ctx ends, then closes the popup and returns.
func (p *popups) run(ctx context.Context) {
	var (
		pending = make(map[string]bool) // by diff's ID
		running *exec.Cmd
		exited  chan struct{}    // closed when running has ended
		retry   <-chan time.Time // nil unless a popup was not shown
		fresh   bool             // a diff came after running was started
		told    bool             // the user has seen the message that there is no popup
	)
	open := func() error {
		if running != nil {
			return nil // it shows new diffs too
		}
		cmd := exec.Command("tmux", p.argv...)
		if err := cmd.Start(); err != nil {
			return err
		}
		running, exited, fresh = cmd, make(chan struct{}), false
		go func(exited chan struct{}) {
			cmd.Wait()
			close(exited)
		}(exited)
		return nil
	}
	for {
		select {
		case o := <-p.opened:
			pending[o.id], fresh, told = true, true, false
			o.shown <- open()
		case id := <-p.closed:
			delete(pending, id)
		case <-exited:
			code := running.ProcessState.ExitCode()
			running, exited = nil, nil
			switch {
			case len(pending) == 0 || code == ExitLeft:
			case fresh: // the diff came when the popup was about to end
				open()
			default:
				// Another popup is open, no terminal is attached, or this
				// version of tmux has no popups.
				if !told {
					const text = "pollux: a change is pending: run `pollux review` to see it"
					exec.CommandContext(ctx, "tmux", "display-message", text).Run()
				}
				told = true
				retry = time.After(retryDelay)
			}
		case <-retry:
			retry = nil
			if len(pending) > 0 {
				open()
			}
		case <-ctx.Done():
			if running != nil {
				exec.Command("tmux", "display-popup", "-C").Run()
				running.Process.Kill()
				<-exited
			}
			return
		}
	}
}
