package acp

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"strings"
	"testing"

	"pollux/internal/agent"
	"pollux/internal/sys/systest"
)

// An agent may write all its requests before it reads an answer.
func TestACPWriterThatDoesNotRead(t *testing.T) {
	ours, theirs := net.Pipe()
	received := make(chan struct{})
	conn := NewConn(ours, ours, true, largeFile{received}, nil)
	defer func() { conn.Close(); theirs.Close() }()
	for i := range 100 {
		line, _ := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": i, "method": "fs/read_text_file", "params": map[string]string{"path": "/x"}})
		if _, err := theirs.Write(append(line, '\n')); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := theirs.Write([]byte(`{"jsonrpc":"2.0","method":"session/update","params":{}}` + "\n")); err != nil {
		t.Fatal(err)
	}
	<-received
}

// largeFile is a client with one large file. It closes updated at the first update.
type largeFile struct{ updated chan struct{} }

func (largeFile) ReadFile(string, string) (string, error) { return strings.Repeat("x", 1<<20), nil }
func (largeFile) WriteFile(string, string, string) error  { return nil }
func (f largeFile) Update(agent.Update)                   { close(f.updated) }

// A large prompt is cancelled while it is encoded. The cancellation came first, and the agent
// ignored it.
func TestACPCancelFollowsThePrompt(t *testing.T) {
	ours, theirs := systest.Pipes()
	c := NewConn(ours, ours, false, nil, nil)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		c.Prompt(ctx, "s", []agent.Content{{Type: "text", Text: strings.Repeat("\x01", 1<<20)}})
	}()
	cancel()
	messages := json.NewDecoder(theirs)
	for _, want := range []string{"session/prompt", "session/cancel"} {
		var m struct{ Method string }
		if err := messages.Decode(&m); err != nil || m.Method != want {
			t.Errorf("the agent reads %q, %v; want %q", m.Method, err, want)
		}
	}
	theirs.Close()
	<-ended
}

// What an agent asks its client for is refused: permissions, terminals and, unless the client
// serves files, files.
func TestRequestsAreRefused(t *testing.T) {
	ours, theirs := systest.Pipes()
	c := NewConn(ours, ours, false, nil, nil)
	defer func() { c.Close(); theirs.Close() }()
	answers := json.NewDecoder(theirs)
	for request, want := range map[string]string{
		`"session/request_permission","params":{"options":[{"optionId":"a","kind":"allow_once"},{"optionId":"b","kind":"reject_once"}]}`:   `"result":{"outcome":{"optionId":"b","outcome":"selected"}}`,
		`"session/request_permission","params":{"options":[{"optionId":"a","kind":"allow_once"},{"optionId":"b","kind":"allow_always"}]}`:  `"result":{"outcome":{"outcome":"cancelled"}}`,
		`"session/request_permission","params":{"options":[{"optionId":"a","kind":"allow_once"},{"optionId":"c","kind":"reject_always"}]}`: `"result":{"outcome":{"outcome":"cancelled"}}`,
		`"fs/write_text_file","params":{"path":"/x","content":"y"}`:                                                                        "not offered: fs/write_text_file",
		`"fs/read_text_file","params":{"path":"/etc/hostname"}`:                                                                            "not offered: fs/read_text_file",
		`"terminal/create","params":{"command":"touch"}`:                                                                                   "not offered: terminal/create",
		`"something/else"`: "not offered: something/else",
	} {
		fmt.Fprintf(theirs, `{"jsonrpc":"2.0","id":1,"method":%s}`+"\n", request)
		var got json.RawMessage
		if err := answers.Decode(&got); err != nil || !strings.Contains(string(got), want) {
			t.Errorf("%s: %s, %v; want %s", request, got, err, want)
		}
	}
}

