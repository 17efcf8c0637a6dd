package doctor

import (
	"path/filepath"
	"strings"
	"testing"

	"pollux/internal/agent/gemini/settings"
	"pollux/internal/hostile"
)

// The repository in which the doctor is called can bring a .env file.
func TestHostileEnvFile(t *testing.T) {
	t.Setenv("GEMINI_API_KEY", "x")
	for _, kind := range hostile.Kinds {
		for _, name := range []string{".env", ".gemini/.env"} {
			t.Run(kind+" "+name, func(t *testing.T) {
				e := exam{Config: Config{Dir: t.TempDir()}, settings: settings.Settings{Trust: settings.Trusted}}
				path := filepath.Join(e.Dir, name)
				hostile.Plant(t, kind, path)
				e.checkAuth()
				if kind == "brackets" { // text like any other
					if e.failed("auth") {
						t.Errorf("found %+v", e.report.Findings)
					}
					return
				}
				if !e.failed("auth") || !strings.Contains(e.report.Findings[0].Text, path) {
					t.Errorf("found %+v", e.report.Findings)
				}
			})
		}
	}
}
