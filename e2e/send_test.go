package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"pollux/editors/editortest"
	"pollux/internal/fakemodel"
)

// seen is a model that answers every prompt.
func seen(fakemodel.Request) fakemodel.Reply { return fakemodel.Say("Seen.") }

// Claude Code runs in its own tmux pane, and `pollux send` in a shell.
func TestSendToClaude(t *testing.T) {
	if !isolated(t) {
		return
	}
	w := newClaudeWorld(t, seen)
	w.file("a.txt", "alpha\nbeta\ngamma\n")
	e := w.edit(nil)
	bin, env := w.configure("claude")
	w.env = append(w.env, env...)
	w.env = append(w.env, "PATH="+filepath.Dir(bin)+":"+os.Getenv("PATH"))
	shell := w.screen(append(e.env(), "PS1=shell> "), "bash", "--norc")
	shell.see("shell>")
	shell.ask("claude --permission-mode default")
	shell.see("? for shortcuts")
	waitFor(t, "the process", func() bool { all := e.agents(t); return len(all) == 1 && all[0].PID > 0 })
	if a := e.agents(t)[0]; a.Dir != w.project || a.PID == shell.PID {
		t.Errorf("the agent is %+v", a)
	}
	if out := w.pollux("status"); !strings.Contains(out, "agent Claude Code "+claudeVersion+" (pid ") || !strings.Contains(out, ") in "+w.project+", connected") {
		t.Errorf("the status is %s", out)
	}

	if out := w.pollux("send", "a.txt:2-3"); out != "Sent to Claude Code.\n" {
		t.Errorf("it says %q", out)
	}
	shell.see("@a.txt#L2-3")
	if out := w.pollux("send", "a.txt:2-3", "why", "so?"); out != "Sent to Claude Code in tmux pane %0.\n" {
		t.Errorf("it says %q", out)
	}
	w.wantPrompt("@a.txt#L2-3 @a.txt#L2-3: why so?")
	shell.see("Seen.")
	w.pollux("send", "a.txt", "and now?")
	if r := w.wantPrompt("and now?"); !strings.Contains(r.Text, "alpha") { // not among the lines that were sent
		t.Errorf("the model has not received the file: %q", tail(r.Text, 500))
	}
}

// Gemini CLI in a tmux pane: connected, and found by its command. Without environment variables,
// it finds the companion by its discovery file, in a root whose name contains a colon and a
// percent sign, where it reads no files. Elsewhere its model receives the file.
func TestSendToGemini(t *testing.T) {
	t.Parallel()
	for _, connected := range []bool{true, false} {
		t.Run(map[bool]string{true: "connected", false: "not connected"}[connected], func(t *testing.T) {
			w := newWorld(t, seen)
			if connected {
				w.project = filepath.Join(w.project, "a:b %41")
			}
			w.file("a.txt", "alpha\nbeta\ngamma\n")
			if !connected {
				w.replaceHome(".gemini/settings.json", `"enabled": true`, `"enabled": false`)
			}
			e := w.edit(nil)
			bin := geminiCLI(t)
			cli := w.screen([]string{"REMOTE_CONTAINERS=1", "GEMINI_CLI_NO_RELAUNCH=true"}, bin)
			cli.see(ready)
			if connected {
				waitFor(t, "the process", func() bool {
					all := e.agents(t)
					return len(all) == 1 && all[0].PID == cli.PID && all[0].Dir == w.project
				})
			}
			if out := w.pollux("send", "a.txt:2-3"); out != "Sent to Gemini CLI in tmux pane %0.\n" {
				t.Errorf("it says %q", out)
			}
			cli.see("@a.txt lines 2-3")
			cli.press("C-u")
			cli.see(ready)
			cmd := exec.Command(polluxBinary, "send", "--agent", "gemini", "a.txt", "-")
			cmd.Env, cmd.Dir, cmd.Stdin = w.env, w.project, strings.NewReader("first line\nsecond $(touch x) line")
			succeed(t, cmd)
			if r := w.wantPrompt("first line\nsecond $(touch x) line"); !connected && !strings.Contains(r.Text, "gamma") {
				t.Errorf("the model has not received the file: %q", tail(r.Text, 500))
			}
		})
	}
}

// sends checks that an agent without mentions receives text in its tmux pane, and a question
// with Enter. Lines 2 and 3 of a.txt are shown to it as text.
func (w *world) sends(t *testing.T, cli screen, title, text string) {
	t.Helper()
	if out := w.pollux("send", "a.txt:2-3"); !strings.Contains(out, "Sent to "+title+" in tmux pane") {
		t.Errorf("it says %q", out)
	}
	cli.see(text)
	cli.press("C-u")
	waitFor(t, "the empty line", func() bool { return !strings.Contains(cli.Text(), text) })
	w.pollux("send", "a.txt:2-3", "why", "is", "that", "so")
	w.wantPrompt(text + ": why is that so")
}

// startAgent are the keys that start an agent by its name.
func startAgent(kind editortest.Kind, name string) []string {
	if kind.Name == "emacs" {
		return []string{"C-u", "M-x", "pollux-open", "Enter", name, "Enter"}
	}
	return []string{":Pollux " + name, "Enter"}
}

// The user asks a question about lines from the editor. An agent starts for the first one. What
// the user sends arrives in the terminal that was used last, or whose agent is named.
func TestEditorSends(t *testing.T) {
	eachEditor(t, func(t *testing.T, kind editortest.Kind, h hands) {
		w := newWorld(t, silent)
		for _, name := range []string{"gemini", "claude", "qwen"} {
			w.addAgent(name)
		}
		d := w.sit(kind, w.file("a.txt", "one\ntwo\nthree\n"))
		leave := func() {
			t.Helper()
			d.until(d.State.Terminal, "1")
			d.leaveTerminal(h)
		}
		first, second := pasted("@a.txt lines 1-2: why is this so?"), pasted("@a.txt lines 1-2: and what then?")
		d.press(h.send("why is this so?")...)
		d.wantReceived("gemini", first)
		leave()
		d.press(h.send("and what then?")...)
		d.wantReceived("gemini", first, second)
		leave()

		for _, name := range []string{"claude", "qwen"} {
			d.press(startAgent(kind, name)...)
			leave()
		}
		d.press(h.send("who is it?")...)
		d.wantReceived("qwen", pasted("@a.txt lines 1-2: who is it?"))
		leave()
		if kind.Name == "emacs" {
			d.press("M-<", "C-u", "M-x", "pollux-send", "Enter", "why is that?", "Enter", "claude", "Enter")
		} else {
			d.press(":Pollux send --agent claude why is that?", "Enter")
		}
		d.wantReceived("claude", pasted("@a.txt: why is that?"))
	})
}
