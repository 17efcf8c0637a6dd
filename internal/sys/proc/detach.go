package proc

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
)

// StartDetached starts a command that outlives this process and its terminal, and returns
// the command to wait for. Its standard streams must be files (or nil).
func StartDetached(cmd *exec.Cmd) (*exec.Cmd, error) { return startDetached(cmd) }

// StartReporting does what [StartDetached] does, and waits for the first line that the command
// prints. It returns that line, without the spaces around it, and what the command prints
// later. If the context ends first, the error is its [context.Cause]; the command keeps
// running.
func StartReporting(ctx context.Context, cmd *exec.Cmd) (line string, rest io.ReadCloser, err error) {
	out, in, err := os.Pipe()
	if err != nil {
		return "", nil, err
	}
	cmd.Stdout = in
	cmd, err = StartDetached(cmd)
	in.Close()
	if err != nil {
		out.Close()
		return "", nil, err
	}
	go cmd.Wait()
	defer context.AfterFunc(ctx, func() { out.Close() })()
	r := bufio.NewReader(out)
	line, err = r.ReadString('\n')
	if line = strings.TrimSpace(line); line != "" {
		return line, struct {
			io.Reader
			io.Closer
		}{r, out}, nil
	}
	out.Close()
	if ctx.Err() != nil {
		return "", nil, context.Cause(ctx)
	}
	return "", nil, fmt.Errorf("it ended before it was ready: %w", err)
}

// HideConsole keeps a command that has not started from opening a window. On Windows, a
// process without a console would open one for each program that it starts.
func HideConsole(cmd *exec.Cmd) { hideConsole(cmd) }
