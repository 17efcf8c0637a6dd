package ide

import (
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"pollux/internal/editor"
	"pollux/internal/sys/systest"
)

func TestLaunchOf(t *testing.T) {
	for command, want := range map[string]string{
		"claude": "claude", "/usr/bin/claude": "claude", "./claude": "claude", "claude.exe": "claude",
		"/opt/npm/opencode.CMD": "opencode", "qwen.ps1": "qwen", "gemini.bat": "gemini",
		"claude.sh": "claude.sh", "claude-next": "claude-next", "npx": "npx",
	} {
		if got := LaunchOf(command); got.Name != want {
			t.Errorf("%s starts %s, want %s", command, got.Name, want)
		}
	}
}

// A command that is not in the table may start any agent.
func TestLaunchOfWrapper(t *testing.T) {
	h := newHost(t, newConfig(t), protocols)
	l := LaunchOf("my-agent")
	if l.Title != "my-agent" || l.Package != "" || l.IDEMode || !strings.Contains(l.Hint(nil), "/ide enable") || l.RestartCode == 0 {
		t.Errorf("got %+v", l)
	}
	env := l.Environ([]string{"A=1"}, h.Env())
	for name, value := range h.Env() {
		if !slices.Contains(env, name+"="+value) {
			t.Errorf("%s is missing", name)
		}
	}
	if !slices.Contains(env, "A=1") {
		t.Error("the environment of Pollux is missing")
	}
}

// Each agent has a unique name and an explanation of how to install it, and gets
// the variables of its protocol.
func TestLaunches(t *testing.T) {
	seen := make(map[string]bool)
	for _, p := range protocols {
		for _, l := range p.launches() {
			if l.Name == "" || l.Title == "" || l.Package == "" || seen[l.Name] {
				t.Errorf("an incomplete or repeated row: %+v", l)
			}
			seen[l.Name] = true
			if next := l.Unconnected(); !strings.HasPrefix(next, l.Title+" has not connected yet; ") || strings.HasSuffix(next, "; ") {
				t.Errorf("if %s does not connect, Pollux says %q", l.Name, next)
			}
			companion := map[string]string{"OTHER": "x"}
			for _, name := range p.EnvNames {
				companion[name] = "x"
			}
			env := LaunchOf(l.Name).Environ(nil, companion)
			if slices.Contains(env, "OTHER=x") {
				t.Errorf("%s gets a variable that is not for it", l.Name)
			}
			for _, name := range p.EnvNames {
				if !slices.Contains(env, name+"=x") {
					t.Errorf("%s does not get %s", l.Name, name)
				}
			}
		}
	}
}

// Each agent can be named, and has its own kind of prompt.
func TestAgents(t *testing.T) {
	h := newHost(t, newConfig(t), protocols)
	kinds := h.Agents()
	if len(kinds) != len(Launches()) {
		t.Errorf("%d agents, and %d can start", len(kinds), len(Launches()))
	}
	prompts := make(map[string]string)
	for _, k := range kinds {
		p := k.Prompt(editor.PromptParams{Path: "/project/a.go", Line: 2, EndLine: 3}, []string{"/project"})
		if k.Command == "" || k.Name == "" || !strings.Contains(p.Text, "a.go") {
			t.Errorf("%+v: %+v", k.AgentKind, p)
		}
		prompts[k.Command] = p.Text
	}
	gemini := "@a.go lines 2-3 "
	if runtime.GOOS == "windows" {
		gemini = `@"a.go" lines 2-3 `
	}
	for command, want := range map[string]string{
		"gemini": gemini, "claude": "@a.go#L2-3 ", "opencode": "@a.go#L2-3 ",
		"copilot": "@a.go lines 2-3 ", "codex": "a.go lines 2-3 ",
	} {
		if prompts[command] != want {
			t.Errorf("%s: %q, want %q", command, prompts[command], want)
		}
	}
}

