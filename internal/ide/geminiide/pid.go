package geminiide

import (
	"runtime"
	"slices"
	"strconv"
	"strings"

	"pollux/internal/sys"
)

// EditorPIDs returns the processes by which a CLI that runs in a terminal of
// the editor, or in a tmux pane beside it, may look for its companion. A CLI
// takes the grandparent of the nearest shell above it, which is mostly the
// parent of the editor; older CLIs (up to 0.30) accept no other.
func EditorPIDs(editor int, getenv func(string) string) []int {
	return unique(parent(editor), editor, tmuxServer(getenv))
}

// TerminalPIDs returns the processes by which a CLI that process self starts
// may look for its companion: self, which the environment names to the CLIs
// that read it, and what the older ones find by themselves.
func TerminalPIDs(self int, getenv func(string) string) []int {
	return unique(self, idePID(self), tmuxServer(getenv))
}

func unique(pids ...int) (out []int) {
	for _, pid := range pids {
		if pid > 1 && !slices.Contains(out, pid) {
			out = append(out, pid)
		}
	}
	return out
}

func parent(pid int) int {
	p, err := sys.Lookup(pid)
	if err != nil {
		return 0
	}
	return p.Parent
}

var shells = []string{"zsh", "bash", "sh", "tcsh", "csh", "ksh", "fish", "dash"}

// idePID repeats the CLI's walk: up to the first shell, then to its
// grandparent where that is no init process, else its parent.
func idePID(pid int) int {
	if runtime.GOOS == "windows" {
		return windowsPID(pid)
	}
	for range 32 {
		p, err := sys.Lookup(pid)
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

// windowsPID repeats what the CLI does there: the third of its ancestors from the
// top, or the top.
func windowsPID(pid int) int {
	var line []int
	for range 32 {
		p, err := sys.Lookup(pid)
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

// tmuxServer is the second field of $TMUX: "socket,pid,session".
func tmuxServer(getenv func(string) string) int {
	fields := strings.Split(getenv("TMUX"), ",")
	if len(fields) < 3 {
		return 0
	}
	pid, _ := strconv.Atoi(fields[len(fields)-2])
	return pid
}
