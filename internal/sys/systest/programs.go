package systest

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"testing"
)

// ProgramVar is the variable that makes a test binary one of its programs; see [Main].
const ProgramVar = "SYS_TEST_PROGRAM"

// An ExitCode is how a program of [Main] ends.
type ExitCode int

func (c ExitCode) Error() string { return fmt.Sprintf("exit code %d", int(c)) }

// Main runs the tests, or a program if [Program] started the binary. A program's
// error goes to its standard error, unless it is an [ExitCode].
func Main(m *testing.M, programs map[string]func() error) {
	name := os.Getenv(ProgramVar)
	if name == "" {
		os.Exit(m.Run())
	}
	program, ok := programs[name]
	if !ok {
		program = func() error { return errors.New("there is no such program: " + name) }
	}
	err := program()
	if exit := ExitCode(0); errors.As(err, &exit) {
		os.Exit(int(exit))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// Program returns the command of a program of [Main].
func Program(t testing.TB, name string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(Self(t), args...)
	cmd.Env = append(os.Environ(), ProgramVar+"="+name)
	return cmd
}

// Start starts a command. The caller closes its standard input and waits for its end.
func Start(t testing.TB, cmd *exec.Cmd) (in io.WriteCloser, out io.ReadCloser) {
	t.Helper()
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if out, err = cmd.StdoutPipe(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return in, out
}
