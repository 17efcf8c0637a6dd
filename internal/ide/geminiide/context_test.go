package geminiide

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"unicode/utf8"

	"pollux/internal/companion"
)

func TestCut(t *testing.T) {
	for _, tt := range []struct {
		s     string
		limit int
		want  string
	}{
		{"abc", 3, "abc"}, {"abcd", 3, "abc"}, {"aé", 2, "a"}, {"😀😀", 7, "😀"}, {"😀", 3, ""},
	} {
		if got := cut(tt.s, tt.limit); got != tt.want || !utf8.ValidString(got) {
			t.Errorf("cut(%q, %d) = %q, want %q", tt.s, tt.limit, got, tt.want)
		}
	}
}

// The CLI accepts only the newest file as active.
func TestActiveFileIsTheNewest(t *testing.T) {
	for _, tt := range []struct {
		active, other, want int64
	}{{1, 7, 8}, {7, 7, 8}, {9, 7, 9}} {
		got := wireContext(companion.Context{Files: []companion.File{
			{Path: "/a", Focused: tt.active, Active: true}, {Path: "/b", Focused: tt.other},
		}}).WorkspaceState.OpenFiles
		if got[0].Timestamp != tt.want || !got[0].IsActive || got[1].Timestamp != tt.other {
			t.Errorf("%+v: sent %+v", tt, got)
		}
	}
}

func TestContextKeepsTheTenNewest(t *testing.T) {
	var c companion.Context
	for i := range 30 {
		c.Files = append(c.Files, companion.File{Path: fmt.Sprint("/f", i), Focused: int64(30 - i)})
	}
	got := wireContext(c).WorkspaceState.OpenFiles
	if len(got) != MaxOpenFiles || got[0].Path != "/f0" || got[9].Path != "/f9" {
		t.Errorf("kept %v", got)
	}
}

// The core has no limits. A context that looks the same to the CLI is not sent
// again.
func TestContextThatTheCLISeesAsTheSame(t *testing.T) {
	inBubble(t, func(t *testing.T, b *backend, s *Server, c *cl) {
		st := c.listen()
		if got := st.next(); got != emptyContext {
			t.Fatalf("first event %s", got)
		}
		long := strings.Repeat("x", MaxSelectedText)
		var open []companion.File
		for i := range MaxOpenFiles {
			open = append(open, companion.File{Path: fmt.Sprint("/f", i), Focused: int64(MaxOpenFiles - i)})
		}
		open[0].Active, open[0].Selection = true, long
		set := func(files ...companion.File) {
			b.SetContext(companion.Context{Files: files})
		}
		set(open...)
		if got := st.next(); !strings.Contains(got, long) {
			t.Fatalf("sent %.200s", got)
		}
		later := append([]companion.File{}, open...)
		later[0].Selection, later[0].Focused = long+"more", 99
		set(append(later, companion.File{Path: "/eleventh"})...)
		synctest.Wait() // it was looked at
		set(companion.File{Path: "/last"})
		if got := st.next(); !strings.Contains(got, "/last") {
			t.Errorf("a context that the CLI sees as the same was sent: %.200s", got)
		}
		// A new stream carries the context, even if the last one carried the same.
		st.end()
		synctest.Wait()
		if got := c.listen().next(); !strings.Contains(got, "/last") {
			t.Errorf("the next stream starts with %.200s", got)
		}
	})
}

func TestAgentNames(t *testing.T) {
	for _, tt := range []struct{ name, version, agent, wantName, wantVersion string }{
		{"streamable-http-client", "0.61.0", geminiCLI, "Gemini CLI", "0.61.0"},
		{"streamable-http-client", "1.0.0", geminiCLI, "Gemini CLI", ""},
		{"streamable-http-client", "1.0.0", qwenCode, "Qwen Code", ""},
		{"streamable-http-client", "1.0.0", llxprtCode, "LLxprt Code", ""},
		{"stdio-client", "0.61.0", "", "Gemini CLI", "0.61.0"},
		{"stdio-client", "1.0.0", "", "Qwen Code", ""},
		{"other", "1.0.0", geminiCLI, "other", "1.0.0"},
		{"", "0.61.0", qwenCode, "Qwen Code", "0.61.0"},
		{"", "1.0.0", geminiCLI, "Gemini CLI", ""},
		{"", "", "", "Gemini CLI", ""},
		// The user reads the names.
		{strings.Repeat("x", 100_000), strings.Repeat("x", 100_000), "", strings.Repeat("x", 64) + "...", strings.Repeat("x", 64) + "..."},
		{"a\x1b[31m\u202e\nb", "\x1b", "", "a[31m b", "?"},
	} {
		if name, version := agentName(tt.name, tt.version, tt.agent); name != tt.wantName || version != tt.wantVersion {
			t.Errorf("%.20q %.20q is shown as %.100q %.100q", tt.name, tt.version, name, version)
		}
	}
}

// All CLIs connect under the name of their transport. The token in the file that each
// reads tells them apart.
func TestEachCLIHasItsOwnToken(t *testing.T) {
	b := newBackend()
	s := start(t, b, nil)
	for _, cli := range clis {
		c := dial(t, s)
		c.token = Endpoint{Token: s.cfg.Token, PIDs: []int{1}}.file(cli).AuthToken
		c.initialize()
		if name, _ := (<-b.Joined).Client(); name != cli.name {
			t.Errorf("%s is shown as %s", cli.name, name)
		}
	}
}
