package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"pollux/internal/editor"
	"pollux/internal/sys/disk"
	"pollux/internal/sys/systest"
)

// decide plays the user: it accepts or rejects the diff of $FILE, or changes it
// to the text of $TEXT.
func decide(what string) int {
	err := func() error {
		ctx := context.Background()
		path, err := editor.Find(ctx, self(), "", os.Getenv("FILE"))
		if err != nil {
			return err
		}
		return editor.WithClient(ctx, path, self(), func(ctx context.Context, c *editor.Client) error {
			diffs, err := c.Diffs(ctx)
			if err != nil {
				return err
			}
			for _, d := range diffs {
				if d.Path != os.Getenv("FILE") || d.State != editor.StateOpen {
					continue
				}
				switch what {
				case "edit":
					text, err := os.ReadFile(os.Getenv("TEXT"))
					if err != nil {
						return err
					}
					if err := c.Edit(d.ID, string(text)); err != nil {
						return err
					}
					_, err = c.Diffs(ctx) // the edit has arrived
					return err
				case "accept":
					_, err := c.Accept(ctx, editor.DiffAccept{ID: d.ID, Content: d.Text()})
					return err
				case "reject":
					return c.Reject(ctx, d.ID)
				}
			}
			return errors.New("there is no such diff")
		})
	}()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// stub plays an agent, a browser or an editor.
func stub(args []string) int {
	err := func() error {
		switch args[0] {
		case "ok":
			return nil
		case "break": // an editor that breaks the settings
			return os.WriteFile(args[1], []byte("[bridge]\nmodle = 1\n"), 0o600)
		case "env": // prints the environment
			for _, kv := range os.Environ() {
				fmt.Println(kv)
			}
		case "again": // asks once to be started again
			f, err := os.OpenFile("again", os.O_CREATE|os.O_EXCL, 0o600)
			if errors.Is(err, fs.ErrExist) {
				return nil
			} else if err != nil {
				return err
			}
			f.Close()
			return exitError{199}
		case "die": // is killed
			p, err := os.FindProcess(os.Getpid())
			if err != nil {
				return err
			}
			p.Kill()
			select {}
		case "run": // runs a command
			fmt.Println("ran")
			return run(args[1], args[2:]...)
		case "shownurl":
			fmt.Print(shownURL(os.Stdout, args[1]))
			return nil
		case "echo":
			fmt.Println(strings.Join(args[1:], " "))
			return nil
		case "agent": // prints what it is given
			return fakeAgent(args[1:])
		case "propose": // proposes a change, and waits to be killed
			return fakeProposal(args[1], args[2])
		case "nested": // starts another agent
			return fakeNested(args[1:])
		case "gemini": // answers a prompt
			return fakeGemini()
		case "terminal": // runs a command whose standard input is a terminal
			input, err := os.ReadFile(args[1])
			if err != nil {
				return err
			}
			code, err := systest.InTerminal(string(input), args[2], args[3:]...)
			return cmp.Or(err, error(exitError{code}))
		case "screen": // prints what a command shows in a terminal
			shown, code, err := systest.OnTerminal(args[1], args[2:]...)
			fmt.Print(shown)
			return cmp.Or(err, error(exitError{code}))
		case "npm":
			return fakeNPM(args[1:])
		case "brokennpm":
			return errors.New("npm error code ENOTFOUND")
		case "paged": // shows a text, as a pager
			return fakePager(os.Stdin)
		case "less": // shows the options for less
			fmt.Println(os.Getenv("LESS"))
		case "bridges":
			return askTwoBridges(args[1])
		case "killpool":
			return killPool()
		case "replacepool": // puts a file where the pool's socket was
			return replacePool(args[1])
		case "node": // removes a file
			fmt.Println("v20.0.0")
			return os.Remove(args[1])
		case "ls", "cat", "rm", "spoil":
			return changeFiles(args[0], args[1])
		default: // a browser writes the URL to $OPENED
			return disk.WriteFile(os.Getenv("OPENED"), []byte(args[0]+"\n"))
		}
		if len(args) > 1 {
			code, err := strconv.Atoi(args[1])
			return cmp.Or(err, error(exitError{code}))
		}
		return nil
	}()
	var exit exitError
	var command *exec.ExitError
	switch {
	case errors.As(err, &exit):
		return exit.code
	case errors.As(err, &command):
		return command.ExitCode()
	case err != nil:
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// envInterrupts names the directory of the files of [interrupt].
const envInterrupts = "CLI_TEST_INTERRUPTS"

// interrupt interrupts all background commands. On Windows, where no signal reaches a
// single process, it makes the file that [interruptibleMain] waits for.
func interrupt(ts *testscript.TestScript) {
	for _, cmd := range ts.BackgroundCmds() {
		if runtime.GOOS == "windows" {
			ts.Check(os.WriteFile(interruptFile(ts.Getenv(envInterrupts), cmd.Process.Pid), nil, 0o600))
		} else {
			ts.Check(cmd.Process.Signal(os.Interrupt))
		}
	}
}

func interruptFile(dir string, pid int) string {
	return filepath.Join(dir, fmt.Sprintf("interrupt-%d", pid))
}

// interruptibleMain is [Main]. On Windows, [interrupt] ends it as Ctrl-C does.
func interruptibleMain() int {
	dir := os.Getenv(envInterrupts)
	if runtime.GOOS != "windows" || dir == "" {
		return Main()
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		for _, err := os.Stat(interruptFile(dir, os.Getpid())); err != nil; time.Sleep(10 * time.Millisecond) {
			_, err = os.Stat(interruptFile(dir, os.Getpid()))
		}
		cancel()
	}()
	return Run(ctx, IO{os.Stdin, os.Stdout, os.Stderr}, os.Args[1:])
}

var scriptPath = regexp.MustCompile(`\$(WORK|VOLUME)(/[^"]*)`)

func nativePaths(ts *testscript.TestScript, files []string) {
	for _, file := range files {
		matches, err := filepath.Glob(ts.MkAbs(file))
		ts.Check(err)
		for _, path := range matches {
			text := scriptPath.ReplaceAllStringFunc(ts.ReadFile(path), func(s string) string {
				native, err := json.Marshal(filepath.FromSlash(os.Expand(s, ts.Getenv)))
				ts.Check(err)
				return strings.Trim(string(native), `"`)
			})
			ts.Check(os.WriteFile(path, []byte(text), 0o600))
		}
	}
}

func awaitFile(ts *testscript.TestScript, pattern, text string) {
	for deadline := time.Now().Add(2 * time.Minute); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		names, _ := filepath.Glob(ts.MkAbs(os.Expand(pattern, ts.Getenv)))
		for _, name := range names {
			if data, err := os.ReadFile(name); err == nil && strings.Contains(string(data), text) {
				return
			}
		}
	}
	ts.Fatalf("%s never held %q", pattern, text)
}
