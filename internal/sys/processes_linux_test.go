package sys

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

func TestProcessesIn(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	below := filepath.Join(dir, "below")
	if err := os.Mkdir(below, 0o700); err != nil {
		t.Fatal(err)
	}
	before := time.Now()
	cmd := exec.Command("sleep", "1000")
	cmd.Dir = below
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	after := time.Now()
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	for name, tt := range map[string]struct {
		name, dir string
		want      int
	}{
		"its directory":       {"sleep", below, 1},
		"a directory above":   {"sleep", dir, 1},
		"a directory below":   {"sleep", filepath.Join(below, "x"), 0},
		"a similar directory": {"sleep", below[:len(below)-1], 0},
		"another name":        {"sleeps", below, 0},
	} {
		found := ProcessesIn(tt.name, tt.dir)
		if len(found) != tt.want {
			t.Errorf("%s: %+v, want %d", name, found, tt.want)
			continue
		}
		// The system counts in hundredths of a second.
		const margin = 50 * time.Millisecond
		for _, p := range found {
			if p.PID != cmd.Process.Pid || p.Started.Before(before.Add(-margin)) || p.Started.After(after.Add(margin)) {
				t.Errorf("%s: %+v, want process %d, started between %v and %v", name, p, cmd.Process.Pid, before, after)
			}
		}
	}
}
