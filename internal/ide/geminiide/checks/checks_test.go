package checks

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"pollux/internal/doctor"
	"pollux/internal/editor"
	"pollux/internal/ide/geminiide"
	"pollux/internal/sys/systest"
)

func TestMain(m *testing.M) { systest.VerifyTestMain(m) }

const (
	token   = "secret"
	deadPID = 1 << 30 // above the limits of all systems
	noPort  = 1       // no program listens on it
)

// A site is a project in which Gemini CLI would be started.
type site struct {
	t       *testing.T
	project string
	files   string // the directory of the discovery files
	dir     string // where doctor runs
	minor   int    // the CLI's release
	running []editor.Running
	lock    bool // files are lock files, as Qwen Code has them
}

// companion serves a companion with some tools and returns its port.
func (s *site) companion(tools ...string) int {
	var list []map[string]any
	for _, name := range tools {
		list = append(list, map[string]any{"name": name, "inputSchema": map[string]any{"type": "object"}})
	}
	return s.serve(func(w http.ResponseWriter, r *http.Request) {
		var m struct {
			ID     any
			Method string
		}
		json.NewDecoder(r.Body).Decode(&m)
		result := map[string]any{"tools": list}
		switch {
		case r.Header.Get("Authorization") != "Bearer "+token:
			w.WriteHeader(http.StatusUnauthorized)
			return
		case m.ID == nil:
			w.WriteHeader(http.StatusAccepted)
			return
		case m.Method == "initialize":
			result = map[string]any{"protocolVersion": "2025-06-18", "capabilities": map[string]any{}}
		}
		w.Header().Set("Content-Type", "application/json")
		json.NewEncoder(w).Encode(map[string]any{"jsonrpc": "2.0", "id": m.ID, "result": result})
	})
}

// serve starts a server and returns its port.
func (s *site) serve(handler http.HandlerFunc) int {
	server := httptest.NewServer(handler)
	s.t.Cleanup(server.Close)
	return server.Listener.Addr().(*net.TCPAddr).Port
}

// healthy publishes a companion of Pollux for the project, with a change to its file.
func (s *site) healthy(change func(f map[string]any)) (port int, path string) {
	port = s.companion(geminiide.ToolOpenDiff, geminiide.ToolCloseDiff)
	return port, s.publish(os.Getpid(), port, change)
}

// publish writes the discovery file of a companion for an editor's process, and returns its path.
func (s *site) publish(pid, port int, change func(f map[string]any)) string {
	s.t.Helper()
	f := map[string]any{
		"port": port, "workspacePath": s.project, "authToken": token, "polluxPid": os.Getpid(),
		"ideInfo": map[string]any{"name": "test", "displayName": "Test"},
	}
	name := fmt.Sprintf("gemini-ide-server-%d-%d.json", pid, port)
	if s.lock {
		name, f["ppid"] = fmt.Sprintf("%d.lock", port), pid
	}
	if change != nil {
		change(f)
	}
	data, err := json.Marshal(f)
	if err != nil {
		s.t.Fatal(err)
	}
	return s.write(name, string(data))
}

func (s *site) write(name, text string) string {
	s.t.Helper()
	path := filepath.Join(s.files, name)
	systest.WriteFile(s.t, path, text)
	return path
}

func (s *site) chmod(mode os.FileMode, path string) {
	s.t.Helper()
	if err := os.Chmod(path, mode); err != nil {
		s.t.Fatal(err)
	}
}

// giveAway makes another user the owner.
func (s *site) giveAway(all ...string) {
	s.t.Helper()
	if os.Getuid() != 0 {
		s.t.Skip("needs root")
	}
	for _, path := range all {
		if err := os.Chown(path, 65534, 65534); err != nil {
			s.t.Fatal(err)
		}
	}
}

// without returns a change to a discovery file.
func without(key string) func(map[string]any) {
	return func(f map[string]any) { delete(f, key) }
}