// An agent whose user has chosen nothing starts in the mode in which it asks. A choice in
// the arguments, the variables or the user's settings stays, and Pollux knows if it is silent.
// Settings in the project may have come with the repository, and choose nothing.
func TestMode(t *testing.T) {
	const (
		asksAnyway = "asks anyway" // it needs no argument, and is not silent
		made       = "made to ask" // by an argument or a variable
	)
	for _, tt := range []struct {
		name, agent string
		args        []string
		env         [2]string
		file, text  string // below the home; in the project if the file starts with "project/"
		want        string // one of the constants, or a part of the message for the user
	}{
		{name: "no choice", agent: "claude", want: made},
		{name: "a prompt", agent: "claude", args: []string{"--model", "opus", "fix it"}, want: made},
		{name: "auto", agent: "claude", args: []string{"--permission-mode", "auto"}, want: "auto mode (--permission-mode)"},
		{name: "accept edits", agent: "claude", args: []string{"--permission-mode=acceptEdits"}, want: "acceptEdits mode"},
		{name: "manual", agent: "claude", args: []string{"--permission-mode=default"}, want: asksAnyway},
		{name: "plan", agent: "claude", args: []string{"--permission-mode", "plan"}, want: asksAnyway},
		{name: "skip", agent: "claude", args: []string{"--dangerously-skip-permissions"}, want: "bypassPermissions mode"},
		{name: "print", agent: "claude", args: []string{"-p", "hello"}, want: asksAnyway},
		{name: "a prompt that looks like an option", agent: "claude", args: []string{"--", "--permission-mode", "auto"}, want: made},
		{name: "settings", agent: "claude", file: ".claude/settings.json", text: `{"permissions": {"defaultMode": "auto"}}`, want: ".claude/settings.json"},
		{name: "settings that ask", agent: "claude", file: ".claude/settings.json", text: `{"permissions": {"defaultMode": "default"}}`, want: asksAnyway},
		{name: "a repository may not choose auto", agent: "claude", file: "project/.claude/settings.json", text: `{"permissions": {"defaultMode": "auto"}}`, want: made},
		{name: "a repository may not choose to accept edits", agent: "claude", file: "project/.claude/settings.json", text: `{"permissions": {"defaultMode": "acceptEdits"}}`, want: made},
		{name: "arguments win", agent: "claude", args: []string{"--permission-mode", "default"}, file: ".claude/settings.json", text: `{"permissions": {"defaultMode": "auto"}}`, want: asksAnyway},
		{name: "the user's rule", agent: "claude", file: ".claude/settings.json", text: `{"permissions": {"allow": ["Bash(ls)", "Edit"]}}`, want: "the rule Edit (HOME/.claude/settings.json)"},
		{name: "the user's rule for some files", agent: "claude", file: ".claude/settings.json", text: `{"permissions": {"allow": ["Edit(docs/**)"]}}`, want: made},
		{name: "the user's rule as an option", agent: "claude", args: []string{"--allowedTools", "Bash(ls),Write"}, want: "the rule Write (the option --allowedTools)"},
		{name: "a repository may not allow", agent: "claude", file: "project/.claude/settings.json", text: `{"permissions": {"allow": ["Write(src/**)"]}}`, want: made + " --permission-mode default --settings " + `{"permissions"`},
		{name: "a repository may not allow, in manual mode", agent: "claude", args: []string{"--permission-mode", "default"}, file: "project/.claude/settings.local.json", text: `{"permissions": {"allow": ["Edit"]}}`, want: made + " --settings"},
		{name: "a rule for commands", agent: "claude", args: []string{"--permission-mode", "default"}, file: "project/.claude/settings.json", text: `{"permissions": {"allow": ["Bash(make)"]}}`, want: asksAnyway},
		{name: "a repository's rule that cannot be overruled", agent: "claude", args: []string{"--settings", "mine.json"}, file: "project/.claude/settings.json", text: `{"permissions": {"allow": ["Edit"]}}`, want: "the rule Edit (HOME/project/.claude/settings.json)"},
		{name: "a repository's command", agent: "claude", args: []string{"--permission-mode", "default"}, file: "project/.claude/commands/go.md", text: "---\nallowed-tools: Read, Write\n---\nWrite it.\n", want: made + " --settings"},
		{name: "a repository's skill", agent: "claude", args: []string{"--permission-mode", "default"}, file: "project/.claude/skills/go/SKILL.md", text: "---\nallowed-tools:\n  - Edit(src/**)\n---\nWrite it.\n", want: made + " --settings"},
		{name: "a repository's subagent", agent: "claude", args: []string{"--permission-mode", "default"}, file: "project/.claude/agents/go.md", text: "---\nname: go\npermissionMode: acceptEdits\n---\nWrite it.\n", want: made + " --settings"},
		{name: "a repository's subagent that asks", agent: "claude", args: []string{"--permission-mode", "default"}, file: "project/.claude/agents/go.md", text: "---\nname: go\npermissionMode: default\n---\nUse acceptEdits.\n", want: asksAnyway},
		{name: "a repository's command that only reads", agent: "claude", args: []string{"--permission-mode", "default"}, file: "project/.claude/commands/go.md", text: "---\nallowed-tools: Read\n---\nUse Write.\n", want: asksAnyway},
		{name: "auto, and a repository's rule", agent: "claude", args: []string{"--permission-mode", "auto"}, file: "project/.claude/settings.json", text: `{"permissions": {"allow": ["Edit"]}}`, want: "auto mode"},

		{name: "no choice", agent: "opencode", want: made},
		{name: "a command without a terminal", agent: "opencode", args: []string{"run", "hello"}, want: asksAnyway},
		{name: "settings that ask", agent: "opencode", file: ".config/opencode/opencode.json", text: `{"permission": {"edit": "ask"}}`, want: asksAnyway},
		{name: "settings that deny", agent: "opencode", file: ".config/opencode/opencode.json", text: `{"permission": "deny"}`, want: asksAnyway},
		{name: "settings that allow", agent: "opencode", file: ".config/opencode/opencode.jsonc", text: "{// mine\n\"permission\": {\"edit\": \"allow\"}}", want: "opencode.jsonc"},
		{name: "settings about something else", agent: "opencode", file: ".config/opencode/opencode.json", text: `{"permission": {"webfetch": "deny"}}`, want: made},
		{name: "a pattern that allows", agent: "opencode", file: ".config/opencode/opencode.json", text: `{"permission": {"edit": {"*": "ask", "*.md": "allow"}}}`, want: "opencode.json"},
		{name: "a repository may not allow", agent: "opencode", file: "project/opencode.json", text: `{"permission": {"edit": "allow"}}`, want: made},
		{name: "a repository may ask", agent: "opencode", file: "project/opencode.json", text: `{"permission": {"edit": "ask"}}`, want: asksAnyway},
		{name: "the last permission counts", agent: "opencode", file: "project/opencode.json", text: `{"permission": {"edit": "ask", "*": "allow"}}`, want: made},
		{name: "the last permission asks", agent: "opencode", file: ".config/opencode/opencode.json", text: `{"permission": {"*": "allow", "edit": "ask"}}`, want: asksAnyway},
		{name: "a repository's agent", agent: "opencode", file: "project/.opencode/opencode.json", text: `{"permission": {"edit": "ask"}, "agent": {"build": {"permission": {"edit": "allow"}}}}`, want: made + ` OPENCODE_CONFIG_CONTENT={"agent":{"build"`},
		{name: "a repository's agent in Markdown", agent: "opencode", file: "project/.opencode/agent/fast.md", text: "---\npermission:\n  edit: allow\n---\n", want: `OPENCODE_CONFIG_CONTENT={"agent":{"fast"`},
		{name: "the user's agent", agent: "opencode", file: ".config/opencode/opencode.json", text: `{"agent": {"build": {"permission": {"edit": "allow"}}}}`, want: "the permissions of its agent build"},
		{name: "an agent that asks", agent: "opencode", file: ".config/opencode/opencode.json", text: `{"permission": {"edit": "ask"}, "agent": {"build": {"permission": {"edit": "deny"}}}}`, want: asksAnyway},
		{name: "a variable", agent: "opencode", env: [2]string{"OPENCODE_PERMISSION", `{"edit":"allow"}`}, want: "OPENCODE_PERMISSION"},

		{name: "no choice", agent: "qwen", want: made},
		{name: "a command", agent: "qwen", args: []string{"mcp", "list"}, want: asksAnyway},
		{name: "yolo", agent: "qwen", args: []string{"-y"}, want: "yolo mode"},
		{name: "settings", agent: "qwen", file: ".qwen/settings.json", text: `{"tools": {"approvalMode": "auto-edit"}}`, want: "auto-edit mode"},
		{name: "a repository may not choose", agent: "qwen", file: "project/.qwen/settings.json", text: `{"tools": {"approvalMode": "yolo"}}`, want: made},
		{name: "settings that ask", agent: "qwen", file: ".qwen/settings.json", text: `{"tools": {"approvalMode": "default"}}`, want: asksAnyway},
		{name: "the user's rule", agent: "qwen", file: ".qwen/settings.json", text: `{"permissions": {"allow": ["WriteFile"]}}`, want: "the rule WriteFile"},
		{name: "a repository may not allow", agent: "qwen", file: "project/.qwen/settings.json", text: `{"permissions": {"allow": ["Edit"]}}`, want: made + " --approval-mode default QWEN_CODE_SYSTEM_SETTINGS_PATH=HOME/"},
		{name: "a repository may not allow, in its old settings", agent: "qwen", file: "project/.qwen/settings.json", text: `{"tools": {"allowed": ["write_file"], "approvalMode": "default"}}`, want: made + " QWEN_CODE_SYSTEM_SETTINGS_PATH=HOME/"},
		{name: "a repository's skill", agent: "qwen", args: []string{"--approval-mode=default"}, file: "project/.qwen/skills/go/SKILL.md", text: "---\nallowedTools:\n  - write_file\n---\nWrite it.\n", want: made + " QWEN_CODE_SYSTEM_SETTINGS_PATH=HOME/"},
		{name: "a repository's rule that cannot be overruled", agent: "qwen", env: [2]string{"QWEN_CODE_SYSTEM_SETTINGS_PATH", "/mine.json"}, file: "project/.qwen/settings.json", text: `{"permissions": {"allow": ["Edit"]}}`, want: "the rule Edit"},

		{name: "no choice", agent: "gemini", want: asksAnyway},
		{name: "the user's rule", agent: "gemini", file: ".gemini/settings.json", text: `{"tools": {"allowed": ["replace"]}}`, want: "the rule replace"},
		{name: "an earlier answer", agent: "gemini", file: ".gemini/policies/auto-saved.toml", text: "[[rule]]\ndecision = \"allow\"\npriority = 100\ntoolName = [\"write_file\"]\n", want: "the rule write_file (HOME/.gemini/policies/auto-saved.toml)"},
		{name: "a policy for another mode", agent: "gemini", file: ".gemini/policies/mine.toml", text: "[[rule]]\ndecision = \"allow\"\npriority = 100\ntoolName = \"write_file\"\nmodes = [\"autoEdit\"]\n", want: asksAnyway},
		{name: "a repository may not allow", agent: "gemini", file: "project/.gemini/settings.json", text: `{"tools": {"allowed": ["write_file"]}}`, want: made + " --policy HOME/"},
		{name: "a repository's rule that cannot be overruled", agent: "gemini", args: []string{"--policy", "mine.toml"}, file: "project/.gemini/settings.json", text: `{"tools": {"allowed": ["write_file"]}}`, want: "the rule write_file"},
		{name: "yolo", agent: "gemini", args: []string{"--yolo"}, want: "yolo mode (--yolo)"},
		{name: "auto_edit", agent: "gemini", args: []string{"--approval-mode", "auto_edit"}, want: "auto_edit mode"},
		{name: "settings", agent: "gemini", file: ".gemini/settings.json", text: `{"general": {"defaultApprovalMode": "auto_edit"}}`, want: ".gemini/settings.json"},
		{name: "a repository may not choose", agent: "gemini", file: "project/.gemini/settings.json", text: `{"general": {"defaultApprovalMode": "auto_edit"}}`, want: made},

		{name: "no choice", agent: "copilot", want: asksAnyway},
		{name: "allow all", agent: "copilot", args: []string{"--allow-all-tools"}, want: "the option --allow-all-tools"},
		{name: "allow edits", agent: "copilot", args: []string{"--allow-tool=write", "--allow-tool", "shell"}, want: "the rule write (the option --allow-tool)"},
		{name: "allow commands", agent: "copilot", args: []string{"--allow-tool", "shell(git:*)"}, want: asksAnyway},
		{name: "a variable", agent: "copilot", env: [2]string{"COPILOT_ALLOW_ALL", "true"}, want: "COPILOT_ALLOW_ALL"},
		{name: "an earlier answer", agent: "copilot", file: ".copilot/permissions-config.json", text: `{"locations": {"PROJECT": {"tool_approvals": [{"kind": "write"}]}}}`, want: `"don't ask again"`},
		{name: "an answer elsewhere", agent: "copilot", file: ".copilot/permissions-config.json", text: `{"locations": {"/elsewhere": {"tool_approvals": [{"kind": "write"}]}}}`, want: asksAnyway},
		{name: "an answer about commands", agent: "copilot", file: ".copilot/permissions-config.json", text: `{"locations": {"PROJECT": {"tool_approvals": [{"kind": "shell"}]}}}`, want: asksAnyway},

		{name: "no choice", agent: "codex", want: made},
		{name: "a command without a terminal", agent: "codex", args: []string{"exec", "hello"}, want: asksAnyway},
		{name: "read-only", agent: "codex", args: []string{"-s", "read-only"}, want: asksAnyway},
		{name: "workspace-write", agent: "codex", args: []string{"--sandbox=workspace-write"}, want: "the sandbox workspace-write (--sandbox)"},
		{name: "settings", agent: "codex", file: ".codex/config.toml", text: `sandbox_mode = "workspace-write"`, want: ".codex/config.toml"},
		{name: "settings that only read", agent: "codex", file: ".codex/config.toml", text: `sandbox_mode = "read-only"`, want: asksAnyway},
		{name: "an approval policy", agent: "codex", file: ".codex/config.toml", text: `approval_policy = "never"`, want: "trusted folder"},
		{name: "no sandbox", agent: "codex", args: []string{"--dangerously-bypass-approvals-and-sandbox"}, want: "--dangerously-bypass"},
	} {
		t.Run(tt.agent+"/"+tt.name, func(t *testing.T) {
			home := systest.Dir(t)
			project := filepath.Join(home, "project")
			for _, key := range []string{
				"CLAUDE_CONFIG_DIR", "XDG_CONFIG_HOME", "COPILOT_HOME", "COPILOT_ALLOW_ALL", "CODEX_HOME",
				"OPENCODE_PERMISSION", "OPENCODE_CONFIG", "OPENCODE_CONFIG_CONTENT",
				"QWEN_CODE_SYSTEM_SETTINGS_PATH", "POLLUX_STATE_DIR", "XDG_STATE_HOME",
			} {
				t.Setenv(key, "")
			}
			systest.SetHome(t, home)
			t.Setenv("LOCALAPPDATA", home)
			if tt.env[0] != "" {
				t.Setenv(tt.env[0], tt.env[1])
			}
			systest.MakeDir(t, project)
			if tt.file != "" {
				text := strings.ReplaceAll(tt.text, "PROJECT", filepath.ToSlash(project))
				systest.WriteFile(t, filepath.Join(home, filepath.FromSlash(tt.file)), text)
			}
			l := LaunchOf(tt.agent)
			m := l.Mode(tt.args, project)
			got := filepath.ToSlash(m.Warning(l.Title))
			switch {
			case m.Makes():
				got = filepath.ToSlash(strings.Join(slices.Concat([]string{made}, m.Args, m.Env), " "))
				// With them, it asks.
				for _, kv := range m.Env {
					key, value, _ := strings.Cut(kv, "=")
					t.Setenv(key, value)
				}
				if again := l.Mode(slices.Concat(m.Args, tt.args), project); again.Silent != "" || again.Makes() {
					t.Errorf("with %s, it is %+v", got, again)
				}
			case got == "":
				got = asksAnyway
			}
			if want := strings.ReplaceAll(tt.want, "HOME", filepath.ToSlash(home)); !strings.Contains(got, want) {
				t.Errorf("got %q, want %q", got, want)
			}
		})
	}
}
