package e2e

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"pollux/internal/editor"
	"pollux/internal/fakemodel"
)

// Causes of the other agents. The real agent behaves as doctor says.
func TestDoctorAgents(t *testing.T) {
	if !isolated(t) {
		return
	}
	says := func(fakemodel.Request) fakemodel.Reply { return fakemodel.Say(after) }
	// opencode retries without end, so a variable that is set keeps it from a good companion.
	t.Run("opencode", func(t *testing.T) {
		for name, tt := range map[string]struct {
			env   func(e *plugin) []string
			want  []string
			comes bool
		}{
			"healthy": {func(*plugin) []string { return nil }, nil, true},
			"with a port": {func(*plugin) []string { return []string{"CLAUDE_CODE_SSE_PORT=1"} },
				[]string{"failed variables"}, false},
		} {
			t.Run(name, func(t *testing.T) {
				w := newClaudeWorld(t, says)
				bin, own := w.installOpencode()
				p := &patient{world: w, dir: w.project, bin: filepath.Dir(bin)}
				p.editor = p.edit(nil)
				waitFor(t, "the lock", func() bool { return len(p.claudeLocks()) > 0 })
				p.set(tt.env(p.editor)...)
				p.wantOf("opencode", tt.want...)
				cli := p.opencode(append(slices.Clone(p.env), own...), bin)
				if tt.comes {
					waitFor(t, "the agent", func() bool { return len(p.editor.agents(t)) == 1 })
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
		for name, tt := range map[string]struct {
			then func(p *patient)
			want []string
			says string
		}{
			"healthy": {func(*patient) {}, nil, "IDE context is on"},
			"another TMPDIR": {func(p *patient) {
				other := filepath.Join(p.home, "tmp")
				p.write(filepath.Join(other, "f"), "")
				p.set("TMPDIR=" + other)
			}, []string{"failed tmpdir"}, "IDE context could not be enabled"},
			"others can write": {func(p *patient) {
				if err := os.Chmod(filepath.Dir(p.codexSocket()), 0o777); err != nil {
					p.t.Fatal(err)
				}
			}, []string{"failed directory"}, "IDE context could not be enabled"},
			"no companion": {func(p *patient) {
				p.editor.Client.Close()
				p.editor.cmd.Wait()
			}, []string{"failed companion"}, "IDE context could not be enabled"},
		} {
			t.Run(name, func(t *testing.T) {
				w := newCodexWorld(t)
				bin, own := w.installCodex()
				p := &patient{world: w, dir: w.project, bin: filepath.Dir(bin)}
				p.editor = p.edit(nil)
				waitExists(t, p.codexSocket())
				tt.then(p)
				p.wantOf("codex", append(tt.want, "warning mode")...) // in a folder that the user trusts, it does not ask
				t.Cleanup(w.endDaemon)
				cli := p.screen(append(slices.Clone(p.env), own...), bin)
				cli.see("scripted default")
				cli.ask("/ide")
				cli.see(tt.says)
			})
		}
	})
	t.Run("copilot", func(t *testing.T) {
		for name, tt := range map[string]struct {
			root  func(p *patient) string
			then  func(p *patient)
			want  []string
			comes bool
		}{
			"healthy":        {comes: true},
			"a folder above": {root: func(p *patient) string { return filepath.Dir(p.project) }, want: []string{"failed workspace"}},
			"told not to connect": {want: []string{"failed auto-connect"}, then: func(p *patient) {
				p.writeHome(filepath.Join(".copilot", "settings.json"), `{"banner": "never", "ide": {"autoConnect": false}}`)
			}},
			"another home": {want: []string{"failed companion"}, then: func(p *patient) {
				other := filepath.Join(p.home, "other")
				data, err := os.ReadFile(filepath.Join(p.home, ".copilot", "config.json"))
				if err != nil {
					p.t.Fatal(err)
				}
				p.write(filepath.Join(other, "config.json"), string(data))
				p.set("COPILOT_HOME=" + other)
			}},
		} {
			t.Run(name, func(t *testing.T) {
				w := newCopilotWorld(t, says)
				bin := copilotCommand(t)
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
				cli := p.screen(append(slices.Clone(p.env), w.copilotEnv()...), bin)
				cli.see(copilotReady)
				if tt.comes {
					waitFor(t, "the agent", func() bool { return len(p.editor.agents(t)) == 1 })
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
}
