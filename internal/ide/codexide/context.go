package codexide

import (
	"path/filepath"

	"pollux/internal/companion"
	"pollux/internal/editor"
	"pollux/internal/paths"
)

const (
	// MaxTabs is how many open files an agent receives at most. Codex CLI has no
	// limit, but it sends the list to its model with each prompt.
	MaxTabs = 25
	// maxSelection bounds a selection in characters. It is one more than Codex CLI
	// sends to its model, so that Codex CLI says that it has cut the text.
	maxSelection = 200_001
)

// newContext returns the context for an agent in the directory root, a real path. Codex
// CLI does not check the paths, so newContext leaves out files outside the roots of the
// workspace. It reads the disk.
func newContext(c companion.Context, roots []string, root string) ideContext {
	result := ideContext{OpenTabs: []tab{}}
	for _, f := range c.Files[:min(len(c.Files), MaxTabs)] {
		path, ok := paths.In(roots, f.Path)
		if !ok {
			continue
		}
		t := newTab(path, root)
		result.OpenTabs = append(result.OpenTabs, t)
		if f.Active {
			result.ActiveFile = newActiveFile(f, t)
		}
	}
	return result
}

func newTab(path, root string) tab {
	t := tab{Label: filepath.Base(path), Path: path, FSPath: path}
	if rel, ok := paths.Rel(root, paths.Real(path)); ok {
		t.Path = filepath.ToSlash(rel)
	}
	return t
}

func newActiveFile(f companion.File, t tab) *activeFile {
	r := f.SelectionRange()
	a := &activeFile{
		tab: t, Selection: span{newPosition(r.Start), newPosition(r.End)},
		Content: firstRunes(f.Selection, maxSelection), Selections: []span{},
	}
	if f.Selection != "" {
		a.Selections = append(a.Selections, a.Selection)
	}
	return a
}

func newPosition(c editor.Cursor) position { return position{c.Line - 1, c.Character - 1} }

// firstRunes returns at most n characters of a text.
func firstRunes(text string, n int) string {
	count := 0
	for i := range text {
		if count == n {
			return text[:i]
		}
		count++
	}
	return text
}
