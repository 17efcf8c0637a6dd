// Package changetest helps tests of change mode. It creates projects on disk,
// and the blocks of answers.
package changetest

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// Project creates a directory with files, and a git repository if requested.
func Project(t testing.TB, repository bool, files map[string]string) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if repository {
		Git(t, dir, "init", "-q")
		Git(t, dir, "add", "-A")
		Git(t, dir, "-c", "user.name=x", "-c", "user.email=x@example.org", "commit", "-qm", "x")
	}
	return dir
}

// Git runs git in a directory, without the configuration of the user and the system, and
// returns its output.
func Git(t testing.TB, dir string, args ...string) string {
	t.Helper()
	cmd := exec.Command("git", append([]string{"-c", "core.longPaths=true"}, args...)...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL="+os.DevNull, "GIT_CONFIG_SYSTEM="+os.DevNull)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("git %v: %v\n%s", args, err, out)
	}
	return string(out)
}

// Block returns a block of an answer that replaces text.
func Block(head, before, after string) string {
	return "**FILE: " + head + "**\n===OLD===\n" + before + "\n===NEW===\n" + after + "\n===END===\n"
}
