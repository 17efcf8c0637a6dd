// Package fakecli replaces Claude Code in tests of faults that the real one does not show
// on demand: it crashes, floods its output and ignores signals. The fake is the test binary,
// started again. It does not run on Windows.
//
// The prompt chooses the fault with the first "fake:NAME" or "fake:NAME=N" in it.
package fakecli

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	variable = "CLAUDE_FAKE_CLI"
	// mark is the first argument of the processes that a fake leaves behind. The second is
	// its temporary directory, which tests use to find them.
	mark = "pollux-fake-grandchild"
	// Model is the default model.
	Model = "claude-fake"
)

// Main runs the fake and exits if this process was started as a fake. Call it first in
// TestMain.
func Main() {
	if os.Getenv(variable) == "" {
		return
	}
	if len(os.Args) > 1 && os.Args[1] == mark {
		time.Sleep(time.Hour)
	}
	f := &fake{model: Model}
	for in := bufio.NewReader(os.Stdin); ; {
		line, err := in.ReadBytes('\n')
		if err != nil {
			os.Exit(0)
		}
		f.receive(line)
	}
}

// Install writes a fake with a version into dir and returns its path.
func Install(dir, version string) (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	manifest := fmt.Sprintf(`{"name":"@anthropic-ai/claude-code","version":%q}`, version)
	if err := os.WriteFile(filepath.Join(dir, "package.json"), []byte(manifest), 0o644); err != nil {
		return "", err
	}
	path := filepath.Join(dir, "claude")
	script := fmt.Sprintf("#!/bin/sh\nGORACE=atexit_sleep_ms=10 %s=%s exec %q \"$@\"\n", variable, version, self)
	return path, os.WriteFile(path, []byte(script), 0o755)
}

// A fake holds one conversation. "fake:remember" returns its prompts.
type fake struct {
	mu       sync.Mutex // guards the fields below, and standard output
	model    string
	prompts  []string
	spent    int           // the answers in the conversation
	cancel   chan struct{} // closed by an interrupt; nil while idle
	messages int
}

type message struct {
	Type    string `json:"type"`
	ID      string `json:"request_id"`
	Request struct{ Subtype, Model string }
	Message struct {
		Content []struct{ Text string }
	}
}

type fields map[string]any

func (f *fake) receive(line []byte) {
	var m message
	if err := json.Unmarshal(line, &m); err != nil {
		os.Exit(1)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if m.Type == "control_request" {
		switch m.Request.Subtype {
		case "set_model":
			f.model = m.Request.Model
		case "interrupt":
			if f.cancel != nil {
				close(f.cancel)
				f.cancel = nil
			}
		}
		answer := fields{"applied": fields{"model": f.model}}
		f.printLocked("control_response", fields{"response": fields{"subtype": "success", "request_id": m.ID, "response": answer}})
		return
	}
	content := m.Message.Content
	if content[len(content)-1].Text == "/clear" {
		f.prompts, f.spent = nil, 0
		f.printLocked("conversation_reset", nil)
		f.endLocked(false, "")
		return
	}
	f.prompts = append(f.prompts, content[0].Text)
	f.cancel = make(chan struct{})
	go f.answer(f.prompts, f.cancel)
}

func (f *fake) printLocked(kind string, m fields) {
	if m == nil {
		m = fields{}
	}
	m["type"] = kind
	data, err := json.Marshal(m)
	if err != nil {
		panic(err)
	}
	os.Stdout.Write(append(data, '\n'))
}

func (f *fake) print(kind string, m fields) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.printLocked(kind, m)
}

func (f *fake) endLocked(failed bool, text string) {
	f.cancel = nil
	usage := fields{}
	if f.spent > 0 {
		usage[f.model] = fields{"inputTokens": 6 * f.spent, "outputTokens": 4 * f.spent}
	}
	f.printLocked("result", fields{"subtype": "success", "is_error": failed, "result": text, "modelUsage": usage})
}

func (f *fake) end(failed bool, text string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !failed {
		f.spent++
	}
	f.endLocked(failed, text)
}

