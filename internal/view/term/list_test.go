package term

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	tea "charm.land/bubbletea/v2"

	"pollux/internal/editor"
	"pollux/internal/sys/systest"
)

// The list of pending changes repeated the folder and the agent in each row, and showed
// hardly anything else in a narrow terminal. A list without room for all of them did not say how
// many there are.
func TestList(t *testing.T) {
	for _, test := range []struct {
		width, height int
		tabs          int // from the first change
		want          string
	}{
		{80, 24, 0, "  src/view/\n  > a.go   1 of 6\n    b.go  (new file)\n    c.go\n"},
		{80, 24, 2, "  src/view/a.go\n    b.go  (new file)\n  > c.go   3 of 6\n  x.md\n"},
		{40, 12, 4, "  x.md\n> docs/d.md   5 of 6\n"},
		{24, 50, 5, "  src/view/\n    a.go\n    b.go  (new file)\n    c.go\n  x.md\n  docs/d.md\n> …a_rather_long_name.md\n"},
	} {
		onBench(t, Config{}, func(t *testing.T, b *bench) {
			root := systest.Abs("/home/me/project")
			b.roots = []string{root}
			for i, name := range []string{"src/view/a.go", "x.md", "src/view/b.go", "docs/d.md", "docs/a_rather_long_name.md", "src/view/c.go"} {
				d := editor.Diff{ID: fmt.Sprint(i), Path: filepath.Join(root, filepath.FromSlash(name)), Agent: "Gemini CLI", Exists: i != 2, State: editor.StateOpen}
				b.texts.set(d.ID, d.Text())
				b.send(opened(d))
			}
			b.send(tea.WindowSizeMsg{Width: test.width, Height: test.height})
			for range test.tabs {
				b.send(tea.KeyPressMsg{Code: tea.KeyTab})
			}
			screen := filepath.ToSlash(b.shows())
			if !strings.HasPrefix(screen, test.want) || strings.Count(screen, "Gemini CLI") > 1 {
				t.Errorf("%d columns, after %d times Tab:\n%s\nwant\n%s", test.width, test.tabs, screen, test.want)
			}
		})
	}
}

// If several agents propose changes, the list names them.
func TestListNamesAgents(t *testing.T) {
	onBench(t, Config{}, func(t *testing.T, b *bench) {
		for _, name := range []string{"Gemini CLI", "Claude Code"} {
			b.send(opened{ID: name, Path: "/p/" + name, Agent: name, Exists: true, State: editor.StateOpen})
			b.texts.set(name, "")
		}
		b.sees(t, "> /p/Gemini CLI  Gemini CLI\n")
		b.sees(t, "  /p/Claude Code  Claude Code\n")
	})
}

// Files that changed outside Pollux follow each other by folder, whenever they changed.
func TestOutsideByFolder(t *testing.T) {
	onBench(t, Config{}, func(t *testing.T, b *bench) {
		var o editor.Outside
		for _, path := range []string{"/p/src/c", "/p/b", "/p/src/a", "/p/src/d"} {
			o.Files = append(o.Files, editor.OutsideFile{Path: filepath.FromSlash(path), Change: editor.OutsideChanged})
		}
		b.send(outside(o))
		b.sees(t, filepath.FromSlash("   /p/b  changed\n   /p/src/\n     a  changed\n     c  changed\n     d  changed\n"))
		b.send(tea.WindowSizeMsg{Width: 40, Height: 24})
		b.sees(t, " No agent is connected. In Gemini CLI,\n type /ide enable and restart it; in\n Claude Code and Codex CLI, type /ide.\n")
		b.unconnected = "Qwen Code has not connected yet; type /ide"
		b.sees(t, " Qwen Code has not connected yet; type\n /ide\n")
	})
}
