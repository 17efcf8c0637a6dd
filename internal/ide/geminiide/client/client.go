// Package client implements the CLI's side of the protocol: it sends what
// Gemini CLI sends and records what the companion sends. `pollux doctor`,
// `pollux connect` and `pollux conformance` use it, and so do tests and benchmarks
// that need only the wire.
package client

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// An Endpoint is the address of a companion, and the name and token of the
// client.
type Endpoint struct {
	// Host is the host to dial and the value of the Host header. The default is
	// the loopback address.
	Host  string
	Port  int
	Token string // optional
	// Name is the name of the client. The default is Gemini CLI's own.
	Name string
}

// URL returns the companion's only endpoint.
func (e Endpoint) URL() string {
	return "http://" + net.JoinHostPort(cmp.Or(e.Host, "127.0.0.1"), strconv.Itoa(e.Port)) + "/mcp"
}

// Request returns a request with the headers that the CLI always sends.
func (e Endpoint) Request(ctx context.Context, method string, body io.Reader) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, method, e.URL(), body)
	if err != nil {
		return nil, err
	}
	if e.Token != "" {
		req.Header.Set("Authorization", "Bearer "+e.Token)
	}
	req.Header.Set("Accept", "application/json, text/event-stream")
	req.Header.Set("Content-Type", "application/json")
	return req, nil
}

// A CLI is a connected client.
type CLI struct {
	// Notifications delivers the notifications in order. It is closed when the stream
	// ends; Ended is then the reason, or nil for a graceful end.
	Notifications chan Notification
	Ended         error
	// Tools are the names of the companion's tools.
	Tools []string

	to       Endpoint
	http     http.Client
	session  string
	protocol string // the negotiated version
	calls    atomic.Int64
	stream   func() // ends the stream
}

// protocolVersion is the version that the real CLI uses.
const protocolVersion = "2025-06-18"

// A Notification is a notification from the companion.
type Notification struct {
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
	At     time.Time       `json:"-"`
}

// A StatusError is an HTTP response that reports a failure.
type StatusError struct {
	Code int
	Text string
}

func (e *StatusError) Error() string { return fmt.Sprintf("HTTP %d: %s", e.Code, e.Text) }

// Dial connects to a companion on the loopback address with the requests of the
// real CLI. The first notification is the context.
func Dial(ctx context.Context, port int, token string) (*CLI, error) {
	c, err := Greet(ctx, Endpoint{Port: port, Token: token})
	if err != nil {
		return nil, err
	}
	return c, c.Listen(ctx)
}

// Greet sends the requests that come before the stream of notifications. If the
// companion refuses one, the error is a [*StatusError].
func Greet(ctx context.Context, to Endpoint) (*CLI, error) {
	// Like the CLI, Greet does not use a proxy.
	c := &CLI{to: to, http: http.Client{Transport: &http.Transport{}}}
	var answer string
	for _, m := range []map[string]any{
		{"id": 1, "method": "initialize", "params": greeting(cmp.Or(to.Name, "streamable-http-client"))},
		{"method": "notifications/initialized"},
		{"id": 2, "method": "tools/list", "params": map[string]any{}},
	} {
		var err error
		if answer, err = c.post(ctx, m); err != nil {
			c.http.CloseIdleConnections()
			return nil, fmt.Errorf("%s: %w", m["method"], err)
		}
		if c.protocol == "" {
			var hello struct{ ProtocolVersion string }
			json.Unmarshal([]byte(answer), &hello)
			c.protocol = hello.ProtocolVersion
		}
	}
	var list toolList
	if err := json.Unmarshal([]byte(answer), &list); err != nil {
		c.http.CloseIdleConnections()
		return nil, fmt.Errorf("tools/list: %w", err)
	}
	c.Tools = list.names()
	return c, nil
}

// greeting returns the parameters of initialize.
func greeting(name string) any {
	return map[string]any{
		"protocolVersion": protocolVersion, "capabilities": map[string]any{},
		"clientInfo": map[string]any{"name": name, "version": "0"},
	}
}

// A toolList answers tools/list.
type toolList struct {
	Tools []struct {
		Name string `json:"name"`
	} `json:"tools"`
}

func (l toolList) names() (names []string) {
	for _, t := range l.Tools {
		names = append(names, t.Name)
	}
	return names
}

// Listen opens the stream of notifications and replaces the channel Notifications. Call
// it again after Pause. ctx limits only the opening; the stream outlives it.
func (c *CLI) Listen(ctx context.Context) error {
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	opening := context.AfterFunc(ctx, end)
	res, err := c.do(life, "GET", nil)
	if err != nil {
		end()
		return err
	}
	content := res.Header.Get("Content-Type")
	if res.StatusCode != http.StatusOK || !strings.HasPrefix(content, "text/event-stream") {
		why := fmt.Sprintf("the content type is %q, not text/event-stream", content)
		if res.StatusCode != http.StatusOK {
			text, _ := io.ReadAll(io.LimitReader(res.Body, 1000))
			why = strings.TrimSpace(string(text))
		}
		res.Body.Close()
		end()
		if errors.Is(ctx.Err(), context.Canceled) {
			return context.Cause(ctx)
		}
		return &StatusError{res.StatusCode, "no stream: " + why}
	}
	if !opening() {
		res.Body.Close()
		end()
		return context.Cause(ctx)
	}
	c.Ended = nil
	c.stream = func() { res.Body.Close(); end() }
	c.Notifications = make(chan Notification, 100000)
	go c.listen(res.Body, c.Notifications)
	return nil
}

