// Package inputlinetest checks the functions that find the input lines of agents against
// recorded screens.
package inputlinetest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"pollux/internal/inputline"
)

// A Recording is a screen, and what its input line is.
type Recording struct {
	State  string // of the agent
	Screen inputline.Screen
	// Captured is the output of `tmux capture-pane -p -e`.
	Captured string
	Want     inputline.Line
}

// Write writes the recordings of one release of an agent.
func Write(file, release string, all []Recording) error {
	archive := &txtar.Archive{Comment: []byte(release + "\n")}
	for _, r := range all {
		head := fmt.Sprintf("cursor %d %d %t\nshown %t\ntext %q\n", r.Screen.X, r.Screen.Y, r.Screen.Visible, r.Want.Shown, r.Want.Text)
		archive.Files = append(archive.Files, txtar.File{Name: r.State, Data: []byte(head + r.Captured)})
	}
	return os.WriteFile(file, txtar.Format(archive), 0o644)
}

// Check checks a finder against the recordings of an agent. TestSendStates in e2e makes
// them.
func Check(t *testing.T, agent string, find inputline.Finder) {
	files, err := filepath.Glob(filepath.Join("testdata", agent+"-*.txtar"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no recordings: %v", err)
	}
	for _, file := range files {
		archive, err := txtar.ParseFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range archive.Files {
			var s inputline.Screen
			var want inputline.Line
			head := "cursor %d %d %t\nshown %t\ntext %q\n"
			if _, err := fmt.Sscanf(string(f.Data), head, &s.X, &s.Y, &s.Visible, &want.Shown, &want.Text); err != nil {
				t.Fatalf("%s, %s: %v", file, f.Name, err)
			}
			s.Rows = inputline.Parse(strings.SplitAfterN(string(f.Data), "\n", 4)[3])
			if got := find(s); got != want {
				t.Errorf("%s, %s: %+v, want %+v", file, f.Name, got, want)
			}
		}
	}
}
