package checks

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"pollux/internal/doctor"
	"pollux/internal/ide/geminiide"
	"pollux/internal/ide/geminiide/causes"
	"pollux/internal/sys/systest"
)

func TestMain(m *testing.M) { systest.VerifyTestMain(m) }

// Doctor finds each cause, and nothing more. The end-to-end tests see whether the real CLI
// behaves as these findings say.
func TestCauses(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("it has no TMPDIR, and no modes of files")
	}
	for name, tt := range causes.All {
		t.Run(name, func(t *testing.T) {
			for _, key := range append([]string{"TERM_PROGRAM", "ZED_SESSION_ID", "XCODE_VERSION_ACTUAL", "TERMINAL_EMULATOR", "SUDO_USER"}, geminiide.EnvNames...) {
				t.Setenv(key, "")
				os.Unsetenv(key)
			}
			t.Setenv("REMOTE_CONTAINERS", "1") // in another container the CLI would connect to the host
			t.Setenv("TMPDIR", t.TempDir())
			s := &causes.Site{T: t, Project: t.TempDir(), Files: filepath.Join(os.Getenv("TMPDIR"), "gemini", "ide"), Setenv: t.Setenv, Minor: newestMinor}
			s.Dir = s.Project
			tt.Make(s)
			p := new(Protocol)
			program := func(_ context.Context, c *doctor.Checker) {
				c.Program = doctor.Program{Path: "gemini", Version: fmt.Sprintf("0.%d.0", s.Minor), Minor: s.Minor, Update: "update it"}
			}
			report := doctor.Examine(t.Context(), doctor.Config{Dir: s.Dir, Running: s.Running, Version: "1"},
				[]doctor.Part{{Checks: []doctor.Check{program, p.Release, p.Variables, p.Companion}}})
			var got []string
			for _, f := range report.Findings {
				if strings.Contains(f.Text+f.Next, causes.Token) {
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
			if slices.Sort(got); !slices.Equal(slices.Compact(got), tt.Want) {
				t.Errorf("doctor finds %q, want %q: %+v", got, tt.Want, report.Findings)
			}
		})
	}
}

// Qwen Code finds a companion through a lock file in its own directory.
func TestQwen(t *testing.T) {
	defer func(lookup func(context.Context, string) ([]string, error)) { lookupHost = lookup }(lookupHost)
	lookupHost = func(context.Context, string) ([]string, error) { return nil, errors.New("no such host") }
	for name, tt := range map[string]struct {
		make func(s *causes.Site)
		want []string
	}{
		"healthy":      {make: func(s *causes.Site) { s.Healthy(nil) }},
		"no companion": {make: func(*causes.Site) {}, want: []string{"failed companion"}},
		"the port of its variable": {make: func(s *causes.Site) {
			port, _ := s.Healthy(nil)
			s.Setenv("QWEN_CODE_IDE_SERVER_PORT", strconv.Itoa(port))
		}},
		"no companion with the port of its variable": {want: []string{"failed variables"}, make: func(s *causes.Site) {
			s.Healthy(nil)
			s.Setenv("QWEN_CODE_IDE_SERVER_PORT", strconv.Itoa(causes.NoPort))
		}},
		"a wrong token": {want: []string{"failed token"}, make: func(s *causes.Site) { s.Healthy(causes.With("authToken", "wrong")) }},
		"a port of something else": {want: []string{"failed port"}, make: func(s *causes.Site) {
			s.Publish(os.Getpid(), s.Serve(http.NotFound), nil)
		}},
		"a folder below": {want: []string{"failed workspace"}, make: func(s *causes.Site) {
			s.Healthy(causes.With("workspacePath", filepath.Join(s.Project, "sub")))
		}},
		"a symbolic link": {want: []string{"failed symlink"}, make: func(s *causes.Site) {
			link := filepath.Join(s.T.TempDir(), "link")
			systest.Link(s.T, s.Project, link)
			s.Healthy(causes.With("workspacePath", link))
		}},
		"a process that has ended": {want: []string{"failed lock"}, make: func(s *causes.Site) {
			s.Healthy(func(f map[string]any) { f["ppid"] = causes.DeadPID; delete(f, "polluxPid") })
		}},
		// The next companion removes its file.
		"a companion that was killed": {want: []string{"failed companion"}, make: func(s *causes.Site) {
			s.Healthy(func(f map[string]any) { f["ppid"], f["polluxPid"] = causes.DeadPID, causes.DeadPID })
		}},
		"a file that is none": {want: []string{"failed companion"}, make: func(s *causes.Site) { s.Write("1.lock", "{") }},
		"the newest": {make: func(s *causes.Site) {
			path, old := s.Publish(os.Getpid(), causes.NoPort, nil), time.Now().Add(-time.Hour)
			if err := os.Chtimes(path, old, old); err != nil {
				s.T.Fatal(err)
			}
			s.Healthy(nil)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			systest.SetHome(t, t.TempDir())
			home, err := os.UserHomeDir()
			if err != nil {
				t.Fatal(err)
			}
			t.Setenv("QWEN_CODE_IDE_SERVER_PORT", "")
			project := systest.Dir(t)
			s := &causes.Site{T: t, Project: project, Files: filepath.Join(home, ".qwen", "ide"), Setenv: t.Setenv, Lock: true}
			tt.make(s)
			report := doctor.Examine(t.Context(), doctor.Config{Dir: project}, []doctor.Part{{Checks: []doctor.Check{Qwen}}})
			var got []string
			for _, f := range report.Findings {
				if f.Status != doctor.OK {
					got = append(got, string(f.Status)+" "+f.Check)
				}
				if strings.Contains(f.Text+f.Next, causes.Token) || f.Status != doctor.OK && f.Next == "" {
					t.Errorf("the finding is %+v", f)
				}
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("doctor finds %q, want %q: %+v", got, tt.want, report.Findings)
			}
		})
	}
}
