package e2e

import (
	"bytes"
	"errors"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pollux/internal/agent/agenttest"
	"pollux/internal/agent/gemini/fakecli"
	"pollux/internal/fakemodel"
)

// askEnv returns the environment of pollux ask with the real Gemini CLI.
func (w *world) askEnv() []string {
	w.t.Helper()
	return append(slices.Clone(w.env), "GEMINI_CLI_PATH="+w.askedCLI())
}

// ask runs pollux ask on pipes. It returns what a pipe receives, and the exit code.
func (w *world) ask(args ...string) (out, errs string, code int) {
	w.t.Helper()
	cmd := exec.CommandContext(w.context(), polluxBinary, append([]string{"ask", "-t", "10m"}, args...)...)
	cmd.Env, cmd.Dir = w.askEnv(), w.project
	var o, e bytes.Buffer
	cmd.Stdout, cmd.Stderr = &o, &e
	var exit *exec.ExitError
	if err := cmd.Run(); err != nil && !errors.As(err, &exit) {
		w.t.Fatal(err)
	}
	return o.String(), e.String(), cmd.ProcessState.ExitCode()
}

// A terminal shows the text while the agent writes it, and what the agent says before a tool
// use apart from the answer. Ctrl-C keeps what has arrived.
func TestAskOnATerminal(t *testing.T) {
	w := newWorld(t, silent)
	w.fake = agenttest.Install(t, fakecli.Install, filepath.Join(w.home, "fake"), current)
	term := w.run(w.project, w.askEnv(), polluxBinary, "ask", "-t", "10m", "fake:narrate")
	term.expect("I will read it.")
	term.expect("(reading hello.txt)")
	term.expect("The answer.")
	<-term.done
	if n := strings.Count(term.text, "The answer."); n != 1 || term.cmd.ProcessState.ExitCode() != 0 {
		t.Errorf("the answer is shown %d times; %v", n, term.cmd.ProcessState)
	}

	term = w.run(w.project, w.askEnv(), polluxBinary, "ask", "-t", "10m", "fake:say-and-hang")
	term.expect("as far as I came")
	term.keys("\x03")
	term.expect("pollux: interrupted: the answer is incomplete")
	<-term.done
	if code := term.cmd.ProcessState.ExitCode(); code != 130 {
		t.Errorf("exit code %d", code)
	}
}

// repeats answers with what the user said. It leaves out the context that Gemini CLI
// adds: the CLI takes a text that occurs three times in an answer for a loop.
func repeats(r fakemodel.Request) fakemodel.Reply {
	_, said, found := strings.Cut(r.Prompt, "</session_context>")
	if !found {
		said = r.Prompt
	}
	return fakemodel.Say("You said: " + said)
}

// The conversation of a session that uses the pool continues in a copy, which has its own ID. The
// session itself is not affected.
func TestAskContinuesAPooledSession(t *testing.T) {
	w := newFakeWorld(t, repeats)
	w.usePool()
	c := w.connectWith(append(w.askEnv(), "GEMINI_WARM_WAIT_MS=60000"), polluxBinary)
	o := c.call("query", map[string]any{"prompt": "my name is Ann"})
	id, _ := o.Meta["sessionId"].(string)
	if id == "" {
		t.Fatalf("no sessionId in %v", o.Meta)
	}
	out, errs, code := w.ask("--session", id, "who am I?")
	if !strings.Contains(out, "my name is Ann") || !strings.Contains(errs, "this continues a copy of the conversation") || code != 0 {
		t.Errorf("exit code %d, %q and %q; the pools are\n%s", code, out, errs, w.pollux("pool", "status"))
	}
	files, err := filepath.Glob(filepath.Join(w.home, ".local", "state", "pollux", "ask", "*"))
	if err != nil || len(files) != 1 {
		t.Fatalf("the history has %q, %v", files, err)
	}
	_, copied, _ := strings.Cut(strings.TrimSuffix(filepath.Base(files[0]), ".json"), "-")
	if out, errs, code := w.ask("--session", copied, "and now?"); !strings.Contains(out, "who am I?") || code != 0 {
		t.Errorf("exit code %d, %q and %q", code, out, errs)
	}
	o = c.call("query", map[string]any{"prompt": "still here?", "sessionId": id})
	o.want(t, false, "still here?")
	if strings.Contains(o.text, "who am I?") {
		t.Errorf("the session sees the copy: %s", o.text)
	}
	w.wantNothingLeft(c)
}
