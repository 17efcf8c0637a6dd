package shell

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"pollux/internal/sys/proc"
)

// OpenBrowser starts to open the URL in the user's browser. It reports false if there is
// no browser on this machine's screen. See [Browse] for what it runs.
func OpenBrowser(url string) bool { return open(url, 0) == nil }

// ErrNoBrowser reports that this machine's screen can show no browser.
var ErrNoBrowser = errors.New("no browser is available")

// browseTimeout is the time after which a command that opens a browser counts as
// successful. Some commands are the browser, and run as long as it does.
const browseTimeout = 3 * time.Second

// Browse opens the URL in the user's browser: with a command in $BROWSER or with the
// system's command. It waits for the command to end, for some seconds, and returns its
// error. The error is [ErrNoBrowser] on a machine without a screen, or at the other end
// of ssh, unless $BROWSER has a command.
func Browse(url string) error { return open(url, browseTimeout) }

func open(url string, timeout time.Duration) error {
	cmd := browser(url)
	if cmd == nil {
		return ErrNoBrowser
	}
	return browse(cmd, time.After(timeout))
}

// browse runs a command, and returns its error, or nil after the timeout.
func browse(cmd *exec.Cmd, timeout <-chan time.Time) error {
	if err := cmd.Start(); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case err := <-ended:
		return err
	case <-timeout:
		return nil
	}
}

// browser returns a command that opens the URL in the user's browser, or nil if the system
// has no such command.
func browser(url string) *exec.Cmd {
	for command := range strings.SplitSeq(os.Getenv("BROWSER"), string(os.PathListSeparator)) {
		argv := browserCommand(command, url)
		if argv == nil {
			continue
		}
		if cmd, err := proc.Command(context.Background(), argv[0], argv[1:]...); err == nil {
			proc.Detach(cmd)
			return cmd
		}
	}
	var cmd *exec.Cmd
	switch runtime.GOOS {
	case "darwin":
		cmd = exec.Command("open", url)
	case "windows":
		cmd = exec.Command("rundll32", "url.dll,FileProtocolHandler", url)
	default:
		if os.Getenv("DISPLAY") == "" && os.Getenv("WAYLAND_DISPLAY") == "" {
			return nil
		}
		cmd = exec.Command("xdg-open", url)
	}
	if os.Getenv("SSH_CONNECTION") != "" {
		return nil
	}
	proc.Detach(cmd)
	return cmd
}

// inTerminal are browsers that need the terminal, in which an agent may run.
var inTerminal = []string{"browsh", "carbonyl", "elinks", "links", "links2", "lynx", "w3m", "www-browser"}

// browserCommand returns the arguments that run one command of $BROWSER, or nil if it is
// not installed or needs a terminal. %s in the command stands for the URL, which
// otherwise is the last argument.
func browserCommand(command, url string) []string {
	argv := splitLine(command)
	if len(argv) == 0 || slices.Contains(inTerminal, strings.TrimSuffix(filepath.Base(argv[0]), ".exe")) {
		return nil
	}
	if _, err := exec.LookPath(argv[0]); err != nil {
		return nil
	}
	if !strings.Contains(command, "%s") {
		return append(argv, url)
	}
	for i, arg := range argv {
		argv[i] = strings.ReplaceAll(arg, "%s", url)
	}
	return argv
}
