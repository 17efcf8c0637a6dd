package codexide

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"pollux/internal/companion"
	"pollux/internal/editor"
	"pollux/internal/sys/systest"
)

func TestNewContext(t *testing.T) {
	dir := project(t, "a.txt", "b.txt")
	systest.MakeDir(t, filepath.Join(dir, "sub", "deep"))
	outside := project(t, "secret")
	link := filepath.Join(dir, "link")
	systest.Link(t, filepath.Join(outside, "secret"), link)
	in := func(name string) string { return filepath.Join(dir, name) }
	at := func(line, character int) *editor.Cursor { return &editor.Cursor{Line: line, Character: character} }
	tab := func(label, path, fsPath string) string {
		return fmt.Sprintf(`{"label":%q,"path":%q,"fsPath":%q}`, label, path, fsPath)
	}
	a, b := in("a.txt"), in("b.txt")
	active := func(rest string) string {
		return `{"activeFile":` + strings.TrimSuffix(tab("a.txt", "a.txt", a), "}") + "," + rest + `},"openTabs":[` + tab("a.txt", "a.txt", a) + `]}`
	}
	for _, tt := range []struct {
		name  string
		root  string
		files []companion.File
		want  string
	}{
		{"nothing", dir, nil, `{"openTabs":[]}`},
		{"no active file", dir, []companion.File{{Path: a}, {Path: b}},
			`{"openTabs":[` + tab("a.txt", "a.txt", a) + `,` + tab("b.txt", "b.txt", b) + `]}`},
		{"no cursor", dir, []companion.File{{Path: a, Active: true}}, active(
			`"selection":{"start":{"line":0,"character":0},"end":{"line":0,"character":0}},"activeSelectionContent":"","selections":[]`)},
		{"a cursor", dir, []companion.File{{Path: a, Active: true, Cursor: at(3, 2)}}, active(
			`"selection":{"start":{"line":2,"character":1},"end":{"line":2,"character":1}},"activeSelectionContent":"","selections":[]`)},
		{"a selection", dir, []companion.File{{
			Path: a, Active: true, Cursor: at(2, 1), Selection: "xy", Range: &editor.Range{Start: *at(2, 1), End: *at(2, 3)},
		}}, active(
			`"selection":{"start":{"line":1,"character":0},"end":{"line":1,"character":2}},"activeSelectionContent":"xy",` +
				`"selections":[{"start":{"line":1,"character":0},"end":{"line":1,"character":2}}]`)},
		{"the agent in a folder", in("sub"), []companion.File{{Path: a}, {Path: in("sub/deep/new")}},
			`{"openTabs":[` + tab("a.txt", a, a) + `,` + tab("new", "deep/new", in("sub/deep/new")) + `]}`},
		{"files outside", dir, []companion.File{{Path: filepath.Join(outside, "secret"), Active: true}, {Path: link}}, `{"openTabs":[]}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := json.Marshal(newContext(companion.Context{Files: tt.files}, []string{dir}, tt.root))
			if err != nil || string(got) != tt.want {
				t.Errorf("got  %s, %v\nwant %s", got, err, tt.want)
			}
		})
	}
}

// Codex CLI says itself that it has cut a selection, if it gets more than it sends.
func TestLimits(t *testing.T) {
	dir := project(t)
	var files []companion.File
	for i := range MaxTabs + 5 {
		files = append(files, companion.File{Path: filepath.Join(dir, fmt.Sprint(i)), Active: i == 0, Cursor: &editor.Cursor{Line: 1, Character: 1}})
	}
	files[0].Selection = strings.Repeat("é", maxSelection+1)
	c := newContext(companion.Context{Files: files}, []string{dir}, dir)
	if len(c.OpenTabs) != MaxTabs {
		t.Errorf("%d tabs", len(c.OpenTabs))
	}
	if got := c.ActiveFile.Content; got != strings.Repeat("é", 200_001) {
		t.Errorf("%d bytes of selection", len(got))
	}
}
