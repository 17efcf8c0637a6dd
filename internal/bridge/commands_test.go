package bridge

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"pollux/internal/agent"
	"pollux/internal/agent/gemini/fakecli"
	"pollux/internal/sys/systest"
)

// A prompt that started with a byte order mark and "/init" ran that command of the
// agent. No tool may pass on a prompt that the agent runs as a command, regardless
// of the start of the prompt, even if a template puts nothing before it.
func TestNoToolRunsACommand(t *testing.T) {
	templates := t.TempDir()
	for name, text := range map[string]string{
		"search.md": "{{query}}{{limit}}", "structured.md": "{{prompt}}{{schema}}", "change-mode.md": "{{prompt}}", "change-mode-tools.md": "{{prompt}}",
	} {
		systest.WriteFile(t, filepath.Join(templates, name), text)
	}
	for _, kind := range []string{agent.Warmed, agent.Spawned} {
		t.Run(kind, func(t *testing.T) {
			runner := fakeRunner(t, agent.Options{Kind: kind, Warm: agent.Limits{WaitTimeout: MaxTimeout}})
			starts := []string{"", "\ufeff"}
			if kind == agent.Warmed {
				for _, r := range fakecli.JSSpace + "\u200b\u0085\x00\x1b" {
					starts = append(starts, string(r))
				}
			}
			s := connect(t, newTestBridge(t, runner, func(c *Config) { c.Templates = templates }), "test")
			dir := t.TempDir()
			for _, start := range starts {
				for _, sign := range []string{"/", "$"} {
					prompt := start + sign + "init please"
					arguments := func(name string, more map[string]any) string {
						args := map[string]any{name: prompt, "workingDirectory": dir}
						for k, v := range more {
							args[k] = v
						}
						data, err := json.Marshal(args)
						if err != nil {
							t.Fatal(err)
						}
						return string(data)
					}
					ask := func(tool, args string) string {
						_, text := callTool(t, s, tool, args)
						return text
					}
					calls := map[string]func() string{
						"query":  func() string { return ask("query", arguments("prompt", nil)) },
						"search": func() string { return ask("search", arguments("query", nil)) },
						"structured": func() string {
							return ask("structured", arguments("prompt", map[string]any{"schema": map[string]any{}}))
						},
						"change mode": func() string { return ask("query", arguments("prompt", map[string]any{"changeMode": true})) },
						"start-job": func() string {
							r, _ := callTool(t, s, "start-job", fmt.Sprintf(`{"tool":"query","arguments":%s}`, arguments("prompt", nil)))
							id, _ := r.Meta["jobId"].(string)
							return ask("wait-job", fmt.Sprintf(`{"jobId":%q,"timeout":%d}`, id, maxJobWaitTimeout.Milliseconds()))
						},
					}
					for name, call := range calls {
						text := call()
						echo := sign + "init please"
						if name == "structured" {
							echo = "{}" // the schema, which is part of the prompt and valid under itself
						}
						if strings.Contains(text, fakecli.Ran) || !strings.Contains(text, echo) {
							t.Errorf("%s with the prompt %q: %s", name, prompt, text)
						}
					}
				}
			}
		})
	}
}