// Pause closes the stream and keeps the session.
func (c *CLI) Pause() {
	c.stream()
	for range c.Notifications { // drain
	}
}

func (c *CLI) listen(stream io.Reader, heard chan<- Notification) {
	defer close(heard)
	lines := bufio.NewScanner(stream)
	lines.Buffer(nil, 64<<20)
	for lines.Scan() {
		data, ok := bytes.CutPrefix(lines.Bytes(), []byte("data:"))
		n := Notification{At: time.Now()}
		if ok && json.Unmarshal(data, &n) == nil {
			heard <- n
		}
	}
	c.Ended = lines.Err()
}

// A Result is the result of a tool.
type Result struct {
	Content []struct{ Type, Text string }
	IsError bool
}

// CallTool calls a tool and returns its result, which may report an error.
func (c *CLI) CallTool(ctx context.Context, tool string, args map[string]any) (Result, error) {
	params := map[string]any{"name": tool, "arguments": args}
	id := 2 + int(c.calls.Add(1)) // after the requests of Greet
	answer, err := c.post(ctx, map[string]any{"id": id, "method": "tools/call", "params": params})
	if err != nil {
		return Result{}, err
	}
	var res Result
	return res, json.Unmarshal([]byte(answer), &res)
}

// Call calls a tool and returns the text of its result. A result that reports
// an error becomes an error.
func (c *CLI) Call(ctx context.Context, tool string, args map[string]any) (string, error) {
	res, err := c.CallTool(ctx, tool, args)
	if err != nil {
		return "", err
	}
	text := ""
	for _, part := range res.Content {
		text += part.Text
	}
	if res.IsError {
		return "", errors.New(text)
	}
	return text, nil
}

// OpenDiff proposes a change.
func (c *CLI) OpenDiff(ctx context.Context, path, content string) error {
	_, err := c.Call(ctx, "openDiff", map[string]any{"filePath": path, "newContent": content})
	return err
}

// CloseDiff withdraws a proposal, as the CLI does after an answer in the
// terminal.
func (c *CLI) CloseDiff(ctx context.Context, path string) (string, error) {
	return c.Call(ctx, "closeDiff", map[string]any{"filePath": path, "suppressNotification": true})
}

// Close ends the stream. A real CLI does no more when it exits.
func (c *CLI) Close() {
	if c.stream != nil {
		c.stream()
	}
	c.http.CloseIdleConnections()
}

// Leave also ends the session, which no real CLI does.
func (c *CLI) Leave(ctx context.Context) {
	if res, err := c.do(ctx, "DELETE", nil); err == nil {
		res.Body.Close()
	}
	c.Close()
}

// post sends a message and returns the result in the response, as JSON.
func (c *CLI) post(ctx context.Context, message map[string]any) (string, error) {
	message["jsonrpc"] = "2.0"
	body, err := json.Marshal(message)
	if err != nil {
		return "", err
	}
	res, err := c.do(ctx, "POST", bytes.NewReader(body))
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer))
	if err != nil {
		return "", err
	}
	if res.StatusCode/100 != 2 {
		return "", &StatusError{res.StatusCode, strings.TrimSpace(string(text))}
	}
	if id := res.Header.Get("Mcp-Session-Id"); id != "" {
		c.session = id
	}
	if message["id"] == nil {
		return "", nil
	}
	for _, m := range messages(string(text)) {
		var answer struct {
			ID     *int
			Result json.RawMessage
			Error  *RPCError
		}
		if json.Unmarshal([]byte(m), &answer) != nil || answer.ID == nil || *answer.ID != message["id"] {
			continue // a notification before the response
		}
		if answer.Error != nil {
			return "", answer.Error
		}
		return string(answer.Result), nil
	}
	return "", fmt.Errorf("there is no answer in %.100q", text)
}

// maxAnswer limits a response, in bytes.
const maxAnswer = 256 << 20

// An RPCError is a JSON-RPC error response.
type RPCError struct {
	Code    int
	Message string
}

func (e *RPCError) Error() string { return fmt.Sprintf("%s (%d)", e.Message, e.Code) }

// messages returns the messages in the body of a response: one as JSON, or the
// events of a stream.
func messages(body string) (all []string) {
	if strings.HasPrefix(strings.TrimSpace(body), "{") {
		return []string{body}
	}
	data := ""
	for line := range strings.Lines(body + "\n\n") {
		line = strings.TrimRight(line, "\r\n")
		if text, ok := strings.CutPrefix(line, "data:"); ok {
			data += text + "\n"
		} else if line == "" && data != "" {
			all, data = append(all, data), ""
		}
	}
	return all
}

func (c *CLI) do(ctx context.Context, method string, body io.Reader) (*http.Response, error) {
	req, err := c.to.Request(ctx, method, body)
	if err != nil {
		return nil, err
	}
	if c.protocol != "" {
		req.Header.Set("Mcp-Protocol-Version", c.protocol)
	}
	if c.session != "" {
		req.Header.Set("Mcp-Session-Id", c.session)
	}
	return c.http.Do(req)
}
