package term

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"pollux/internal/editor"
	"pollux/internal/sys/systest"
)

var update = flag.Bool("update", false, "write the golden screens")

const goldenOld = `package greet

// Hello greets somebody.
func Hello(name string) string {
	return "Hello, " + name
}

var count = 1
`

const goldenNew = `package greet

// Hello greets somebody politely.
func Hello(name, title string) string {
	return "Good morning, " + title + " " + name + ", and welcome to this very long line, which no narrow terminal shows"
}

var count = 2
`

// The screens of a change in Go, with all colours and marks: ESC is written as ^.
func TestGoldenScreens(t *testing.T) {
	for _, test := range []struct {
		name  string
		width int
		keys  string
		theme theme
	}{
		{name: "79-columns", width: 79},
		{name: "79-columns-dark", width: 79, theme: darkTheme},
		{name: "79-columns-light-wrapped", width: 79, keys: "w", theme: lightTheme},
		{name: "40-columns-range", width: 40, keys: "Vn"},
		{name: "140-columns-undone", width: 140, keys: "u", theme: darkTheme},
		{name: "help", width: 79, keys: "?"},
	} {
		t.Run(test.name, func(t *testing.T) {
			texts := newTexts()
			defer texts.close()
			m := &model{ctx: t.Context(), texts: texts, width: test.width, height: 24, theme: test.theme, agents: []editor.Agent{{Name: "Gemini CLI"}}}
			m.update(opened{
				ID: "1", Path: "/home/me/project/greet.go", Agent: "Gemini CLI", Exists: true,
				Original: goldenOld, Proposed: goldenNew, State: editor.StateOpen,
			})
			m.update(m.light()())
			m.look(false)
			m.settled = true
			for _, k := range test.keys {
				m.update(tea.KeyPressMsg{Text: string(k), Code: k})
				if cmd := m.light(); cmd != nil {
					m.update(cmd())
				}
			}
			screen := m.View().Content
			for _, l := range strings.Split(screen, "\n") {
				if n := ansi.StringWidth(l); n > test.width {
					t.Errorf("%d columns: %q", n, l)
				}
			}
			got := strings.ReplaceAll(screen, "\x1b", "^") + "\n"
			for _, dir := range []string{"/home/me/project", "/home/me"} { // in the title
				got = strings.ReplaceAll(got, filepath.FromSlash(dir), dir)
			}
			path := filepath.Join("testdata", test.name+".golden")
			if *update {
				systest.WriteFile(t, path, got)
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if got != string(want) {
				t.Errorf("the screen is\n%s\nwant\n%s\nIf it is right, run go test -update.", got, want)
			}
		})
	}
}
