package shell

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"testing"

	"pollux/internal/sys/systest"
)

func TestMain(m *testing.M) {
	systest.Main(m, map[string]func() error{
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
		"fail": func() error { return systest.ExitCode(1) },
	})
}