func (f *fake) start(tools ...string) {
	f.print("system", fields{"subtype": "init", "tools": tools, "apiKeySource": "ANTHROPIC_API_KEY"})
}

func (f *fake) event(event fields) { f.print("stream_event", fields{"event": event}) }

func (f *fake) say(text string) {
	f.mu.Lock()
	f.messages++
	id := fmt.Sprint("msg_", f.messages)
	f.mu.Unlock()
	f.event(fields{"type": "message_start", "message": fields{"id": id}})
	f.event(fields{"type": "content_block_delta", "delta": fields{"type": "text_delta", "text": text}})
	f.print("assistant", fields{"message": fields{"id": id, "content": []any{fields{"type": "text", "text": text}}}})
}

func (f *fake) tool(name string) {
	call := fields{"type": "tool_use", "id": "call", "name": name, "input": fields{"file_path": "hello.txt"}}
	f.print("assistant", fields{"message": fields{"content": []any{call}}})
	f.print("user", fields{"message": fields{"content": []any{fields{"type": "tool_result", "tool_use_id": "call", "content": "ok"}}}})
}

var directive = regexp.MustCompile(`fake:([a-z-]+)(?:=(\d+))?`)

func (f *fake) answer(prompts []string, cancel <-chan struct{}) {
	prompt := prompts[len(prompts)-1]
	name, n := "echo", 0
	if d := directive.FindStringSubmatch(prompt); d != nil {
		name = d[1]
		n, _ = strconv.Atoi(d[2])
	}
	// wait waits for a time. It reports false after an interrupt.
	wait := func(d time.Duration) bool {
		select {
		case <-time.After(d):
			return true
		case <-cancel:
			f.end(true, "")
			return false
		}
	}
	if name == "no-policy" {
		f.start("Read", "Bash")
		wait(time.Hour)
		return
	}
	f.start("Read", "Grep", "Glob")
	switch name {
	case "echo":
		f.say(prompt)
	case "remember":
		f.say(strings.Join(prompts, " | "))
	case "hang":
		wait(time.Hour)
		return
	case "say-and-hang":
		f.say("as far as I came")
		wait(time.Hour)
		return
	case "stubborn": // ignores an interrupt and every signal it can
		signal.Ignore(syscall.SIGTERM, os.Interrupt)
		f.say("still here")
		time.Sleep(time.Hour)
	case "crash":
		f.say("half of ")
		time.Sleep(20 * time.Millisecond)
		os.Exit(1)
	case "silent":
		os.Exit(1)
	case "noise":
		os.Stdout.WriteString("a warning\n{not json}\n[1]\n42\n\n{\"level\":\"info\"}\n")
		f.say("through the noise")
	case "grandchild": // a child in a new session that keeps standard output open
		child := exec.Command("setsid", os.Args[0], mark, os.TempDir())
		child.Stdout, child.Stderr = os.Stdout, os.Stderr
		if err := child.Start(); err != nil {
			panic(err)
		}
		f.say("I have a child")
	case "narrate":
		f.say("I will read it. ")
		f.tool("Read")
		f.say("The ")
		f.say("answer.")
	case "stray":
		f.tool("Bash")
		wait(time.Hour)
		return
	case "retry":
		f.print("system", fields{"subtype": "api_retry", "attempt": 1, "retry_delay_ms": n, "error_status": 429})
		if !wait(time.Duration(n) * time.Millisecond) {
			return
		}
		f.say("after a retry")
	case "empty":
	case "no-login":
		f.end(true, "Not logged in · Please run /login")
		return
	case "big":
		f.say(strings.Repeat("0123456789abcdef", n/16))
	case "flood":
		text := strings.Repeat("lorem ipsum ", 8000)
		for range n << 20 / len(text) {
			f.event(fields{"type": "content_block_delta", "delta": fields{"type": "thinking_delta", "thinking": text}})
		}
		f.say("after the flood")
	case "slow":
		if !wait(time.Duration(n) * time.Millisecond) {
			return
		}
		f.say("slowly")
	default:
		panic("no such fake: " + name)
	}
	f.end(false, "")
}
