package asking

import (
	"path/filepath"
	"testing"

	"pollux/internal/hostile"
	"pollux/internal/sys/systest"
)

// A repository's .claude/settings.json of 2 MB of brackets ended the program.
func TestReadHostileFiles(t *testing.T) {
	for _, kind := range hostile.Kinds {
		t.Run(kind, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "settings.json")
			hostile.Plant(t, kind, path)
			var v map[string]any
			systest.WantError(t, Read(path, &v), path)
		})
	}
}
