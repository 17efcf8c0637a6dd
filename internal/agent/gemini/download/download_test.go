package download

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"pollux/internal/agent"
)

// The lock file pins the tested release, with a checksum for each package.
func TestPinned(t *testing.T) {
	var l struct {
		Packages map[string]struct{ Version, Integrity string }
	}
	if err := json.Unmarshal(lock, &l); err != nil {
		t.Fatal(err)
	}
	if v := l.Packages["node_modules/"+Package].Version; v != Version {
		t.Errorf("the lock file has %s", v)
	}
	for name, p := range l.Packages {
		if name != "" && !strings.HasPrefix(p.Integrity, "sha512-") {
			t.Errorf("%s has the checksum %q", name, p.Integrity)
		}
	}
	setup, err := os.ReadFile("../../../../scripts/setup.sh")
	if err != nil || !strings.Contains(string(setup), "install gemini-"+Version+" "+Package+"@"+Version) {
		t.Errorf("the tests install another release: %v", err)
	}
}

func TestDir(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("other directories")
	}
	for _, tt := range []struct {
		env  agent.Env
		want string
	}{
		{agent.Env{"HOME=/h"}, "/h/.local/share/pollux/gemini-cli-" + Version},
		{agent.Env{"HOME=/h", "XDG_DATA_HOME=/d"}, "/d/pollux/gemini-cli-" + Version},
		{agent.Env{"HOME=/h", "XDG_DATA_HOME=d"}, "/h/.local/share/pollux/gemini-cli-" + Version},
		{agent.Env{}, ""},
	} {
		if got, err := Dir(tt.env); got != tt.want || (err == nil) != (tt.want != "") {
			t.Errorf("%v: %q, %v; want %q", tt.env, got, err, tt.want)
		}
	}
}

// withNPM puts a stub of npm on the PATH and returns the directory for data.
func withNPM(t *testing.T, script string) string {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("the stub is a shell script")
	}
	bin, data := t.TempDir(), t.TempDir()
	text := "#!/bin/sh\nPATH=/usr/bin:/bin\ndir=$3\n" + script + "\n"
	if err := os.WriteFile(filepath.Join(bin, "npm"), []byte(text), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin)
	t.Setenv("XDG_DATA_HOME", data)
	return filepath.Join(data, "pollux")
}

const (
	fetchOne = "echo 'npm http fetch GET 200 https://registry.npmjs.org/a/-/a-1.0.0.tgz 1ms' >&2"
	install  = "mkdir -p $dir/node_modules/.bin && cp $0 $dir/node_modules/.bin/gemini"
)

func TestInstall(t *testing.T) {
	data := withNPM(t, fetchOne+"\n"+install)
	// A damaged installation is replaced.
	if err := os.MkdirAll(filepath.Join(data, "gemini-cli-"+Version, "node_modules"), 0o700); err != nil {
		t.Fatal(err)
	}
	if path, ok := Find(nil); ok {
		t.Errorf("found %s", path)
	}
	fetched := 0
	path, err := Install(t.Context(), func() { fetched++ })
	found, ok := Find(nil)
	if err != nil || !ok || path != found || fetched != 1 {
		t.Errorf("installed %q, %v, after %d packages; found %q", path, err, fetched, found)
	}
	if names := left(t, data); len(names) != 1 {
		t.Errorf("%s holds %v", data, names)
	}
}

func TestInstallFails(t *testing.T) {
	for _, tt := range []struct{ script, says string }{
		{"echo 'npm warn x' >&2; echo 'npm error code E404' >&2; exit 1", "exit code 1\n  code E404"},
		{"echo 'npm ERR! code E404' >&2; exit 1", "\n  code E404"},
		{install + "; exit 3", "exit code 3"},
		{"", "no command named gemini"},
	} {
		data := withNPM(t, tt.script)
		_, err := Install(t.Context(), func() {})
		if err == nil || !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%q: %v, want %q", tt.script, err, tt.says)
		}
		if names := left(t, data); len(names) > 0 {
			t.Errorf("%q: left %v", tt.script, names)
		}
	}
}

// Ctrl-C ends npm and leaves nothing behind.
func TestInstallInterrupted(t *testing.T) {
	data := withNPM(t, install+"\n"+fetchOne+"\nexec sleep 600")
	cause := errors.New("interrupted")
	ctx, cancel := context.WithCancelCause(t.Context())
	if _, err := Install(ctx, func() { cancel(cause) }); !errors.Is(err, cause) {
		t.Error(err)
	}
	if names := left(t, data); len(names) > 0 {
		t.Errorf("left %v", names)
	}
}

func left(t *testing.T, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}