// An agent that asks permission for each call gets it where the client allows the file. A prompt
// that ends after a rejected call, without another word, fails with the reason.
func TestPermissions(t *testing.T) {
	for name, c := range map[string]struct{ file, said, want, err string }{
		"allowed":                {"/in", "", `"optionId":"a"`, "<nil>"},
		"rejected":               {"/out", "", `"optionId":"b"`, Rejected},
		"rejected, then answers": {"/out", "no.", `"optionId":"b"`, "<nil>"},
	} {
		t.Run(name, func(t *testing.T) {
			ours, theirs := systest.Pipes()
			conn := NewConn(ours, ours, false, ignore{}, func(call, file string) bool { return call == "1" && file == "/in" })
			defer func() { conn.Close(); theirs.Close() }()
			ended := make(chan error, 1)
			go func() {
				_, err := conn.Prompt(t.Context(), "s", nil)
				ended <- err
			}()
			messages := json.NewDecoder(theirs)
			var prompt struct{ ID json.RawMessage }
			if err := messages.Decode(&prompt); err != nil {
				t.Fatal(err)
			}
			say := func(text string) {
				fmt.Fprintf(theirs, `{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":%q}}}}`+"\n", text)
			}
			say("I will read it.")
			fmt.Fprintf(theirs, `{"jsonrpc":"2.0","id":7,"method":"session/request_permission","params":{"sessionId":"s","toolCall":{"toolCallId":"1","locations":[{"path":%q}]},"options":[{"optionId":"a","kind":"allow_once"},{"optionId":"c","kind":"allow_always"},{"optionId":"b","kind":"reject_once"}]}}`+"\n", c.file)
			var answer json.RawMessage
			if err := messages.Decode(&answer); err != nil || !strings.Contains(string(answer), c.want) {
				t.Errorf("%s, %v; want %s", answer, err, c.want)
			}
			if c.said != "" {
				say(c.said)
			}
			fmt.Fprintf(theirs, `{"jsonrpc":"2.0","id":%s,"result":{"stopReason":"end_turn"}}`+"\n", prompt.ID)
			if err := fmt.Sprint(<-ended); err != c.err {
				t.Errorf("the prompt ends with %s, want %s", err, c.err)
			}
		})
	}
}

// ignore is a client that ignores updates.
type ignore struct{ agent.Client }

func (ignore) Update(agent.Update) {}

// Agents report the model of a session in two ways.
func TestModelOfASession(t *testing.T) {
	for result, want := range map[string]string{
		`{"sessionId":"s","models":{"currentModelId":"a","availableModels":[{"modelId":"a"},{"modelId":"b"}]}}`:                                              "a of [a b]",
		`{"sessionId":"s","configOptions":[{"id":"x","currentValue":true},{"id":"model","currentValue":"p/a","options":[{"value":"p/a"},{"value":"p/b"}]}]}`: "p/a of [p/a p/b]",
		`{"sessionId":"s"}`: " of []",
	} {
		ours, theirs := systest.Pipes()
		c := NewConn(ours, ours, false, nil, nil)
		go func() {
			var m struct{ ID json.RawMessage }
			if err := json.NewDecoder(theirs).Decode(&m); err == nil {
				fmt.Fprintf(theirs, `{"jsonrpc":"2.0","id":%s,"result":%s}`+"\n", m.ID, result)
			}
		}()
		s, models, err := c.NewSessionModels(t.Context(), "/")
		if got := fmt.Sprintf("%s of %v", s.Model, models); err != nil || got != want {
			t.Errorf("%s: %s, %v; want %s", result, got, err, want)
		}
		c.Close()
		theirs.Close()
	}
}

// Words from the vendors' services, with the kinds of failures that they mean.
func TestKindOf(t *testing.T) {
	for message, want := range map[string]agent.Kind{
		"429 Rate limit reached for gpt-5":                             agent.QuotaMinute,
		"You exceeded your current quota, please check your plan":      agent.QuotaDay,
		"Incorrect API key provided: none":                             agent.Auth,
		"Authentication failed with provider at http://x (HTTP 401).":  agent.Auth,
		"invalid x-api-key":                                            agent.Auth,
		"The model `x` does not exist or you do not have access to it": agent.BadModel,
		"Model 'nope' not found for authType 'openai'":                 agent.BadModel,
		"prompt is too long: 210000 tokens > 200000 maximum":           agent.TooLong,
		"Overloaded":              agent.Capacity,
		"503 Service Unavailable": agent.Capacity,
		"fetch failed":            agent.Network,
		"Unable to connect. Is the computer able to access the url?":    agent.Network,
		"Output data may contain inappropriate content. content_filter": agent.Blocked,
		"400 bad input":  agent.BadRequest,
		"something else": "",
	} {
		if got := KindOf(message); got != want {
			t.Errorf("%q: %q, want %q", message, got, want)
		}
	}
}

// What begins like a command does not begin the prompt.
func TestPlainStart(t *testing.T) {
	for prompt, plain := range map[string]bool{"hello": true, "": true, "2 and 2": true, "Über": true, "/help": false, " /help": false, "!ls": false, "@file": false, "$x": false} {
		if got := PlainStart(prompt); (got == prompt) != plain || !strings.HasSuffix(got, prompt) {
			t.Errorf("%q becomes %q", prompt, got)
		}
	}
}
