package checks

import (
	"cmp"
	"context"
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

	"pollux/internal/doctor"
	"pollux/internal/ide/claudeide"
	"pollux/internal/paths"
)

// A search replays how an agent looks for its server.
type search struct {
	// dir is the agent's folder, a real path.
	dir string
	// spelling is the folder as the agent's terminal spells it. It is empty on systems
	// where that does not matter to Claude Code: see spells.
	spelling string
	getenv   func(string) string
}

// dirs returns the directories with lock files that Claude Code reads. opencode reads
// the last one only.
func (s search) dirs() (dirs []string, err error) {
	if config := s.getenv("CLAUDE_CONFIG_DIR"); config != "" {
		dirs = append(dirs, filepath.Join(config, "ide"))
	}
	home, err := claudeide.Dir()
	if err != nil {
		return dirs, err
	}
	if len(dirs) == 0 || paths.Real(dirs[0]) != paths.Real(home) {
		dirs = append(dirs, home)
	}
	return dirs, nil
}

// locks returns the lock files that Claude Code reads.
func (s search) locks() (locks []claudeide.Found) {
	dirs, _ := s.dirs()
	for _, dir := range dirs {
		locks = append(locks, claudeide.Find(dir)...)
	}
	return locks
}

// port returns the port in [claudeide.EnvPort], or 0.
func (s search) port() int {
	port, _ := strconv.Atoi(s.getenv(claudeide.EnvPort))
	return port
}

// claude returns the locks that Claude Code would connect to automatically. It connects
// only if there is exactly one: the live one with the port in the variable, or the live
// one that covers the folder.
func (s search) claude() (matches []claudeide.Found) {
	for _, f := range s.locks() {
		named := f.Port == s.port()
		if !named && !s.matches(f) && s.getenv("CLAUDE_CODE_IDE_SKIP_VALID_CHECK") == "" || !f.Live() {
			continue
		}
		if named {
			return []claudeide.Found{f}
		}
		matches = append(matches, f)
	}
	return matches
}

// matches reports whether Claude Code finds its folder in a lock.
func (s search) matches(f claudeide.Found) bool {
	return f.Covers(s.dir) && (s.spelling == "" || spells(f.Lock, s.spelling))
}

// spells reports whether a folder of the lock contains the path, in the same case.
// Claude Code for Windows takes C:\Work and C:\work for two folders, and its own one as
// its terminal spells it. It only ignores the case of the drive.
func spells(l claudeide.Lock, path string) bool {
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

// opencode returns the lock that opencode connects to: of those that cover the folder,
// the one with the longest folder, and then the newest. It ignores the PID.
func (s search) opencode() (best claudeide.Found, ok bool) {
	dir, err := claudeide.Dir()
	if err != nil {
		return best, false
	}
	length, changed := -1, time.Time{}
	for _, f := range claudeide.Find(dir) {
		info, err := os.Stat(f.Path)
		if err != nil {
			continue
		}
		for _, folder := range f.WorkspaceFolders {
			n := len(filepath.Clean(folder))
			if folder != "" && paths.Contains(folder, s.dir) && (n > length || n == length && info.ModTime().After(changed)) {
				best, ok, length, changed = f, true, n, info.ModTime()
			}
		}
	}
	return best, ok
}

// host returns the address that Claude Code dials.
func (s search) host() string {
	if host := s.getenv("CLAUDE_CODE_IDE_HOST_OVERRIDE"); host != "" {
		return host
	}
	return "127.0.0.1"
}

// probeAs connects to a lock's server as Claude Code does, and disconnects.
func probeAs(ctx context.Context, f claudeide.Found, host string) error {
	transport := &http.Transport{DisableKeepAlives: true} // no proxy
	conn, response, err := websocket.Dial(ctx, fmt.Sprintf("ws://%s", net.JoinHostPort(host, strconv.Itoa(f.Port))),
		&websocket.DialOptions{
			HTTPClient: &http.Client{Transport: transport}, Subprotocols: []string{claudeide.Subprotocol},
			HTTPHeader: http.Header{claudeide.TokenHeader: {f.AuthToken}},
		})
	if err == nil {
		defer conn.CloseNow()
		if conn.Subprotocol() != claudeide.Subprotocol {
			return doctor.ErrNotCompanion
		}
		return nil
	}
	if response == nil {
		return err
	}
	if response.StatusCode == http.StatusServiceUnavailable && f.Pollux == nil {
		return doctor.ErrNotCompanion
	}
	return cmp.Or(doctor.Refusal(response.StatusCode), doctor.ErrNotCompanion)
}

// inIDETerminal reports whether Claude Code believes that its terminal belongs to VS
// Code or JetBrains. It then connects automatically, but only to a process above it.
func (s search) inIDETerminal() bool {
	askpass := strings.ToLower(s.getenv("VSCODE_GIT_ASKPASS_MAIN"))
	asksFor := func(name string) bool { return strings.Contains(askpass, name) }
	switch term := s.getenv("TERM"); {
	case s.getenv("FORCE_CODE_TERMINAL") != "", s.getenv("CURSOR_TRACE_ID") != "",
		slices.ContainsFunc([]string{"cursor", "windsurf", "antigravity"}, asksFor),
		s.getenv("TERMINAL_EMULATOR") == "JetBrains-JediTerm":
		return true
	case term == "xterm-ghostty", strings.Contains(term, "kitty"):
		return false
	}
	return s.getenv("TERM_PROGRAM") == "vscode"
}
