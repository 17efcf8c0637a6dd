package sys

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
)

// envProgram makes the test binary one of the programs that tests start.
const envProgram = "SYS_TEST_PROGRAM"

func TestMain(m *testing.M) {
	name := os.Getenv(envProgram)
	if name == "" {
		os.Exit(m.Run())
	}
	program, ok := programs[name]
	if !ok {
		program, ok = systemPrograms[name]
	}
	if !ok {
		program = func() error { return errors.New("there is no such program: " + name) }
	}
	err := program()
	if exit := exitCode(0); errors.As(err, &exit) {
		os.Exit(int(exit))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// An exitCode is how a program ends.
type exitCode int

func (c exitCode) Error() string { return fmt.Sprintf("exit code %d", int(c)) }

var programs = map[string]func() error{
	// Connects to $SYS_TEST_DIAL and waits for the end of the connection.
	"dial": func() error {
		conn, err := net.Dial("tcp", os.Getenv("SYS_TEST_DIAL"))
		if err != nil {
			return err
		}
		bufio.NewReader(conn).ReadString('\n')
		return nil
	},
	// Copies its input and writes much to its standard error.
	"copy": func() error {
		io.Copy(os.Stdout, os.Stdin)
		os.Stderr.WriteString(strings.Repeat("x", 5000) + "the end")
		return exitCode(3)
	},
	// Waits for the end of its input.
	"wait": func() error {
		io.Copy(io.Discard, os.Stdin)
		return nil
	},
	// Writes its last argument, a URL, to $SYS_TEST_OPENED. It fails for another number of
	// arguments than $SYS_TEST_ARGUMENTS.
	"browser": func() error {
		if n := fmt.Sprint(len(os.Args) - 1); n != os.Getenv("SYS_TEST_ARGUMENTS") {
			return errors.New(n + " arguments")
		}
		return os.WriteFile(os.Getenv("SYS_TEST_OPENED"), []byte(os.Args[len(os.Args)-1]), 0o600)
	},
	// Waits for SIGHUP, on Windows for the end of its input, and then writes $SYS_TEST_SAVED.
	"editor": func() error {
		end := make(chan os.Signal, 1)
		signal.Notify(end, syscall.SIGHUP)
		fmt.Println("listens")
		if runtime.GOOS == "windows" {
			io.Copy(io.Discard, os.Stdin)
		} else {
			<-end
		}
		return os.WriteFile(os.Getenv("SYS_TEST_SAVED"), nil, 0o600)
	},
	// Replaces $SYS_TEST_FILE, and stops before the new file has content.
	"replace": func() error {
		path := os.Getenv("SYS_TEST_FILE")
		root, err := os.OpenRoot(filepath.Dir(path))
		if err != nil {
			return err
		}
		return replaceIn(root, filepath.Base(path), "new", func(temp string) error {
			fmt.Println(temp)
			io.Copy(io.Discard, os.Stdin)
			return nil
		})
	},
	"fail": func() error { return exitCode(1) },
}

// program returns the command of one of the programs.
func program(t testing.TB, name string, args ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, args...)
	cmd.Env = append(os.Environ(), envProgram+"="+name)
	return cmd
}
