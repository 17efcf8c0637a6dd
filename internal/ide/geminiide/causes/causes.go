// Package causes contains, for tests, the causes that doctor's checks of Gemini CLI's
// protocol find. The checks' own test reproduces each of them without the CLI; an end-to-end
// test also compares what the real CLI says.
package causes

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"testing"

	"pollux/internal/editor"
	"pollux/internal/ide/geminiide"
	"pollux/internal/sys/systest"
)

const (
	Token   = "secret" // the companions' token
	DeadPID = 1 << 30  // above the limits of all systems
	NoPort  = 1        // no program listens on it
)

// What the real CLI says about its connection.
const (
	Connects     = "Connected to"
	Disconnected = "Disconnected"
	Unsupported  = "not supported"
)

// A Cause is a situation that doctor describes.
type Cause struct {
	Make func(s *Site)
	Want []string // the findings that are not ok, as "failed port"
	// Says is the real CLI's message. It is empty if the CLI has nothing to say, or if an
	// end-to-end test with the real companion compares it.
	Says string
}

// A Site is a project in which Gemini CLI would be started.
type Site struct {
	T       *testing.T
	Project string
	Files   string                  // the directory of the discovery files
	Dir     string                  // where doctor runs
	Setenv  func(key, value string) // sets a variable for doctor and the CLI
	Minor   int                     // the CLI's release
	Running []editor.Running        // the companions that doctor finds
	Lock    bool                    // files are lock files, as Qwen Code has them
}

