package cli

import (
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"sync"

	"github.com/spf13/cobra"

	"pollux/internal/adapter"
	"pollux/internal/companion"
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
func reviewIn(where string, c *companion.Companion) (stop func(), err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	socket := c.Env()[adapter.EnvSocket]
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
	var mu sync.Mutex
	var popup *exec.Cmd
	var ending bool
	mine, theirs := net.Pipe()
	var served sync.WaitGroup
	served.Go(func() { c.Attach(theirs) })
	show := func(adapter.Diff) error {
		mu.Lock()
		defer mu.Unlock()
		if popup != nil || ending {
			return nil // it shows what comes, too
		}
		popup = exec.Command("tmux", "display-popup", "-E", "-w", "95%", "-h", "90%", self, "review", "--once", "--socket", socket)
		cmd := popup
		if err := cmd.Start(); err != nil {
			popup = nil
			return err
		}
		served.Go(func() {
			cmd.Wait()
			mu.Lock()
			defer mu.Unlock()
			popup = nil
		})
		return nil
	}
	client := adapter.NewClient(mine, adapter.Handler{DiffOpen: show})
	ctx, cancel := context.WithTimeout(context.Background(), askWithin)
	defer cancel()
	if _, err := client.Initialize(ctx, adapter.InitializeParams{Client: adapter.Implementation{Name: "tmux popup", Version: version()}, Diff: true}); err != nil {
		client.Close()
		served.Wait()
		return nil, err
	}
	return func() {
		client.Close()
		mu.Lock()
		ending = true
		if popup != nil {
			exec.Command("tmux", "display-popup", "-C").Run()
			popup.Process.Kill()
		}
		mu.Unlock()
		served.Wait()
	}, nil
}
