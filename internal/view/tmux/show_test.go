package tmux

import (
	"path/filepath"
	"strings"
	"testing"
)

// The text appears in the status line of the terminal, and tmux does not take it for a format.
func TestShow(t *testing.T) {
	d := newDesk(t)
	inner := filepath.Join(filepath.Dir(d.socket), "i")
	d.tmux("send-keys", "-t", "%0", "TMUX= tmux -S "+inner+" -f /dev/null new-session 'printf in%sde si; cat'", "Enter")
	t.Cleanup(func() { command(t.Context(), inner, "kill-server").Run() })
	d.wait("the inner terminal", func() bool { return strings.Contains(d.screen(), "inside") })
	t.Setenv("TMUX", inner+",1,0")
	t.Setenv("TMUX_PANE", "%0")
	const text = "Fake proposes a change to #{pane_id}#(id).txt"
	if err := Show(t.Context(), text); err != nil {
		t.Fatal(err)
	}
	d.wait("the text", func() bool { return strings.Contains(d.screen(), text) })
}

// The review opens next to the agent, also if its user has gone to another window meanwhile.
func TestSplit(t *testing.T) {
	d := newDesk(t)
	d.tmux("new-window", "cat") // the current one from now on
	t.Setenv("TMUX", d.socket+",1,0")
	t.Setenv("TMUX_PANE", "%0")
	if err := Split("cat"); err != nil {
		t.Fatal(err)
	}
	if panes := d.tmux("list-panes", "-t", "%0", "-F", "#{pane_id}"); strings.Count(panes, "%") != 2 {
		t.Errorf("the agent's window has the panes %s", panes)
	}
}
