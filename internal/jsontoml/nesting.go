package jsontoml

import (
	"errors"
	"fmt"
)

// Limits of a text to parse. The parsers of settings recurse, and a stack
// overflow ends the program.
const (
	// maxNesting is how deeply objects, arrays and tables may nest.
	maxNesting = 500
	// maxKey is how many parts a dotted TOML key may have.
	maxKey = 100
)

// ErrNesting reports a text that nests more deeply than real settings do.
var ErrNesting = errors.New("it nests too deeply")

// checkNesting returns [ErrNesting] for a text that must not be parsed. It does not find
// other errors. It reads strings and comments as the parsers do, as long as the text
// is valid: the parsers stop at the first error.
func checkNesting(text []byte, toml bool) error {
	depth, dots := 0, 0
	at := func(i int, s string) bool { return i+len(s) <= len(text) && string(text[i:i+len(s)]) == s }
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '"' || toml && c == '\'':
			quote := string(c)
			if toml && at(i, quote+quote+quote) {
				quote += quote + quote
			}
			for i += len(quote); i < len(text) && !at(i, quote); i++ {
				if text[i] == '\\' && c == '"' {
					i++
				}
			}
			i += len(quote) - 1
			for len(quote) == 3 && at(i+1, quote[:1]) { // the text may end in quotes
				i++
			}
		case toml && c == '#' || !toml && at(i, "//"):
			for i < len(text) && text[i] != '\n' {
				i++
			}
			dots = 0
		case !toml && at(i, "/*"):
			for i += 2; i < len(text) && !at(i, "*/"); i++ {
			}
			i++
		case c == '[' || c == '{':
			depth, dots = depth+1, 0
		case c == ']' || c == '}':
			depth, dots = max(depth-1, 0), 0
		case c == ',' || c == '=' || c == '\n':
			dots = 0
		case c == '.':
			dots++
		}
		if depth > maxNesting {
			return fmt.Errorf("%w: more than %d levels", ErrNesting, maxNesting)
		}
		if toml && dots >= maxKey {
			return fmt.Errorf("%w: a key has more than %d parts", ErrNesting, maxKey)
		}
	}
	return nil
}
