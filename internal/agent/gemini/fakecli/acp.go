package fakecli

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Versions of the fake that cannot be kept warm: one has no --acp, the other
// does not answer initialize.
const (
	NoACP   = "0.40.0"
	MuteACP = "0.41.0"
	// StrangeACP is not signed in: it creates no session.
	StrangeACP = "0.43.0"
)

// Commands are the commands of Gemini CLI 0.61.0 in its --acp mode. Each starts
// with a slash or a dollar sign.
var Commands = []string{
	"memory", "memory show", "memory refresh", "memory reload", "memory list", "memory inbox",
	"extensions", "extensions list", "extensions explore", "extensions enable", "extensions disable", "extensions install",
	"extensions link", "extensions uninstall", "extensions restart", "extensions update",
	"init", "restore", "restore list", "about", "help",
}

// JSSpace are the characters that JavaScript's trim removes.
const JSSpace = "\t\n\v\f\r \u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000\ufeff"

// Ran is the answer to a prompt that the fake ran as a command.
const Ran = "a command was run"

// command reports whether the CLI runs a prompt as one of its [Commands].
// Without acp, it does so only for a prompt that starts with a slash.
func command(prompt string, acp bool) bool {
	if !acp {
		return strings.HasPrefix(prompt, "/") && !strings.HasPrefix(prompt, "//") && !strings.HasPrefix(prompt, "/*")
	}
	prompt = strings.Trim(prompt, JSSpace)
	if !strings.HasPrefix(prompt, "/") && !strings.HasPrefix(prompt, "$") {
		return false
	}
	words := strings.FieldsFunc(prompt[1:], func(r rune) bool { return strings.ContainsRune(JSSpace, r) })
	return len(words) > 0 && slices.Contains(Commands, words[0])
}

// An agent is the fake in --acp mode. It answers a prompt as [run] does, where
// the fault applies. "fake:remember" returns the earlier prompts of the session.
type agent struct {
	asks     bool // the model
	mu       sync.Mutex
	sessions map[string]*agentSession
}

type agentSession struct {
	id      string
	model   string
	prompts []string
	cancel  context.CancelFunc
	// conversation holds the messages of an asking fake and the model.
	conversation []content
}

type rpc struct {
	ID     json.RawMessage `json:"id,omitempty"`
	Method string          `json:"method"`
	Params struct {
		SessionID string `json:"sessionId"`
		ModelID   string `json:"modelId"`
		Prompt    []struct{ Text string }
	} `json:"params"`
}

// logf writes to the log. As a server, the CLI writes it to this file only.
func logf(format string, args ...any) {
	f, err := os.OpenFile(os.Getenv("GEMINI_DEBUG_LOG_FILE"), os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return
	}
	defer f.Close()
	fmt.Fprintf(f, format, args...)
}

func runACP(version string) {
	switch version {
	case NoACP:
		fmt.Fprintln(os.Stderr, "Unknown argument: acp")
		os.Exit(1)
	case MuteACP:
		time.Sleep(time.Hour)
	}
	a := &agent{asks: strings.HasSuffix(version, asking), sessions: make(map[string]*agentSession)}
	in := bufio.NewReader(os.Stdin)
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return
		}
		var m rpc
		if json.Unmarshal(line, &m) != nil {
			continue
		}
		switch m.Method {
		case "initialize":
			a.reply(m, map[string]any{"protocolVersion": 1})
		case "session/new":
			if version == StrangeACP {
				a.fail(m, -32000, "Authentication required.")
				continue
			}
			a.mu.Lock()
			s := &agentSession{id: "s" + strconv.Itoa(len(a.sessions)), model: "gemini-fake"}
			if a.asks {
				s.model = defaultModel()
			}
			a.sessions[s.id] = s
			a.mu.Unlock()
			a.reply(m, map[string]any{"sessionId": s.id, "models": map[string]any{"currentModelId": s.model}})
		case "session/set_model":
			a.sessions[m.Params.SessionID].model = m.Params.ModelID
			a.reply(m, map[string]any{})
		case "session/cancel":
			if s := a.sessions[m.Params.SessionID]; s != nil && s.cancel != nil {
				s.cancel()
			}
		case "session/prompt":
			s := a.sessions[m.Params.SessionID]
			var ctx context.Context
			ctx, s.cancel = context.WithCancel(context.Background())
			if a.asks {
				go a.ask(ctx, m, s)
				continue
			}
			s.prompts = append(s.prompts, m.Params.Prompt[0].Text)
			go a.prompt(m, s.id, s.model, slices.Clone(s.prompts), ctx.Done())
		}
	}
}

func (a *agent) send(v any) {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	os.Stdout.Write(append(data, '\n'))
}

func (a *agent) reply(m rpc, result any) {
	a.send(map[string]any{"jsonrpc": "2.0", "id": m.ID, "result": result})
}

// update sends what has happened in a session.
func (a *agent) update(session, kind string, fields map[string]any) {
	fields["sessionUpdate"] = kind
	params := map[string]any{"sessionId": session, "update": fields}
	a.send(map[string]any{"jsonrpc": "2.0", "method": "session/update", "params": params})
}

func (a *agent) say(session, text string) {
	a.update(session, "agent_message_chunk", map[string]any{"content": map[string]any{"type": "text", "text": text}})
}

