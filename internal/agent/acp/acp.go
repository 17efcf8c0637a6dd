// Package acp speaks the Agent Client Protocol as a client: JSON-RPC, one
// message per line. It implements the part of the protocol that Pollux uses.
//
// github.com/coder/acp-go-sdk implements all of it, but ends the connection in
// three cases that occur in practice: at a line of 10 MB (a proposal of two
// large files), at 1024 waiting updates (a fast model and a slow client), and at
// a line that is not JSON (agents print some).
package acp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"

	"pollux/internal/agent"
	"pollux/internal/jsonrpc"
)

const version = 1

// maxLine limits a message from the agent, in bytes.
const maxLine = 64 << 20

type (
	initialize struct {
		ProtocolVersion    int          `json:"protocolVersion"`
		ClientCapabilities capabilities `json:"clientCapabilities"`
		ClientInfo         info         `json:"clientInfo"`
	}
	capabilities struct {
		FS struct {
			ReadTextFile  bool `json:"readTextFile"`
			WriteTextFile bool `json:"writeTextFile"`
		} `json:"fs"`
		Terminal bool `json:"terminal"`
	}
	info struct {
		Name    string `json:"name"`
		Version string `json:"version"`
	}
	newSession struct {
		CWD        string `json:"cwd"`
		MCPServers []any  `json:"mcpServers"`
	}
	newSessionResult struct {
		SessionID string `json:"sessionId"`
		Models    struct {
			Current   string `json:"currentModelId"`
			Available []struct {
				ID string `json:"modelId"`
			} `json:"availableModels"`
		} `json:"models"`
		Options []struct {
			ID      string          `json:"id"`
			Current json.RawMessage `json:"currentValue"`
			Choices []struct {
				Value string `json:"value"`
			} `json:"options"`
		} `json:"configOptions"`
	}
	setModel struct {
		SessionID string `json:"sessionId"`
		ModelID   string `json:"modelId"`
	}
	prompt struct {
		SessionID string          `json:"sessionId"`
		Prompt    []agent.Content `json:"prompt"`
	}
	sessionRef struct {
		SessionID string `json:"sessionId"`
	}
	update struct {
		SessionID string `json:"sessionId"`
		Update    struct {
			Kind       string          `json:"sessionUpdate"`
			Content    json.RawMessage `json:"content"`
			ToolCallID string          `json:"toolCallId"`
			Status     string          `json:"status"`
			Title      string          `json:"title"`
			ToolKind   string          `json:"kind"`
			Locations  []location      `json:"locations"`
			Meta       json.RawMessage `json:"_meta"`
		} `json:"update"`
	}
	location struct {
		Path string `json:"path"`
	}
	permission struct {
		SessionID string `json:"sessionId"`
		ToolCall  struct {
			ID        string     `json:"toolCallId"`
			Locations []location `json:"locations"`
		} `json:"toolCall"`
		Options []struct {
			ID   string `json:"optionId"`
			Kind string `json:"kind"`
		} `json:"options"`
	}
	file struct {
		SessionID string `json:"sessionId"`
		Path      string `json:"path"`
		Content   string `json:"content"`
		Line      *int   `json:"line"` // from 1
		Limit     *int   `json:"limit"`
	}
)

// A Conn is an [agent.Conn].
type Conn struct {
	client agent.Client
	files  bool
	allow  func(toolCall, file string) bool // see [NewConn]
	rpc    *jsonrpc.Conn

	mu sync.Mutex
	// rejected are the sessions in which nothing was said after a rejected permission.
	rejected map[string]bool
}

// Rejected is the message of an error for a prompt that ended because a tool call was rejected.
const Rejected = "it asked for something that is not allowed here, such as reading outside of the workspace"

// Connect is [NewConn], for [agent.Process].
func Connect(r io.ReadCloser, w io.WriteCloser, files bool, client agent.Client) agent.Conn {
	return NewConn(r, w, files, client, nil)
}

