package asking

import (
	"path/filepath"
	"strings"
	"testing"

	"pollux/internal/hostile"
)

// A repository's .claude/settings.json of 2 MB of brackets ended the program.
func TestReadHostileFiles(t *testing.T) {
	for _, kind := range hostile.Kinds {
		t.Run(kind, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "settings.json")
			hostile.Plant(t, kind, path)
			var v map[string]any
			if err := Read(path, &v); err == nil || !strings.Contains(err.Error(), path) {
				t.Errorf("error %v", err)
			}
		})
	}
}
