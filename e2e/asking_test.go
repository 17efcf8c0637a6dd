package e2e

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pollux/internal/fakemodel"
)

// The first change of an agent whose user has chosen no mode, in a repository whose settings
// allow it to write: `pollux run` starts it so that it asks, and Pollux shows the change if
// the agent can be reviewed. With --own-mode, agents write that do not ask by default or in
// this repository, which proves that they would not have asked.
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
	}{
		{command: "gemini", ready: ready, asks: "Apply this change?", inline: true,
			allows: [2]string{".gemini/settings.json", `{"tools": {"allowed": ["write_file"]}}`}},
		{command: "qwen", ready: ready, asks: "Apply this change?", inline: true,
			chosen: [2]string{".qwen/settings.json", `, "tools": {"approvalMode": "default"}`},
			allows: [2]string{".qwen/settings.json", `{"permissions": {"allow": ["Edit"]}}`}},
		{command: "copilot", ready: "/ commands", asks: "Do you want to create", always: true},
		// It does not show the change, and no view is open.
		{command: "claude", ready: "mode on", asks: "Opened changes in Pollux (run: pollux open)",
			allows: [2]string{".claude/settings.json", `{"permissions": {"allow": ["Write"]}}`}},
		{command: "opencode", ready: "Ask anything", asks: "Permission required",
			chosen: [2]string{".config/opencode/opencode.json", `"permission":{"bash":"ask","edit":"ask"},`},
			allows: [2]string{"opencode.json", `{"permission": {"edit": "allow"}, "agent": {"build": {"permission": {"edit": "ask", "*": "allow"}}}}`}},
		// Its sandbox refuses the command. To run it outside, the model would have to ask.
		{command: "codex", ready: "scripted", asks: after},
	} {
		agent := askerOf(first.command)
		for _, own := range []bool{false, true} {
			name := first.command
			if own && first.always {
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
				bin, env := agent.install(w)
				w.addPath(filepath.Dir(bin[0]))
				if first.chosen[0] != "" {
					w.replaceHome(first.chosen[0], first.chosen[1], "")
				}
				if first.command == "opencode" { // with the variable of another companion, or of an IDE, it never connects
					env = append(env, "CLAUDE_CODE_SSE_PORT=1")
				}
				env = append(env, "PATH="+strings.Join(append(slices.Clone(w.path), os.Getenv("PATH")), string(os.PathListSeparator)))
				if err := os.Remove(filepath.Join(w.home, ".local", "state", "pollux", "started")); err != nil {
					t.Fatal(err)
				}
				cli := w.screen(env, append(argv, "--", first.command)...)
				cli.see("review changes at this link")
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
					if first.command != "codex" {
						waitFor(t, "the warning", func() bool {
							return strings.Contains(w.pollux("status"), " changes files without asking: ")
						})
					}
					waitFor(t, "the file", func() bool { _, err := os.Stat(path); return err == nil })
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
				if first.command != "copilot" {
					return
				}
				if !strings.Contains(out, "Copilot CLI "+copilotVersion) || !strings.Contains(out, path+"  of Copilot CLI, pending for") {
					t.Errorf("the status is %s", out)
				}
				cli.press("Enter")
				cli.see(after)
				w.wantFile(path, "new\n")
			})
		}
	}
}
