//go:build unix

package shell

import (
	"context"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"pollux/internal/sys/proc"
)

const defaultEditor = "vi"

func lineCommand(ctx context.Context, line string, args []string) (*exec.Cmd, error) {
	if len(args) > 0 {
		line += ` "$@"`
	}
	return exec.CommandContext(ctx, "sh", append([]string{"-c", line, "sh"}, args...)...), nil
}

// saveTimeout limits how long an editor may run after it was asked to end.
const saveTimeout = 10 * time.Second

func letSave(cmd *exec.Cmd) {
	cmd.Cancel = func() error { return proc.SignalTree(cmd.Process.Pid, syscall.SIGHUP) }
	cmd.WaitDelay = saveTimeout
}

func splitLine(line string) []string { return strings.Fields(line) }
