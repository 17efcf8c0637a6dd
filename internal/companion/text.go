package companion

import "strings"

const bom = "\uFEFF"

// eol returns how a text ends its lines: lf, crlf, mixed, or "" for a text of one
// line.
func eol(text string) string {
	lf := strings.Count(text, "\n")
	switch crlf := strings.Count(text, "\r\n"); {
	case lf == 0:
		return ""
	case crlf == 0:
		return "lf"
	case crlf == lf:
		return "crlf"
	}
	return "mixed"
}
