package claudeide

import (
	"fmt"
	"strings"

	"pollux/internal/companion"
	"pollux/internal/editor"
)

// What the agents show when they read their keyboard. Claude Code shows it in every
// permission mode, and only while its input line is empty; opencode shows it before the
// first question only.
const (
	claudeReady   = "\u2190 for agents"
	opencodeReady = "Ask anything"
)

// Prompt implements [companion.Session].
func (s *Session) Prompt(p editor.PromptParams, roots []string) editor.Prompt {
	if s.isOpencode() {
		return OpencodePrompt(p, roots)
	}
	return ClaudePrompt(p, roots)
}

// ClaudePrompt returns what to type into Claude Code's terminal to ask about a file. It
// names the file relative to the first of the roots, where editors start agents.
func ClaudePrompt(p editor.PromptParams, roots []string) editor.Prompt {
	return companion.NewPrompt(p, about(p, roots), claudeReady)
}

// OpencodePrompt is [ClaudePrompt] for opencode.
func OpencodePrompt(p editor.PromptParams, roots []string) editor.Prompt {
	return companion.NewPrompt(p, about(p, roots), opencodeReady)
}

// about names a file and its lines in the agents' @ syntax.
func about(p editor.PromptParams, roots []string) string {
	var b strings.Builder
	if p.Path != "" {
		b.WriteString(atPath(companion.NameIn(p.Path, roots)))
		switch {
		case p.Line > 0 && p.EndLine > p.Line:
			fmt.Fprintf(&b, "#L%d-%d", p.Line, p.EndLine)
		case p.Line > 0:
			fmt.Fprintf(&b, "#L%d", p.Line)
		}
	}
	return b.String()
}

// atPath returns the path in the agents' @ syntax.
func atPath(path string) string {
	if strings.ContainsAny(path, " \t") {
		return `@"` + path + `"`
	}
	return "@" + path
}
