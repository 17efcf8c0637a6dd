package checks

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pollux/internal/agent"
	"pollux/internal/agent/gemini/settings"
	"pollux/internal/doctor"
	"pollux/internal/hostile"
)

// The repository in which the user runs doctor may contain a .env file.
func TestHostileEnvFile(t *testing.T) {
	t.Setenv("GEMINI_API_KEY", "x")
	for _, kind := range hostile.Kinds {
		for _, name := range []string{".env", ".gemini/.env"} {
			t.Run(kind+" "+name, func(t *testing.T) {
				g := &CLI{settings: settings.Settings{Trust: settings.Trusted}}
				dir := t.TempDir()
				path := filepath.Join(dir, name)
				hostile.Plant(t, kind, path)
				check := func(_ context.Context, c *doctor.Checker) { g.checkAuth(c) }
				found := doctor.Examine(t.Context(), doctor.Config{Dir: dir}, []doctor.Part{{Checks: []doctor.Check{check}}})
				failed := found.Count(doctor.Failed) > 0
				if kind == "brackets" { // ordinary text
					if failed {
						t.Errorf("found %+v", found)
					}
					return
				}
				if !failed || found.Findings[0].Check != "auth" || !strings.Contains(found.Findings[0].Text, path) {
					t.Errorf("found %+v", found)
				}
			})
		}
	}
}

// A Gemini CLI that takes too long to start is described in words, not as an error of Go.
func TestSlowStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &CLI{Probe: func(ctx context.Context, _ *agent.Agent, _ agent.Program, _ string, _ agent.Wall) (time.Duration, error) {
			<-ctx.Done()
			return 0, fmt.Errorf("no answer to initialize (%w): x", context.Cause(ctx))
		}}
		check := func(ctx context.Context, c *doctor.Checker) { g.checkStart(ctx, c, agent.Program{}) }
		found := doctor.Examine(t.Context(), doctor.Config{}, []doctor.Part{{Checks: []doctor.Check{check}}})
		if f := found.Findings[0]; f.Check != "warm" || !strings.HasSuffix(f.Text, ": no answer to initialize (it was not ready in 60 s): x") {
			t.Errorf("found %+v", f)
		}
	})
}
