// Package shell runs the user's own commands, browser and notifications, and writes commands
// for the user to type.
package shell

import "os/exec"

// Command returns a command that runs the line in the system's shell.
func Command(line string) *exec.Cmd { return shell(line) }
