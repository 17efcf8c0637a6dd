package geminiide

import (
	"path/filepath"

	"pollux/internal/ide/asking"
)

// GeminiAsking returns whether Gemini CLI asks before it changes a file. It does, unless
// its user has chosen another mode.
func GeminiAsking(s asking.Start) asking.Mode {
	var file struct {
		General struct{ DefaultApprovalMode string }
	}
	mode, from := approvalMode(s, ".gemini", &file, func() string { return file.General.DefaultApprovalMode })
	if mode == "auto_edit" || mode == "yolo" {
		return made(s, mode, from, "press Shift+Tab in Gemini CLI until it no longer accepts edits")
	}
	return asking.Mode{}
}

// QwenAsking returns whether Qwen Code asks before it changes a file. In "auto", its own
// default, it does not.
func QwenAsking(s asking.Start) asking.Mode {
	const ask = `press Shift+Tab in Qwen Code until it says "Ask permissions"`
	if s.Command("auth", "board", "channel", "extensions", "hooks", "mcp", "review", "sandbox", "serve", "sessions", "update") {
		return asking.Mode{} // these take no mode
	}
	var file struct {
		Tools struct{ ApprovalMode string }
	}
	switch mode, from := approvalMode(s, ".qwen", &file, func() string { return file.Tools.ApprovalMode }); mode {
	case "":
		return asking.Mode{Args: asks, Silent: "auto mode (Qwen Code's default)", Ask: ask}
	case "auto", "auto-edit", "yolo":
		return made(s, mode, from, ask)
	}
	return asking.Mode{}
}

// asks are the arguments of Gemini CLI and Qwen Code that make them ask.
var asks = []string{"--approval-mode", "default"}

// made returns the Mode of an agent that starts in a silent mode, which a project may not
// choose.
func made(s asking.Start, mode, from, ask string) asking.Mode {
	m := asking.Mode{Silent: mode + " mode (" + from + ")", Ask: ask}
	if s.FromProject(from) {
		m.Args = asks
	}
	return m
}

// approvalMode returns the mode that the arguments choose, or else the settings in the
// project or in the user's home, and where it is chosen. Both are empty if none is chosen.
// Each file is read into file, from which get takes the mode.
func approvalMode(s asking.Start, name string, file any, get func() string) (mode, from string) {
	if mode, set := s.Flag("--approval-mode"); set {
		return mode, "--approval-mode"
	}
	if _, set := s.Flag("--yolo", "-y"); set {
		return "yolo", "--yolo"
	}
	for _, dir := range []string{filepath.Join(s.Dir, name), s.Home("", name)} {
		path := filepath.Join(dir, "settings.json")
		if asking.Read(path, file) == nil && get() != "" {
			return get(), path
		}
	}
	return "", ""
}
