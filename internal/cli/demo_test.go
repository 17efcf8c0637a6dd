package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
)

// On Windows, Claude Code asked in the demo whether to trust the sample project: it writes
// the names of projects with slashes.
func TestDemoTrustsItsProject(t *testing.T) {
	dir := t.TempDir()
	for _, a := range demoAgents {
		if a.command != "claude" {
			continue
		}
		d := demo{agent: a, project: filepath.Join(dir, "greeter"), home: filepath.Join(dir, "home")}
		project, err := d.write()
		if err != nil {
			t.Fatal(err)
		}
		var settings struct {
			Projects map[string]struct{ HasTrustDialogAccepted bool }
		}
		data, err := os.ReadFile(filepath.Join(d.home, ".claude.json"))
		if err == nil {
			err = json.Unmarshal(data, &settings)
		}
		if err != nil {
			t.Fatal(err)
		}
		if name := filepath.ToSlash(project); !settings.Projects[name].HasTrustDialogAccepted {
			t.Errorf("%s is not trusted: %s", name, data)
		}
		return
	}
	t.Fatal("the demo does not run Claude Code")
}
