// Package changetest helps tests of change mode: a project on disk, and the
// blocks of an answer.
package changetest

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// project makes a directory with files, a git repository if asked to.
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

func Git(t testing.TB, dir string, args ...string) string {
	t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL="+os.DevNull, "GIT_CONFIG_SYSTEM="+os.DevNull)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("git %v: %v\n%s", args, err, out)
	}
	return string(out)
}

func Block(head, old, new string) string {
	return "**FILE: " + head + "**\n===OLD===\n" + old + "\n===NEW===\n" + new + "\n===END===\n"
}
