package claudeide

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"pollux/internal/companion"
	"pollux/internal/ide/attach"
	"pollux/internal/ide/blocking"
	"pollux/internal/sys/systest"
)

func TestInitialize(t *testing.T) {
	withClaude(t, func(t *testing.T, _ *fixture, a *agent) {
		if name, version := a.session.Client(); name != "Claude Code" || version != "1.2" || a.session.Transport() != "websocket" || a.session.Limits() != "" {
			t.Errorf("%s %s over %s, with the limits %q", name, version, a.session.Transport(), a.session.Limits())
		}
		a.send(`{"jsonrpc":"2.0","method":"ide_connected","params":{"pid":1}}`)
		var tools []string
		for _, tool := range a.answer(a.request("tools/list", "{}")).Result.Tools {
			tools = append(tools, tool.Name)
		}
		slices.Sort(tools)
		if want := []string{"closeAllDiffTabs", "close_tab", "getDiagnostics", "openDiff"}; !slices.Equal(tools, want) {
			t.Errorf("the tools are %q", tools)
		}
	})
}

func TestClientName(t *testing.T) {
	for sent, want := range map[string]string{
		"claude-code": "Claude Code", "opencode": "opencode", "other": "other", "": "",
		`a\u001b[31m\nb`: "a[31m b", strings.Repeat("x", 100): strings.Repeat("x", attach.MaxName) + "...",
	} {
		synctest.Test(t, func(t *testing.T) {
			if name, _ := start(t).connect(sent).session.Client(); name != want {
				t.Errorf("%q is %q, want %q", sent, name, want)
			}
		})
	}
}

// opencode does not send its version, and never asks for a review.
func TestOpencode(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fixture) {
		a := f.dial(true)
		id := a.request("initialize", strings.Replace(initialize("opencode"), "1.2", placeholder, 1))
		a.answer(id)
		a.send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
		session := systest.Receive(t, f.backend.Joined)
		if name, version := session.Client(); name != "opencode" || version != "" || session.Limits() == "" {
			t.Errorf("connected: %q %q, %q", name, version, session.Limits())
		}
	})
}

func TestOpenDiff(t *testing.T) {
	for name, tt := range map[string]struct {
		outcome companion.Outcome
		want    string
	}{
		"accepted":   {companion.Outcome{Accepted: true, Text: "mine"}, "FILE_SAVED|mine"},
		"empty text": {companion.Outcome{Accepted: true}, "FILE_SAVED|"},
		"rejected":   {companion.Outcome{}, "DIFF_REJECTED|tab"},
		"superseded": {companion.Outcome{Superseded: true}, "isError: " + blocking.ErrUndecided.Error()},
		"failed":     {companion.Outcome{Failed: true}, "isError: " + blocking.ErrUndecided.Error()},
	} {
		t.Run(name, func(t *testing.T) {
			withClaude(t, func(t *testing.T, f *fixture, a *agent) {
				id := a.openDiff("/project/a <&>", "new\n", "tab")
				if p := systest.Receive(t, f.backend.Proposed); p != (companion.Proposal{Path: "/project/a <&>", Text: "new\n", Hidden: true}) {
					t.Errorf("the proposal is %+v", p)
				}
				a.silent()
				done := f.backend.Resolve(a.session, "/project/a <&>", tt.outcome)
				a.want(id, tt.want)
				delivered(t, done)
				// The agent closes the tab twice.
				for range 2 {
					a.want(a.call(toolCloseTab, `{"tab_name":"tab"}`), "TAB_CLOSED")
				}
				a.silent()
				if len(done) != 0 {
					t.Error("done was called twice")
				}
			})
		})
	}
}

// A call that opens no diff has an answer, too.
func TestOpenDiffFails(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fixture) {
		f.backend.OnPropose = func(companion.Proposal) error { return errors.New("it cannot be shown") }
		a := f.connect("claude-code")
		a.want(a.openDiff("/project/a", "a", "tab"), "isError: it cannot be shown")
		for args, want := range map[string]string{
			`{}`: "new_file_path is missing", `{"new_file_path":"/a"}`: "new_file_contents is missing",
			`{"new_file_path":"/a\u0000","new_file_contents":""}`: "NUL",
			`{"new_file_path":5}`: "do not fit", `[]`: "do not fit",
		} {
			got := a.answer(a.call(toolOpenDiff, args)).String()
			if !strings.Contains(got, want) || !strings.HasPrefix(got, "isError") {
				t.Errorf("%s: %s, want %s", args, got, want)
			}
		}
		a.want(a.request("tools/call", `{"name":"openDiff"}`), "isError: new_file_path is missing: pass the file's absolute path")
		a.want(a.call(toolCloseTab, `{}`), "isError: tab_name is missing: pass the name given to openDiff")
		f.close()
		if err := a.session.Ctx.Err(); err == nil {
			t.Error("the session did not end")
		}
	})
}

