package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"pollux/internal/fakemodel"
	"pollux/internal/sys/systest"
)

// askable puts agents that can be asked on the PATH, and returns their environment.
func (w *world) askable() []string {
	w.t.Helper()
	dir := systest.Dir(w.t)
	env := slices.Clone(w.env)
	for _, a := range askers {
		bin, own := w.configure(a.command)
		env = append(env, own...)
		systest.Link(w.t, bin, filepath.Join(dir, a.command))
	}
	return append(env, "GEMINI_MIN_INVOCATION_GAP_MS=0", "GEMINI_WARM_WAIT_MS=120000", "PATH="+dir+":"+os.Getenv("PATH"))
}

// The shell and an MCP client ask real agents by name, several at the same time, and in one
// conversation, through the pool and behind the wall.
func TestAskAny(t *testing.T) {
	if !isolatedAlone(t) { // otherwise six agents may take longer to start than Pollux waits
		return
	}
	w := newWorld(t, func(r fakemodel.Request) fakemodel.Reply {
		if strings.Contains(r.Text, "first question") && strings.Contains(r.Text, "second question") {
			return fakemodel.Say("I remember.")
		}
		return fakemodel.Say("I am " + r.Method + ".")
	})
	w.usePool()
	w.file("a.txt", "alpha\n")
	w.env = w.askable()
	shell := func(args ...string) string {
		t.Helper()
		cmd := exec.Command(polluxBinary, append([]string{"ask"}, args...)...)
		cmd.Env, cmd.Dir = w.env, w.project
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("pollux ask %q: %v, %s", args, err, out)
		}
		return string(out)
	}
	if got := shell("--agent", "codex", "who are you?"); got != "I am responses.\n" {
		t.Errorf("Codex says %q", got)
	}
	if got := shell("--agent", "claude", "who are you?"); got != "I am messages.\n" {
		t.Errorf("Claude says %q", got)
	}
	panel := shell("--all", "who are you?")
	for _, want := range []string{
		"## Codex CLI (", "I am responses.", "## Claude Code (", "I am messages.", "## Gemini CLI (", "I am streamGenerateContent.",
		"## Copilot CLI (", "## Qwen Code (", "## opencode (", "I am chat/completions.",
	} {
		if !strings.Contains(panel, want) {
			t.Errorf("%q is not in\n%s", want, panel)
		}
	}
	t.Log(panel)

	c := w.connectWith(w.env, polluxBinary)
	first := c.call("query", map[string]any{"prompt": "the first question", "agent": "codex", "workingDirectory": w.project})
	if !strings.Contains(first.text, "I am responses.") || first.Meta["agent"] != "codex" || first.Meta["runner"] != "warm" {
		t.Errorf("got %q, %v", first.text, first.Meta)
	}
	second := c.call("query", map[string]any{"prompt": "the second question", "sessionId": first.Meta["sessionId"]})
	if !strings.Contains(second.text, "I remember.") || second.Meta["agent"] != "codex" {
		t.Errorf("got %q, %v", second.text, second.Meta)
	}
	moved := c.call("query", map[string]any{"prompt": "go on", "sessionId": first.Meta["sessionId"], "agent": "claude"})
	if !strings.Contains(moved.text, "I remember.") || moved.Meta["agent"] != "claude" {
		t.Errorf("got %q, %v", moved.text, moved.Meta)
	}
	both := c.call("query", map[string]any{"prompt": "who are you?", "agents": []string{"codex", "claude"}, "workingDirectory": w.project})
	if !strings.Contains(both.text, "I am responses.") || !strings.Contains(both.text, "I am messages.") {
		t.Errorf("the panel says %q", both.text)
	}
	status := w.pollux("pool", "status")
	for _, want := range []string{"Codex CLI process ", "Claude Code process ", "the kernel keeps agents from changing files"} {
		if runtime.GOOS == "linux" && !strings.Contains(status, want) {
			t.Errorf("%q is not in\n%s", want, status)
		}
	}
	usage := w.pollux("usage", "--json")
	if !strings.Contains(usage, `"codex"`) || !strings.Contains(usage, `"claude"`) {
		t.Errorf("the usage is %s", usage)
	}
	t.Log(status, usage)
	c.leave()
}
