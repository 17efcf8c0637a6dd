package claudeide

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pollux/internal/companion"
	"pollux/internal/editor"
)

func cursor(line, character int) *editor.Cursor {
	return &editor.Cursor{Line: line, Character: character}
}

func TestNewSelection(t *testing.T) {
	const root = "/project"
	lines := companion.File{
		Cursor: cursor(2, 1), Selection: "b\nc", Range: &editor.Range{Start: *cursor(2, 1), End: *cursor(3, 2)},
	}
	for name, tt := range map[string]struct {
		file  companion.File
		shift int
		want  string // the path, lines and characters, and the text
	}{
		"no cursor":           {companion.File{}, 0, "0:0-0:0"},
		"a cursor":            {companion.File{Cursor: cursor(3, 5)}, 0, "2:4-2:4"},
		"opencode":            {companion.File{Cursor: cursor(3, 5)}, 1, "3:4-3:4"},
		"a range":             {lines, 0, "1:0-2:1 b\nc"},
		"a range in opencode": {lines, 1, "2:0-3:1 b\nc"},
		// Editors that send no range: the cursor is at the end, if it can be.
		"a selection above the cursor": {companion.File{Cursor: cursor(3, 2), Selection: "b\nc"}, 0, "1:0-2:1 b\nc"},
		"a selection below the cursor": {companion.File{Cursor: cursor(1, 1), Selection: "b\nc\n"}, 0, "0:0-1:1 b\nc\n"},
		"a line":                       {companion.File{Cursor: cursor(1, 4), Selection: "b\n"}, 0, "0:0-0:3 b\n"},
	} {
		f := tt.file
		f.Path, f.Active = "/project/a b", true
		m := newSelection(companion.Context{Files: []companion.File{f}}, []string{"/other", root}, tt.shift)
		s := m.Selection
		got := fmt.Sprintf("%d:%d-%d:%d", s.Start.Line, s.Start.Character, s.End.Line, s.End.Character)
		if m.Text != "" {
			got += " " + m.Text
		}
		if got != tt.want || s.IsEmpty != (m.Text == "") || m.FilePath != "/project/a b" || m.FileURL != "file:///project/a%20b" {
			t.Errorf("%s: %s, %+v; want %s", name, got, m, tt.want)
		}
	}
	empty := selectionChanged{Selection: selection{IsEmpty: true}}
	for name, c := range map[string]companion.Context{
		"nothing open":      {},
		"no active file":    {Files: []companion.File{{Path: "/project/a"}}},
		"outside the roots": {Files: []companion.File{{Path: "/projects/a", Active: true, Selection: "secret"}}},
		"above the roots":   {Files: []companion.File{{Path: "/project/../a", Active: true}}},
	} {
		if m := newSelection(c, []string{root}, 0); m != empty {
			t.Errorf("%s: %+v", name, m)
		}
	}
	// The agent clears its display for a message without a path, a range and a text.
	data, err := json.Marshal(empty)
	if err != nil {
		t.Fatal(err)
	}
	if want := `{"text":"","filePath":"","fileUrl":"","selection":` +
		`{"start":{"line":0,"character":0},"end":{"line":0,"character":0},"isEmpty":true}}`; string(data) != want {
		t.Errorf("%s", data)
	}
	const wide = "\U0001F600" // two code units
	long := companion.File{
		Path: "/project/a", Active: true, Cursor: cursor(1, 1), Selection: strings.Repeat(wide, maxSelection),
	}
	m := newSelection(companion.Context{Files: []companion.File{long}}, []string{root}, 0)
	if m.Text != strings.Repeat(wide, maxSelection/2) {
		t.Errorf("a long text is cut to %d bytes", len(m.Text))
	}
}

