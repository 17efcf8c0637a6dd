//go:build unix

package sys

import (
	"context"
	"os/exec"
	"strings"
)

const (
	defaultEditor = "vi"
	defaultPager  = "less"
)

func lineCommand(ctx context.Context, line string, args []string) (*exec.Cmd, error) {
	if len(args) > 0 {
		line += ` "$@"`
	}
	return exec.CommandContext(ctx, "sh", append([]string{"-c", line, "sh"}, args...)...), nil
}

func splitLine(line string) []string { return strings.Fields(line) }
