package qwen

import (
	"context"
	"encoding/json"
	"io"
	"strings"
	"sync"

	"pollux/internal/agent"
	"pollux/internal/agent/acp"
)

// A conn is a connection that reads what Qwen Code adds to the protocol: the names of tools,
// the tokens of each of its requests, and the names of models.
type conn struct {
	*acp.Conn

	mu sync.Mutex
	// used are the tokens since the session's prompt.
	used map[string]agent.Tokens
	// models are the models' IDs by their names.
	models map[string]string
}

func connect(r io.ReadCloser, w io.WriteCloser, files bool, client agent.Client) agent.Conn {
	c := &conn{used: make(map[string]agent.Tokens), models: make(map[string]string)}
	c.Conn = acp.NewConn(r, w, files, &titles{Client: client, conn: c, pending: make(map[string]string)}, nil)
	return c
}

// NewSession implements [agent.Conn].
func (c *conn) NewSession(ctx context.Context, dir string) (agent.Session, error) {
	s, models, err := c.Conn.NewSessionModels(ctx, dir)
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, id := range models {
		c.models[modelName(id)] = id
	}
	s.Model = modelName(s.Model)
	return s, err
}

// modelName returns the name of a model from an ID, such as "qwen3-coder-plus(qwen-oauth)"
// or, for a model from a variable, "$runtime|openai|gpt-5(openai)".
func modelName(id string) string {
	name := id[strings.LastIndexByte(id, '|')+1:]
	name, _, _ = strings.Cut(name, "(")
	return name
}

// SetModel implements [agent.Conn].
func (c *conn) SetModel(ctx context.Context, session, model string) error {
	c.mu.Lock()
	id := c.models[model]
	c.mu.Unlock()
	if id == "" {
		id = model
	}
	return c.Conn.SetModel(ctx, session, id)
}

// Prompt implements [agent.Conn].
func (c *conn) Prompt(ctx context.Context, session string, content []agent.Content) (agent.PromptResult, error) {
	c.mu.Lock()
	delete(c.used, session)
	c.mu.Unlock()
	result, err := c.Conn.Prompt(ctx, session, content)
	c.mu.Lock()
	defer c.mu.Unlock()
	result.Raw = acp.WithUsage(result.Raw, c.used[session])
	return result, err
}

// titles completes the titles of tool calls. The first update of a call has neither
// arguments nor a path, and the last one no title.
type titles struct {
	agent.Client
	conn    *conn
	pending map[string]string // the titles of calls that have not started
}

// Update implements [agent.Client].
func (t *titles) Update(u agent.Update) {
	var meta struct {
		Tool  string      `json:"toolName"`
		Usage *acp.Tokens `json:"usage"`
	}
	json.Unmarshal(u.Meta, &meta) // often there is none
	switch {
	case u.Kind == agent.MessageChunk && meta.Usage != nil:
		t.conn.mu.Lock()
		t.conn.used[u.Session] = t.conn.used[u.Session].Add(agent.Tokens(*meta.Usage))
		t.conn.mu.Unlock()
	case u.Kind == agent.ToolCall && u.Status == "pending":
		t.pending[u.ToolCall] = u.Title
		u.Kind = "" // a sign of life
	case u.Kind == agent.ToolCall || u.Kind == agent.ToolCallUpdate:
		if u.Title == "" {
			u.Title = t.pending[u.ToolCall]
		}
		u.Title = meta.Tool + " " + u.Title
		if u.Status == agent.ToolCompleted || u.Status == agent.ToolFailed {
			delete(t.pending, u.ToolCall)
		}
	}
	t.Client.Update(u)
}
