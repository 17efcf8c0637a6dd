package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// The budget for the start of the whole program, in ms. start_test.go at the top limits the
// work that stands for it.
const (
	initBudget   = 12
	answerBudget = 20
)

// measureStart measures the program before it does anything for a user.
func measureStart(t *table, s setup) error {
	dir, err := scratch()
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	env := append(os.Environ(), "HOME="+dir, "POLLUX_RUNTIME_DIR="+dir, "POLLUX_STATE_DIR="+dir, "POLLUX_POOL=off")
	ours, budget := t.column("pollux"), t.column("[budget]")
	for range t.runs {
		work, err := initTime(s.binary, env)
		if err != nil {
			return err
		}
		ours.add("initialization of all packages", "ms", ms(work))
		began := time.Now()
		version := exec.Command(s.binary, "--version")
		version.Env = env
		if err := version.Run(); err != nil {
			return err
		}
		ours.add("pollux --version, from start to end", "ms", ms(time.Since(began)))
		took, err := firstAnswer(s.binary, env)
		if err != nil {
			return err
		}
		ours.add("pollux bridge, from start to the first answer", "ms", ms(took))
	}
	budget.add("initialization of all packages", "ms", initBudget)
	budget.add("pollux bridge, from start to the first answer", "ms", answerBudget)
	return nil
}

// initTime returns how long all packages of a program take before main runs.
func initTime(program string, env []string) (total time.Duration, err error) {
	cmd := exec.Command(program, "--version")
	cmd.Env = append(env, "GODEBUG=inittrace=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(out)) {
		// Such as "init bytes @0.50 ms, 0.01 ms clock, 0 bytes, 0 allocs".
		words := strings.Fields(line)
		if len(words) < 6 || words[0] != "init" {
			continue
		}
		clock, err := strconv.ParseFloat(words[4], 64)
		if err != nil {
			return 0, fmt.Errorf("cannot read %q: %w", line, err)
		}
		total += time.Duration(clock * float64(time.Millisecond))
	}
	if total == 0 {
		return 0, errors.New("the program printed no times of its packages")
	}
	return total, nil
}

// firstAnswer returns how long a bridge takes from its start to its first answer.
func firstAnswer(program string, env []string) (took time.Duration, err error) {
	cmd := exec.Command(program, "bridge")
	cmd.Env = env
	cmd.Dir = os.TempDir()
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return 0, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return 0, err
	}
	began := time.Now()
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	_, err = io.WriteString(stdin, `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18",`+
		`"capabilities":{},"clientInfo":{"name":"bench","version":"1"}}}`+"\n")
	if err == nil {
		_, err = bufio.NewReader(stdout).ReadString('\n')
	}
	took = time.Since(began)
	return took, errors.Join(err, stdin.Close(), cmd.Wait())
}
