package proc

import (
	"io"
	"maps"
	"os"
	"strings"
	"testing"

	"pollux/internal/sys/systest"
)

func TestMain(m *testing.M) {
	maps.Copy(programs, systemPrograms)
	systest.Main(m, programs)
}

// programs are the programs that tests start.
var programs = map[string]func() error{
	// Copies its input and writes much to its standard error.
	"copy": func() error {
		io.Copy(os.Stdout, os.Stdin)
		os.Stderr.WriteString(strings.Repeat("x", 5000) + "the end")
		return systest.ExitCode(3)
	},
	// Waits for the end of its input.
	"wait": func() error {
		io.Copy(io.Discard, os.Stdin)
		return nil
	},
}
