package cli

import (
	"bytes"
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"pollux/internal/doctor"
	"pollux/internal/editor"
	"pollux/internal/ide"
	"pollux/internal/sys/systest"
)

// A signal arrives before or while doctor changes something. It says that nothing was
// changed only if that is true.
func TestFixesInterrupted(t *testing.T) {
	cannot := errors.New("cannot")
	for name, tt := range map[string]struct {
		before bool // the signal
		apply  error
		want   error
		fixed  bool
	}{
		"before":           {true, nil, interrupted, false},
		"during":           {false, nil, nil, true},
		"during a failure": {false, cannot, cannot, true},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, signal := context.WithCancel(t.Context())
			fixed := false
			apply := func() error {
				fixed = true
				signal()
				return tt.apply
			}
			if tt.before {
				signal()
			}
			var said bytes.Buffer
			err := applyFixes(ctx, IO{Err: &said}, doctor.Report{Findings: []doctor.Finding{{Fix: "fix it", Apply: apply}}}, true)
			if !errors.Is(err, tt.want) || fixed != tt.fixed {
				t.Errorf("%v; fixed: %v", err, fixed)
			}
			if says := strings.Contains(said.String(), "nothing was changed"); says == fixed {
				t.Errorf("it says %q", said.String())
			}
		})
	}
}

// Doctor warns of an agent that changes files without asking. If `pollux run` would make it
// ask, and nothing runs here, a user who has named no agent gets no warning.
func TestDoctorMode(t *testing.T) {
	const everywhere, named = "everywhere", "if it is named or runs here"
	for name, tt := range map[string]struct {
		agent, variable, value string
		file, text             string // below the home
		want                   string
	}{
		"Gemini CLI asks":              {agent: "gemini"},
		"Claude Code's default":        {agent: "claude", want: named},
		"Claude Code's user":           {agent: "claude", file: ".claude/settings.json", text: `{"permissions":{"defaultMode":"auto"}}`, want: everywhere},
		"Claude Code asks":             {agent: "claude", file: ".claude/settings.json", text: `{"permissions":{"defaultMode":"default"}}`},
		"opencode's default":           {agent: "opencode", want: named},
		"opencode asks":                {agent: "opencode", variable: "OPENCODE_PERMISSION", value: `{"edit": "ask"}`},
		"Qwen Code's default":          {agent: "qwen", want: named},
		"Codex CLI's default":          {agent: "codex", want: named},
		"Codex CLI asks":               {agent: "codex", file: ".codex/config.toml", text: `sandbox_mode = "read-only"`},
		"Copilot CLI asks":             {agent: "copilot"},
		"Copilot CLI, all tools":       {agent: "copilot", variable: "COPILOT_ALLOW_ALL", value: " Yes ", want: everywhere},
		"Copilot CLI, an older answer": {agent: "copilot", file: ".copilot/permissions-config.json", text: `{"locations": {"DIR": {"tool_approvals": [{"kind": "write"}]}}}`, want: everywhere},
	} {
		t.Run(name, func(t *testing.T) {
			home, dir := t.TempDir(), t.TempDir()
			systest.SetHome(t, home)
			for _, key := range []string{"CLAUDE_CONFIG_DIR", "OPENCODE_PERMISSION", "XDG_CONFIG_HOME", "CODEX_HOME", "COPILOT_HOME", "COPILOT_ALLOW_ALL"} {
				t.Setenv(key, "")
			}
			if tt.variable != "" {
				t.Setenv(tt.variable, tt.value)
			}
			if tt.file != "" {
				systest.WriteFile(t, filepath.Join(home, tt.file), strings.ReplaceAll(tt.text, "DIR", filepath.ToSlash(dir)))
			}
			warns := func(cfg doctor.Config) bool {
				cfg.Dir = dir
				r := doctor.Examine(t.Context(), cfg, []doctor.Part{{Checks: []doctor.Check{checkMode(ide.LaunchOf(tt.agent))}}})
				return r.Count(doctor.Warning) > 0
			}
			here := []editor.Running{{Status: editor.Status{Roots: []string{dir}}}}
			if got := warns(doctor.Config{}); got != (tt.want != "") {
				t.Errorf("named: %v", got)
			}
			if got := warns(doctor.Config{Overview: true, Running: here}); got != (tt.want != "") {
				t.Errorf("with a companion: %v", got)
			}
			if got := warns(doctor.Config{Overview: true}); got != (tt.want == everywhere) {
				t.Errorf("without a companion: %v", got)
			}
		})
	}
}
