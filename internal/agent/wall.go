package agent

import (
	"os/exec"

	"pollux/internal/wall"
)

// A Wall says whether agents run behind a wall in the kernel, which keeps them from changing
// files: see package wall. The zero value means no wall.
type Wall struct {
	// Mode is [WallAuto], [WallRequired] or [WallOff].
	Mode string
	// Launcher is the path of Pollux.
	Launcher string
	// Missing is why this system has no wall, or nil.
	Missing error
}

// Modes of a [Wall].
const (
	WallAuto     = "auto"    // a wall where the kernel has one
	WallRequired = "require" // no agent runs without one
	WallOff      = "off"
)

// Stands reports whether agents run behind the wall.
func (w Wall) Stands() bool {
	return w.Missing == nil && (w.Mode == WallAuto || w.Mode == WallRequired)
}

// String says whether the wall stands, and if not, why.
func (w Wall) String() string {
	switch {
	case w.Stands():
		return "the kernel keeps agents from changing files"
	case w.Missing != nil && w.Mode != WallOff:
		return "the kernel does not keep agents from changing files: " + w.Missing.Error()
	}
	off := "the kernel does not keep agents from changing files: bridge.wall is off"
	if w.Missing == nil {
		off += ", except for agents that config.toml adds"
	}
	return off
}

// Check returns an error of kind [Unenforceable] if a wall is required, and the agent cannot run behind one.
func (w Wall) Check(row *Agent) error {
	why := ""
	switch {
	case w.Mode != WallRequired && !row.Custom:
	case w.Missing != nil:
		why = w.Missing.Error()
	case row.Sandboxed:
		why = "it does not start behind the wall"
	case w.Launcher == "" && row.Custom:
		why = "there is no launcher"
	}
	if why == "" {
		return nil
	}
	err := row.Error(Unenforceable, why)
	err.Remedy = Remedy{
		What: "the kernel cannot keep " + row.DisplayName + " from changing files, which bridge.wall requires",
		Next: "set bridge.wall to \"auto\" to ask without that",
	}
	if row.Custom {
		err.Remedy = Remedy{
			What: "the kernel cannot keep " + row.DisplayName + " from changing files, and Pollux knows no other way for this agent",
			Next: "ask another agent, or use a Linux kernel with Landlock",
		}
	}
	return err
}

// Cmd returns the command line for a process of an agent. Behind the wall, the process can
// change only what its [Command] says, and its own directory.
func (w Wall) Cmd(row *Agent, c Command, p Program, l Launch) (*exec.Cmd, error) {
	if err := w.Check(row); err != nil {
		return nil, err
	}
	cmd, err := c.Cmd(p, l.Dir)
	if err != nil || row.Sandboxed || !w.Stands() && !row.Custom {
		return cmd, err
	}
	gate := wall.Gate{Writable: append([]string{l.TempDir}, c.Writable...), Parents: c.Parents}
	return cmd, wall.Enclose(cmd, w.Launcher, gate)
}