// All are the causes by name.
var All = map[string]Cause{
	"healthy": {Make: func(s *Site) { s.Healthy(nil) }},
	"healthy, by the variables": {Make: func(s *Site) {
		port, _ := s.Healthy(nil)
		s.Setenv("GEMINI_CLI_IDE_SERVER_PORT", strconv.Itoa(port))
		s.Setenv("GEMINI_CLI_IDE_AUTH_TOKEN", Token)
	}},
	"healthy, in a folder below": {Says: Connects, Make: func(s *Site) {
		s.Healthy(nil)
		s.Dir = filepath.Join(s.Project, "sub")
		systest.MakeDir(s.T, s.Dir)
	}},
	"no companion": {Says: Unsupported, Make: func(*Site) {}, Want: []string{"failed companion"}},
	"an old CLI, another process": {Want: []string{"failed process", "warning cli"}, Make: func(s *Site) {
		s.Minor = 20
		s.Publish(DeadPID, s.companion(), nil)
	}},
	"a CLI that sends no token": {Want: []string{"failed cli", "failed process"}, Make: func(s *Site) {
		s.Minor = 5
		s.Publish(DeadPID, s.companion(), nil)
	}},
	"variables of an editor that is gone": {Says: Connects, Want: []string{"warning variables"}, Make: func(s *Site) {
		s.Healthy(nil)
		s.Setenv("GEMINI_CLI_IDE_SERVER_PORT", strconv.Itoa(NoPort))
		s.Setenv("GEMINI_CLI_IDE_WORKSPACE_PATH", "/gone")
	}},
	"variables of a process that is gone": {Says: Connects, Want: []string{"warning variables"}, Make: func(s *Site) {
		s.Healthy(nil)
		s.Setenv("GEMINI_CLI_IDE_PID", strconv.Itoa(DeadPID))
	}},
	"another TMPDIR": {Want: []string{"failed tmpdir"}, Make: func(s *Site) {
		if runtime.GOOS != "linux" {
			s.T.Skip("needs /proc")
		}
		s.Healthy(nil)
		cmd := exec.Command("sleep", "1000") // for the editor
		if err := cmd.Start(); err != nil {
			s.T.Fatal(err)
		}
		s.T.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
		s.Setenv("TMPDIR", s.T.TempDir())
	}},
	"another folder": {Says: Disconnected, Want: []string{"failed workspace"}, Make: func(s *Site) {
		s.Healthy(nil)
		s.Dir = s.T.TempDir()
	}},
	"no folder":           {Says: Disconnected, Want: []string{"failed workspace"}, Make: func(s *Site) { s.Healthy(With("workspacePath", "")) }},
	"no workspace at all": {Says: Disconnected, Want: []string{"failed workspace"}, Make: func(s *Site) { s.Healthy(Without("workspacePath")) }},
	"no name":             {Says: Unsupported, Want: []string{"failed editor"}, Make: func(s *Site) { s.Healthy(Without("ideInfo")) }},
	"a wrong token":       {Says: Disconnected, Want: []string{"failed token"}, Make: func(s *Site) { s.Healthy(With("authToken", "wrong")) }},
	"a port of something else": {Says: Disconnected, Want: []string{"failed port"}, Make: func(s *Site) {
		s.Publish(os.Getpid(), s.Serve(http.NotFound), nil)
	}},
	"a companion that was killed": {Want: []string{"failed stale"}, Make: func(s *Site) {
		s.Publish(os.Getpid(), NoPort, With("polluxPid", DeadPID))
	}},
	"a stopped companion": {Want: []string{"failed port"}, Make: func(s *Site) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			s.T.Fatal(err)
		}
		s.T.Cleanup(func() { l.Close() })
		s.Publish(os.Getpid(), l.Addr().(*net.TCPAddr).Port, nil)
	}},
	"a file of a companion that has ended, beside": {Says: Connects, Want: []string{"warning stale"}, Make: func(s *Site) {
		s.Healthy(nil)
		s.Publish(DeadPID, NoPort, nil)
	}},
	"a file that is none": {Says: Connects, Want: []string{"warning file"}, Make: func(s *Site) {
		s.Healthy(nil)
		s.Write(fmt.Sprintf("gemini-ide-server-%d-1.json", DeadPID), "{")
	}},
	"its files are gone": {Want: []string{"failed file"}, Make: func(s *Site) {
		s.Running = []editor.Running{{Status: editor.Status{Roots: []string{s.Project}}}}
	}},
	"files that others can read": {Says: Connects, Want: []string{"warning directory"}, Make: func(s *Site) {
		_, path := s.Healthy(nil)
		s.chmod(0o755, s.Files)
		s.chmod(0o644, path)
	}},
	"files that others could read, in a directory of mine": {Says: Connects, Make: func(s *Site) {
		_, path := s.Healthy(nil)
		s.chmod(0o644, path)
	}},
	"a directory that others can write": {Says: Connects, Want: []string{"warning directory"}, Make: func(s *Site) {
		s.Healthy(nil)
		s.chmod(0o777, s.Files)
	}},
	"a directory that others can list": {Says: Connects, Make: func(s *Site) {
		s.Healthy(nil)
		s.chmod(0o755, s.Files)
	}},
	"another user's directory": {Says: Unsupported, Want: []string{"failed directory"}, Make: func(s *Site) {
		s.Write("f", "")
		s.giveAway(filepath.Dir(s.Files))
	}},
	"sudo": {Want: []string{"failed user"}, Make: func(s *Site) {
		_, path := s.Healthy(nil)
		s.giveAway(path, s.Files, filepath.Dir(s.Files))
		s.Setenv("SUDO_USER", "nobody")
	}},
	"another user's companion": {Says: Unsupported, Want: []string{"failed user"}, Make: func(s *Site) {
		_, path := s.Healthy(nil)
		s.giveAway(path)
	}},
	"two companions": {Says: Connects, Want: []string{"warning several"}, Make: func(s *Site) { s.Healthy(nil); s.Healthy(nil) }},
	"two companions, one by the variables": {Says: Connects, Make: func(s *Site) {
		s.Healthy(nil)
		port, _ := s.Healthy(nil)
		s.Setenv("GEMINI_CLI_IDE_SERVER_PORT", strconv.Itoa(port))
	}},
	"another companion comes first": {Says: Connects, Want: []string{"warning hijack"}, Make: func(s *Site) {
		s.Healthy(Without("polluxPid"))
		s.Publish(DeadPID, s.companion(), nil)
	}},
	"a companion that claims every folder": {Says: Connects, Want: []string{"warning hijack"}, Make: func(s *Site) {
		s.Healthy(With("workspacePath", "/elsewhere:"))
	}},
	"a companion without diffs": {Says: Connects, Want: []string{"warning tools"}, Make: func(s *Site) {
		s.Publish(os.Getpid(), s.companion(), nil)
	}},
	"a companion of another version": {Want: []string{"warning version"}, Make: func(s *Site) {
		s.Healthy(nil)
		s.Running = []editor.Running{{Status: editor.Status{PID: os.Getpid(), Version: "0.0.1", Roots: []string{s.Project}}}}
	}},
}