func TestWithdrawn(t *testing.T) {
	for name, tt := range map[string]struct {
		tool, args, want string
		closed           []string
	}{
		"close_tab":  {toolCloseTab, `{"tab_name":"1"}`, "TAB_CLOSED", []string{"1"}},
		"of nothing": {toolCloseTab, `{"tab_name":"3"}`, "TAB_CLOSED", nil},
		// Claude Code also calls it when one of several subagents has ended: the user still
		// decides about the changes of the other ones.
		"closeAllDiffTabs":  {toolCloseAll, `{}`, "CLOSED_0_DIFF_TABS", nil},
		"without arguments": {toolCloseAll, `null`, "CLOSED_0_DIFF_TABS", nil},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, f *fixture) {
				a, other := f.connect("claude-code"), f.connect("claude-code")
				ids := make(map[string]int)
				for _, tab := range []string{"1", "2"} {
					ids[tab] = a.show("/project/"+tab, "a", tab)
					other.show("/project/"+tab, "a", tab)
				}
				a.want(a.call(tt.tool, tt.args), tt.want)
				for _, tab := range tt.closed {
					a.want(ids[tab], "DIFF_REJECTED|"+tab)
				}
				a.silent()
				other.silent()
				if n := f.backend.Open(); n != 4-len(tt.closed) {
					t.Errorf("%d diffs are open", n)
				}
			})
		})
	}
}

// Calls take effect in the order in which the agent sent them, even if it does not wait
// for the answers and a diff takes time to open.
func TestOrderOfCalls(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fixture) {
		opening, shown := make(chan bool, 10), make(chan bool)
		f.backend.OnPropose = func(companion.Proposal) error { opening <- true; <-shown; return nil }
		a := f.connect("claude-code")
		first := a.openDiff("/project/a", "first", "tab")
		systest.Receive(t, opening)
		closing := a.call(toolCloseTab, `{"tab_name":"tab"}`)
		second := a.openDiff("/project/a", "second", "tab")
		third := a.openDiff("/project/a", "third", "tab")
		a.silent()
		if len(opening) != 0 {
			t.Error("the second diff did not wait for the first")
		}
		close(shown)
		a.want(first, "DIFF_REJECTED|tab")
		a.want(closing, "TAB_CLOSED")
		a.want(second, "isError: "+blocking.ErrUndecided.Error())
		for _, want := range []string{"first", "second", "third"} {
			if p := systest.Receive(t, f.backend.Proposed); p.Text != want {
				t.Errorf("proposed %s, want %s", p.Text, want)
			}
		}
		done := f.backend.Resolve(a.session, "/project/a", companion.Outcome{Accepted: true, Text: "x"})
		a.want(third, "FILE_SAVED|x")
		delivered(t, done)
	})
}

// Diffs with one tab name, and even with one text, are different calls.
func TestSameTab(t *testing.T) {
	withClaude(t, func(t *testing.T, f *fixture, a *agent) {
		var ids []int
		for _, path := range []string{"/project/a", "/project/b", "/project/b"} {
			ids = append(ids, a.openDiff(path, "x", "tab"))
		}
		for range ids {
			systest.Receive(t, f.backend.Proposed)
		}
		a.want(ids[1], "isError: "+blocking.ErrUndecided.Error())
		for i, path := range map[int]string{0: "/project/a", 2: "/project/b"} {
			done := f.backend.Resolve(a.session, path, companion.Outcome{Accepted: true, Text: path})
			a.want(ids[i], "FILE_SAVED|"+path)
			delivered(t, done)
		}
	})
}

// A canceled call closes its diff, and no other.
func TestCanceled(t *testing.T) {
	withClaude(t, func(t *testing.T, f *fixture, a *agent) {
		id := a.show("/project/a", "x", "tab")
		other := a.show("/project/b", "x", "tab")
		a.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2}}`)
		if id != 2 {
			t.Fatal(id)
		}
		a.want(id, "DIFF_REJECTED|tab")
		f.backend.Resolve(a.session, "/project/b", companion.Outcome{})
		a.want(other, "DIFF_REJECTED|tab")
	})
}

// When an agent ends, its diffs stay for the user, and accepts that it did not receive
// are reported.
func TestAgentEnds(t *testing.T) {
	withClaude(t, func(t *testing.T, f *fixture, a *agent) {
		a.show("/project/a", "x", "tab")
		a.show("/project/b", "x", "tab")
		a.ws.CloseNow()
		if s := systest.Receive(t, f.backend.Gone); s != a.session {
			t.Error("another session has ended")
		}
		if n := f.backend.Open(); n != 2 {
			t.Errorf("%d diffs are left", n)
		}
		if err := systest.Receive(t, f.backend.Resolve(a.session, "/project/a", companion.Outcome{Accepted: true})); err == nil {
			t.Error("an outcome was delivered after the end")
		}
		synctest.Wait()
		if n := f.MCP.Sessions(); n != 0 {
			t.Errorf("%d sessions are left", n)
		}
	})
}
