package claudeide

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pollux/internal/companion"
	"pollux/internal/editor"
	"pollux/internal/ide/blocking"
)

func cursor(line, character int) *editor.Cursor {
	return &editor.Cursor{Line: line, Character: character}
}

// files returns the paths of the selections that have arrived.
func (a *agent) files() string {
	a.f.t.Helper()
	synctest.Wait()
	var files []string
	for len(a.notes) > 0 {
		m := <-a.notes
		var p blocking.Selection
		if err := json.Unmarshal(m.Params, &p); err != nil || m.Method != blocking.MethodSelection {
			a.f.t.Fatalf("%s %s: %v", m.Method, m.Params, err)
		}
		files = append(files, fmt.Sprintf("%s:%d", p.FilePath, p.Span.Start.Line))
	}
	return strings.Join(files, " ")
}

// The agents drop what comes too early, and use a context up with a prompt. So it is
// sent again.
func TestContext(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fixture) {
		f.backend.roots = []string{"/project"}
		open := func(path string, line int) companion.File {
			return companion.File{Path: path, Active: true, Cursor: cursor(line, 1)}
		}
		f.backend.setFiles(open("/project/a", 3))
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
		other.files() // immediately, perhaps twice
		expect(400*time.Millisecond, "/project/a:2", "/project/a:3")
		expect(1099*time.Millisecond, "", "")
		expect(time.Millisecond, "/project/a:2", "/project/a:3")
		expect(time.Hour, "", "")
		f.backend.setFiles(open("/project/a", 3)) // the same
		expect(0, "", "")
		f.backend.setFiles(open("/project/b", 1))
		expect(0, "/project/b:0", "/project/b:1")
		expect(time.Hour, "", "")
		a.answer(a.request("tools/list", "{}"))
		expect(0, "/project/b:0", "")
		expect(400*time.Millisecond, "/project/b:0", "")
		a.answer(a.call(toolCloseAll, "{}")) // a prompt: the times start again
		expect(0, "/project/b:0", "")
		expect(399*time.Millisecond, "", "")
		f.backend.setFiles(open("/outside", 1))
		expect(0, ":0", ":0")
		expect(time.Millisecond, ":0", "")
		expect(1100*time.Millisecond, ":0", "")
		expect(time.Hour, "", "")
	})
}

// A client that does not read delays nothing but its own messages, and receives the
// latest state when it reads again.
func TestContextThatNobodyReads(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fixture) {
		f.backend.roots = []string{"/project"}
		a, other := f.connect("claude-code"), f.connect("claude-code")
		time.Sleep(time.Minute)
		a.files()
		other.files()
		a.stopReading()
		for i := range 100 {
			f.backend.setFiles(companion.File{Path: "/project/a", Active: true, Cursor: cursor(i+1, 1)})
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
		if got := ClaudePrompt(p, []string{"/project"}); got.Text != want || got.Ready != ready {
			t.Errorf("%+v: %q, want %q", p, got.Text, want)
		}
	}
}
