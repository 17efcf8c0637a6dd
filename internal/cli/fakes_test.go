package cli

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"pollux/internal/sys/systest"
)

// node runs a fake on Windows: it is the command stub, named like the program that runs
// agents there.
const node = "node.exe"

// asNode returns the arguments of the stub, if this process is [node]: they are in the
// script.
func asNode() (args []string, ok bool) {
	if runtime.GOOS != "windows" || !strings.EqualFold(filepath.Base(os.Args[0]), node) || len(os.Args) < 2 {
		return nil, false
	}
	script, err := os.ReadFile(os.Args[1])
	if err != nil {
		panic(err)
	}
	return append(strings.Fields(string(script)), os.Args[2:]...), true
}

// installFake makes a program that runs the stub with args, as npm would install an
// agent.
func installFake(path, bin string, args ...string) error {
	dir, name := filepath.Split(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	stub := filepath.Join(bin, "stub")
	if runtime.GOOS != "windows" {
		script := fmt.Sprintf("#!/bin/sh\nexec '%s' %s \"$@\"\n", stub, strings.Join(args, " "))
		return os.WriteFile(path, []byte(script), 0o700)
	}
	if err := os.Link(stub+".exe", filepath.Join(dir, node)); err != nil && !errors.Is(err, os.ErrExist) {
		program, err := os.ReadFile(stub + ".exe")
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, node), program, 0o700)
		}
		if err != nil {
			return err
		}
	}
	shim := strings.ReplaceAll(systest.NPMShim(` "%dp0%\`+name+`.js"`), "\n", "\r\n")
	return errors.Join(
		os.WriteFile(path+".js", []byte(strings.Join(args, " ")), 0o600),
		os.WriteFile(path+".cmd", []byte(shim), 0o600),
	)
}

// fakeCommand is the script command "fake PATH ARG...".
func fakeCommand(ts *testscript.TestScript, _ bool, args []string) {
	ts.Check(installFake(ts.MkAbs(args[0]), ts.Getenv("BIN"), args[1:]...))
}

// fakeAgent prints what `pollux run` gives to an agent.
func fakeAgent(args []string) error {
	fmt.Println("arguments:", strings.Join(args, " "))
	for _, kv := range os.Environ() {
		fmt.Println(kv)
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return err
	}
	lock := filepath.Join(home, ".claude", "ide", os.Getenv("CLAUDE_CODE_SSE_PORT")+".lock")
	if _, err := os.Stat(lock); err == nil {
		fmt.Println("the lock is there")
	}
	code, err := strconv.Atoi(cmp.Or(os.Getenv("EXIT"), "0"))
	return cmp.Or(err, error(exitError{code}))
}

// fakeNested starts another agent with the companion of the first one.
func fakeNested(args []string) error {
	os.Unsetenv("CLAUDE_CODE_SSE_PORT")
	os.Unsetenv("POLLUX_CLAUDE_PORT")
	return run("pollux", append([]string{"run", "--attach", "--"}, args...)...)
}

// run runs a command with the standard streams of this process.
func run(name string, args ...string) error {
	cmd := exec.Command(name, args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	return cmd.Run()
}

// fakeGemini answers one prompt, as Gemini CLI does without --acp.
func fakeGemini() error {
	input, err := io.ReadAll(os.Stdin)
	if err != nil {
		return err
	}
	prompt := strings.TrimRight(string(input), "\n")
	out := json.NewEncoder(os.Stdout)
	say := func(text string) {
		out.Encode(map[string]any{"type": "message", "role": "assistant", "content": text, "delta": true})
	}
	result := func(status, key string, value any) {
		out.Encode(map[string]any{"type": "result", "status": status, key: value})
	}
	out.Encode(map[string]any{"type": "init"})
	switch {
	case strings.Contains(prompt, "fake-json"):
		say(`{"n": 1}`)
	case strings.Contains(prompt, "fake-edit"):
		say("I do it.\n**FILE: a.txt:1-1**\n===OLD===\none\n===NEW===\ntwo\n===END===\n")
	case strings.Contains(prompt, "fake-none"):
		say("Nothing to do.")
	case strings.Contains(prompt, "no json here"):
		say("I cannot.")
	case strings.Contains(prompt, "fake-fail"):
		say("half of it")
		result("error", "error", map[string]any{
			"type": "unknown", "message": "[API Error: You have exhausted your daily quota on this model.]",
		})
		return exitError{173}
	case strings.Contains(prompt, "fake-hang"):
		say("half of it")
		if err := os.WriteFile(filepath.Join(os.Getenv("HOME"), ".gemini", "hanging"), nil, 0o600); err != nil {
			return err
		}
		time.Sleep(time.Hour)
	case strings.Contains(prompt, "fake-auth"):
		fmt.Fprintln(os.Stderr, "API key not valid")
		return exitError{41}
	default:
		say("asked: " + prompt)
	}
	result("success", "stats", map[string]any{
		"total_tokens": 6007, "input_tokens": 6000, "output_tokens": 7, "cached": 300,
		"models": map[string]any{"gemini-fake": map[string]any{"output_tokens": 7}},
	})
	return nil
}

// askTwoBridges starts two bridges in separate directories, each with the calls in a
// file, and prints their state when both have answered the call 7.
func askTwoBridges(calls string) error {
	text, err := os.ReadFile(calls)
	if err != nil {
		return err
	}
	var bridges []*exec.Cmd
	var ins []io.Closer
	for _, dir := range []string{"one", "two"} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		cmd := exec.Command("pollux", "bridge")
		cmd.Dir, cmd.Stderr = dir, os.Stderr
		in, err := cmd.StdinPipe()
		if err != nil {
			return err
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			return err
		}
		if err := cmd.Start(); err != nil {
			return err
		}
		bridges, ins = append(bridges, cmd), append(ins, in)
		if _, err := in.Write(text); err != nil {
			return err
		}
		answers := bufio.NewReader(out)
		for answer := ""; !strings.Contains(answer, `"id":7`); {
			if answer, err = answers.ReadString('\n'); err != nil {
				return err
			}
		}
	}
	err = errors.Join(run("pollux", "status", "--bridges"), run("pollux", "status", "--bridges", "--json"))
	for i, cmd := range bridges {
		ins[i].Close()
		err = errors.Join(err, cmd.Wait())
	}
	return err
}

// poolStatus returns what `pollux pool status` prints.
func poolStatus(args ...string) ([]byte, error) {
	return exec.Command("pollux", append([]string{"pool", "status"}, args...)...).Output()
}

// killPool kills the pool, and waits until `pollux pool status` says so.
func killPool() error {
	data, err := poolStatus("--json")
	if err != nil {
		return err
	}
	var pools []struct {
		PID int `json:"pid"`
	}
	if err := json.Unmarshal(data, &pools); err != nil || len(pools) == 0 {
		return fmt.Errorf("%s, %w", data, err)
	}
	p, err := os.FindProcess(pools[0].PID)
	if err == nil {
		err = p.Kill()
	}
	for err == nil {
		var text []byte
		if text, err = poolStatus(); bytes.HasPrefix(text, []byte("No pool")) {
			return nil
		}
		time.Sleep(10 * time.Millisecond)
	}
	return err
}

// replacePool ends the pool whose socket matches a pattern, and puts a file in its place.
func replacePool(pattern string) error {
	names, err := filepath.Glob(pattern)
	if err != nil || len(names) != 1 {
		return fmt.Errorf("%q, %w", names, err)
	}
	return errors.Join(run("pollux", "pool", "stop"), os.WriteFile(names[0], nil, 0o600))
}

// changeFiles prints or changes the files that match a pattern. There must be one.
func changeFiles(what, pattern string) error {
	names, err := filepath.Glob(pattern)
	if err == nil && len(names) == 0 {
		err = errors.New("there is no " + pattern)
	}
	for _, name := range names {
		switch what {
		case "ls":
			fmt.Println(filepath.Base(name))
		case "cat":
			data, readErr := os.ReadFile(name)
			os.Stdout.Write(data)
			err = errors.Join(err, readErr)
		case "rm":
			err = errors.Join(err, os.Remove(name))
		case "spoil": // as another program may
			err = errors.Join(err, os.WriteFile(name, []byte("No calls.\n"), 0o600))
		}
	}
	return err
}

// fakeNPM installs a stub instead of the packages of the lock file in this directory.
func fakeNPM(args []string) error {
	lock, err := os.ReadFile("package-lock.json")
	if err != nil {
		return err
	}
	if len(args) < 4 || args[0] != "ci" || args[1] != "--prefix" || args[3] != "--ignore-scripts" || !bytes.Contains(lock, []byte("sha512")) {
		return fmt.Errorf("npm %q", args)
	}
	fmt.Fprintln(os.Stderr, "npm http fetch GET 200 https://registry.npmjs.org/@google/gemini-cli/-/gemini-cli-0.61.0.tgz 1ms")
	modules := filepath.Join(args[2], "node_modules")
	bin, pkg := filepath.Join(modules, ".bin"), filepath.Join(modules, "@google", "gemini-cli")
	if runtime.GOOS == "windows" {
		pkg = bin // the fake's script is next to its batch file
	}
	err = errors.Join(os.MkdirAll(bin, 0o700), installFake(filepath.Join(pkg, "gemini"), os.Getenv("BIN"), "echo", "gemini:"),
		os.WriteFile(filepath.Join(pkg, "package.json"), []byte(`{"name": "@google/gemini-cli", "version": "0.61.0"}`), 0o600))
	if err == nil && pkg != bin {
		err = os.Symlink("../@google/gemini-cli/gemini", filepath.Join(bin, "gemini"))
	}
	return err
}

// fakePager marks the lines that it shows.
func fakePager(r io.Reader) error {
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		fmt.Printf("paged: %s\n", lines.Text())
	}
	return lines.Err()
}
