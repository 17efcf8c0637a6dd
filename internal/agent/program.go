package agent

import "fmt"

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

// Numbers returns the three numbers that a version begins with. ok is false if it does not.
func Numbers(version string) (n [3]int, ok bool) {
	_, err := fmt.Sscanf(version, "%d.%d.%d", &n[0], &n[1], &n[2])
	return n, err == nil
}
