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

	"pollux/internal/sys/systest"
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

// A status with the variables runs no filter, hook or monitor of the repository, and without them it does.
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
		path := filepath.Join(dir, filepath.FromSlash(name))
		systest.MakeDir(t, filepath.Dir(path))
		if err := os.WriteFile(path, []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	// wantSafe checks that a status of a file whose text may have changed runs a program, and with
	// the variables does not.
	wantSafe := func(what string) {
		t.Helper()
		for _, env := range [][]string{nil, {WithoutFilters(dir)}} {
			os.Remove(ran)
			systest.SetTime(t, filepath.Join(dir, "a.txt"), time.Now().Add(time.Hour))
			git(env, "status", "--short")
			switch _, err := os.Stat(ran); {
			case env == nil && err != nil:
				t.Fatalf("%s does not run: this test proves nothing", what)
			case env != nil && err == nil:
				t.Errorf("%s ran", what)
			}
		}
	}
	git(nil, "init", "-q")
	write("a.txt", "text\n")
	git(nil, "add", "a.txt")
	for _, filter := range []string{"evil!'s.one", "evil=one"} {
		write(".gitattributes", "*.txt filter="+filter+"\n")
		for _, key := range []string{"clean", "process"} {
			git(nil, "config", "filter."+filter+"."+key, "touch '"+ran+"'; cat")
			git(nil, "config", "filter."+filter+".required", strconv.FormatBool(key == "clean"))
			wantSafe(filter + "." + key)
			git(nil, "config", "--remove-section", "filter."+filter)
		}
	}
	write(".git/hooks/post-index-change", "#!/bin/sh\ntouch '"+ran+"'\n")
	wantSafe("a hook")
	write(".git/hooks/post-index-change", "#!/bin/sh\n")
	write("monitor", "#!/bin/sh\ntouch '"+ran+"'\n")
	git(nil, "config", "core.fsmonitor", filepath.Join(dir, "monitor"))
	wantSafe("a monitor")
}
