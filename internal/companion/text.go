package companion

import "strings"

const bom = "\uFEFF"

// eol says how a text ends its lines: lf, crlf, mixed, or "" for a text of one
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

// comparableTo returns the text as it has to stand beside a proposal. The CLI
// mostly proposes LF whatever the file has and restores CRLF when it writes,
// and a model seldom writes a byte order mark: neither is a change.
func comparableTo(text, proposal string) string {
	if eol(text) == "crlf" && !strings.Contains(proposal, "\r") {
		text = strings.ReplaceAll(text, "\r\n", "\n")
	}
	if !strings.HasPrefix(proposal, bom) {
		text = strings.TrimPrefix(text, bom)
	}
	return text
}

// withBOM gives a reviewed text back the byte order mark that the file or the
// proposal has: editors take it off, and the CLI writes what it is given.
func withBOM(text string, others ...string) string {
	for _, o := range others {
		if strings.HasPrefix(o, bom) && !strings.HasPrefix(text, bom) {
			return bom + text
		}
	}
	return text
}

// restored gives a reviewed text the line ends of the file it goes to: what
// the CLI does, for when the CLI is gone.
func restored(text string, onDisk string) string {
	if eol(onDisk) == "crlf" && !strings.Contains(text, "\r") {
		text = strings.ReplaceAll(text, "\n", "\r\n")
	}
	return text
}
