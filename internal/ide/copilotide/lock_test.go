package copilotide

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"testing/synctest"
	"time"

	"pollux/internal/companion"
	"pollux/internal/ide/blocking"
	"pollux/internal/sys/systest"
)

// publish starts a server and publishes it. prepare, if not nil, runs before the server
// serves.
func publish(t *testing.T, cfg Config, prepare func(*Server), roots ...string) *Server {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(cfg.Dir), 0o700); err != nil { // the agent is in use
		t.Fatal(err)
	}
	s := New(cfg)
	if prepare != nil {
		prepare(s)
	}
	s.Serve()
	if err := s.Publish(roots, nil); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.Unpublish()
		s.Close(t.Context())
	})
	return s
}

func only(t *testing.T, dir string) Found {
	t.Helper()
	found := Find(dir)
	if len(found) != 1 {
		t.Fatalf("%d locks", len(found))
	}
	return found[0]
}

func TestLock(t *testing.T) {
	cfg := config(t, newBackend())
	actual := systest.Dir(t)
	project := systest.Abs("/project")
	s := publish(t, cfg, nil, project, systest.Alias(t, actual))
	l := only(t, cfg.Dir)
	if l.PID != os.Getpid() || l.IDEName != "Test" || l.Headers["Authorization"] != "Nonce "+s.nonce || l.IsTrusted ||
		time.Since(time.UnixMilli(l.Timestamp)).Abs() > time.Minute || l.SocketPath != s.address {
		t.Errorf("%+v", l)
	}
	if got := l.WorkspaceFolders; len(got) != 2 || got[0] != project || got[1] != actual {
		t.Errorf("the folders are %q", got)
	}
	if !regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}\.lock$`).
		MatchString(filepath.Base(l.Path)) {
		t.Errorf("the name is %s", filepath.Base(l.Path))
	}
	s.Unpublish()
	if left := Find(cfg.Dir); len(left) > 0 {
		t.Errorf("after Unpublish: %v", left)
	}
	if err := s.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(l.SocketPath); err == nil {
		t.Error("the socket is still there")
	}
}

// The editor may learn that the user trusts the folder. Nothing else makes the agent trust it.
func TestLockStays(t *testing.T) {
	b := newBackend()
	cfg := config(t, b)
	synctest.Test(t, func(t *testing.T) {
		publish(t, cfg, useNetwork, "/project")
		l := only(t, cfg.Dir)
		trusts := func(trusted *bool, want bool) {
			t.Helper()
			b.SetContext(companion.Context{Trusted: trusted})
			time.Sleep(2 * blocking.CheckInterval)
			if got := only(t, cfg.Dir); got.IsTrusted != want || got.Path != l.Path {
				t.Errorf("%+v", got)
			}
		}
		yes, no := true, false
		trusts(nil, false)
		trusts(&yes, true)
		trusts(&no, false)
	})
}

// Without the agent on this machine nothing is written.
func TestUnwanted(t *testing.T) {
	cfg := config(t, newBackend())
	t.Setenv("PATH", t.TempDir())
	s := New(cfg)
	if err := s.Publish([]string{"/project"}, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(cfg.Dir); err == nil {
		t.Error("the directory was created")
	}
	if err := s.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestDir(t *testing.T) {
	systest.SetHome(t, systest.Abs("/home/me"))
	elsewhere := systest.Abs("/elsewhere")
	for set, want := range map[string]string{"": systest.Abs("/home/me/.copilot/ide"), elsewhere: filepath.Join(elsewhere, "ide")} {
		t.Setenv(EnvHome, set)
		if got, err := Dir(); err != nil || got != want {
			t.Errorf("%q: %q, %v", set, got, err)
		}
	}
}
