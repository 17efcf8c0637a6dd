package claudeide

import (
	"fmt"
	"strings"

	"pollux/internal/companion"
	"pollux/internal/editor"
)

// ready is a text that Claude Code shows when it reads its keyboard.
const ready = "? for shortcuts"

// Prompt implements [companion.Session].
func (s *Session) Prompt(p editor.PromptParams, roots []string) editor.Prompt {
	var b strings.Builder
	if p.Path != "" {
		b.WriteString(mention(companion.NameIn(p.Path, roots)))
		switch {
		case p.Line > 0 && p.EndLine > p.Line:
			fmt.Fprintf(&b, "#L%d-%d", p.Line, p.EndLine)
		case p.Line > 0:
			fmt.Fprintf(&b, "#L%d", p.Line)
		}
	}
	return companion.NewPrompt(p, b.String(), ready)
}

// mention returns the path in the agents' @ syntax.
func mention(path string) string {
	if strings.ContainsAny(path, " \t") {
		return `@"` + path + `"`
	}
	return "@" + path
}
