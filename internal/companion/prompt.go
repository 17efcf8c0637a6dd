package companion

import (
	"fmt"
	"path/filepath"
	"strings"
	"unicode"

	"pollux/internal/agent/gemini"
	"pollux/internal/editor"
	"pollux/internal/ide/geminiide"
)

// ready is what the CLI shows in its empty input line.
const ready = "Type your message"

// prompt is what to type into the CLI's terminal to ask about a file: the file
// as the CLI's @ takes it, relative to the first of the roots, where editors
// start the CLI.
func prompt(p editor.PromptParams, roots []string) editor.Prompt {
	var b strings.Builder
	if p.Path != "" {
		b.WriteString(gemini.Mention(nameIn(p.Path, roots)))
		switch {
		case p.Line > 0 && p.EndLine > p.Line:
			fmt.Fprintf(&b, " lines %d-%d", p.Line, p.EndLine)
		case p.Line > 0:
			fmt.Fprintf(&b, " line %d", p.Line)
		}
	}
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
		fmt.Fprintf(&b, "\n- line %d: %s: %s", problem.Line, severity, strings.Join(strings.Fields(problem.Message), " "))
		if problem.Source != "" {
			fmt.Fprintf(&b, " (%s)", problem.Source)
		}
	}
	text := strings.Map(func(r rune) rune {
		if r != '\n' && unicode.IsControl(r) {
			return ' ' // an escape would end the paste and act on the CLI
		}
		return r
	}, b.String())
	if question == "" && !strings.HasSuffix(text, "\n") {
		text += " " // the user goes on typing
	}
	return editor.Prompt{Text: text, Paste: "\x1b[200~" + text + "\x1b[201~", Submit: question != "", Ready: ready}
}

func nameIn(path string, roots []string) string {
	if len(roots) > 0 {
		if rel, err := filepath.Rel(roots[0], geminiide.RealPath(path)); err == nil && filepath.IsLocal(rel) {
			return rel
		}
	}
	return path
}
