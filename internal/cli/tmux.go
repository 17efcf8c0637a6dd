package cli

import (
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"pollux/internal/editor"
	"pollux/internal/ide"
)

// Where `pollux run` shows the review.
const (
	reviewBrowser = "browser"
	reviewSplit   = "split"
	reviewPopup   = "popup"
	reviewNone    = "none"
)

// reviewFlag adds the flag that says where; the function is its checked value.
func reviewFlag(cmd *cobra.Command) func() (string, error) {
	where := cmd.Flags().String("review", reviewBrowser, "where changes are shown: browser; in tmux split or popup; none")
	noBrowser := cmd.Flags().Bool("no-browser", false, "do not open the review page, only print its link")
	return func() (string, error) {
		wrong := func(text string) (string, error) { return "", usageError{errors.New(text), cmd.CommandPath()} }
		switch *where {
		case reviewSplit, reviewPopup:
			if os.Getenv("TMUX") == "" {
				return wrong("--review " + *where + " needs tmux: start this inside it")
			}
		case reviewBrowser:
			if *noBrowser {
				return reviewNone, nil
			}
		case reviewNone:
		default:
			return wrong("unknown --review " + *where + ": use browser, split, popup or none")
		}
		return *where, nil
	}
}

// reviewIn opens the review in tmux: a pane beside for as long as the
// companion runs, or a popup whenever something waits. It returns the end.
func reviewIn(where string, h *ide.Host) (stop func(), err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	socket := h.Env()[editor.EnvSocket]
	if socket == "" {
		return nil, errors.New("the companion has no socket: set POLLUX_RUNTIME_DIR to a short path of your own")
	}
	if where == reviewSplit {
		out, err := exec.Command("tmux", "split-window", "-h", "-d", self, "review", "--socket", socket).CombinedOutput()
		if err != nil {
			return nil, errors.New("tmux cannot split the window: " + string(out))
		}
		return func() {}, nil // it ends with the companion
	}
	p := &popups{argv: []string{"display-popup", "-E", "-w", "95%", "-h", "90%", self, "review", "--once", "--socket", socket}, waiting: make(map[string]bool), done: make(chan struct{})}
	mine, theirs := net.Pipe()
	p.work.Go(func() { h.Companion.Attach(theirs) })
	client := editor.NewClient(mine, editor.Handler{DiffOpen: p.show, DiffClose: p.forget})
	ctx, cancel := context.WithTimeout(context.Background(), askWithin)
	defer cancel()
	if _, err := client.Initialize(ctx, editor.InitializeParams{Client: editor.Implementation{Name: "tmux popup", Version: version()}, Diff: true}); err != nil {
		client.Close()
		p.work.Wait()
		return nil, err
	}
	return func() {
		client.Close()
		p.end()
	}, nil
}

// popups opens a popup when something waits.
type popups struct {
	argv []string // tmux's
	work sync.WaitGroup
	done chan struct{} // closed by end

	mu      sync.Mutex
	running *exec.Cmd
	waiting map[string]bool // by diff's ID
	fresh   bool            // one came after the popup that runs was started
	told    bool            // the user knows that there is no popup
	ending  bool
}

func (p *popups) show(d editor.Diff) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.waiting[d.ID], p.fresh, p.told = true, true, false
	return p.openLocked()
}

func (p *popups) forget(d editor.DiffClose) *string {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.waiting, d.ID)
	return nil
}

func (p *popups) openLocked() error {
	if p.running != nil || p.ending {
		return nil // it shows what comes, too
	}
	cmd := exec.Command("tmux", p.argv...)
	if err := cmd.Start(); err != nil {
		return err
	}
	p.running, p.fresh = cmd, false
	p.work.Go(func() {
		cmd.Wait()
		p.mu.Lock()
		defer p.mu.Unlock()
		p.running = nil
		switch {
		case p.ending || len(p.waiting) == 0 || cmd.ProcessState.ExitCode() == exitLeft:
		case p.fresh: // it came when the popup was about to end
			p.openLocked()
		default:
			// Another popup is open, no terminal is attached, or this tmux has
			// no popups.
			if !p.told {
				exec.Command("tmux", "display-message", "pollux: a change waits: `pollux review` shows it").Run()
			}
			p.told = true
			p.work.Go(p.later)
		}
	})
	return nil
}

// later tries again.
func (p *popups) later() {
	select {
	case <-time.After(popupAgain):
	case <-p.done:
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.waiting) > 0 {
		p.openLocked()
	}
}

// popupAgain is how long after tmux has shown no popup it is asked again.
const popupAgain = time.Second

// end closes the popup, and returns when all is done.
func (p *popups) end() {
	p.mu.Lock()
	p.ending = true
	close(p.done)
	if p.running != nil {
		exec.Command("tmux", "display-popup", "-C").Run()
		p.running.Process.Kill()
	}
	p.mu.Unlock()
	p.work.Wait()
}
