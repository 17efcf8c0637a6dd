package blocking

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"pollux/internal/sys/systest"
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
	systest.MakeDir(t, filepath.Join(home, ".claude"))
	if !Wanted(dir, func(string) (string, error) { return "", os.ErrNotExist }) {
		t.Error("with ~/.claude: false")
	}
}

// Only a lock of this user's companion that was killed here is removed.
func TestRemoveStale(t *testing.T) {
	const deadPID = 1 << 30 // above the limits of all systems
	for name, tt := range map[string]struct {
		pid  int
		mark *Mark
		want bool
	}{
		"ours, dead":         {deadPID, &Mark{Host: Here()}, true},
		"ours, alive":        {os.Getpid(), &Mark{Host: Here()}, false},
		"of another host":    {deadPID, &Mark{Host: "other"}, false},
		"of another program": {deadPID, nil, false},
	} {
		data, err := json.Marshal(map[string]any{"pid": tt.pid, "pollux": tt.mark})
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(t.TempDir(), "1"+Ext)
		systest.WriteFile(t, path, string(data))
		err = RemoveStale(path)
		if _, gone := os.Stat(path); err != nil || (gone != nil) != tt.want {
			t.Errorf("%s: removed %v, %v", name, gone != nil, err)
		}
	}
}
