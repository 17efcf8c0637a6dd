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
	args := slices.Concat([]string{"split-window", "-h", "-d"}, ownPane(), review)
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
	args := slices.Concat([]string{"display-message", "-d", strconv.FormatInt(showTime.Milliseconds(), 10)},
		ownPane(), []string{"--", strings.ReplaceAll(text, "#", "##")})
	return exec.CommandContext(ctx, "tmux", args...).Run()
}

// ownPane returns the arguments that select this process's pane. Without them, tmux takes the
// current window of its session.
func ownPane() []string {
	if pane := os.Getenv("TMUX_PANE"); pane != "" {
		return []string{"-t", pane}
	}
	return nil
}

// Popups attaches to a companion over conn as the client self, and runs the
// review command in a popup whenever a change is pending. It returns a function
// that closes the popup, detaches and waits.
func Popups(ctx context.Context, conn io.ReadWriteCloser, self editor.Implementation,
	review ...string) (stop func(), err error) {
	ctx, cancel := context.WithCancel(ctx)
	p := &popups{
		ctx: ctx, argv: append([]string{"display-popup", "-E", "-w", "95%", "-h", "90%"}, review...), pending: make(map[string]bool),
	}
	client := editor.NewClient(conn, editor.Handler{DiffOpen: p.show, DiffClose: p.forget})
	stop = func() {
		client.Close()
		p.mu.Lock()
		cancel()
		p.mu.Unlock()
		p.work.Wait()
	}
	greeting, done := context.WithTimeout(ctx, editor.AnswerTimeout)
	defer done()
	if _, err := client.Initialize(greeting, editor.InitializeParams{Client: self, Diff: true}); err != nil {
		stop()
		return nil, err
	}
	return stop, nil
}

// popups opens a popup when a change is pending.
type popups struct {
	ctx  context.Context // ends under the lock, so that no work begins after it
	argv []string        // arguments of tmux
	work sync.WaitGroup  // the popup, or the wait for the next attempt

	mu      sync.Mutex
	pending map[string]bool // by diff's ID
	running bool            // a popup is open
	fresh   bool            // a diff came after the popup was opened
	told    bool            // the user has seen the message that there is no popup
}

func (p *popups) show(d editor.Diff) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pending[d.ID], p.fresh, p.told = true, true, false
	return p.openLocked()
}

func (p *popups) forget(d editor.DiffClose) *string {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.pending, d.ID)
	return nil
}

// openLocked opens a popup for the pending diffs. An open one shows new diffs, too.
func (p *popups) openLocked() error {
	if p.running || len(p.pending) == 0 || p.ctx.Err() != nil {
		return p.ctx.Err()
	}
	cmd := exec.CommandContext(p.ctx, "tmux", p.argv...)
	cmd.Cancel = func() error {
		exec.Command("tmux", "display-popup", "-C").Run()
		return cmd.Process.Kill()
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	p.running, p.fresh = true, false
	p.work.Go(func() {
		cmd.Wait()
		p.closed(cmd.ProcessState.ExitCode())
	})
	return nil
}

// closed handles the end of a popup with an exit code.
func (p *popups) closed(code int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.running = false
	switch {
	case p.ctx.Err() != nil || len(p.pending) == 0 || code == ExitLeft:
	case p.fresh: // the diff came when the popup was about to end
		p.openLocked()
	default:
		// Another popup is open, no terminal is attached, or this version of tmux has no
		// popups.
		first := !p.told
		p.told = true
		p.work.Go(func() { p.retry(first) })
	}
}

// retry opens a popup later, and tells the user about it first if say is set.
func (p *popups) retry(say bool) {
	if say {
		const text = "pollux: a change is pending: run `pollux review` to see it"
		exec.CommandContext(p.ctx, "tmux", "display-message", text).Run()
	}
	if pause(p.ctx, retryDelay) == nil {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.openLocked()
	}
}
