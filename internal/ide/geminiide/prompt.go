package geminiide

import (
	"cmp"
	"runtime"

	"pollux/internal/companion"
	"pollux/internal/editor"
	"pollux/internal/lazy"
)

// ready is the text that the CLI shows in its empty input line.
const ready = "Type your message"

// Prompt returns what to type into the CLI's terminal to ask about a file. It
// names the file with the CLI's @ syntax, relative to the first of the roots,
// where editors start the CLI.
func Prompt(p editor.PromptParams, roots []string) editor.Prompt {
	text := ""
	if p.Path != "" {
		// The CLI reads a colon as a part of the path, and would not find the file.
		text = mention(companion.NameIn(p.Path, roots)) + cmp.Or(companion.LineText(p), " ")
	}
	return companion.NewPrompt(p, text, ready)
}

// pathSpecial matches the characters that end a path after an @.
var pathSpecial = lazy.Regexp(`[^A-Za-z0-9_/.-]`)

// mention returns the path in the CLI's @ syntax.
func mention(path string) string {
	if runtime.GOOS == "windows" {
		return `@"` + path + `"`
	}
	return "@" + pathSpecial().ReplaceAllString(path, `\$0`)
}
