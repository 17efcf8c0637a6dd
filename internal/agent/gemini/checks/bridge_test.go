package checks

import (
	"context"
	"path/filepath"
	"strings"
	"testing"

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
