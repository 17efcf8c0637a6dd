package codex

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"sync"
	"time"

	"pollux/internal/agent"
	"pollux/internal/agent/acp"
	"pollux/internal/jsonrpc"
)

// maxLine limits a message from the app server, in bytes.
const maxLine = 64 << 20

// A Conn is an [agent.Conn] with an app server. A conversation is a thread of the server.
type Conn struct {
	client agent.Client
	rpc    *jsonrpc.Conn

	mu      sync.Mutex
	threads map[string]*thread
}

// Conn.mu guards the fields of a thread.
type thread struct {
	model string       // the selected one; "" for the default
	total agent.Tokens // of the whole conversation
	turn  *turn        // the work on the current prompt, or nil
}

// A turn is the server's work on a prompt.
type turn struct {
	before agent.Tokens // the thread's total before it
	end    chan turnEnd

	// The reading goroutine owns these.
	message string // the ID of the message whose text arrived last
	retries int
	model   string // the one that answers, if the service has changed it
}

// tokens are [agent.Tokens] as the server sends them.
type tokens struct {
	Input  int `json:"inputTokens"`
	Output int `json:"outputTokens"`
	Cached int `json:"cachedInputTokens"`
	Total  int `json:"totalTokens"`
}

type turnEnd struct {
	Status string     `json:"status"`
	Error  *turnError `json:"error"`

	model string
}

// An answered is [agent.PromptResult.Raw].
type answered struct {
	Model  string       `json:"model"`
	Tokens agent.Tokens `json:"tokens"`
}

func connect(r io.ReadCloser, w io.WriteCloser, _ bool, client agent.Client) agent.Conn {
	c := &Conn{client: client, threads: make(map[string]*thread)}
	c.rpc = jsonrpc.NewConn(context.Background(), jsonrpc.Lines(r, w, maxLine), c.serve)
	return c
}

// serve handles a message of the server, which asks for permissions and for input. It does not
// read while it writes, so the reader must not wait for a write.
func (c *Conn) serve(conn *jsonrpc.Conn, req *jsonrpc.Request) {
	if req.Notif {
		c.notice(req.Method, req.Params)
		return
	}
	go conn.Answer(req.ID, nil, &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound, Message: "declined"})
}

// call sends a request and reads the response into result.
func (c *Conn) call(ctx context.Context, method string, params, result any) error {
	return acp.Refused(c.rpc.Call(ctx, method, params, result))
}

// Done implements [agent.Conn].
func (c *Conn) Done() <-chan struct{} { return c.rpc.DisconnectNotify() }

// Close implements [agent.Conn].
func (c *Conn) Close() error { return c.rpc.Close() }

// Initialize implements [agent.Conn].
func (c *Conn) Initialize(ctx context.Context) error {
	info := map[string]string{"name": "pollux", "title": "Pollux", "version": "1"}
	if err := c.call(ctx, "initialize", map[string]any{"clientInfo": info}, new(struct{})); err != nil {
		return err
	}
	go c.rpc.Notify("initialized", nil)
	return nil
}

