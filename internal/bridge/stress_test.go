package bridge

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"pollux/internal/fakecli"
	"pollux/internal/gemini"
)

// 200 calls at once, through a queue of 3, with crashes, timeouts and
// cancellations at random moments: each is answered, and nothing is left.
func TestStress(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	cli, err := fakecli.Install(t.TempDir(), "0.61.0")
	if err != nil {
		t.Fatal(err)
	}
	runner, err := gemini.NewSpawner(gemini.Config{Command: cli})
	if err != nil {
		t.Fatal(err)
	}
	b := newTestBridge(t, runner, func(c *Config) { c.MaxConcurrent = 3 })
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	dir := t.TempDir()
	var mu sync.Mutex
	outcomes := make(map[string]int)
	var wg sync.WaitGroup
	for i := range 200 {
		fake := []string{"echo", "echo", "crash", "killed", "silent", "hang", "say-and-hang", "stubborn", "grandchild=1", "grandchild", "noise", "exit=53"}[random.IntN(12)]
		timeout := Whole(1 + random.IntN(40_000))
		if strings.Contains("hang say-and-hang stubborn grandchild", fake) {
			timeout = Whole(1 + random.IntN(3000))
		}
		ctx, cancel := context.WithCancel(t.Context())
		after := time.Duration(-1)
		if random.IntN(4) == 0 {
			after = time.Duration(random.IntN(15_000)) * time.Millisecond
		}
		wg.Go(func() {
			defer cancel()
			if after >= 0 {
				defer time.AfterFunc(after, cancel).Stop()
			}
			a, err := b.Query(ctx, QueryInput{Prompt: fmt.Sprintf("fake:%s number %d.", fake, i), Common: Common{Timeout: &timeout, WorkingDirectory: dir}}, func(string) {})
			var fault *gemini.Error
			outcome := "answer"
			switch {
			case err == nil && a.Meta.Partial:
				outcome = "partial"
			case err == nil && fake == "echo" && !strings.Contains(a.Text, fmt.Sprintf("number %d.", i)):
				t.Errorf("call %d has another's answer: %q", i, a.Text)
			case err == nil:
			case errors.Is(err, context.Canceled):
				outcome = "cancelled"
			case errors.Is(err, errTimeout):
				outcome = "timeout"
			case errors.As(err, &fault):
				outcome = "error"
			case strings.Contains(err.Error(), "no free place"):
				outcome = "refused"
			default:
				t.Errorf("call %d: %v", i, err)
			}
			mu.Lock()
			outcomes[outcome]++
			mu.Unlock()
		})
	}
	wg.Wait()
	t.Logf("outcomes: %v", outcomes)
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	if running, waiting := b.queue.load(); running+waiting != 0 {
		t.Errorf("%d slots are taken, %d calls wait", running, waiting)
	}
	if left, _ := filepath.Glob(filepath.Join(os.TempDir(), "*")); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	lines, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, f := range lines {
		if data, _ := os.ReadFile(f); strings.Contains(string(data), os.TempDir()) {
			t.Errorf("a process is left: %q", data)
		}
	}
}