func with(key string, value any) func(map[string]any) {
	return func(f map[string]any) { f[key] = value }
}

// Doctor finds each cause, and nothing more. The end-to-end tests see whether the real CLI
// behaves as these findings say.
func TestCauses(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("it has no TMPDIR, and no modes of files")
	}
	for name, tt := range map[string]struct {
		make func(s *site)
		want []string
	}{
		"healthy": {make: func(s *site) { s.healthy(nil) }},
		"healthy, by the variables": {make: func(s *site) {
			port, _ := s.healthy(nil)
			s.t.Setenv("GEMINI_CLI_IDE_SERVER_PORT", strconv.Itoa(port))
			s.t.Setenv("GEMINI_CLI_IDE_AUTH_TOKEN", token)
		}},
		"healthy, in a folder below": {make: func(s *site) {
			s.healthy(nil)
			s.dir = filepath.Join(s.project, "sub")
		}},
		"no companion": {make: func(*site) {}, want: []string{"failed companion"}},
		"an old CLI, another process": {want: []string{"failed process", "warning cli"}, make: func(s *site) {
			s.minor = 20
			s.publish(deadPID, s.companion(), nil)
		}},
		"a CLI that sends no token": {want: []string{"failed cli", "failed process"}, make: func(s *site) {
			s.minor = 5
			s.publish(deadPID, s.companion(), nil)
		}},
		"variables of an editor that is gone": {want: []string{"warning variables"}, make: func(s *site) {
			s.healthy(nil)
			s.t.Setenv("GEMINI_CLI_IDE_SERVER_PORT", strconv.Itoa(noPort))
			s.t.Setenv("GEMINI_CLI_IDE_WORKSPACE_PATH", "/gone")
		}},
		"variables of a process that is gone": {want: []string{"warning variables"}, make: func(s *site) {
			s.healthy(nil)
			s.t.Setenv("GEMINI_CLI_IDE_PID", strconv.Itoa(deadPID))
		}},
		"another TMPDIR": {want: []string{"failed tmpdir"}, make: func(s *site) {
			if runtime.GOOS != "linux" {
				s.t.Skip("needs /proc")
			}
			s.healthy(nil)
			cmd := exec.Command("sleep", "1000") // for the editor
			if err := cmd.Start(); err != nil {
				s.t.Fatal(err)
			}
			s.t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
			s.t.Setenv("TMPDIR", s.t.TempDir())
		}},
		"another folder": {want: []string{"failed workspace"}, make: func(s *site) {
			s.healthy(nil)
			s.dir = s.t.TempDir()
		}},
		"no folder":           {want: []string{"failed workspace"}, make: func(s *site) { s.healthy(with("workspacePath", "")) }},
		"no workspace at all": {want: []string{"failed workspace"}, make: func(s *site) { s.healthy(without("workspacePath")) }},
		"no name":             {want: []string{"failed editor"}, make: func(s *site) { s.healthy(without("ideInfo")) }},
		"a wrong token":       {want: []string{"failed token"}, make: func(s *site) { s.healthy(with("authToken", "wrong")) }},
		"a port of something else": {want: []string{"failed port"}, make: func(s *site) {
			s.publish(os.Getpid(), s.serve(http.NotFound), nil)
		}},
		"a companion that was killed": {want: []string{"failed stale"}, make: func(s *site) {
			s.publish(os.Getpid(), noPort, with("polluxPid", deadPID))
		}},
		"a stopped companion": {want: []string{"failed port"}, make: func(s *site) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				s.t.Fatal(err)
			}
			s.t.Cleanup(func() { l.Close() })
			s.publish(os.Getpid(), l.Addr().(*net.TCPAddr).Port, nil)
		}},
		"a file of a companion that has ended, beside": {want: []string{"warning stale"}, make: func(s *site) {
			s.healthy(nil)
			s.publish(deadPID, noPort, nil)
		}},
		"a file that is none": {want: []string{"warning file"}, make: func(s *site) {
			s.healthy(nil)
			s.write(fmt.Sprintf("gemini-ide-server-%d-1.json", deadPID), "{")
		}},
		"its files are gone": {want: []string{"failed file"}, make: func(s *site) {
			s.running = []editor.Running{{Status: editor.Status{Roots: []string{s.project}}}}
		}},
		"files that others can read": {want: []string{"warning directory"}, make: func(s *site) {
			_, path := s.healthy(nil)
			s.chmod(0o755, s.files)
			s.chmod(0o644, path)
		}},
		"files that others could read, in a directory of mine": {make: func(s *site) {
			_, path := s.healthy(nil)
			s.chmod(0o644, path)
		}},
		"a directory that others can write": {want: []string{"warning directory"}, make: func(s *site) {
			s.healthy(nil)
			s.chmod(0o777, s.files)
		}},
		"a directory that others can list": {make: func(s *site) {
			s.healthy(nil)
			s.chmod(0o755, s.files)
		}},
		"another user's directory": {want: []string{"failed directory"}, make: func(s *site) {
			s.write("f", "")
			s.giveAway(filepath.Dir(s.files))
		}},
		"sudo": {want: []string{"failed user"}, make: func(s *site) {
			_, path := s.healthy(nil)
			s.giveAway(path, s.files, filepath.Dir(s.files))
			s.t.Setenv("SUDO_USER", "nobody")
		}},
		"another user's companion": {want: []string{"failed user"}, make: func(s *site) {
			_, path := s.healthy(nil)
			s.giveAway(path)
		}},
		"two companions": {want: []string{"warning several"}, make: func(s *site) { s.healthy(nil); s.healthy(nil) }},
		"two companions, one by the variables": {make: func(s *site) {
			s.healthy(nil)
			port, _ := s.healthy(nil)
			s.t.Setenv("GEMINI_CLI_IDE_SERVER_PORT", strconv.Itoa(port))
		}},
		"another companion comes first": {want: []string{"warning hijack"}, make: func(s *site) {
			s.healthy(without("polluxPid"))
			s.publish(deadPID, s.companion(), nil)
		}},
		"a companion that claims every folder": {want: []string{"warning hijack"}, make: func(s *site) {
			s.healthy(with("workspacePath", "/elsewhere:"))
		}},
		"a companion without diffs": {want: []string{"warning tools"}, make: func(s *site) {
			s.publish(os.Getpid(), s.companion(), nil)
		}},
		"a companion of another version": {want: []string{"warning version"}, make: func(s *site) {
			s.healthy(nil)
			s.running = []editor.Running{{Status: editor.Status{PID: os.Getpid(), Version: "0.0.1", Roots: []string{s.project}}}}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			for _, key := range append([]string{"TERM_PROGRAM", "ZED_SESSION_ID", "XCODE_VERSION_ACTUAL", "TERMINAL_EMULATOR", "SUDO_USER"}, geminiide.EnvNames...) {
				t.Setenv(key, "")
				os.Unsetenv(key)
			}
			t.Setenv("REMOTE_CONTAINERS", "1") // in another container the CLI would connect to the host
			t.Setenv("TMPDIR", t.TempDir())
			s := &site{t: t, project: t.TempDir(), files: filepath.Join(os.Getenv("TMPDIR"), "gemini", "ide"), minor: newestMinor}
			s.dir = s.project
			tt.make(s)
			p := new(Protocol)
			program := func(_ context.Context, c *doctor.Checker) {
				c.Program = doctor.Program{Path: "gemini", Version: fmt.Sprintf("0.%d.0", s.minor), Minor: s.minor, Update: "update it"}
			}
			report := doctor.Examine(t.Context(), doctor.Config{Dir: s.dir, Running: s.running, Version: "1"},
				[]doctor.Part{{Checks: []doctor.Check{program, p.Release, p.Variables, p.Companion}}})
			var got []string
			for _, f := range report.Findings {
				if strings.Contains(f.Text+f.Next, token) {
					t.Errorf("it prints the token: %+v", f)
				}
				if f.Status == doctor.OK {
					continue
				}
				got = append(got, string(f.Status)+" "+f.Check)
				if f.Next == "" && !strings.Contains(f.Text, ": ") {
					t.Errorf("%s names no next step: %s", f.Check, f.Text)
				}
			}
			if slices.Sort(got); !slices.Equal(slices.Compact(got), tt.want) {
				t.Errorf("doctor finds %q, want %q: %+v", got, tt.want, report.Findings)
			}
		})
	}
}

