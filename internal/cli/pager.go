package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"time"

	"pollux/internal/sys/proc"
	"pollux/internal/sys/shell"
)

// pagerTimeout limits how long a pager may run after it was asked to end.
const pagerTimeout = 5 * time.Second

// fullTerminal reports whether a stream is a terminal with a cursor and colours.
func fullTerminal(stream any) bool {
	name := os.Getenv("TERM")
	return isTerminal(stream) && name != "" && name != "dumb"
}

// coloured reports whether a stream shows colours and the user wants them.
func coloured(stream any) bool { return fullTerminal(stream) && os.Getenv("NO_COLOR") == "" }

// pager returns the command that shows long output, as git chooses it: $PAGER, or less if it
// is installed. It returns "" for none.
func pager() string {
	command, set := os.LookupEnv("PAGER")
	if !set {
		const less = "less" // not Windows' own `more`, which does not expect UTF-8
		if _, err := exec.LookPath(less); err == nil {
			command = less
		}
	}
	if command = strings.TrimSpace(command); command == "cat" {
		return ""
	}
	return command
}

// page shows a text. On a terminal it goes through the user's pager, unless never is set.
func page(ctx context.Context, streams IO, never bool, text string) error {
	command := pager()
	// A console of Windows has no TERM.
	console := runtime.GOOS == "windows" && os.Getenv("TERM") == "" && isTerminal(streams.Out)
	paged := fullTerminal(streams.Out) || console
	if never || command == "" || !paged {
		_, err := io.WriteString(streams.Out, text)
		return err
	}
	ctx, stop := untilTerminated(ctx)
	defer stop()
	defer proc.LeaveInterruptToChild()()
	cmd, err := shell.LineCommand(ctx, command)
	if err != nil {
		return fmt.Errorf("the pager %q cannot start (%w): set PAGER to another command, or add --no-pager", command, err)
	}
	cmd.Cancel = func() error { return proc.SignalTree(cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = pagerTimeout
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(text), streams.Out, streams.Err
	// As git: quit if the text fits on the screen, pass colours on, keep the screen.
	cmd.Env = append(os.Environ(), "LESS="+cmp.Or(os.Getenv("LESS"), "FRX"), "LV="+cmp.Or(os.Getenv("LV"), "-c"))
	err = cmd.Run()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && ctx.Err() == nil {
		return fmt.Errorf("the pager %q failed (%w): set PAGER to another command, or add --no-pager", command, err)
	}
	return err
}
