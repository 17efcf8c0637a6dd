package bridge

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"pollux/internal/agent"
	"pollux/internal/agent/gemini/fakecli"
	"pollux/internal/sys/systest"
)

// A prompt that started with a byte order mark and "/init" ran that command of the
// agent. No tool may pass on a prompt that the agent runs as a command, even if a
// template puts nothing before it.
func TestNoToolRunsACommand(t *testing.T) {
	templates := t.TempDir()
	for name, text := range map[string]string{
		"search.md": "{{query}}{{limit}}", "structured.md": "{{prompt}}{{schema}}", "change-mode.md": "{{prompt}}", "change-mode-tools.md": "{{prompt}}",
	} {
		systest.WriteFile(t, filepath.Join(templates, name), text)
	}
	for _, kind := range []string{agent.Warmed, agent.Spawned} {
		t.Run(kind, func(t *testing.T) {
			runner := fakeRunner(t, agent.Options{Warm: agent.Limits{WaitTimeout: MaxTimeout}})
			s := connect(t, newTestBridge(t, runner, func(c *Config) { c.Kind, c.Templates = kind, templates }), "test", fileURI(t.TempDir()))
			for _, call := range [][3]string{ // a tool, its arguments, and what the answer repeats
				{"query", `{"prompt":%q}`, "init please"},
				{"query", `{"prompt":%q,"changeMode":true}`, "init please"},
				{"search", `{"query":%q}`, "init please"},
				{"structured", `{"prompt":%q,"schema":{}}`, "{}"}, // of the prompt, and valid under itself
				{"start-job", `{"tool":"query","arguments":{"prompt":%q}}`, "init please"},
			} {
				for _, prompt := range []string{"/init please", "\ufeff$init please"} {
					r, text := callTool(t, s, call[0], fmt.Sprintf(call[1], prompt))
					if id := r.Meta["jobId"]; id != nil {
						_, text = callTool(t, s, "wait-job", fmt.Sprintf(`{"jobId":%q,"timeout":%d}`, id, maxJobWaitTimeout.Milliseconds()))
					}
					if strings.Contains(text, fakecli.Ran) || !strings.Contains(text, call[2]) {
						t.Errorf("%s with the prompt %q: %s", call[0], prompt, text)
					}
				}
			}
		})
	}
}
