package geminiide

import (
	"runtime"
	"slices"
	"strconv"
	"strings"

	"pollux/internal/sys/proc"
)

// EditorPIDs returns the process IDs that a CLI may look for when it runs in a
// terminal of the editor, or in a tmux pane next to it. A CLI takes the
// grandparent of the nearest shell above it, which is usually the parent of the
// editor. Older CLIs (up to 0.30) accept no other.
func EditorPIDs(editor int, getenv func(string) string) []int {
	return unique(editor, parent(editor), editor, tmuxServer(getenv))
}

// TerminalPIDs returns the process IDs that a CLI may look for when the process
// self starts it: self, which newer CLIs read from the environment, and the one
// that older CLIs find.
func TerminalPIDs(self int, getenv func(string) string) []int {
	return unique(self, self, IDEPID(self), tmuxServer(getenv))
}

// unique returns each process once, without the init process, which no CLI looks for. If
// none is left, it returns only: that is process 1 itself, in a container.
func unique(only int, pids ...int) (out []int) {
	for _, pid := range pids {
		if pid > 1 && !slices.Contains(out, pid) {
			out = append(out, pid)
		}
	}
	if len(out) == 0 {
		return []int{only}
	}
	return out
}

func parent(pid int) int {
	p, err := proc.Lookup(pid)
	if err != nil {
		return 0
	}
	return p.Parent
}

var shells = []string{"zsh", "bash", "sh", "tcsh", "csh", "ksh", "fish", "dash"}

// IDEPID does what the CLI does: it walks up to the first shell and returns the
// shell's grandparent or, if that is the init process, its parent.
func IDEPID(pid int) int {
	if runtime.GOOS == "windows" {
		return windowsPID(pid)
	}
	for range 32 {
		p, err := proc.Lookup(pid)
		if err != nil {
			return pid
		}
		if slices.Contains(shells, p.Name) {
			if gp := parent(p.Parent); gp > 1 {
				return gp
			}
			return p.Parent
		}
		if p.Parent <= 1 {
			return pid
		}
		pid = p.Parent
	}
	return pid
}

// windowsPID does what the CLI does on Windows: it returns the third ancestor
// from the top, or the top one.
func windowsPID(pid int) int {
	var line []int
	for range 32 {
		p, err := proc.Lookup(pid)
		if err != nil {
			break
		}
		line = append(line, p.PID)
		pid = p.Parent
	}
	switch {
	case len(line) >= 3:
		return line[len(line)-3]
	case len(line) > 0:
		return line[len(line)-1]
	}
	return pid
}

// tmuxServer returns the second field of $TMUX: "socket,pid,session".
func tmuxServer(getenv func(string) string) int {
	fields := strings.Split(getenv("TMUX"), ",")
	if len(fields) < 3 {
		return 0
	}
	pid, _ := strconv.Atoi(fields[len(fields)-2])
	return pid
}