// NewSession implements [agent.Conn]. It fails if the user is not signed in: a prompt would
// fail only after many attempts.
func (c *Conn) NewSession(ctx context.Context, dir string) (agent.Session, error) {
	servers, err := c.servers(ctx, dir)
	if err != nil {
		return agent.Session{}, err
	}
	var login struct {
		Account  json.RawMessage `json:"account"`
		Required bool            `json:"requiresOpenaiAuth"`
	}
	if err := c.call(ctx, "account/read", map[string]bool{"refreshToken": false}, &login); err != nil {
		return agent.Session{}, err
	}
	if login.Required && (len(login.Account) == 0 || string(login.Account) == "null") {
		return agent.Session{}, &agent.Refused{Code: unauthorized}
	}
	var res struct {
		Thread struct {
			ID string `json:"id"`
		} `json:"thread"`
		Model    string `json:"model"`
		Approval any    `json:"approvalPolicy"`
		Sandbox  struct {
			Type    string `json:"type"`
			Network bool   `json:"networkAccess"`
		} `json:"sandbox"`
		Profile struct {
			ID string `json:"id"`
		} `json:"activePermissionProfile"`
	}
	// "sandbox" is left out: it would replace the process's permissions.
	params := map[string]any{"cwd": dir, "approvalPolicy": "never", "ephemeral": true, "config": map[string]any{"mcp_servers": servers}}
	if err := c.call(ctx, "thread/start", params, &res); err != nil {
		return agent.Session{}, err
	}
	if res.Sandbox.Type != "readOnly" || res.Sandbox.Network || res.Approval != "never" || res.Profile.ID != profile {
		return agent.Session{}, &agent.Refused{Code: unenforced, Message: fmt.Sprintf("sandbox %q, network %v, approvals %v, permissions %q", res.Sandbox.Type, res.Sandbox.Network, res.Approval, res.Profile.ID)}
	}
	c.mu.Lock()
	c.threads[res.Thread.ID] = &thread{}
	c.mu.Unlock()
	return agent.Session{ID: res.Thread.ID, Model: res.Model}, nil
}

// servers returns settings that turn off all MCP servers: their tools run outside of the
// sandbox.
func (c *Conn) servers(ctx context.Context, dir string) (map[string]any, error) {
	var res struct {
		Config struct {
			Servers map[string]json.RawMessage `json:"mcp_servers"`
		} `json:"config"`
	}
	if err := c.call(ctx, "config/read", map[string]any{"cwd": dir}, &res); err != nil {
		return nil, err
	}
	off := make(map[string]any)
	for name := range res.Config.Servers {
		off[name] = map[string]bool{"enabled": false}
	}
	return off, nil
}

// SetModel implements [agent.Conn]. The server learns the model with the next prompt.
func (c *Conn) SetModel(_ context.Context, session, model string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if t := c.threads[session]; t != nil {
		t.model = model
	}
	return nil
}

// Prompt implements [agent.Conn].
func (c *Conn) Prompt(ctx context.Context, session string, content []agent.Content) (agent.PromptResult, error) {
	params := map[string]any{"threadId": session, "input": input(content)}
	if last := len(content) - 1; last >= 0 && content[last].Type == "schema" {
		params["outputSchema"] = strict(content[last].Text)
	}
	t := &turn{end: make(chan turnEnd, 1)}
	c.mu.Lock()
	th := c.threads[session]
	if th != nil {
		t.before, th.turn = th.total, t
		if th.model != "" {
			params["model"] = th.model
		}
	}
	c.mu.Unlock()
	if th == nil {
		return agent.PromptResult{}, &agent.Refused{Message: "there is no such conversation"}
	}
	defer func() {
		c.mu.Lock()
		th.turn = nil
		c.mu.Unlock()
	}()
	start, err := c.rpc.Start("turn/start", params)
	var started struct {
		Turn struct {
			ID string `json:"id"`
		} `json:"turn"`
	}
	if err == nil {
		err = acp.Refused(start.Wait(context.Background(), &started))
	}
	if err != nil {
		return agent.PromptResult{}, err
	}
	for cancelled := ctx.Done(); ; {
		select {
		case <-cancelled:
			cancelled = nil
			go c.rpc.Start("turn/interrupt", map[string]string{"threadId": session, "turnId": started.Turn.ID})
		case end := <-t.end:
			return c.result(th, t, end)
		case <-c.rpc.DisconnectNotify():
			return agent.PromptResult{}, jsonrpc.ErrClosed
		}
	}
}

