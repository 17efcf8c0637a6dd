// Package fakecli replaces Gemini CLI, headless and as an ACP agent, in tests of
// faults that the real CLI does not show on demand: it crashes, lingers, floods
// its output and ignores signals. The fake is the test binary, started again.
//
// The prompt chooses the fault with the first "fake:NAME" or "fake:NAME=N" in
// it.
package fakecli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"pollux/internal/sys/systest"
)

const variable = "GEMINI_FAKE_CLI"

// Main runs the fake and exits if this process was started as a fake. Call it
// first in main or TestMain.
func Main() {
	if version, ok := started(); ok {
		run(version)
		os.Exit(0)
	}
}

// started reports whether this process was started as a fake, and its version. On Windows
// it runs as node.exe, and the script that is its first argument holds the version.
func started() (version string, ok bool) {
	if runtime.GOOS != "windows" {
		version = os.Getenv(variable)
		return version, version != ""
	}
	if !strings.EqualFold(filepath.Base(os.Args[0]), node) || len(os.Args) < 2 {
		return "", false
	}
	os.CreateTemp("", "open-") // while it is open, the process's temporary directory cannot be removed
	if os.Args[1] == mark {
		return "", true
	}
	script, err := os.ReadFile(os.Args[1])
	if err != nil {
		panic(err)
	}
	os.Args = slices.Delete(os.Args, 1, 2)
	return string(script), true
}

// node names the fake's program on Windows.
const node = "node.exe"

// Install writes a fake with a version into dir and returns its path.
func Install(dir, version string) (string, error) { return install(dir, version, version) }

// install writes a fake that says its version, and is started with another one.
func install(dir, version, started string) (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	bundle := filepath.Join(dir, "bundle")
	if err := os.MkdirAll(bundle, 0o755); err != nil {
		return "", err
	}
	manifest := fmt.Sprintf(`{"name":"@google/gemini-cli","version":%q,"bin":{"gemini":"bundle/gemini"}}`, version)
	if err := os.WriteFile(filepath.Join(dir, "package.json"), []byte(manifest), 0o644); err != nil {
		return "", err
	}
	if runtime.GOOS == "windows" {
		return installShim(bundle, started, self)
	}
	script := fmt.Sprintf("#!/bin/sh\nGORACE=atexit_sleep_ms=10 %s=%s exec %q \"$@\"\n", variable, started, self)
	path := filepath.Join(bundle, "gemini")
	return path, os.WriteFile(path, []byte(script), 0o755)
}

// installShim writes what npm writes on Windows.
func installShim(dir, version, self string) (string, error) {
	path := filepath.Join(dir, "gemini.cmd")
	return path, errors.Join(
		copyFile(self, filepath.Join(dir, node)),
		os.WriteFile(filepath.Join(dir, "gemini.js"), []byte(version), 0o600),
		os.WriteFile(path, []byte(strings.ReplaceAll(systest.NPMShim(` "%dp0%\gemini.js"`), "\n", "\r\n")), 0o600),
	)
}

// copyFile makes a link if the file system allows it.
func copyFile(from, to string) error {
	if os.Link(from, to) == nil {
		return nil
	}
	data, err := os.ReadFile(from)
	return errors.Join(err, os.WriteFile(to, data, 0o700))
}

var directive = regexp.MustCompile(`fake:([a-z-]+)(?:=(\d+))?`)

// mark is the first argument of the processes that a fake leaves behind. The
// second is its temporary directory, which tests use to find them.
const mark = "pollux-fake-grandchild"

func run(version string) {
	if len(os.Args) > 1 && os.Args[1] == mark {
		time.Sleep(time.Hour)
	}
	if len(os.Args) > 1 && os.Args[1] == "--acp" {
		runACP(version)
		return
	}
	if strings.HasSuffix(version, asking) {
		runAsking()
		return
	}
	name, n := "echo", 0
	var prompt []byte
	// The prompt is available immediately. The model argument tells a fake not to
	// read it.
	if !strings.Contains(strings.Join(os.Args, " "), "--model=unread") {
		prompt, _ = io.ReadAll(os.Stdin)
	} else {
		name = "unread"
	}
	if m := directive.FindStringSubmatch(string(prompt)); m != nil {
		name = m[1]
		n, _ = strconv.Atoi(m[2])
	}
	if command(string(prompt), false) {
		name, prompt = "echo", []byte(Ran)
	}
	fault, ok := faults[name]
	if !ok {
		panic("no such fake: " + name)
	}
	fault(string(prompt), n)
}

