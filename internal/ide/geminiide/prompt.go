package geminiide

import (
	"fmt"
	"regexp"
	"runtime"
	"strings"

	"pollux/internal/editor"
	"pollux/internal/paths"
	"pollux/internal/termtext"
)

// ready is the text that the CLI shows in its empty input line.
const ready = "Type your message"

// Prompt implements [companion.Session].
func (s *Session) Prompt(p editor.PromptParams, roots []string) editor.Prompt {
	return Prompt(p, roots)
}

// Prompt returns what to type into the CLI's terminal to ask about a file. It
// names the file with the CLI's @ syntax, relative to the first of the roots,
// where editors start the CLI.
func Prompt(p editor.PromptParams, roots []string) editor.Prompt {
	var b strings.Builder
	if p.Path != "" {
		b.WriteString(mention(nameIn(p.Path, roots)))
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

// pathSpecial matches the characters that end a path after an @.
var pathSpecial = regexp.MustCompile(`[^A-Za-z0-9_/.-]`)

// mention returns the path in the CLI's @ syntax.
func mention(path string) string {
	if runtime.GOOS == "windows" {
		return `@"` + path + `"`
	}
	return "@" + pathSpecial.ReplaceAllString(path, `\$0`)
}

// nameIn returns the path relative to the first root, if the root contains it.
func nameIn(path string, roots []string) string {
	if len(roots) > 0 {
		if rel, ok := paths.Rel(roots[0], paths.Real(path)); ok {
			return rel
		}
	}
	return path
}
