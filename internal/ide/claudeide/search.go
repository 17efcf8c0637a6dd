package claudeide

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/coder/websocket"

	"pollux/internal/paths"
)

// A Search replays how an agent looks for its server.
type Search struct {
	// Dir is the agent's folder, a real path.
	Dir string
	// Spelling is the folder as the agent's terminal spells it. It is empty on systems
	// where that does not matter to Claude Code: see [Lock.Spells].
	Spelling string
	Getenv   func(string) string
}

// Dirs returns the directories with lock files that Claude Code reads. opencode reads
// the last one only.
func (s Search) Dirs() (dirs []string, err error) {
	if config := s.Getenv("CLAUDE_CONFIG_DIR"); config != "" {
		dirs = append(dirs, filepath.Join(config, "ide"))
	}
	home, err := Dir()
	if err != nil {
		return dirs, err
	}
	if len(dirs) == 0 || paths.Real(dirs[0]) != paths.Real(home) {
		dirs = append(dirs, home)
	}
	return dirs, nil
}

// Locks returns the lock files that Claude Code reads.
func (s Search) Locks() (locks []Found) {
	dirs, _ := s.Dirs()
	for _, dir := range dirs {
		locks = append(locks, Find(dir)...)
	}
	return locks
}

// Port returns the port in [EnvPort], or 0.
func (s Search) Port() int {
	port, _ := strconv.Atoi(s.Getenv(EnvPort))
	return port
}

// Claude returns the locks that Claude Code would connect to automatically. It connects
// only if there is exactly one: the live one with the port in the variable, or the live
// one that covers the folder.
func (s Search) Claude() (matches []Found) {
	for _, f := range s.Locks() {
		named := f.Port == s.Port()
		if !named && !s.matches(f) && s.Getenv("CLAUDE_CODE_IDE_SKIP_VALID_CHECK") == "" || !f.Live() {
			continue
		}
		if named {
			return []Found{f}
		}
		matches = append(matches, f)
	}
	return matches
}

// matches reports whether Claude Code finds its folder in a lock.
func (s Search) matches(f Found) bool {
	return f.Covers(s.Dir) && (s.Spelling == "" || f.Spells(s.Spelling))
}

// Spells reports whether a folder of the lock contains the path, in the same case.
// Claude Code for Windows takes C:\Work and C:\work for two folders, and its own one as
// its terminal spells it. It only ignores the case of the drive.
func (l Lock) Spells(path string) bool {
	path = upperDrive(path)
	return slices.ContainsFunc(l.WorkspaceFolders, func(folder string) bool {
		if folder == "" {
			return false
		}
		folder = strings.TrimSuffix(upperDrive(folder), string(filepath.Separator))
		rest, ok := strings.CutPrefix(path, folder)
		return ok && (rest == "" || os.IsPathSeparator(rest[0]))
	})
}

// upperDrive cleans a path and writes its drive as a capital letter.
func upperDrive(path string) string {
	path = filepath.Clean(path)
	if drive, rest, ok := strings.Cut(path, ":"); ok && len(drive) == 1 {
		path = strings.ToUpper(drive) + ":" + rest
	}
	return path
}

// Opencode returns the lock that opencode connects to: of those that cover the folder,
// the one with the longest folder, and then the newest. It ignores the PID.
func (s Search) Opencode() (best Found, ok bool) {
	dir, err := Dir()
	if err != nil {
		return best, false
	}
	length, changed := -1, time.Time{}
	for _, f := range Find(dir) {
		info, err := os.Stat(f.Path)
		if err != nil {
			continue
		}
		for _, folder := range f.WorkspaceFolders {
			n := len(filepath.Clean(folder))
			if folder != "" && paths.Contains(folder, s.Dir) && (n > length || n == length && info.ModTime().After(changed)) {
				best, ok, length, changed = f, true, n, info.ModTime()
			}
		}
	}
	return best, ok
}

// Host returns the address that Claude Code dials.
func (s Search) Host() string {
	if host := s.Getenv("CLAUDE_CODE_IDE_HOST_OVERRIDE"); host != "" {
		return host
	}
	return "127.0.0.1"
}

// WebSocket reports whether Claude Code uses the protocol of this package. With any
// other transport it uses server-sent events.
func (l Lock) WebSocket() bool { return l.Transport == transport }

// Gone reports whether the lock's process does not run, so that a Claude Code that
// starts deletes the lock.
func (f Found) Gone() bool { return f.PID != 0 && !f.Live() }

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

// Leftover reports whether a companion that was killed here has left the lock, which has
// no more use.
func (f Found) Leftover() bool { return f.Pollux.Stale(f.PID) }

// Causes of an error of [Found.Probe].
var (
	ErrToken  = errors.New("it refuses the token in the lock file")
	ErrNoView = errors.New("nothing shows its changes")
	ErrNotMCP = errors.New("it does not speak Claude Code's protocol")
)

// Probe connects to the lock's server as Claude Code does, and disconnects.
func (f Found) Probe(ctx context.Context, host string) error {
	transport := &http.Transport{DisableKeepAlives: true} // no proxy
	conn, response, err := websocket.Dial(ctx, fmt.Sprintf("ws://%s", net.JoinHostPort(host, strconv.Itoa(f.Port))),
		&websocket.DialOptions{
			HTTPClient: &http.Client{Transport: transport}, Subprotocols: []string{subprotocol},
			HTTPHeader: http.Header{tokenHeader: {f.AuthToken}},
		})
	if err == nil {
		defer conn.CloseNow()
		if conn.Subprotocol() != subprotocol {
			return ErrNotMCP
		}
		return nil
	}
	if response == nil {
		return err
	}
	switch response.StatusCode {
	case http.StatusUnauthorized, http.StatusForbidden:
		return ErrToken
	case http.StatusServiceUnavailable:
		if f.Pollux != nil {
			return ErrNoView
		}
	}
	return ErrNotMCP
}

// InIDETerminal reports whether Claude Code believes that its terminal belongs to VS
// Code or JetBrains. It then connects automatically, but only to a process above it.
func (s Search) InIDETerminal() bool {
	askpass := strings.ToLower(s.Getenv("VSCODE_GIT_ASKPASS_MAIN"))
	asksFor := func(name string) bool { return strings.Contains(askpass, name) }
	switch term := s.Getenv("TERM"); {
	case s.Getenv("FORCE_CODE_TERMINAL") != "", s.Getenv("CURSOR_TRACE_ID") != "",
		slices.ContainsFunc([]string{"cursor", "windsurf", "antigravity"}, asksFor),
		s.Getenv("TERMINAL_EMULATOR") == "JetBrains-JediTerm":
		return true
	case term == "xterm-ghostty", strings.Contains(term, "kitty"):
		return false
	}
	return s.Getenv("TERM_PROGRAM") == "vscode"
}

// RemoveLeftover removes a lock file if it is still a [Found.Leftover].
func RemoveLeftover(path string) error {
	for _, f := range Find(filepath.Dir(path)) {
		if f.Path == path && f.Leftover() {
			return os.Remove(path)
		}
	}
	return nil
}
