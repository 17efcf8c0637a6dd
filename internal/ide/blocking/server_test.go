package blocking

import (
	"os"
	"path/filepath"
	"testing"
)

func TestWanted(t *testing.T) {
	home := t.TempDir()
	dir := filepath.Join(home, ".claude", "ide")
	for _, tt := range []struct {
		program string
		want    bool
	}{{"gemini", false}, {"claude", true}, {"opencode", true}} {
		if got := Wanted(dir, func(name string) (string, error) {
			if name == tt.program {
				return "/bin/" + name, nil
			}
			return "", os.ErrNotExist
		}, "claude", "opencode"); got != tt.want {
			t.Errorf("with %s: %v", tt.program, got)
		}
	}
	if err := os.Mkdir(filepath.Join(home, ".claude"), 0o700); err != nil {
		t.Fatal(err)
	}
	if !Wanted(dir, func(string) (string, error) { return "", os.ErrNotExist }) {
		t.Error("with ~/.claude: false")
	}
}