// edit is an answer in change mode.
const edit = "**FILE: a.txt:1-1**\n===OLD===\na\n===NEW===\nb\n===END===\n"

// faults maps the names in prompts to the faults. n is the number in the prompt,
// or 0.
var faults = map[string]func(prompt string, n int){
	"unread": func(prompt string, n int) {
		answer("did not read")
	},
	"echo": func(prompt string, n int) {
		answer(prompt)
	},
	// A process that runs once remembers only its prompt.
	"remember": func(prompt string, n int) {
		answer(prompt)
	},
	"slow": func(prompt string, n int) {
		time.Sleep(time.Duration(n) * time.Millisecond)
		answer("slowly")
	},
	// An error from the model's service.
	"error": func(prompt string, n int) {
		os.Exit(n % 256)
	},
	"args": func(prompt string, n int) {
		answer(strings.Join(os.Args[1:], "\n"))
	},
	"env": func(prompt string, n int) {
		answer(strings.Join(os.Environ(), "\n"))
	},
	"hang": func(prompt string, n int) {
		event("init")
		time.Sleep(time.Hour)
	},
	"stubborn": func(prompt string, n int) {
		signal.Ignore(syscall.SIGTERM, os.Interrupt)
		event("init")
		say("still here")
		time.Sleep(time.Hour)
	},
	"say-and-hang": func(prompt string, n int) {
		event("init")
		say("as far as I came")
		time.Sleep(time.Hour)
	},
	"crash": func(prompt string, n int) {
		event("init")
		say("half of ")
		os.Exit(1)
	},
	"killed": func(prompt string, n int) {
		self, _ := os.FindProcess(os.Getpid())
		self.Kill()
		time.Sleep(time.Hour)
	},
	"silent": func(prompt string, n int) {
	},
	// An error result with its exit code.
	"exit": func(prompt string, n int) {
		event("init")
		event("message", "role", "user", "content", "hi")
		event("result", "status", "error", "error", map[string]any{
			"type": "FatalTurnLimitedError", "message": "Reached max session turns for this session.",
		}, "stats", stats())
		os.Exit(n)
	},
	"exit-after-success": func(prompt string, n int) {
		answer("looks good")
		os.Exit(n)
	},
	"stderr": func(prompt string, n int) {
		fmt.Fprintln(os.Stderr, strings.TrimSpace(prompt))
		os.Exit(n)
	},
	// The child inherits the open files of the fake.
	"grandchild": func(prompt string, n int) {
		child := exec.Command(os.Args[0], mark, os.TempDir())
		child.Stdin, child.Stdout, child.Stderr = os.Stdin, os.Stdout, os.Stderr
		if err := child.Start(); err != nil {
			panic(err)
		}
		event("init")
		say("I have a child")
		if n > 0 {
			result()
			return
		}
		time.Sleep(time.Hour)
	},
	// Answers and does not exit.
	"linger": func(prompt string, n int) {
		answer("answered")
		time.Sleep(time.Hour)
	},
	"noise": func(prompt string, n int) {
		fmt.Println("Loaded cached credentials.\n{not json}\n{\"type\":\"news\"}\n[1]\n42")
		answer("through the noise")
	},
	// Writes one byte at a time, which splits characters.
	"bytes": func(prompt string, n int) {
		line, _ := json.Marshal(map[string]any{"type": "message", "role": "assistant", "content": "Grüße, 世界 🌍", "delta": true})
		for i := range line {
			os.Stdout.Write(line[i : i+1])
			if line[i] >= 0x80 {
				time.Sleep(25 * time.Millisecond)
			}
		}
		fmt.Println()
		result()
	},
	"narrate": func(prompt string, n int) {
		event("init")
		say("I will read it. ")
		tool("read_file", map[string]any{"file_path": "/somewhere/deep/hello.txt"}, "success")
		say("Now another. ")
		tool("grep_search", map[string]any{"pattern": "x y"}, "error")
		say("The ")
		say("answer.")
		result()
	},
	// A tool that the policy denies.
	"stray": func(prompt string, n int) {
		event("init")
		tool("run_shell_command", map[string]any{"command": "true"}, "success")
		time.Sleep(time.Hour)
	},
	// The older name of an allowed tool.
	"alias": func(prompt string, n int) {
		event("init")
		tool("search_file_content", map[string]any{"pattern": "x"}, "success")
		say("searched")
		result()
	},
	"no-policy": func(prompt string, n int) {
		fmt.Fprintln(os.Stderr, "[ADMIN] Policy file error in a:\n  Failed to read policy path")
		event("init")
		time.Sleep(time.Hour)
	},
	"search-loop": func(prompt string, n int) {
		event("init")
		event("tool_use", "tool_name", "google_web_search", "tool_id", "s", "parameters", map[string]any{"query": "q"})
		fmt.Fprintln(os.Stderr, "(node:1) MaxListenersExceededWarning: Possible EventTarget memory leak detected. 11 abort listeners added to [AbortSignal].")
		time.Sleep(time.Hour)
	},
	// A broken stream and the second attempt.
	"again": func(prompt string, n int) {
		event("init")
		say("This is the first half ")
		say("of the long ")
		time.Sleep(600 * time.Millisecond)
		say("This is the first half of the long answer")
		result()
	},
	// The same digits twice, on purpose.
	"digits": func(prompt string, n int) {
		event("init")
		say("1")
		time.Sleep(600 * time.Millisecond)
		say("1")
		result()
	},
	// The last line on stderr says that the policy was ignored.
	"last-words": func(prompt string, n int) {
		answer("done")
		fmt.Fprintln(os.Stderr, "Security Warning: Ignoring --admin-policy because system policies are already defined")
	},
	"stray-burst": func(prompt string, n int) {
		event("init")
		tool("write_file", map[string]any{"file_path": "x"}, "success")
		say("done")
		result()
	},
	// A stream that only paused.
	"pause": func(prompt string, n int) {
		event("init")
		say("one ")
		time.Sleep(600 * time.Millisecond)
		say("and two")
		result()
	},
	"empty": func(prompt string, n int) {
		event("init")
		result()
	},
	// Announces a wait of n milliseconds, then answers.
	"retry": func(prompt string, n int) {
		event("init")
		fmt.Fprintf(os.Stderr, "Attempt 1 failed: You exceeded your current quota.\n* Quota exceeded for metric: x, limit: 5\nPlease retry in 1s.. Retrying after %dms...\n", n)
		time.Sleep(min(time.Duration(n)*time.Millisecond, time.Hour))
		answer("after a retry")
	},
	// Edits the first line of a.txt, in change mode.
	"edit": func(prompt string, n int) {
		answer(edit)
	},
	// An answer of n bytes in one message.
	"big": func(prompt string, n int) {
		event("init")
		say(strings.Repeat("0123456789abcdef", n/16))
		result()
	},
	// N MB of tool output, then an answer.
	"flood": func(prompt string, n int) {
		event("init")
		line, _ := json.Marshal(map[string]any{"type": "tool_result", "tool_id": "x", "status": "success", "output": strings.Repeat("lorem ipsum ", 8000)})
		line = append(line, '\n')
		for written := 0; written < n<<20; written += len(line) {
			if _, err := os.Stdout.Write(line); err != nil {
				os.Exit(3)
			}
		}
		say("after the flood")
		result()
	},
}

