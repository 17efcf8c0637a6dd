package e2e

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pollux/internal/editor"
	"pollux/internal/fakemodel"
	"pollux/internal/sys/systest"
)

// Causes of the other agents. The real agent behaves as doctor says: with -short, only Codex CLI
// is asked. TestCopilot has the healthy Copilot CLI.
func TestDoctorAgents(t *testing.T) {
	if !isolated(t) {
		return
	}
	says := func(fakemodel.Request) fakemodel.Reply { return fakemodel.Say(after) }
	// writes makes a model that writes new.txt with the call of an agent.
	writes := func(agent string, w **world) fakemodel.Script {
		return func(r fakemodel.Request) fakemodel.Reply {
			if r.Step > 0 || !strings.Contains(r.Prompt, "write it") {
				return fakemodel.Say(after)
			}
			return callFor(askerOf(agent).editCall, filepath.Join((*w).project, "new.txt"))
		}
	}
	// opencode retries without end, so a variable that is set keeps it from a good companion.
	t.Run("opencode", func(t *testing.T) {
		for name, tt := range map[string]struct {
			env   []string
			chose bool // the settings choose a mode
			want  []string
		}{
			"does not ask": {nil, false, []string{"warning mode"}},
			"with a port":  {[]string{"CLAUDE_CODE_SSE_PORT=1"}, true, []string{"failed variables"}},
		} {
			t.Run(name, func(t *testing.T) {
				var w *world
				w = newClaudeWorld(t, writes("opencode", &w))
				bin, own := w.configure("opencode")
				if !tt.chose {
					w.replaceHome(".config/opencode/opencode.json", `"permission":{"bash":"ask","edit":"ask"},`, "")
				}
				p := &patient{world: w, dir: w.project, bin: filepath.Dir(bin)}
				p.editor = p.edit(nil)
				waitFor(t, "the lock", func() bool { return len(p.claudeLocks()) > 0 })
				p.set(tt.env...)
				p.wantOf("opencode", tt.want...)
				if !askedOf(name) {
					return
				}
				cli := p.opencode(append(slices.Clone(p.env), own...), bin)
				if !tt.chose {
					waitFor(t, "the agent", func() bool { return len(p.editor.agents(t)) == 1 })
					cli.ask("write it")
					w.wantsUnasked(filepath.Join(w.project, "new.txt"))
					return
				}
				cli.ask("hello")
				cli.see(after)
				if all := p.editor.agents(t); len(all) > 0 {
					t.Errorf("connected: %v", all)
				}
			})
		}
	})
	t.Run("codex", func(t *testing.T) {
		examine := func(t *testing.T) (*patient, func(want ...string), func() screen) {
			var w *world
			w = newWorld(t, writes("codex", &w))
			bin, own := w.configure("codex")
			p := &patient{world: w, dir: w.project, bin: filepath.Dir(bin)}
			p.editor = p.edit(nil)
			waitExists(t, p.codexSocket())
			// In a folder that the user trusts, it does not ask.
			finds := func(want ...string) { t.Helper(); p.wantOf("codex", append(want, "warning mode")...) }
			return p, finds, func() screen {
				t.Cleanup(w.endDaemon)
				cli := p.screen(append(slices.Clone(p.env), own...), bin)
				cli.see("scripted default")
				return cli
			}
		}
		const on, failed = "IDE context is on", "IDE context could not be enabled"
		t.Run("one session", func(t *testing.T) {
			p, finds, start := examine(t)
			finds()
			cli := start()
			cli.ask("/ide")
			cli.see(on)
			cli.ask("write it")
			waitExists(t, filepath.Join(p.project, "new.txt"))
			cli.seeBelow("› write it", after) // the name of the session is at the bottom

			// Others can write to the directory of the socket.
			dir := filepath.Dir(p.codexSocket())
			if err := os.Chmod(dir, 0o777); err != nil {
				t.Fatal(err)
			}
			finds("failed directory")
			cli.ask("/ide off")
			cli.see("IDE context is off")
			cli.ask("/ide on")
			cli.see(failed)

			if err := os.Chmod(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			p.editor.quit()
			finds("failed companion")
			cli.ask("/ide on")
			waitFor(t, "the second answer", func() bool { return strings.Count(cli.Text(), failed) == 2 })
		})
		t.Run("another TMPDIR", func(t *testing.T) {
			p, finds, start := examine(t)
			other := filepath.Join(p.home, "tmp")
			p.write(filepath.Join(other, "f"), "")
			p.set("TMPDIR=" + other)
			finds("failed tmpdir")
			cli := start()
			cli.ask("/ide")
			cli.see(failed)
		})
	})
	t.Run("copilot", func(t *testing.T) {
		for name, tt := range map[string]struct {
			root func(p *patient) string
			then func(p *patient)
			want []string
		}{
			"a folder above": {root: func(p *patient) string { return filepath.Dir(p.project) }, want: []string{"failed workspace"}},
			"told not to connect": {want: []string{"failed auto-connect"}, then: func(p *patient) {
				p.writeHome(filepath.Join(".copilot", "settings.json"), `{"banner": "never", "ide": {"autoConnect": false}}`)
			}},
			"another home": {want: []string{"failed companion"}, then: func(p *patient) {
				other := filepath.Join(p.home, "other")
				data := systest.ReadFile(p.t, filepath.Join(p.home, ".copilot", "config.json"))
				p.write(filepath.Join(other, "config.json"), data)
				p.set("COPILOT_HOME=" + other)
			}},
		} {
			t.Run(name, func(t *testing.T) {
				w := newWorld(t, says)
				bin, own := w.configure("copilot")
				p := &patient{world: w, dir: w.project, bin: filepath.Dir(bin)}
				p.editor = p.edit(func(i *editor.InitializeParams) {
					if tt.root != nil {
						i.Roots = []string{tt.root(p)}
					}
				})
				waitFor(t, "the lock", func() bool { return len(p.copilotLocks()) > 0 })
				if tt.then != nil {
					tt.then(p)
				}
				p.wantOf("copilot", tt.want...)
				if !askedOf(name) {
					return
				}
				cli := p.screen(append(slices.Clone(p.env), own...), bin)
				cli.see(copilotReady)
				cli.ask("hello")
				cli.see(after)
				if all := p.editor.agents(t); len(all) > 0 {
					t.Errorf("connected: %v", all)
				}
			})
		}
	})
}
