package shell

import (
	"context"
	"errors"
	"os/exec"

	"pollux/internal/sys/proc"
)

const defaultEditor = "notepad"

func lineCommand(ctx context.Context, line string, args []string) (*exec.Cmd, error) {
	words := splitLine(line)
	if len(words) == 0 {
		return nil, errors.New("the command is empty")
	}
	return proc.Command(ctx, words[0], append(words[1:], args...)...)
}

func letSave(cmd *exec.Cmd) {
	cmd.Cancel = func() error { return nil }
	cmd.WaitDelay = 0
}

func splitLine(line string) []string {
	return splitWindows(line, func(program string) bool {
		_, err := exec.LookPath(program)
		return err == nil
	})
}
