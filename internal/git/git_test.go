package git

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"testing"
	"time"
)

func TestWhyItEnded(t *testing.T) {
	for want, cause := range map[string]error{
		"git took too long":                        nil,
		"git was stopped: Pollux is shutting down": errors.New("Pollux is shutting down"),
	} {
		ctx, cancel := context.WithDeadlineCause(t.Context(), time.Now(), cause)
		defer cancel()
		g := Repository{Context: ctx, Dir: t.TempDir()}
		if _, err := g.Output("version"); err == nil || err.Error() != want {
			t.Errorf("the error is %v; want %q", err, want)
		}
	}
}

// A status with the variables runs no filter of the repository, and without them it does.
func TestWithoutFilters(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("the filter is a command of a Unix shell")
	}
	dir := t.TempDir()
	ran := filepath.Join(dir, "ran")
	git := func(env []string, args ...string) {
		t.Helper()
		cmd := exec.Command("git", args...)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git %q: %v\n%s", args, err, out)
		}
	}
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	// status reports whether the filter ran for a file whose text may have changed.
	status := func(env []string) bool {
		t.Helper()
		os.Remove(ran)
		if err := os.Chtimes(filepath.Join(dir, "a.txt"), time.Time{}, time.Now().Add(time.Hour)); err != nil {
			t.Fatal(err)
		}
		git(env, "--no-optional-locks", "status", "--short")
		_, err := os.Stat(ran)
		return err == nil
	}
	git(nil, "init", "-q")
	write("a.txt", "text\n")
	git(nil, "add", "a.txt")
	write(".gitattributes", "*.txt filter=evil!'s.one\n")
	for _, key := range []string{"clean", "process"} {
		git(nil, "config", "filter.evil!'s.one."+key, "touch '"+ran+"'; cat")
		git(nil, "config", "filter.evil!'s.one.required", strconv.FormatBool(key == "clean"))
		if !status(nil) {
			t.Fatalf("%s does not run: this test proves nothing", key)
		}
		if status([]string{WithoutFilters(dir)}) {
			t.Errorf("%s ran", key)
		}
		git(nil, "config", "--remove-section", "filter.evil!'s.one")
	}
}
