package codexide

import (
	"path/filepath"
	"slices"
	"strings"

	"pollux/internal/ide/asking"
)

// Asking returns whether Codex CLI asks before it changes a file. In a folder that the user
// trusts it does not: its commands may write there. With a sandbox that can only read, a
// command that writes fails, and Codex CLI asks whether to run it outside.
func Asking(s asking.Start) asking.Mode {
	if s.Command("exec", "e") {
		return asking.Mode{} // it has no terminal to ask in
	}
	const ask = "start Codex CLI with --sandbox read-only --ask-for-approval on-request, or choose Read Only in its /permissions"
	for _, flag := range []string{"--dangerously-bypass-approvals-and-sandbox", "--yolo", "--approve-for-me", "--full-auto"} {
		if _, set := s.Flag(flag); set {
			return asking.Mode{Silent: "the option " + flag, Ask: ask}
		}
	}
	var file struct {
		Sandbox  string `toml:"sandbox_mode"`
		Approval string `toml:"approval_policy"`
	}
	path := filepath.Join(s.Home("CODEX_HOME", ".codex"), "config.toml")
	asking.Read(path, &file) // Codex CLI reports an invalid file
	sandbox, from := file.Sandbox, path
	if flag, set := s.Flag("--sandbox", "-s"); set {
		sandbox, from = flag, "--sandbox"
	}
	profile, _ := s.Flag("--profile", "-p")
	own := slices.ContainsFunc(s.Args, func(arg string) bool { return strings.Contains(arg, "sandbox_mode=") })
	_, approval := s.Flag("--ask-for-approval", "-a")
	switch {
	case sandbox == "read-only":
		return asking.Mode{}
	case sandbox != "":
		return asking.Mode{Silent: "the sandbox " + sandbox + " (" + from + ")", Ask: ask}
	case own || profile != "" || approval || file.Approval != "":
		return asking.Mode{Silent: "the sandbox that it chooses for a trusted folder", Ask: ask}
	}
	return asking.Mode{
		Args:   []string{"--sandbox", "read-only", "--ask-for-approval", "on-request"},
		Silent: "the sandbox of a trusted folder (Codex CLI's default)", Ask: ask,
	}
}
