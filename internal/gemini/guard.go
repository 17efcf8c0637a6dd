package gemini

import (
	"regexp"
	"runtime"
	"strings"
)

// mention is where the CLI takes an @ in a prompt for a path and reads it: an
// @ that no backslash precedes, before anything but a space, most punctuation
// or a brace. It does so in the middle of a word too.
var mention = regexp.MustCompile(`(^|[^\\])@([^ \t\n\r,;!?()\[\]{}.]|\.[^ \t\n\r])`)

const guardNote = "\n\n(In this message each at sign is written with a backslash before it; read it without.)"

// Guard makes a text safe to be the CLI's prompt: no @ in it reads a file, and
// no slash at its start runs a command. The CLI knows one way to write a plain
// @, a backslash before it, which it does not take out again; so the text then
// says what that means. [Unguard] is the way back.
func Guard(text string) string {
	guarded := text
	// Twice, because neighbours share a character: @@.
	for range 2 {
		guarded = mention.ReplaceAllString(guarded, `${1}\@${2}`)
	}
	if guarded != text {
		guarded += guardNote
	}
	if strings.HasPrefix(strings.TrimSpace(guarded), "/") {
		guarded = "The request:\n\n" + guarded
	}
	return guarded
}

// Unguard is a text of the model's with each \@ an @ again.
func Unguard(text string) string { return strings.ReplaceAll(text, `\@`, "@") }

var pathSpecial = regexp.MustCompile(`[^A-Za-z0-9_/.-]`)

// mentionPath is what makes the CLI attach a file: an @ and the path, whose
// special characters it wants escaped (in quotes on Windows).
func mentionPath(path string) string {
	if runtime.GOOS == "windows" {
		return `@"` + path + `"`
	}
	return "@" + pathSpecial.ReplaceAllString(path, `\$0`)
}
