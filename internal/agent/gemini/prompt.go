package gemini

import (
	"runtime"
	"strings"

	"pollux/internal/agent/acp"
	"pollux/internal/lazy"
)

const escapeNote = "\n\n(In this message each at sign is written with a backslash before it; read it without.)"

// escape returns a prompt for a one-shot process: no @ in it reads a file, and
// its start does not run a command. The CLI accepts a backslash before an @, but
// does not remove it, so a note explains it to the model. [unescape] reverses
// it.
func escape(text string) string {
	var b strings.Builder
	done := 0
	for i := range text {
		if mentions(text, i) {
			b.WriteString(text[done:i] + `\`)
			done = i
		}
	}
	b.WriteString(text[done:])
	if b.Len() > len(text) {
		b.WriteString(escapeNote)
	}
	return acp.PlainStart(b.String())
}

// escapes reports whether [escape] adds a backslash anywhere in a text.
func escapes(text string) bool {
	for i := range text {
		if mentions(text, i) {
			return true
		}
	}
	return false
}

// mentions reports whether the CLI reads a path at text[i]: an @ without a
// backslash before it, even in the middle of a word. White space, most
// punctuation or a bracket after the @ prevents that.
func mentions(text string, i int) bool {
	if text[i] != '@' || i > 0 && text[i-1] == '\\' || i+1 == len(text) {
		return false
	}
	if text[i+1] == '.' { // a dot may end a sentence
		return i+2 < len(text) && !strings.ContainsRune(" \t\n\r", rune(text[i+2]))
	}
	return !strings.ContainsRune(" \t\n\r,;!?()[]{}", rune(text[i+1]))
}

// unescape removes the backslashes of [escape] from the model's text.
func unescape(text string) string { return strings.ReplaceAll(text, `\@`, "@") }

var pathSpecial = lazy.Regexp(`[^A-Za-z0-9_/.-]`)

// Mention returns text that makes the CLI attach a file: an @ and the path, with
// special characters escaped (in quotes on Windows).
func Mention(path string) string {
	if runtime.GOOS == "windows" {
		return `@"` + path + `"`
	}
	return "@" + pathSpecial().ReplaceAllString(path, `\$0`)
}
