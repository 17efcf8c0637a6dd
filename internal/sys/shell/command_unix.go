//go:build unix

package shell

import "os/exec"

func shell(line string) *exec.Cmd { return exec.Command("sh", "-c", line) }