// NewConn starts a connection. It reads the agent's output from r and writes its
// input to w. With files, the client serves files to the agent.
//
// allow decides whether a tool call may run for which the agent asks permission. file is the
// path that it concerns, or "" if the agent does not say so. The connection calls it from the
// goroutine that calls the client. It is nil for an agent that asks no permission for allowed
// operations: then all permissions are rejected.
func NewConn(r io.ReadCloser, w io.WriteCloser, files bool, client agent.Client, allow func(toolCall, file string) bool) *Conn {
	c := &Conn{client: client, files: files, allow: allow, rejected: make(map[string]bool)}
	c.rpc = jsonrpc.NewConn(context.Background(), jsonrpc.Lines(r, w, maxLine), c.serve)
	return c
}

// Done implements [agent.Conn].
func (c *Conn) Done() <-chan struct{} { return c.rpc.DisconnectNotify() }

// Close implements [agent.Conn].
func (c *Conn) Close() error { return c.rpc.Close() }

// Initialize implements [agent.Conn].
func (c *Conn) Initialize(ctx context.Context) error {
	hello := initialize{ProtocolVersion: version, ClientInfo: info{Name: "pollux", Version: "1"}}
	hello.ClientCapabilities.FS.ReadTextFile, hello.ClientCapabilities.FS.WriteTextFile = c.files, c.files
	return c.call(ctx, "initialize", hello, nil)
}

// NewSession implements [agent.Conn].
func (c *Conn) NewSession(ctx context.Context, dir string) (agent.Session, error) {
	s, _, err := c.NewSessionModels(ctx, dir)
	return s, err
}

// NewSessionModels is [Conn.NewSession]. It also returns the models that the agent offers, if
// it lists them.
func (c *Conn) NewSessionModels(ctx context.Context, dir string) (s agent.Session, models []string, err error) {
	var res newSessionResult
	err = c.call(ctx, "session/new", newSession{CWD: dir, MCPServers: []any{}}, &res)
	s = agent.Session{ID: res.SessionID, Model: res.Models.Current}
	for _, m := range res.Models.Available {
		models = append(models, m.ID)
	}
	for _, o := range res.Options {
		if o.ID != "model" {
			continue
		}
		if s.Model == "" {
			json.Unmarshal(o.Current, &s.Model) // other options have other types
		}
		for _, choice := range o.Choices {
			models = append(models, choice.Value)
		}
	}
	return s, models, err
}

// SetModel implements [agent.Conn].
func (c *Conn) SetModel(ctx context.Context, session, model string) error {
	return c.call(ctx, "session/set_model", setModel{session, model}, nil)
}

// Prompt implements [agent.Conn].
func (c *Conn) Prompt(ctx context.Context, session string, content []agent.Content) (agent.PromptResult, error) {
	var raw json.RawMessage
	var res struct {
		StopReason string `json:"stopReason"`
	}
	c.setRejected(session, false)
	turn, err := c.rpc.Start("session/prompt", prompt{session, content})
	if err == nil {
		cancel := func() { c.rpc.Notify("session/cancel", sessionRef{session}) }
		defer context.AfterFunc(ctx, cancel)() // only now is there something to cancel
		err = turn.Wait(context.Background(), &raw)
	}
	if err == nil {
		err = json.Unmarshal(raw, &res)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil && c.rejected[session] {
		err = &agent.Refused{Message: Rejected}
	}
	return agent.PromptResult{StopReason: res.StopReason, Raw: raw}, Refused(err)
}

func (c *Conn) setRejected(session string, rejected bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.rejected, session)
	if rejected {
		c.rejected[session] = true
	}
}

// call sends a request and waits for the response.
func (c *Conn) call(ctx context.Context, method string, params, result any) error {
	return Refused(c.rpc.Call(ctx, method, params, result))
}

