package cli

import (
	"fmt"
	"io"

	"github.com/charmbracelet/x/ansi"
)

// A statusLine is the last line of a terminal, which shows what happens now. The zero
// value shows nothing.
type statusLine struct{ terminal io.Writer }

// newStatusLine returns the status line of w, or the zero value if w is not a terminal.
func newStatusLine(w io.Writer) statusLine {
	if !isTerminal(w) {
		return statusLine{}
	}
	return statusLine{w}
}

// shown reports whether messages can be seen.
func (s statusLine) shown() bool { return s.terminal != nil }

// show replaces the message. It shows nothing in a very narrow window.
func (s statusLine) show(message string) {
	if width := columns(s.terminal); width >= 10 { // it may have been resized
		fmt.Fprintf(s.terminal, "\r\x1b[K%s", ansi.Truncate(message, width-1, "…"))
	}
}

// clear removes the message.
func (s statusLine) clear() {
	if s.shown() {
		fmt.Fprint(s.terminal, "\r\x1b[K")
	}
}
