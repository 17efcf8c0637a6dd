package doctor

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"pollux/internal/settings"
)

// plant puts there what a repository, or another user, may bring instead of a
// file of settings.
func plant(t *testing.T, kind, path string) {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("needs a shell")
	}
	script := map[string]string{
		"FIFO":     `mkfifo "$1"`,
		"device":   `ln -s /dev/zero "$1"`,
		"sparse":   `truncate -s 20G "$1"`,
		"brackets": `head -c 2097152 /dev/zero | tr '\0' '[' >"$1"`,
	}[kind]
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("sh", "-c", script, "sh", path).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

var planted = []string{"FIFO", "brackets", "device", "sparse"}

// The repository in which the doctor is called can bring a .env file.
func TestHostileEnvFile(t *testing.T) {
	t.Setenv("GEMINI_API_KEY", "x")
	for _, kind := range planted {
		for _, name := range []string{".env", ".gemini/.env"} {
			t.Run(kind+" "+name, func(t *testing.T) {
				e := exam{Config: Config{Dir: t.TempDir()}, settings: settings.Settings{Trust: settings.Trusted}}
				path := filepath.Join(e.Dir, name)
				plant(t, kind, path)
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