// Refused returns an error response as an [*agent.Refused], and other errors as they are.
func Refused(err error) error {
	var rpc *jsonrpc.Error
	if !errors.As(err, &rpc) {
		return err
	}
	e := &agent.Refused{Code: int(rpc.Code), Message: rpc.Message}
	if rpc.Data != nil {
		var data struct{ Details string }
		if json.Unmarshal(rpc.Data, &data) == nil && data.Details != "" {
			e.Message += ": " + data.Details
		}
	}
	return e
}

// serve handles a message of the agent. Another goroutine writes the answer: the agent does not
// read while it writes, so the reader must not wait for a write.
func (c *Conn) serve(conn *jsonrpc.Conn, req *jsonrpc.Request) {
	result, err := c.handle(req.Method, req.Params)
	if !req.Notif {
		go conn.Answer(req.ID, result, err)
	}
}

// handle answers the agent's requests and forwards its updates.
func (c *Conn) handle(method string, params json.RawMessage) (any, error) {
	switch method {
	case "session/update":
		var u update
		if json.Unmarshal(params, &u) == nil {
			s := u.simplify()
			if s.Text != "" && s.Kind == agent.MessageChunk {
				c.setRejected(s.Session, false)
			}
			c.client.Update(s)
		}
		return nil, nil
	case "session/request_permission":
		var p permission
		if err := json.Unmarshal(params, &p); err != nil {
			return nil, err
		}
		answer := "reject_once"
		if c.allow != nil && c.allow(p.ToolCall.ID, first(p.ToolCall.Locations)) {
			answer = "allow_once"
		} else {
			c.setRejected(p.SessionID, true)
		}
		for _, o := range p.Options {
			if o.Kind == answer {
				return map[string]any{"outcome": map[string]any{"outcome": "selected", "optionId": o.ID}}, nil
			}
		}
		return map[string]any{"outcome": map[string]any{"outcome": agent.StoppedCancelled}}, nil
	}
	var p file
	switch {
	case !c.files || method != "fs/read_text_file" && method != "fs/write_text_file":
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound, Message: "not offered: " + method}
	case json.Unmarshal(params, &p) != nil:
		return nil, fmt.Errorf("invalid parameters of %s", method)
	case method == "fs/write_text_file":
		return struct{}{}, c.client.WriteFile(p.SessionID, p.Path, p.Content)
	}
	text, err := c.client.ReadFile(p.SessionID, p.Path)
	if err != nil {
		return nil, err
	}
	return map[string]any{"content": p.lines(text)}, nil
}

// lines returns the requested lines of a text.
func (p file) lines(text string) string {
	if p.Line == nil && p.Limit == nil {
		return text
	}
	lines := slices.Collect(strings.Lines(text))
	from := 0
	if p.Line != nil {
		from = min(max(*p.Line-1, 0), len(lines))
	}
	to := len(lines)
	if p.Limit != nil {
		to = min(to, from+max(*p.Limit, 0))
	}
	return strings.Join(lines[from:to], "")
}

// first returns the path of the first location, or "".
func first(list []location) string {
	if len(list) == 0 {
		return ""
	}
	return list[0].Path
}

func (u update) simplify() agent.Update {
	s := agent.Update{
		Session: u.SessionID, Kind: agent.UpdateKind(u.Update.Kind), Status: u.Update.Status,
		ToolCall: u.Update.ToolCallID, Title: u.Update.Title, ToolKind: u.Update.ToolKind, Meta: u.Update.Meta,
		File: first(u.Update.Locations),
	}
	switch s.Kind {
	case agent.MessageChunk:
		var content agent.Content
		if json.Unmarshal(u.Update.Content, &content) == nil {
			s.Text = content.Text
		}
	case agent.ToolCall, agent.ToolCallUpdate:
		var parts []struct{ Content agent.Content }
		if s.Status == agent.ToolFailed && json.Unmarshal(u.Update.Content, &parts) == nil && len(parts) > 0 {
			s.Text = parts[0].Content.Text
		}
	}
	return s
}
