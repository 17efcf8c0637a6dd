package cli

import (
	"fmt"
	"io"
	"os"

	"golang.org/x/term"
)

// A statusLine is the last line of a terminal, which shows what happens now. The zero
// value shows nothing.
type statusLine struct{ terminal *os.File }

// newStatusLine returns the status line of w, or the zero value if w is no terminal.
func newStatusLine(w io.Writer) statusLine {
	if !isTerminal(w) {
		return statusLine{}
	}
	return statusLine{w.(*os.File)}
}

// shown reports whether messages can be seen.
func (s statusLine) shown() bool { return s.terminal != nil }

// show replaces the message. It shows nothing in a very narrow window.
func (s statusLine) show(message string) {
	if !s.shown() {
		return
	}
	// The window may have been resized.
	width, _, err := term.GetSize(int(s.terminal.Fd()))
	if err != nil || width < 10 {
		return
	}
	fmt.Fprintf(s.terminal, "\r\x1b[K%s", fit(message, width-2))
}

// clear removes the message.
func (s statusLine) clear() {
	if s.shown() {
		fmt.Fprint(s.terminal, "\r\x1b[K")
	}
}

// fit cuts a line to a number of columns. Characters outside of ASCII may be wide.
func fit(line string, columns int) string {
	used := 0
	for i, r := range line {
		used++
		if r >= 0x1100 {
			used++
		}
		if used > columns {
			return line[:i] + "…"
		}
	}
	return line
}
