package geminiide

import (
	"os"
	"path/filepath"
	"runtime"
	"slices"

	"pollux/internal/ide/asking"
	"pollux/internal/sys/disk"
)

// GeminiManual and QwenManual are how a running agent is made to ask.
const (
	GeminiManual = "press Shift+Tab in Gemini CLI until it no longer accepts edits"
	QwenManual   = `press Shift+Tab in Qwen Code until it says "Ask permissions" (its subagents do not ask even then)`
)

// GeminiAsking returns whether Gemini CLI asks before it changes a file. It does, unless
// its user has chosen another mode, or a rule lets it write.
func GeminiAsking(s asking.Start) asking.Mode {
	type file struct {
		General struct{ DefaultApprovalMode string }
		Tools   struct{ Allowed []string }
	}
	settings := asking.ReadSettings(func(f file) (string, []string) {
		return f.General.DefaultApprovalMode, f.Tools.Allowed
	}, settingsFiles(s, ".gemini")...)
	m := choice([]string{"auto_edit", "yolo"}, "", GeminiManual).Mode(s, settings)
	policies := filepath.Join(s.Home("", ".gemini"), "policies")
	more := asking.Mode{Path: asking.StatePath("gemini.toml"), Text: askPolicy}
	switch own, set := s.Flag("--policy"); {
	case set && own == more.Path:
		return m
	case !set && more.Path != "":
		if disk.Exists(policies) { // which the option would replace
			more.Args = []string{"--policy", policies}
		}
		more.Args = append(more.Args, "--policy", more.Path)
	}
	edits := []string{"write_file", "replace"}
	rules := append(s.AllowedByFlag("--allowed-tools", edits...), s.AllowedBySettings(settings, edits...)...)
	// The answer "Allow for all future sessions" is kept in one of these.
	paths, _ := filepath.Glob(filepath.Join(policies, "*.toml"))
	for _, path := range paths {
		rules = append(rules, s.Allowed(allowedByPolicy(path), path, append(edits, "*")...)...)
	}
	return s.Overrule(m, rules, more)
}

// askPolicy makes Gemini CLI ask in its default mode, also if its settings allow edits:
// these have the priority 300.
const askPolicy = `[[rule]]
toolName = ["write_file", "replace"]
decision = "ask_user"
priority = 350
modes = ["default"]
`

// allowedByPolicy returns the tools that a file of policies allows in the default mode,
// regardless of their arguments.
func allowedByPolicy(path string) (tools []string) {
	var file struct {
		Rule []struct {
			ToolName                           any
			Decision, ArgsPattern, CommandName string
			Modes                              []string
		}
	}
	if asking.Read(path, &file) != nil {
		return nil
	}
	for _, rule := range file.Rule {
		if rule.Decision != "allow" || rule.ArgsPattern != "" || len(rule.Modes) > 0 && !slices.Contains(rule.Modes, "default") {
			continue
		}
		switch name := rule.ToolName.(type) {
		case string:
			tools = append(tools, name)
		case []any:
			for _, n := range name {
				if text, ok := n.(string); ok {
					tools = append(tools, text)
				}
			}
		}
	}
	return tools
}

// QwenAsking returns whether Qwen Code asks before it changes a file. In "auto", its own
// default, it does not.
func QwenAsking(s asking.Start) asking.Mode {
	if s.Command("auth", "board", "channel", "extensions", "hooks", "mcp", "review", "sandbox", "serve", "sessions", "update") {
		return asking.Mode{} // these take no mode
	}
	type file struct {
		Permissions struct{ Allow []string }
		Tools       struct {
			ApprovalMode string
			Allowed      []string
		}
	}
	settings := asking.ReadSettings(func(f file) (string, []string) {
		return f.Tools.ApprovalMode, append(f.Permissions.Allow, f.Tools.Allowed...)
	}, settingsFiles(s, ".qwen")...)
	m := choice([]string{"auto", "auto-edit", "yolo"}, "auto mode (Qwen Code's default)", QwenManual).Mode(s, settings)
	more := asking.Mode{Path: asking.StatePath("qwen.json"), Text: `{"permissions": {"ask": ["Edit"]}}` + "\n"}
	own := s.Getenv(envQwenSystem)
	if own != "" && own == more.Path {
		return m
	}
	// The file replaces the system's, which is not read then.
	if _, err := os.Lstat(qwenSystem()); own == "" && more.Path != "" && err != nil {
		more.Env = []string{envQwenSystem + "=" + more.Path}
	}
	edits := []string{"Edit", "edit", "EditTool", "Write", "WriteFile", "write_file", "WriteFileTool", "NotebookEdit", "notebook_edit", "replace"}
	rules := append(s.AllowedByFlag("--allowed-tools", edits...), s.AllowedBySettings(settings, edits...)...)
	for _, dir := range s.Dirs() {
		rules = append(rules, s.AllowedByHeaders(filepath.Join(dir, ".qwen"), []string{"allowedTools", "allowed-tools"}, edits...)...)
	}
	return s.Overrule(m, rules, more)
}

// envQwenSystem names the file of settings that Qwen Code reads instead of the system's.
const envQwenSystem = "QWEN_CODE_SYSTEM_SETTINGS_PATH"

func qwenSystem() string {
	switch runtime.GOOS {
	case "darwin":
		return "/Library/Application Support/QwenCode/settings.json"
	case "windows":
		return `C:\ProgramData\qwen-code\settings.json`
	}
	return "/etc/qwen-code/settings.json"
}

// choice returns how the user of one of the programs chooses its mode.
func choice(silent []string, byDefault, ask string) asking.Choice {
	return asking.Choice{
		Flag: "--approval-mode", Skip: "yolo", SkipFlags: []string{"--yolo", "-y"}, Silent: silent, Default: byDefault, Ask: ask,
	}
}

// settingsFiles returns the files of settings in the project and in the user's home.
func settingsFiles(s asking.Start, name string) []string {
	return []string{filepath.Join(s.Dir, name, "settings.json"), filepath.Join(s.Home("", name), "settings.json")}
}