func (c *Conn) result(th *thread, t *turn, end turnEnd) (agent.PromptResult, error) {
	c.mu.Lock()
	raw, err := json.Marshal(answered{end.model, th.total.Sub(t.before)})
	c.mu.Unlock()
	res := agent.PromptResult{StopReason: end.Status, Raw: raw}
	switch {
	case err != nil:
		return res, err
	case end.Status == "interrupted":
		res.StopReason = agent.StoppedCancelled
	case end.Status == "failed" && end.Error != nil:
		return res, end.Error.refused()
	case end.Status != "completed":
		return res, &agent.Refused{Message: fmt.Sprintf("it ended with the status %q", end.Status)}
	}
	return res, nil
}

// input returns a prompt as the server takes it.
func input(content []agent.Content) (parts []map[string]any) {
	for _, p := range content {
		switch p.Type {
		case "image":
			url := "data:" + p.MIMEType + ";base64," + base64.StdEncoding.EncodeToString(p.Data)
			parts = append(parts, map[string]any{"type": "image", "url": url})
		case "text":
			parts = append(parts, map[string]any{"type": "text", "text": p.Text, "text_elements": []any{}})
		}
	}
	return parts
}

// turn returns the turn of a thread, or nil.
func (c *Conn) turn(thread string) *turn {
	c.mu.Lock()
	defer c.mu.Unlock()
	if th := c.threads[thread]; th != nil {
		return th.turn
	}
	return nil
}

// notice handles a notification of the server.
func (c *Conn) notice(method string, params json.RawMessage) {
	var n notice
	if json.Unmarshal(params, &n) != nil {
		return
	}
	t := c.turn(n.Thread)
	if t == nil {
		return
	}
	switch method {
	case "item/agentMessage/delta":
		c.text(n.Thread, t, n.ItemID, n.Delta)
		return
	case "item/started", "item/completed":
		if n.Item.Type == "agentMessage" {
			if method == "item/completed" && n.Item.ID != t.message { // without pieces
				c.text(n.Thread, t, n.Item.ID, n.Item.Text)
			}
			return
		}
		if u, ok := n.Item.update(method == "item/completed"); ok {
			t.message = ""
			u.Session = n.Thread
			c.client.Update(u)
			return
		}
	case "thread/tokenUsage/updated":
		c.mu.Lock()
		if th := c.threads[n.Thread]; th != nil {
			th.total = agent.Tokens(n.Usage.Total)
		}
		c.mu.Unlock()
	case "model/rerouted":
		t.model = n.ToModel
	case "error":
		if n.WillRetry && n.Error != nil {
			t.retries++
			c.client.Update(agent.Update{Session: n.Thread, Kind: agent.RetryAnnounced, Retry: n.Error.retry(t.retries)})
			return
		}
	case "turn/completed":
		n.Turn.model = t.model
		select {
		case t.end <- n.Turn:
		default: // it has ended already
		}
		return
	}
	c.client.Update(agent.Update{Session: n.Thread, Kind: agent.UpdateKind(method)})
}

// text passes on a piece of a message. A blank line separates messages.
func (c *Conn) text(thread string, t *turn, message, text string) {
	if t.message != "" && t.message != message {
		text = "\n\n" + text
	}
	t.message = message
	c.client.Update(agent.Update{Session: thread, Kind: agent.MessageChunk, Text: text})
}

// A notice holds the parameters of all notifications that matter.
type notice struct {
	Thread    string     `json:"threadId"`
	ItemID    string     `json:"itemId"`
	Delta     string     `json:"delta"`
	Item      item       `json:"item"`
	Turn      turnEnd    `json:"turn"`
	ToModel   string     `json:"toModel"`
	WillRetry bool       `json:"willRetry"`
	Error     *turnError `json:"error"`
	Usage     struct {
		Total tokens `json:"total"`
	} `json:"tokenUsage"`
}

// firstPause is the server's pause before its first retry. It doubles with each.
const firstPause = 200 * time.Millisecond

// usage reads what [Conn.Prompt] returns as its result.
func usage(result json.RawMessage) (model string, t agent.Tokens) {
	var a answered
	if json.Unmarshal(result, &a) != nil {
		return "", agent.Tokens{}
	}
	return a.Model, a.Tokens
}
