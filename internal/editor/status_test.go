package editor

import (
	"strings"
	"testing"
	"time"
)

// The status has all that the user can act on, with the commands of the editor.
func TestStatusDescribe(t *testing.T) {
	ago := time.Now().Add(-time.Minute).UnixMilli()
	status := Status{
		PID: 7, Version: "1.2", Port: 80, Editor: Info{DisplayName: "Vim"}, Roots: []string{"/src"}, Started: ago, Files: 1,
		Notes: []string{"note\x1b"},
		Diffs: []DiffStatus{
			{Path: "/src/a", Agent: "Codex CLI", State: StateOpen, Opened: ago},
			{Path: "/src/b", Client: "Gemini CLI 1", State: StateOrphaned, Opened: ago},
			{Path: "/src/c", State: StateAccepted, Opened: ago},
			{Path: "/src/d", Agent: "Codex CLI", State: StateOpen, Notice: "binary\n", Opened: ago},
		},
	}
	diffs := `  diff  /src/a  of Codex CLI, pending for 1m0s
  diff  /src/b  of Gemini CLI 1, its agent is disconnected; pending for 1m0s
  diff  /src/c  of the agent, accepted; waiting to be written for 1m0s
  diff  /src/d  of Codex CLI, cannot be displayed (binary): answer in the agent's terminal; pending for 1m0s
`
	equal(t, status.Describe(""), `Vim  /src
  process 7, up 1m0s, 1 file open
  no agent is connected; in Gemini CLI, type /ide enable and restart it; in Claude Code and Codex CLI, type /ide
  note␛
`+diffs)
	status.Notes = nil
	status.Outside.Files = []OutsideFile{{Path: "/src/e", Change: OutsideCreated, Since: ago}}
	status.Clients = []Agent{
		{Name: "Claude Code", Version: "2.1", Since: ago, PID: 7, Dir: "/src", Terminal: "pts/3", Silent: "It does not ask."},
		{Name: "Codex CLI", Since: ago, Limits: "no review"},
	}
	equal(t, status.Describe(":Pollux "), `Pollux 1.2
Vim  /src
  process 7, up 1m0s, 1 file open
  agent Claude Code 2.1 (pid 7, tty pts/3) in /src, connected for 1m0s
    It does not ask.
  agent Codex CLI, connected for 1m0s; no review
`+diffs+`  1 file changed outside Pollux, without a review; `+"`:Pollux list`"+` shows what changed, to keep or undo it
    /src/e  created, noticed 1m0s ago
`)
	status.Clients, status.Unconnected = nil, "Qwen Code has not connected yet"
	if text := status.Describe(""); !strings.Contains(text, "\n  Qwen Code has not connected yet\n") || strings.Contains(text, "/ide enable") {
		t.Errorf("while an agent starts, the status is %s", text)
	}
	status.Unconnected = ""
	if text := status.Describe("M-x pollux-"); !strings.Contains(text, "connected; M-x pollux-open starts one; in Gemini CLI") {
		t.Errorf("without an agent, the status is %s", text)
	}
}

func equal(t *testing.T, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("the status is\n%s\nwant\n%s", got, want)
	}
}
