package copilot

import (
	"context"
	"encoding/json"
	"io"
	"strings"
	"sync"

	"pollux/internal/agent"
	"pollux/internal/agent/acp"
	"pollux/internal/lazy"
)

// Codes of errors that this package returns in place of Copilot CLI.
const (
	codeProject = 1 // it would run code of the project
	codeLink    = 2 // it would follow a link that leads out
)

// A conn is a connection that starts no session where Copilot CLI would run code of the project, counts the
// tokens of each prompt, and returns errors that Copilot CLI reports as the model's words.
type conn struct {
	*acp.Conn

	mu sync.Mutex
	// used are the tokens of a session so far.
	used map[string]agent.Tokens
	// held are the texts, by session, that are errors if nothing follows.
	held map[string]agent.Update
}

func connect(r io.ReadCloser, w io.WriteCloser, files bool, client agent.Client) agent.Conn {
	c := &conn{used: make(map[string]agent.Tokens), held: make(map[string]agent.Update)}
	c.Conn = acp.NewConn(r, w, files, &words{client, c}, nil)
	return c
}

// NewSession implements [agent.Conn].
func (c *conn) NewSession(ctx context.Context, dir string) (agent.Session, error) {
	if path := runsCode(nil, dir); path != "" {
		return agent.Session{}, &agent.Refused{Code: codeProject, Message: path}
	}
	if path := leadsOut(nil, dir); path != "" {
		return agent.Session{}, &agent.Refused{Code: codeLink, Message: path}
	}
	return c.Conn.NewSession(ctx, dir)
}

// Prompt implements [agent.Conn].
func (c *conn) Prompt(ctx context.Context, session string, content []agent.Content) (agent.PromptResult, error) {
	c.mu.Lock()
	delete(c.held, session)
	c.mu.Unlock()
	result, err := c.Conn.Prompt(ctx, session, content)
	c.mu.Lock()
	defer c.mu.Unlock()
	var r struct{ Usage *acp.Tokens } // nil if the model was not reached
	if err == nil && json.Unmarshal(result.Raw, &r) == nil && r.Usage != nil {
		used := agent.Tokens(*r.Usage)
		result.Raw = acp.WithUsage(result.Raw, used.Sub(c.used[session]))
		c.used[session] = used
	}
	if held := c.held[session].Text; err == nil && held != "" && result.StopReason != agent.StoppedCancelled {
		if held == cancelNotice {
			held = acp.Rejected
		}
		err = &agent.Refused{Message: strings.TrimPrefix(held, errorPrefix)}
	}
	return result, err
}

const (
	errorPrefix  = "Error: "
	cancelNotice = "Info: Operation cancelled by user"
)

var (
	// notices matches what Copilot CLI says between the model's words.
	notices = lazy.Regexp(`^(Info: (Disabled tools|Operation cancelled by user|Unknown tool name)|Warning: No token count multiplier)`)
	// retryNotice matches "Info: Request failed due to a transient API error. Retrying..." and "Info:
	// Response was interrupted due to a server error. Retrying...".
	retryNotice = lazy.Regexp(`^Info: ((?:Request|Response) [^\n]*)\. Retrying\.\.\.`)
)

func isNotice(text string) bool { return notices().MatchString(text) }

// words is a client that distinguishes errors from the words of the model.
type words struct {
	agent.Client
	conn *conn
}

// Update implements [agent.Client]. An error is one piece of text, the last one: it is held back
// until another one follows.
func (w *words) Update(u agent.Update) {
	hold := false
	switch u.Kind {
	case agent.MessageChunk:
		hold = strings.HasPrefix(u.Text, errorPrefix) || u.Text == cancelNotice // a permission was rejected
		if said := retryNotice().FindStringSubmatch(u.Text); said != nil {
			u = agent.Update{Session: u.Session, Kind: agent.RetryAnnounced, Retry: &agent.Retry{Kind: agent.Capacity, Message: said[1]}}
		}
	case agent.ToolCall, agent.ToolCallUpdate:
	default: // says nothing about the words
		w.Client.Update(u)
		return
	}
	w.conn.mu.Lock()
	before, held := w.conn.held[u.Session]
	delete(w.conn.held, u.Session)
	if hold {
		w.conn.held[u.Session] = u
	}
	w.conn.mu.Unlock()
	if held {
		w.Client.Update(before)
	}
	if !hold {
		w.Client.Update(u)
	}
}
