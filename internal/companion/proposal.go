package companion

import (
	"bytes"
	"strings"
	"unicode/utf8"
)

// Unprintable returns why a proposal's text cannot go through an editor and come back
// unchanged, or "": NUL bytes, invalid UTF-8, and half of a surrogate pair, which Go's
// JSON decoder would replace. message is the JSON that the text was decoded from.
func Unprintable(text string, message []byte) string {
	switch {
	case strings.ContainsRune(text, 0):
		return "the proposal holds NUL bytes"
	case !utf8.Valid(message) || strings.Count(text, "\uFFFD") > replacements(message):
		return "the proposal is not valid UTF-8"
	}
	return ""
}

// replacements counts the U+FFFD in the JSON text itself.
func replacements(message []byte) int {
	return bytes.Count(message, []byte("\uFFFD")) + bytes.Count(bytes.ToLower(message), []byte(`\ufffd`))
}
