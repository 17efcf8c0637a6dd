package gemini

import (
	"regexp"
	"runtime"
	"strings"
	"unicode"
	"unicode/utf8"
)

const guardNote = "\n\n(In this message each at sign is written with a backslash before it; read it without.)"

// Guard makes a text safe to be the prompt of a CLI that is started for it: no @
// in it reads a file, and its start runs no command. The CLI knows one way to
// write a plain @, a backslash before it, which it does not take out again; so the
// text then says what that means. [Unguard] is the way back.
func Guard(text string) string {
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
		b.WriteString(guardNote)
	}
	return plainStart(b.String())
}

// plainStart returns a prompt that the CLI does not take for one of its commands,
// which start with a slash or a dollar, after any characters that JavaScript's
// trim removes. A prompt that starts with anything but a letter or a digit gets
// a line before it. Both runners send their prompts through here.
func plainStart(prompt string) string {
	first, _ := utf8.DecodeRuneInString(prompt)
	if prompt == "" || unicode.IsLetter(first) || unicode.IsDigit(first) {
		return prompt
	}
	return "The request:\n\n" + prompt
}

// Guarded reports whether Guard puts a backslash anywhere into a text.
func Guarded(text string) bool {
	for i := range text {
		if mentions(text, i) {
			return true
		}
	}
	return false
}

// mentions reports whether the CLI takes what stands at text[i] for a path to
// read: an @ that no backslash precedes, in the middle of a word too, before
// anything but white space, most punctuation or a bracket.
func mentions(text string, i int) bool {
	if text[i] != '@' || i > 0 && text[i-1] == '\\' || i+1 == len(text) {
		return false
	}
	if text[i+1] == '.' { // as the end of a sentence it is none
		return i+2 < len(text) && !strings.ContainsRune(" \t\n\r", rune(text[i+2]))
	}
	return !strings.ContainsRune(" \t\n\r,;!?()[]{}", rune(text[i+1]))
}

// Unguard is a text of the model's with each \@ an @ again.
func Unguard(text string) string { return strings.ReplaceAll(text, `\@`, "@") }

var pathSpecial = regexp.MustCompile(`[^A-Za-z0-9_/.-]`)

// Mention is what makes the CLI attach a file: an @ and the path, whose
// special characters it wants escaped (in quotes on Windows).
func Mention(path string) string {
	if runtime.GOOS == "windows" {
		return `@"` + path + `"`
	}
	return "@" + pathSpecial.ReplaceAllString(path, `\$0`)
}
