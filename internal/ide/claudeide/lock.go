package claudeide

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"pollux/internal/editor"
	"pollux/internal/ide/blocking"
	"pollux/internal/paths"
	"pollux/internal/sys/disk"
	"pollux/internal/sys/proc"
)

// A Lock is a lock file, which leads agents to a server. Its name is PORT.lock.
// Fields that the agents do not know have no effect on them.
type Lock struct {
	// PID is the server's process. At its start, an agent deletes the lock of a
	// process that is not running. Without a PID, the agent tries the port.
	PID int `json:"pid,omitempty"`
	// WorkspaceFolders are real paths: the agent resolves its own folder, but not
	// these. It connects automatically if its folder is one of them, or below one.
	WorkspaceFolders []string `json:"workspaceFolders"`
	IDEName          string   `json:"ideName"`
	Transport        string   `json:"transport"`
	RunningInWindows bool     `json:"runningInWindows"`
	AuthToken        string   `json:"authToken"`
	// Pollux marks a companion's lock; nil in the locks of other programs.
	Pollux *blocking.Mark `json:"pollux,omitempty"`
}

// Transport is the transport of the locks of companions. With any other, Claude Code uses
// server-sent events.
const Transport = "ws"

// openPage ends the name of a companion without an editor.
const openPage = " (run: pollux open)"

// ideName returns the companion's name for Claude Code, which writes "Opened changes in NAME"
// instead of the change. Without an editor, the name says how to see it.
func ideName(e editor.Info) string {
	name := cmp.Or(e.DisplayName, "Pollux")
	if e == editor.NoEditor {
		name += openPage
	}
	return name
}

// Title returns the name of the program that wrote the lock.
func (l Lock) Title() string { return strings.TrimSuffix(l.IDEName, openPage) }

// Dir returns the directory of the lock files. Claude Code also reads the one in
// $CLAUDE_CONFIG_DIR, but opencode does not, and Claude Code reads this one even if
// the variable is set.
func Dir() (string, error) {
	home, err := os.UserHomeDir()
	if err != nil {
		return "", fmt.Errorf("cannot find the directory of Claude Code's lock files: %w", err)
	}
	return filepath.Join(home, ".claude", "ide"), nil
}

// A Found is a lock file in a directory.
type Found struct {
	Lock
	Path string
	Port int
}

// Find returns the lock files in a directory that it can read, by port.
func Find(dir string) (found []Found) {
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		port, err := strconv.Atoi(strings.TrimSuffix(e.Name(), blocking.Ext))
		if err != nil || !strings.HasSuffix(e.Name(), blocking.Ext) || port < 1 || port > 65535 {
			continue
		}
		f := Found{Path: filepath.Join(dir, e.Name()), Port: port}
		if data, err := disk.ReadFile(f.Path, blocking.MaxLock); err == nil {
			f.Lock = parseLock(data)
			found = append(found, f)
		}
	}
	slices.SortFunc(found, func(a, b Found) int { return a.Port - b.Port })
	return found
}

// parseLock reads a lock file as Claude Code does: fields of other types are missing,
// and what is not JSON is a list of folders.
func parseLock(data []byte) (l Lock) {
	if json.Valid(data) {
		json.Unmarshal(data, &l) // it fails for a field of another type only
		return l
	}
	for line := range strings.Lines(string(data)) {
		if line = strings.TrimSpace(line); line != "" {
			l.WorkspaceFolders = append(l.WorkspaceFolders, line)
		}
	}
	return l
}

// Live reports whether an agent would try to connect to the lock's server.
func (f Found) Live() bool {
	if f.PID != 0 {
		return proc.Alive(f.PID)
	}
	return f.Listens("127.0.0.1")
}

// dialTimeout is how long a port of this machine may take to answer.
const dialTimeout = 500 * time.Millisecond

// Listens reports whether something accepts connections on the lock's port.
func (f Found) Listens(host string) bool {
	conn, err := net.DialTimeout("tcp", net.JoinHostPort(host, strconv.Itoa(f.Port)), dialTimeout)
	if err != nil {
		return false
	}
	conn.Close()
	return true
}

// Covers reports whether a folder of the lock contains the folder. The agents skip an
// empty one.
func (l Lock) Covers(folder string) bool {
	return slices.ContainsFunc(l.WorkspaceFolders, func(f string) bool { return f != "" && paths.Contains(f, folder) })
}

// Spelling returns the working directory as the terminal or the editor spells it, or "" on
// systems where Claude Code finds its folder in any spelling.
func Spelling() string {
	if runtime.GOOS != "windows" {
		return ""
	}
	dir, _ := os.Getwd()
	return dir
}

// inSpelling adds to the folders of a lock the one that contains dir, in dir's spelling. A
// Claude Code that starts in the same terminal, or in one of the same editor, has that.
func inSpelling(folders []string, dir string) []string {
	for _, folder := range folders {
		rel, ok := paths.Rel(folder, dir)
		if !ok {
			continue
		}
		for ; rel != "."; rel = filepath.Dir(rel) {
			dir = filepath.Dir(dir)
		}
		if !slices.Contains(folders, dir) {
			return append(folders, dir)
		}
		break
	}
	return folders
}

// overlaps reports whether an agent can run in a folder that both have. It would
// connect to neither.
func (l Lock) overlaps(folders []string) bool {
	for _, f := range folders {
		if l.Covers(f) || slices.ContainsFunc(l.WorkspaceFolders, func(own string) bool { return paths.Contains(f, own) }) {
			return true
		}
	}
	return false
}

// rival returns another program's live lock, if a companion's lock must yield to
// it. Of two companions, the one that started first keeps its folders.
func rival(dir string, port int, own Lock) (Found, bool) {
	for _, f := range Find(dir) {
		if f.Port == port || !f.overlaps(own.WorkspaceFolders) || !f.Live() {
			continue
		}
		if f.Pollux == nil || f.Pollux.Since < own.Pollux.Since || f.Pollux.Since == own.Pollux.Since && f.Port < port {
			return f, true
		}
	}
	return Found{}, false
}
