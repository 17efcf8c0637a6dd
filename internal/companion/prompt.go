package companion

import (
	"fmt"
	"strings"

	"pollux/internal/editor"
	"pollux/internal/paths"
	"pollux/internal/termtext"
)

// NewPrompt returns a prompt about a file. mention names the file and the
// lines for the agent; it may be empty. If it ends with a space, no colon comes before the question.
// ready is a text that the agent shows when it reads its keyboard.
func NewPrompt(p editor.PromptParams, mention, ready string) editor.Prompt {
	var b strings.Builder
	b.WriteString(mention)
	question := strings.TrimSpace(p.Question)
	if question != "" && mention != "" && !strings.HasSuffix(mention, " ") {
		b.WriteString(": ")
	}
	b.WriteString(question)
	for i, problem := range p.Problems {
		if i == 0 {
			b.WriteString("\n\nThe editor reports:")
		}
		severity := problem.Severity
		if severity == "" {
			severity = "problem"
		}
		message := strings.Join(strings.Fields(problem.Message), " ")
		fmt.Fprintf(&b, "\n- line %d: %s: %s", problem.Line, severity, message)
		if problem.Source != "" {
			fmt.Fprintf(&b, " (%s)", problem.Source)
		}
	}
	text := termtext.Paste(b.String())
	if question == "" && !strings.HasSuffix(text, "\n") && !strings.HasSuffix(text, " ") {
		text += " " // the user continues to type
	}
	return editor.Prompt{Text: text, Paste: "\x1b[200~" + text + "\x1b[201~", Submit: question != "", Ready: ready}
}

// NameIn returns the path relative to the first root, where editors start agents, if
// the root contains it.
func NameIn(path string, roots []string) string {
	if len(roots) > 0 {
		if rel, ok := paths.Rel(roots[0], paths.Real(path)); ok {
			return rel
		}
	}
	return path
}

// LineText returns the lines that the user asks about, such as " lines 2-3", for an agent
// whose mentions have no lines; "" if the user asks about no lines.
func LineText(p editor.PromptParams) string {
	switch {
	case p.Line > 0 && p.EndLine > p.Line:
		return fmt.Sprintf(" lines %d-%d", p.Line, p.EndLine)
	case p.Line > 0:
		return fmt.Sprintf(" line %d", p.Line)
	}
	return ""
}

// AtText names the file and the lines that the user asks about, such as @a.go#L2-3, in the syntax of
// Claude Code and opencode; "" without a file. The name is relative to the first of the roots, where
// editors start agents.
func AtText(p editor.PromptParams, roots []string) string {
	var b strings.Builder
	if p.Path != "" {
		b.WriteString(atPath(NameIn(p.Path, roots)))
		switch {
		case p.Line > 0 && p.EndLine > p.Line:
			fmt.Fprintf(&b, "#L%d-%d", p.Line, p.EndLine)
		case p.Line > 0:
			fmt.Fprintf(&b, "#L%d", p.Line)
		}
	}
	return b.String()
}

// atPath returns the path in that syntax.
func atPath(path string) string {
	if strings.ContainsAny(path, " \t") {
		return `@"` + path + `"`
	}
	return "@" + path
}
