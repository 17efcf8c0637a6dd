//go:build linux || darwin

package proc

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"pollux/internal/sys/systest"
)

func TestProcessesIn(t *testing.T) {
	dir := systest.Dir(t)
	below := filepath.Join(dir, "below")
	systest.MakeDir(t, below)
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
		// Linux counts in hundredths of a second.
		const margin = 50 * time.Millisecond
		for _, p := range found {
			if p.PID != cmd.Process.Pid || p.Started.Before(before.Add(-margin)) || p.Started.After(after.Add(margin)) {
				t.Errorf("%s: %+v, want process %d, started between %v and %v", name, p, cmd.Process.Pid, before, after)
			}
		}
	}
}

// A doctor looks for the temporary directory of an agent that runs elsewhere.
func TestEnvirons(t *testing.T) {
	const key = "SYS_TEST_ENVIRONS"
	in, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	for _, value := range []string{"a=b c", "a=b c", ""} {
		cmd := systest.Program(t, "wait")
		cmd.Env, cmd.Stdin = append(cmd.Env, key+"="+value), in
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		defer cmd.Wait()
	}
	defer out.Close()
	if got := Environs(key); !slices.Equal(got, []string{"a=b c"}) {
		t.Errorf("the values are %q", got)
	}
	if got := Environs(key + "_NONE"); len(got) != 0 {
		t.Errorf("a variable that no process has is %q", got)
	}
}

func TestDeviceName(t *testing.T) {
	info, err := os.Stat("/dev/null")
	if err != nil {
		t.Fatal(err)
	}
	number := uint32(info.Sys().(*syscall.Stat_t).Rdev)
	if got := deviceName("/dev", number); got != "null" {
		t.Errorf("/dev/null is %q", got)
	}
	if got := deviceName("/dev", 1<<31); got != "" {
		t.Errorf("a device that does not exist is %q", got)
	}
	if got := deviceName(t.TempDir(), number); got != "" {
		t.Errorf("a device elsewhere is %q", got)
	}
}
