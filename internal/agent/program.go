package agent

import (
	"strconv"
	"strings"
)

// A Program is an installed Gemini CLI.
type Program struct {
	// Path is the program as it was found, Version what its package says.
	Path, Version string
	// Argv starts it.
	Argv []string
	// Late says that Version is empty because the CLI took too long to say it.
	Late bool
}

// Number is the first two parts of the version, if it is known.
func (c Program) Number() (major, minor int, ok bool) {
	parts := strings.SplitN(c.Version, ".", 3)
	if len(parts) < 3 {
		return 0, 0, false
	}
	major, err1 := strconv.Atoi(parts[0])
	minor, err2 := strconv.Atoi(parts[1])
	return major, minor, err1 == nil && err2 == nil
}