// end answers a prompt.
func (a *agent) end(m rpc, model, reason string) {
	count := map[string]any{"input_tokens": 7, "output_tokens": 3}
	quota := map[string]any{
		"token_count": count, "model_usage": []any{map[string]any{"model": model, "token_count": count}},
	}
	a.reply(m, map[string]any{"stopReason": reason, "_meta": map[string]any{"quota": quota}})
}

func (a *agent) fail(m rpc, code int, message string) {
	a.send(map[string]any{"jsonrpc": "2.0", "id": m.ID, "error": map[string]any{"code": code, "message": message}})
}

// ask answers a prompt with what the model says.
func (a *agent) ask(ctx context.Context, m rpc, s *agentSession) {
	s.conversation = append(s.conversation, said("user", m.Params.Prompt[0].Text))
	answer, err := askModel(ctx, s.model, s.conversation, func(text string) { a.say(s.id, text) })
	s.conversation = append(s.conversation, said("model", answer))
	var refused refusal
	switch {
	case ctx.Err() != nil:
		a.end(m, s.model, "cancelled")
	case errors.As(err, &refused):
		a.fail(m, int(refused), err.Error())
	case err != nil:
		panic(err)
	default:
		a.end(m, s.model, "end_turn")
	}
}

func (a *agent) prompt(m rpc, session, model string, prompts []string, cancel <-chan struct{}) {
	prompt := prompts[len(prompts)-1]
	name, n := "echo", 0
	if d := directive.FindStringSubmatch(prompt); d != nil {
		name = d[1]
		n, _ = strconv.Atoi(d[2])
	}
	if command(prompt, true) {
		name, prompt = "echo", Ran
	}
	update := func(kind string, fields map[string]any) { a.update(session, kind, fields) }
	say := func(text string) { a.say(session, text) }
	tool := func(name, status string) {
		id := name + "__" + name + "_1"
		update("tool_call", map[string]any{"toolCallId": id, "status": "in_progress", "title": "hello.txt"})
		update("tool_call_update", map[string]any{"toolCallId": id, "status": status, "title": "hello.txt"})
	}
	end := func(reason string) { a.end(m, model, reason) }
	hang := func() {
		<-cancel
		end("cancelled")
	}
	switch name {
	case "echo":
		say(prompt)
	case "remember":
		say(strings.Join(prompts, " | "))
	case "args":
		say(strings.Join(os.Args[1:], "\n"))
	case "env":
		say(strings.Join(os.Environ(), "\n"))
	case "hang":
		hang()
		return
	case "say-and-hang":
		say("as far as I came")
		hang()
		return
	case "stubborn": // ignores cancellation and every signal it can
		signal.Ignore(syscall.SIGTERM, os.Interrupt)
		say("still here")
		time.Sleep(time.Hour)
	case "crash":
		say("half of ")
		time.Sleep(20 * time.Millisecond)
		os.Exit(1)
	case "killed", "silent", "exit":
		os.Exit(1)
	case "killed-once": // only once; a file above its temporary directory records it
		if f, err := os.OpenFile(os.TempDir()+"/../../killed-once", os.O_CREATE|os.O_EXCL, 0o600); err == nil {
			f.Close()
			fmt.Fprintln(os.Stderr, "TypeError: no answer to: "+prompt)
			os.Exit(1)
		}
		say("survived")
	case "noise":
		os.Stdout.WriteString("Loaded cached credentials.\n{not json}\n[1]\n42\n\n{\"level\":\"info\"}\n")
		say("through the noise")
	case "grandchild": // a child in a new session that keeps standard output open
		child := exec.Command(os.Args[0], mark, os.TempDir())
		if runtime.GOOS != "windows" {
			child = exec.Command("setsid", child.Args...)
		}
		child.Stdout, child.Stderr = os.Stdout, os.Stderr
		if err := child.Start(); err != nil {
			panic(err)
		}
		say("I have a child")
	case "search-loop":
		update("tool_call", map[string]any{
			"toolCallId": "google_web_search__1", "status": "in_progress", "title": "Searching the web for: \"q\"",
		})
		for {
			select {
			case <-cancel:
				end("cancelled")
				return
			case <-time.After(5 * time.Millisecond):
				logf("[LOG] Model fallback activated: switching from a to b\n")
			}
		}
	case "narrate":
		say("I will read it. ")
		tool("read_file", "completed")
		say("The ")
		say("answer.")
	case "stray":
		tool("run_shell_command", "completed")
		hang()
		return
	case "no-policy":
		logf("Policy file error in a: Failed to read policy\n")
		hang()
		return
	case "retry":
		logf("Attempt 1 failed: You exceeded your current quota. Retrying after %dms...\n", n)
		select {
		case <-cancel:
			end("cancelled")
			return
		case <-time.After(min(time.Duration(n)*time.Millisecond, time.Hour)):
		}
		say("after a retry")
	case "edit":
		say(edit)
	case "empty":
	case "error":
		a.fail(m, n, "no")
		return
	case "big":
		say(strings.Repeat("0123456789abcdef", n/16))
	case "flood":
		text := strings.Repeat("lorem ipsum ", 8000)
		for range n << 20 / len(text) {
			update("tool_call_update", map[string]any{
				"toolCallId": "read_file__read_file_1", "status": "in_progress",
				"content": []any{map[string]any{"content": map[string]any{"text": text}}},
			})
		}
		say("after the flood")
	case "slow":
		select {
		case <-cancel:
			end("cancelled")
			return
		case <-time.After(time.Duration(n) * time.Millisecond):
		}
		say("slowly")
	default:
		panic("no such fake: " + name)
	}
	end("end_turn")
}
