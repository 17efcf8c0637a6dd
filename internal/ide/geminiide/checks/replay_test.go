package checks

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pollux/internal/hostile"
	"pollux/internal/ide/geminiide"
	"pollux/internal/sys/systest"
)

// Which of several files Gemini CLI chooses. TestDoctor in e2e checks that the
// real one does the same.
func TestReplay(t *testing.T) {
	self := os.Getpid()
	const dead = 1<<22 - 1 // beyond pid_max's default
	type file struct {
		pid, port int
		workspace string
		raw       string
	}
	for _, tt := range []struct {
		name   string
		minor  int
		env    map[string]string
		files  []file
		want   int // the port of the chosen one; 0 for none
		inside bool
	}{
		{name: "nothing", minor: 61},
		{name: "the exact PID before a larger one", minor: 61, files: []file{{pid: self, port: 1, workspace: "ROOT"}, {pid: dead, port: 2, workspace: "ROOT"}}, want: 1, inside: true, env: map[string]string{"GEMINI_CLI_IDE_PID": "SELF"}},
		{name: "a live PID before a dead one", minor: 61, files: []file{{pid: self, port: 1, workspace: "ROOT"}, {pid: dead, port: 2, workspace: "ROOT"}}, want: 1, inside: true},
		{name: "of two dead ones the larger", minor: 61, files: []file{{pid: dead - 1, port: 1, workspace: "ROOT"}, {pid: dead, port: 2, workspace: "ROOT"}}, want: 2, inside: true},
		{name: "the workspace before the PID", minor: 61, files: []file{{pid: self, port: 1, workspace: "/elsewhere"}, {pid: dead, port: 2, workspace: "ROOT"}}, want: 2, inside: true},
		{name: "a workspace above", minor: 61, files: []file{{pid: dead, port: 2, workspace: "ROOT/.."}}, want: 2, inside: true},
		{name: "a workspace below", minor: 61, files: []file{{pid: dead, port: 2, workspace: "ROOT/sub"}}, want: 2},
		{name: "a name that only begins alike", minor: 61, files: []file{{pid: dead, port: 2, workspace: "ROOTx"}}, want: 2},
		{name: "one of several roots", minor: 61, files: []file{{pid: dead, port: 2, workspace: "/elsewhere:ROOT"}}, want: 2, inside: true},
		{name: "a relative part is everything", minor: 61, files: []file{{pid: dead, port: 2, workspace: "/elsewhere:"}}, want: 2, inside: true},
		{name: "no workspace at all", minor: 61, files: []file{{pid: dead, port: 2, workspace: ""}}, want: 2},
		{name: "the port of the environment", minor: 61, env: map[string]string{"GEMINI_CLI_IDE_SERVER_PORT": "1"}, files: []file{{pid: dead - 1, port: 1, workspace: "ROOT"}, {pid: dead, port: 2, workspace: "ROOT"}}, want: 1, inside: true},
		{name: "but not of another workspace", minor: 61, env: map[string]string{"GEMINI_CLI_IDE_SERVER_PORT": "1"}, files: []file{{pid: dead - 1, port: 1, workspace: "/elsewhere"}, {pid: dead, port: 2, workspace: "ROOT"}}, want: 2, inside: true},
		{name: "a mismatch is tried, that of the environment first", minor: 61, env: map[string]string{"GEMINI_CLI_IDE_SERVER_PORT": "1"}, files: []file{{pid: dead - 1, port: 1, workspace: "/elsewhere"}, {pid: dead, port: 2, workspace: "/elsewhere"}}, want: 1},
		{name: "invalid files are skipped", minor: 61, files: []file{{pid: dead, port: 9, raw: "{"}, {pid: dead - 1, port: 8, raw: "[]"}, {pid: dead - 2, port: 3, workspace: "ROOT"}}, want: 3, inside: true},
		{name: "a port in a string", minor: 61, files: []file{{pid: dead, port: 7, raw: `{"port":"7","workspacePath":"ROOT"}`}}, want: 7, inside: true},
		{name: "before 0.31 another PID does not count", minor: 20, files: []file{{pid: dead, port: 2, workspace: "ROOT"}}},
		{name: "nor the variable", minor: 20, env: map[string]string{"GEMINI_CLI_IDE_PID": fmt.Sprint(dead)}, files: []file{{pid: dead, port: 2, workspace: "ROOT"}}},
		{name: "nor another workspace", minor: 20, files: []file{{pid: -1, port: 2, workspace: "/elsewhere"}}},
		{name: "but the exact PID", minor: 20, files: []file{{pid: -1, port: 2, workspace: "ROOT"}}, want: 2, inside: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			root := t.TempDir()
			tmp := t.TempDir()
			env := map[string]string{"TMPDIR": tmp, "TEMP": tmp}
			for k, v := range tt.env {
				if v == "SELF" {
					v = fmt.Sprint(self)
				}
				env[k] = v
			}
			dir := filepath.Join(tmp, "gemini", "ide")
			systest.MakeDir(t, dir)
			for _, f := range tt.files {
				if f.pid < 0 {
					f.pid = geminiide.IDEPID(self)
				}
				fill := func(s string) string {
					s = strings.ReplaceAll(s, "/elsewhere:", "/elsewhere"+string(os.PathListSeparator))
					return strings.ReplaceAll(s, "ROOT", root)
				}
				text := strings.ReplaceAll(f.raw, "ROOT", strings.ReplaceAll(root, `\`, `\\`))
				if f.raw == "" {
					data, _ := json.Marshal(map[string]any{"port": f.port, "workspacePath": fill(f.workspace)})
					text = string(data)
				}
				systest.WriteFile(t, filepath.Join(dir, fmt.Sprintf("gemini-ide-server-%d-%d.json", f.pid, f.port)), text)
			}
			l := replay(launch{Dir: root, Getenv: func(k string) string { return env[k] }, PID: self, Minor: tt.minor})
			got, inside := 0, false
			if l.Chosen != nil {
				got, inside = l.Chosen.File.Port, l.Chosen.Inside
			}
			if got != tt.want || inside != tt.inside {
				t.Errorf("chose port %d (inside %v), want %d (%v); candidates %+v", got, inside, tt.want, tt.inside, l.Candidates)
			}
			if l.Dir != dir || len(l.Candidates) != len(tt.files) {
				t.Errorf("looked in %s and saw %d files, want %s and %d", l.Dir, len(l.Candidates), dir, len(tt.files))
			}
		})
	}
}

// A name without a port wins regardless of its workspace.
func TestReplayDirect(t *testing.T) {
	tmp := t.TempDir()
	dir := filepath.Join(tmp, "gemini", "ide")
	self := geminiide.IDEPID(os.Getpid())
	for name, text := range map[string]string{
		fmt.Sprintf("gemini-ide-server-%d.json", self):   `{"port":1,"workspacePath":"/elsewhere"}`,
		fmt.Sprintf("gemini-ide-server-%d-2.json", self): `{"port":2,"workspacePath":"/"}`,
	} {
		systest.WriteFile(t, filepath.Join(dir, name), text)
	}
	env := map[string]string{"TMPDIR": tmp, "TEMP": tmp}
	l := replay(launch{Dir: "/", Getenv: func(k string) string { return env[k] }, PID: os.Getpid(), Minor: 61})
	if l.Chosen == nil || !l.Chosen.Direct || l.Chosen.File.Port != 1 {
		t.Errorf("chose %+v, want the file without a port", l.Chosen)
	}
}

func TestReplayPassesOverOtherUsers(t *testing.T) {
	systest.NeedRoot(t)
	tmp := t.TempDir()
	path := filepath.Join(tmp, "gemini", "ide", "gemini-ide-server-1-1.json")
	systest.WriteFile(t, path, `{"port":1,"workspacePath":"/"}`)
	if err := os.Chown(path, 65534, 65534); err != nil {
		t.Fatal(err)
	}
	env := map[string]string{"TMPDIR": tmp, "TEMP": tmp}
	l := replay(launch{Dir: "/", Getenv: func(k string) string { return env[k] }, PID: os.Getpid(), Minor: 61})
	if l.Chosen != nil || len(l.Candidates) != 1 || !errors.Is(l.Candidates[0].Err, errOtherUser) {
		t.Errorf("chose %+v of %+v", l.Chosen, l.Candidates)
	}
}

// Another user can put such a file into the temporary directory, where a CLI
// before 0.31 looks.
func TestReplayHostileFiles(t *testing.T) {
	for _, kind := range hostile.Kinds {
		t.Run(kind, func(t *testing.T) {
			tmp := t.TempDir()
			self := geminiide.IDEPID(os.Getpid())
			old := filepath.Join(tmp, fmt.Sprintf("gemini-ide-server-%d.json", self))
			hostile.Plant(t, kind, old)
			current := filepath.Join(tmp, "gemini", "ide", fmt.Sprintf("gemini-ide-server-%d-1.json", self))
			hostile.Plant(t, kind, current)
			env := map[string]string{"TMPDIR": tmp, "TEMP": tmp}
			for _, minor := range []int{20, 61} {
				l := replay(launch{Dir: tmp, Getenv: func(k string) string { return env[k] }, PID: os.Getpid(), Minor: minor})
				if l.Chosen != nil || len(l.Candidates) != 1 || l.Candidates[0].Err == nil {
					t.Errorf("0.%d: chose %+v of %+v", minor, l.Chosen, l.Candidates)
				}
			}
			if f, err := geminiide.Read(current); err == nil {
				t.Errorf("read as %+v", f)
			}
		})
	}
}
