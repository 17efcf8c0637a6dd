//go:build unix

package proc

import (
	"context"
	"os/exec"
)

func command(ctx context.Context, program string, args []string) (*exec.Cmd, error) {
	return exec.CommandContext(ctx, program, args...), nil
}

func runsInShell(*exec.Cmd) bool { return false }

func direct(path string, _ func(string) (string, error)) ([]string, error) {
	return []string{path}, nil
}