// Qwen Code finds a companion through a lock file in its own directory.
func TestQwen(t *testing.T) {
	for name, tt := range map[string]struct {
		make func(s *site)
		want []string
	}{
		"healthy":      {make: func(s *site) { s.healthy(nil) }},
		"no companion": {make: func(*site) {}, want: []string{"failed companion"}},
		"the port of its variable": {make: func(s *site) {
			port, _ := s.healthy(nil)
			s.t.Setenv("QWEN_CODE_IDE_SERVER_PORT", strconv.Itoa(port))
		}},
		"no companion with the port of its variable": {want: []string{"failed variables"}, make: func(s *site) {
			s.healthy(nil)
			s.t.Setenv("QWEN_CODE_IDE_SERVER_PORT", strconv.Itoa(noPort))
		}},
		"a wrong token": {want: []string{"failed token"}, make: func(s *site) { s.healthy(with("authToken", "wrong")) }},
		"a port of something else": {want: []string{"failed port"}, make: func(s *site) {
			s.publish(os.Getpid(), s.serve(http.NotFound), nil)
		}},
		"a folder below": {want: []string{"failed workspace"}, make: func(s *site) {
			s.healthy(with("workspacePath", filepath.Join(s.project, "sub")))
		}},
		"a symbolic link": {want: []string{"failed symlink"}, make: func(s *site) {
			link := filepath.Join(s.t.TempDir(), "link")
			systest.Link(s.t, s.project, link)
			s.healthy(with("workspacePath", link))
		}},
		"a process that has ended": {want: []string{"failed lock"}, make: func(s *site) {
			s.healthy(func(f map[string]any) { f["ppid"] = deadPID; delete(f, "polluxPid") })
		}},
		// The next companion removes its file.
		"a companion that was killed": {want: []string{"failed companion"}, make: func(s *site) {
			s.healthy(func(f map[string]any) { f["ppid"], f["polluxPid"] = deadPID, deadPID })
		}},
		"a file that is none": {want: []string{"failed companion"}, make: func(s *site) { s.write("1.lock", "{") }},
		"the newest": {make: func(s *site) {
			path, old := s.publish(os.Getpid(), noPort, nil), time.Now().Add(-time.Hour)
			if err := os.Chtimes(path, old, old); err != nil {
				s.t.Fatal(err)
			}
			s.healthy(nil)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			systest.SetHome(t, t.TempDir())
			home, err := os.UserHomeDir()
			if err != nil {
				t.Fatal(err)
			}
			t.Setenv("REMOTE_CONTAINERS", "1") // in another container it would connect to the host
			t.Setenv("QWEN_CODE_IDE_SERVER_PORT", "")
			project := systest.Dir(t)
			s := &site{t: t, project: project, files: filepath.Join(home, ".qwen", "ide"), lock: true}
			tt.make(s)
			report := doctor.Examine(t.Context(), doctor.Config{Dir: project}, []doctor.Part{{Checks: []doctor.Check{Qwen}}})
			var got []string
			for _, f := range report.Findings {
				if f.Status != doctor.OK {
					got = append(got, string(f.Status)+" "+f.Check)
				}
				if strings.Contains(f.Text+f.Next, token) || f.Status != doctor.OK && f.Next == "" {
					t.Errorf("the finding is %+v", f)
				}
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("doctor finds %q, want %q: %+v", got, tt.want, report.Findings)
			}
		})
	}
}
