package companion

import (
	"fmt"
	"strings"

	"pollux/internal/editor"
	"pollux/internal/paths"
	"pollux/internal/termtext"
)

// NewPrompt returns a prompt about a file. mention names the file and the
// lines for the agent; it may be empty. ready is a text that the agent shows when it reads its keyboard.
func NewPrompt(p editor.PromptParams, mention, ready string) editor.Prompt {
	var b strings.Builder
	b.WriteString(mention)
	question := strings.TrimSpace(p.Question)
	if question != "" && b.Len() > 0 {
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
	if question == "" && !strings.HasSuffix(text, "\n") {
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
