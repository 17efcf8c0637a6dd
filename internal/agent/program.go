package agent

import (
	"strconv"
	"strings"
)

// A Program is an installed agent.
type Program struct {
	// Path is where the program was found. Version comes from its package, or
	// from the program itself, and may be empty.
	Path, Version string
	// Argv is the command line that starts the program.
	Argv []string
	// Late reports whether Version is empty because the program took too long to
	// print it.
	Late bool
}

// Number returns the first two parts of the version, if it is known.
func (p Program) Number() (major, minor int, ok bool) {
	parts := strings.SplitN(p.Version, ".", 3)
	if len(parts) < 3 {
		return 0, 0, false
	}
	major, err1 := strconv.Atoi(parts[0])
	minor, err2 := strconv.Atoi(parts[1])
	return major, minor, err1 == nil && err2 == nil
}
