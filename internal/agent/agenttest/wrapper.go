package agenttest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"pollux/internal/sys/proc"
)

// A wrapper runs a program. On Windows it is the test binary, started again, with this in
// a file beside it; elsewhere it is a shell script.
type wrapper struct {
	Program string
	// Version is the version that the wrapper prints. If it is empty, the program prints its own.
	Version string
}

// wrapperExt is added to the path of a wrapper on Windows.
const wrapperExt = ".wrapper"

// Main runs a wrapper and exits if this process was started as one. Call it first in
// TestMain.
func Main() {
	self, err := os.Executable()
	if err != nil {
		return
	}
	data, err := os.ReadFile(self + wrapperExt)
	if err != nil {
		return
	}
	var w wrapper
	if err := json.Unmarshal(data, &w); err != nil {
		panic(err)
	}
	os.Exit(w.run(self))
}

func (w wrapper) run(self string) int {
	if w.Version != "" && slices.Contains(os.Args[1:], "--version") {
		note(self + ".asked")
		for {
			if _, err := os.Stat(self + ".open"); err == nil {
				break
			}
			time.Sleep(20 * time.Millisecond)
		}
		fmt.Println(w.Version)
		return 0
	}
	note(self + ".started")
	cmd, err := proc.Command(context.Background(), w.Program, os.Args[1:]...)
	if err != nil {
		panic(err)
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	if err := cmd.Run(); cmd.ProcessState == nil {
		panic(err)
	}
	return cmd.ProcessState.ExitCode()
}

// note adds this process to a file.
func note(path string) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		panic(err)
	}
	fmt.Fprintln(f, os.Getpid())
	f.Close()
}

// write writes the wrapper, or the script, and returns its path.
func (w wrapper) write(t *testing.T, script string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "agent")
	if runtime.GOOS != "windows" {
		if err := os.WriteFile(path, []byte("#!/bin/sh\n"+script), 0o755); err != nil {
			t.Fatal(err)
		}
		return path
	}
	path += ".exe"
	data, err := json.Marshal(w)
	if err := errors.Join(err, copySelf(path), os.WriteFile(path+wrapperExt, data, 0o600)); err != nil {
		t.Fatal(err)
	}
	return path
}

// copySelf copies this program, or makes a link if the file system allows it.
func copySelf(path string) error {
	self, err := os.Executable()
	if err != nil || os.Link(self, path) == nil {
		return err
	}
	data, err := os.ReadFile(self)
	return errors.Join(err, os.WriteFile(path, data, 0o700))
}

// Recorded makes a wrapper for a program. pids returns the processes of it that were
// started.
func Recorded(t *testing.T, program string) (path string, pids func() []int) {
	t.Helper()
	path = wrapper{Program: program}.write(t, fmt.Sprintf("echo $$ >>$0.started\nexec %s \"$@\"\n", program))
	return path, func() (all []int) {
		data, _ := os.ReadFile(path + ".started")
		for line := range strings.Lines(string(data)) {
			if pid, err := strconv.Atoi(strings.TrimSuffix(line, "\n")); err == nil {
				all = append(all, pid)
			}
		}
		return all
	}
}

// SlowVersion makes a wrapper for a program, outside of any package. It prints
// its version only after open was called. asked returns how often the version
// was requested.
func SlowVersion(t *testing.T, program, version string) (path string, asked func() int, open func()) {
	t.Helper()
	path = wrapper{program, version}.write(t, fmt.Sprintf("if [ \"$1\" = --version ]; then\n\techo $$ >>$0.asked\n"+
		"\twhile [ ! -e $0.open ]; do sleep 0.02; done\n\techo %s\n\texit\nfi\nexec %s \"$@\"\n", version, program))
	asked = func() int {
		data, _ := os.ReadFile(path + ".asked")
		return strings.Count(string(data), "\n")
	}
	return path, asked, func() {
		if err := os.WriteFile(path+".open", nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}
