package checks

import (
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/coder/websocket"

	"pollux/internal/doctor"
	"pollux/internal/ide/blocking"
	"pollux/internal/ide/claudeide"
	"pollux/internal/sys/sock"
	"pollux/internal/sys/systest"
)

func getenv(env map[string]string) func(string) string {
	return func(key string) string { return env[key] }
}

// place writes a lock file into a directory.
func place(t *testing.T, dir string, port int, text string) string {
	t.Helper()
	path := filepath.Join(dir, strconv.Itoa(port)+blocking.Ext)
	systest.WriteFile(t, path, text)
	return path
}

func encode(t *testing.T, l claudeide.Lock) string {
	t.Helper()
	data, err := json.Marshal(l)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// ports returns the ports of locks.
func ports(locks []claudeide.Found) (all []int) {
	for _, f := range locks {
		all = append(all, f.Port)
	}
	return all
}

// What the agents choose, by the rules of docs/CLAUDE-CODE.md.
func TestSearch(t *testing.T) {
	const dir = "/work/project"
	alive := os.Getpid()
	lock := func(pid int, folders ...string) string {
		return encode(t, claudeide.Lock{PID: pid, WorkspaceFolders: folders, Transport: claudeide.Transport})
	}
	for name, tt := range map[string]struct {
		locks    map[int]string // the lowest port is the newest
		env      map[string]string
		spelling string
		claude   []int
		opencode int
	}{
		"none":            {},
		"one":             {locks: map[int]string{1: lock(alive, dir)}, claude: []int{1}, opencode: 1},
		"above":           {locks: map[int]string{1: lock(alive, "/work/")}, claude: []int{1}, opencode: 1},
		"below":           {locks: map[int]string{1: lock(alive, dir+"/sub")}},
		"another":         {locks: map[int]string{1: lock(alive, dir+"s", "")}},
		"dead":            {locks: map[int]string{1: lock(deadPID, dir)}, opencode: 1},
		"two":             {locks: map[int]string{1: lock(alive, dir), 2: lock(alive, dir)}, claude: []int{1, 2}, opencode: 1},
		"nested":          {locks: map[int]string{1: lock(alive, "/work"), 2: lock(alive, dir)}, claude: []int{1, 2}, opencode: 2},
		"one of two dead": {locks: map[int]string{1: lock(deadPID, dir), 2: lock(alive, dir)}, claude: []int{2}, opencode: 1},
		"by the port": {locks: map[int]string{1: lock(alive, dir), 2: lock(alive, "/x")}, env: map[string]string{claudeide.EnvPort: "2"},
			claude: []int{2}, opencode: 1},
		"a port without a lock": {locks: map[int]string{1: lock(alive, dir)}, env: map[string]string{claudeide.EnvPort: "2"},
			claude: []int{1}, opencode: 1},
		"the port of a dead one": {locks: map[int]string{2: lock(deadPID, dir)}, env: map[string]string{claudeide.EnvPort: "2"}, opencode: 2},
		"without the check": {locks: map[int]string{1: lock(alive, "/x")},
			env: map[string]string{"CLAUDE_CODE_IDE_SKIP_VALID_CHECK": "1"}, claude: []int{1}},
		"the same case": {locks: map[int]string{1: lock(alive, "/work/", dir)}, spelling: "/work/Project",
			claude: []int{1}, opencode: 1},
		"another case": {locks: map[int]string{1: lock(alive, dir, dir+"s")}, spelling: "/work/Project", opencode: 1},
		"another case, by the port": {locks: map[int]string{1: lock(alive, dir)}, spelling: "/work/Project",
			env: map[string]string{claudeide.EnvPort: "1"}, claude: []int{1}, opencode: 1},
	} {
		t.Run(name, func(t *testing.T) {
			home := t.TempDir()
			systest.SetHome(t, home)
			for port, text := range tt.locks {
				path := place(t, filepath.Join(home, ".claude", "ide"), port, text)
				changed := time.Now().Add(-time.Duration(port) * time.Minute)
				systest.SetTime(t, path, changed)
			}
			s := search{dir: dir, spelling: tt.spelling, getenv: getenv(tt.env)}
			if got := ports(s.claude()); len(got) != len(tt.claude) || len(got) > 0 && got[0] != tt.claude[0] {
				t.Errorf("Claude Code chooses %v, want %v", got, tt.claude)
			}
			if got, ok := s.opencode(); got.Port != tt.opencode || ok != (tt.opencode != 0) {
				t.Errorf("opencode chooses %d, want %d", got.Port, tt.opencode)
			}
		})
	}
}

// Claude Code for Windows ignores the case of the drive, and of nothing else.
func TestSpells(t *testing.T) {
	for _, tt := range []struct {
		folder, path string
		want         bool
	}{
		{"C:/work/app", "C:/work/app", true},
		{"C:/work/app", "c:/work/app/Sub", true},
		{"c:/work/app/", "C:/work/app", true},
		{"C:/work/app", "C:/Work/app", false},
		{"C:/work/app", "C:/work/apps", false},
		{"C:/", "c:/Work", true},
		{"", "C:/work", false},
	} {
		if got := spells(claudeide.Lock{WorkspaceFolders: []string{tt.folder}}, tt.path); got != tt.want {
			t.Errorf("%s, %s: %v", tt.folder, tt.path, got)
		}
	}
}

// Claude Code reads the locks in its own directory and in the home's.
func TestSearchDirs(t *testing.T) {
	home, config := t.TempDir(), t.TempDir()
	systest.SetHome(t, home)
	place(t, filepath.Join(home, ".claude", "ide"), 1, encode(t, claudeide.Lock{PID: os.Getpid(), WorkspaceFolders: []string{"/p"}}))
	place(t, filepath.Join(config, "ide"), 2, encode(t, claudeide.Lock{PID: os.Getpid(), WorkspaceFolders: []string{"/p"}}))
	for dir, want := range map[string]int{"": 1, config: 2, filepath.Join(home, ".claude"): 1} {
		s := search{dir: "/p", getenv: getenv(map[string]string{"CLAUDE_CONFIG_DIR": dir})}
		if got := s.claude(); len(got) != want {
			t.Errorf("with %q: %v", dir, ports(got))
		}
	}
}

func TestInIDETerminal(t *testing.T) {
	for name, tt := range map[string]struct {
		env  map[string]string
		want bool
	}{
		"none":         {nil, false},
		"VS Code":      {map[string]string{"TERM_PROGRAM": "vscode"}, true},
		"kitty in it":  {map[string]string{"TERM_PROGRAM": "vscode", "TERM": "xterm-kitty"}, false},
		"tmux":         {map[string]string{"TERM_PROGRAM": "tmux"}, false},
		"Cursor":       {map[string]string{"CURSOR_TRACE_ID": "x"}, true},
		"Windsurf":     {map[string]string{"VSCODE_GIT_ASKPASS_MAIN": "/opt/Windsurf/x.js"}, true},
		"VS Code only": {map[string]string{"VSCODE_GIT_ASKPASS_MAIN": "/opt/code/x.js"}, false},
		"JetBrains":    {map[string]string{"TERMINAL_EMULATOR": "JetBrains-JediTerm"}, true},
		"forced":       {map[string]string{"FORCE_CODE_TERMINAL": "1", "TERM": "xterm-ghostty"}, true},
	} {
		if got := (search{getenv: getenv(tt.env)}).inIDETerminal(); got != tt.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestProbe(t *testing.T) {
	// A program's proxy does not see the token.
	t.Setenv("HTTP_PROXY", "http://127.0.0.1:1")
	ours := &blocking.Mark{}
	for name, tt := range map[string]struct {
		serve http.HandlerFunc
		mark  *blocking.Mark
		want  error
	}{
		"a companion": {serve: func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get(claudeide.TokenHeader) != "secret" {
				t.Error("the token is missing")
			}
			conn, err := websocket.Accept(w, r, &websocket.AcceptOptions{Subprotocols: []string{claudeide.Subprotocol}})
			if err != nil {
				t.Error(err)
				return
			}
			conn.CloseNow()
		}},
		"without the subprotocol": {want: doctor.ErrNotCompanion, serve: func(w http.ResponseWriter, r *http.Request) {
			if conn, err := websocket.Accept(w, r, nil); err == nil {
				conn.CloseNow()
			}
		}},
		"a wrong token":      {serve: status(http.StatusUnauthorized), want: doctor.ErrToken},
		"no view":            {serve: status(http.StatusServiceUnavailable), mark: ours, want: doctor.ErrNoView},
		"another program":    {serve: status(http.StatusServiceUnavailable), want: doctor.ErrNotCompanion},
		"an ordinary server": {serve: status(http.StatusOK), want: doctor.ErrNotCompanion},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(tt.serve)
			defer server.Close()
			f := claudeide.Found{Lock: claudeide.Lock{AuthToken: "secret", Pollux: tt.mark}, Port: server.Listener.Addr().(*net.TCPAddr).Port}
			if err := probeAs(t.Context(), f, "127.0.0.1"); !errors.Is(err, tt.want) {
				t.Errorf("%v, want %v", err, tt.want)
			}
		})
	}
	t.Run("nobody", func(t *testing.T) {
		if err := probeAs(t.Context(), claudeide.Found{Port: 1}, "127.0.0.1"); !sock.Refused(err) {
			t.Error(err)
		}
	})
}

func status(code int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
}
