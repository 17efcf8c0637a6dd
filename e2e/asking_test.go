package e2e

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pollux/internal/fakemodel"
	"pollux/internal/sys/systest"
)

// The first change of an agent whose user has chosen no mode, in a repository whose settings
// allow it to write: `pollux run` starts it so that it asks, and Pollux shows the change if
// the agent can be reviewed. TestOpencode has opencode. In their own mode, agents that do not ask
// by default write, which proves that they would not have asked: TestDoctorAgents shows it of
// opencode and Codex CLI. With -short, only Codex CLI writes in its own mode.
func TestFirstChangeIsAsked(t *testing.T) {
	if !isolated(t) {
		return
	}
	for _, first := range []struct {
		command string
		ready   string    // on the screen when it reads its keyboard
		asks    string    // on the screen when it has asked
		chosen  [2]string // the settings of the tests' user, and the part that chooses a mode
		allows  [2]string // the repository's settings that allow edits
		inline  bool      // it leaves the text above it on the screen
		always  bool      // it asks by default
		own     bool      // it is started in its own mode too
		// before prepares the world, and then goes on after the question.
		before func(w *world)
		then   func(t *testing.T, w *world, cli screen, path string)
	}{
		{command: "gemini", ready: ready, asks: "Apply this change?", inline: true, always: true,
			allows: [2]string{".gemini/settings.json", `{"tools": {"allowed": ["write_file"]}}`}},
		{command: "qwen", ready: ready, asks: "Apply this change?", inline: true, own: true,
			chosen: [2]string{".qwen/settings.json", `, "tools": {"approvalMode": "default"}`},
			allows: [2]string{".qwen/settings.json", `{"permissions": {"allow": ["Edit"]}}`}},
		{command: "copilot", ready: "/ commands", asks: "Do you want to create", always: true,
			then: func(t *testing.T, w *world, _ screen, path string) {
				out := w.pollux("status")
				if !strings.Contains(out, "Copilot CLI "+copilotVersion) || !strings.Contains(out, path+"  of Copilot CLI, pending for") {
					t.Errorf("the status is %s", out)
				}
			}},
		// It does not show the change, and no view is open. It connects to neither of two locks
		// for a folder, unless it knows the port.
		{command: "claude", ready: "mode on", asks: "Opened changes in Pollux (run: pollux open)", own: true,
			before: (*world).lockOther,
			allows: [2]string{".claude/settings.json", `{"permissions": {"allow": ["Write"]}}`},
			then: func(t *testing.T, w *world, cli screen, path string) {
				if _, err := os.Stat(filepath.Join(w.home, otherLock)); err != nil {
					t.Errorf("the other lock: %v", err)
				}
				w.acceptDiff()
				cli.see(after)
				w.wantFile(path, "new\n")
			}},
		// Its sandbox refuses the command. To run it outside, the model would have to ask.
		{command: "codex", ready: "scripted", asks: after,
			then: func(t *testing.T, w *world, cli screen, _ string) {
				cli.ask("/ide")
				cli.see("IDE context is on")
				waitFor(t, "the agent", func() bool { all := w.running(); return len(all) == 1 && len(all[0].Clients) == 1 })
			}},
	} {
		agent := askerOf(first.command)
		for _, own := range []bool{false, true} {
			name := first.command
			if own && (!first.own || testing.Short()) {
				continue
			}
			if own {
				name += " in its own mode"
			}
			t.Run(name, func(t *testing.T) {
				var path string
				w := newWorld(t, func(r fakemodel.Request) fakemodel.Reply {
					if r.Step > 0 || !strings.Contains(r.Prompt, "write it") {
						return fakemodel.Say(after)
					}
					return callFor(agent.editCall, path)
				})
				path = filepath.Join(w.project, "new.txt")
				if first.allows[0] != "" {
					w.file(first.allows[0], first.allows[1])
				}
				argv := []string{polluxBinary, "run", "--no-browser"}
				if own {
					argv = append(argv, "--own-mode")
				}
				bin, env := agent.configure(w)
				w.addPath(filepath.Dir(bin[0]))
				if first.chosen[0] != "" {
					w.replaceHome(first.chosen[0], first.chosen[1], "")
				}
				if first.before != nil {
					first.before(w)
				}
				env = append(env, "PATH="+strings.Join(append(slices.Clone(w.path), os.Getenv("PATH")), string(os.PathListSeparator)))
				systest.Remove(t, filepath.Join(w.home, ".local", "state", "pollux", "started"))
				cli := w.screen(env, append(argv, "--", first.command)...)
				cli.see(" at this link")
				if !own && !first.always {
					cli.see("for its own mode, use --own-mode")
				}
				if !first.inline {
					cli.see("Press Enter to start it.")
					cli.press("Enter")
				}
				ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
				defer cancel()
				if err := cli.Wait(ctx, first.ready); err != nil {
					t.Fatal(err)
				}
				if first.command != "codex" { // which connects with /ide; before, the others ask in their terminals only
					waitFor(t, "the agent", func() bool { return strings.Contains(w.pollux("status"), "\n  agent ") })
				}
				cli.ask("write it")
				if own {
					w.wantsUnasked(path)
					return
				}
				cli.see(first.asks)
				if _, err := os.Stat(path); err == nil {
					t.Error("the file was written before the answer")
				}
				if agent.review {
					waitFor(t, "the change in Pollux", func() bool { return strings.Contains(w.pollux("status"), "  diff  "+path) })
				}
				out := w.pollux("status")
				if strings.Contains(out, "without asking") {
					t.Errorf("the status is %s", out)
				}
				if first.then != nil {
					first.then(t, w, cli, path)
				}
			})
		}
	}
}

// otherLock is the lock of another companion, below the home.
const otherLock = ".claude/ide/1.lock"

// lockOther writes [otherLock].
func (w *world) lockOther() {
	w.t.Helper()
	w.writeHome(otherLock, toJSON(w.t, map[string]any{
		"pid": os.Getpid(), "workspaceFolders": []string{w.project}, "ideName": "Other", "transport": "ws", "authToken": "x",
	}))
}

// wantsUnasked waits until an agent that does not ask has written a file. The status warns of it.
func (w *world) wantsUnasked(path string) {
	w.t.Helper()
	waitFor(w.t, "the warning", func() bool { return strings.Contains(w.pollux("status"), " changes files without asking: ") })
	waitFor(w.t, "the file", func() bool { _, err := os.Stat(path); return err == nil })
}
