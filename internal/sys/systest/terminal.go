package systest

import "strings"

// InTerminal runs a program whose standard input is a terminal, in which a user types the
// input and then ends it. Its output is that of this process. On Windows the terminal is a
// pseudo console, and the program calls [UseConsole] when it starts.
func InTerminal(input, name string, args ...string) (code int, err error) {
	_, code, err = runInTerminal(&input, append([]string{name}, args...))
	return code, err
}

// OnTerminal runs a program in a terminal and returns what it shows. See [InTerminal].
func OnTerminal(name string, args ...string) (shown string, code int, err error) {
	shown, code, err = runInTerminal(nil, append([]string{name}, args...))
	return strings.ReplaceAll(shown, "\r\n", "\n"), code, err
}
