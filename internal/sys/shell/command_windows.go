package shell

import (
	"os/exec"
	"syscall"
)

// shell passes the line on unchanged: cmd has different rules for quotes.
func shell(line string) *exec.Cmd {
	cmd := exec.Command("cmd")
	cmd.SysProcAttr = &syscall.SysProcAttr{CmdLine: `cmd /d /s /c "` + line + `"`}
	return cmd
}
