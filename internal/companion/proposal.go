package companion

import (
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// Unprintable returns why a proposal's text cannot go through an editor and come back
// unchanged, or "": NUL bytes, invalid UTF-8, and half of a surrogate pair, which decoding
// replaces. message is the JSON that the text was decoded from.
func Unprintable(text string, message []byte) string {
	switch {
	case strings.ContainsRune(text, 0):
		return "the proposal holds NUL bytes"
	case strings.Contains(text, "\uFFFD") && !jsontext.Value(message).IsValid(jsontext.AllowDuplicateNames(true)):
		return "the proposal is not valid UTF-8"
	}
	return ""
}