// companion serves a companion with some tools and returns its port.
func (s *Site) companion(tools ...string) int {
	var list []map[string]any
	for _, name := range tools {
		list = append(list, map[string]any{"name": name, "inputSchema": map[string]any{"type": "object"}})
	}
	return s.Serve(func(w http.ResponseWriter, r *http.Request) {
		var m struct {
			ID     any
			Method string
		}
		json.NewDecoder(r.Body).Decode(&m)
		result := map[string]any{"tools": list}
		switch {
		case r.Header.Get("Authorization") != "Bearer "+Token:
			w.WriteHeader(http.StatusUnauthorized)
			return
		case r.Method == http.MethodGet: // the CLI keeps this stream open
			w.Header().Set("Content-Type", "text/event-stream")
			w.(http.Flusher).Flush()
			<-r.Context().Done()
			return
		case m.ID == nil:
			w.WriteHeader(http.StatusAccepted)
			return
		case m.Method == "initialize":
			result = map[string]any{"protocolVersion": "2025-06-18", "capabilities": map[string]any{"tools": map[string]any{}}, "serverInfo": map[string]any{"name": "x", "version": "1"}}
		}
		w.Header().Set("Content-Type", "application/json")
		json.NewEncoder(w).Encode(map[string]any{"jsonrpc": "2.0", "id": m.ID, "result": result})
	})
}

// Serve starts a server and returns its port.
func (s *Site) Serve(handler http.HandlerFunc) int {
	server := httptest.NewServer(handler)
	s.T.Cleanup(server.Close)
	s.T.Cleanup(server.CloseClientConnections)
	return server.Listener.Addr().(*net.TCPAddr).Port
}

// Healthy publishes a companion of Pollux for the project, with a change to its file.
func (s *Site) Healthy(change func(f map[string]any)) (port int, path string) {
	port = s.companion(geminiide.ToolOpenDiff, geminiide.ToolCloseDiff)
	return port, s.Publish(os.Getpid(), port, change)
}

// Publish writes the discovery file of a companion for an editor's process, and returns its path.
func (s *Site) Publish(pid, port int, change func(f map[string]any)) string {
	s.T.Helper()
	f := map[string]any{
		"port": port, "workspacePath": s.Project, "authToken": Token, "polluxPid": os.Getpid(),
		"ideInfo": map[string]any{"name": "test", "displayName": "Test"},
	}
	name := fmt.Sprintf("gemini-ide-server-%d-%d.json", pid, port)
	if s.Lock {
		name, f["ppid"] = fmt.Sprintf("%d.lock", port), pid
	}
	if change != nil {
		change(f)
	}
	data, err := json.Marshal(f)
	if err != nil {
		s.T.Fatal(err)
	}
	return s.Write(name, string(data))
}

// Write writes a file into the directory of the discovery files, and returns its path.
func (s *Site) Write(name, text string) string {
	s.T.Helper()
	path := filepath.Join(s.Files, name)
	systest.WriteFile(s.T, path, text)
	return path
}

func (s *Site) chmod(mode os.FileMode, path string) {
	s.T.Helper()
	if err := os.Chmod(path, mode); err != nil {
		s.T.Fatal(err)
	}
}

// giveAway makes another user the owner.
func (s *Site) giveAway(all ...string) {
	s.T.Helper()
	systest.NeedRoot(s.T)
	for _, path := range all {
		if err := os.Chown(path, 65534, 65534); err != nil {
			s.T.Fatal(err)
		}
	}
}

// Without returns a change that removes a key of a discovery file.
func Without(key string) func(map[string]any) {
	return func(f map[string]any) { delete(f, key) }
}

// With returns a change that sets a key of a discovery file.
func With(key string, value any) func(map[string]any) {
	return func(f map[string]any) { f[key] = value }
}