// event prints an event with its fields in the given order, as the CLI does.
func event(kind string, fields ...any) {
	var b bytes.Buffer
	fmt.Fprintf(&b, `{"type":%q,"timestamp":%q`, kind, time.Now().UTC().Format(time.RFC3339Nano))
	for i := 0; i < len(fields); i += 2 {
		value, err := json.Marshal(fields[i+1])
		if err != nil {
			panic(err)
		}
		fmt.Fprintf(&b, `,%q:%s`, fields[i], value)
	}
	b.WriteString("}\n")
	os.Stdout.Write(b.Bytes())
}

func say(text string) {
	event("message", "role", "assistant", "content", text, "delta", true)
}

func tool(name string, parameters map[string]any, status string) {
	id := name + "_1"
	event("tool_use", "tool_name", name, "tool_id", id, "parameters", parameters)
	event("tool_result", "tool_id", id, "status", status, "output", "ok")
}

func result() { event("result", "status", "success", "stats", stats()) }

func stats() map[string]any {
	return map[string]any{"total_tokens": 10, "input_tokens": 6, "output_tokens": 4, "cached": 0, "tool_calls": 0,
		"models": map[string]any{
			"router-lite": map[string]any{"output_tokens": 1}, "gemini-fake": map[string]any{"output_tokens": 3},
		}}
}

func answer(text string) {
	event("init")
	say(text)
	result()
}