// The place of a file counts, not the links that lead there.
func TestSelectionAndLinks(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	root := filepath.Join(dir, "project")
	if err := os.Mkdir(root, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{filepath.Join(root, "a"), filepath.Join(dir, "outside")} {
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, target := range map[string]string{
		"link": root, "project/out": filepath.Join(dir, "outside"), "project/in": filepath.Join(root, "a"),
	} {
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			t.Skip(err)
		}
	}
	for open, want := range map[string]string{
		"project/a": "project/a", "link/a": "project/a", "project/in": "project/in", "project/out": "", "outside": "",
	} {
		f := companion.File{Path: filepath.Join(dir, open), Active: true}
		if want != "" {
			want = filepath.Join(dir, want)
		}
		if m := newSelection(companion.Context{Files: []companion.File{f}}, []string{root}, 0); m.FilePath != want {
			t.Errorf("%s: %q, want %q", open, m.FilePath, want)
		}
	}
}

// files returns the paths of the selections that have arrived.
func (a *agent) files() string {
	a.f.t.Helper()
	synctest.Wait()
	var files []string
	for len(a.notes) > 0 {
		m := <-a.notes
		var p selectionChanged
		if err := json.Unmarshal(m.Params, &p); err != nil || m.Method != "selection_changed" {
			a.f.t.Fatalf("%s %s: %v", m.Method, m.Params, err)
		}
		files = append(files, fmt.Sprintf("%s:%d", p.FilePath, p.Selection.Start.Line))
	}
	return strings.Join(files, " ")
}

// The agents drop what comes too early, and use a context up with a prompt. So it is
// sent again.
func TestContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t)
		f.backend.roots = []string{"/project"}
		open := func(path string, line int) companion.File {
			return companion.File{Path: path, Active: true, Cursor: cursor(line, 1)}
		}
		f.backend.setContext(open("/project/a", 3))
		a, other := f.connect("claude-code"), f.connect("opencode")
		expect := func(after time.Duration, wants ...string) {
			t.Helper()
			time.Sleep(after)
			for i, agent := range []*agent{a, other}[:len(wants)] {
				if got := agent.files(); got != wants[i] {
					t.Errorf("agent %d received %q, want %q", i, got, wants[i])
				}
			}
		}
		a.files()
		other.files() // at once, perhaps twice
		expect(400*time.Millisecond, "/project/a:2", "/project/a:3")
		expect(1099*time.Millisecond, "", "")
		expect(time.Millisecond, "/project/a:2", "/project/a:3")
		expect(time.Hour, "", "")
		f.backend.setContext(open("/project/a", 3)) // the same
		expect(0, "", "")
		f.backend.setContext(open("/project/b", 1))
		expect(0, "/project/b:0", "/project/b:1")
		expect(time.Hour, "", "")
		a.answer(a.request("tools/list", "{}"))
		expect(0, "/project/b:0", "")
		expect(400*time.Millisecond, "/project/b:0", "")
		a.answer(a.call(toolCloseAll, "{}")) // a prompt: the times start again
		expect(0, "/project/b:0", "")
		expect(399*time.Millisecond, "", "")
		f.backend.setContext(open("/outside", 1))
		expect(0, ":0", ":0")
		expect(time.Millisecond, ":0", "")
		expect(1100*time.Millisecond, ":0", "")
		expect(time.Hour, "", "")
	})
}

// A client that does not read delays nothing but its own messages, and receives the
// latest state when it reads again.
func TestContextThatNobodyReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t)
		f.backend.roots = []string{"/project"}
		a, other := f.connect("claude-code"), f.connect("claude-code")
		time.Sleep(time.Minute)
		a.files()
		other.files()
		a.stopReading()
		for i := range 100 {
			f.backend.setContext(companion.File{Path: "/project/a", Active: true, Cursor: cursor(i+1, 1)})
			if got, want := other.files(), fmt.Sprintf("/project/a:%d", i); got != want {
				t.Fatalf("%s, want %s", got, want)
			}
		}
		a.want(a.id, "") // reads all answers
		if got := strings.Fields(a.files()); len(got) > 5 || got[len(got)-1] != "/project/a:99" {
			t.Errorf("%q", got)
		}
	})
}

func TestPrompt(t *testing.T) {
	for want, p := range map[string]editor.PromptParams{
		"@a.go ":        {Path: "/project/a.go"},
		"@a.go#L3 ":     {Path: "/project/a.go", Line: 3, EndLine: 3},
		"@a.go#L3-5 ":   {Path: "/project/a.go", Line: 3, EndLine: 5},
		`@"a b.go"#L3 `: {Path: "/project/a b.go", Line: 3},
		"@/other/a.go ": {Path: "/other/a.go"},
		"why?":          {Question: "why?"},
	} {
		if got := new(Session).Prompt(p, []string{"/project"}); got.Text != want || got.Ready != claudeReady || !got.Empty {
			t.Errorf("%+v: %q, want %q", p, got.Text, want)
		}
	}
}

func FuzzOpenDiff(f *testing.F) {
	for _, seed := range []string{
		`{}`, `null`, `[]`, ``, `{"new_file_path":"/a","new_file_contents":"x","tab_name":"t"}`,
		`{"new_file_path":"/a","new_file_contents":"\ud800\u0000"}`, `{"new_file_path":5,"new_file_contents":{}}`,
		`{"NEW_FILE_PATH":"/a","new_file_contents":""}`, `{"new_file_path":"/a` + "\xff" + `","new_file_contents":"\ufffd"}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		a, err := parseOpenDiff(data)
		if err != nil {
			return
		}
		p := a.proposal()
		if p.Path == "" || strings.ContainsRune(p.Path, 0) {
			t.Errorf("the path %q", p.Path)
		}
		if p.Binary == "" && (strings.ContainsRune(p.Text, 0) || strings.ToValidUTF8(p.Text, "") != p.Text) {
			t.Errorf("the text %q may go through an editor", p.Text)
		}
	})
}
