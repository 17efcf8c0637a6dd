// Package wirecli is a CLI as a companion sees one: it sends what Gemini CLI
// sends and records what it hears. `pollux doctor` and `pollux conformance` are
// made of it, and the tests and benchmarks use it where what matters is the wire
// and its time; the real CLI has tests of its own.
package wirecli

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// An Endpoint is where a companion is, and who asks.
type Endpoint struct {
	// Host is dialled, and said in the Host header; the loopback address if
	// empty.
	Host  string
	Port  int
	Token string // none is sent if it is empty
	// Name is the client's; Gemini CLI's own if empty.
	Name string
}

// URL is the companion's one endpoint.
func (e Endpoint) URL() string {
	host := e.Host
	if host == "" {
		host = "127.0.0.1"
	}
	return "http://" + net.JoinHostPort(host, strconv.Itoa(e.Port)) + "/mcp"
}

// A CLI is one connected CLI.
type CLI struct {
	// Heard are the notifications, in the order in which they came; closed at
	// the end of the stream. Ended is then how it ended: nil for gracefully.
	Heard chan Notification
	Ended error
	// Tools are the names of those that the companion has.
	Tools []string

	to      Endpoint
	http    http.Client
	session string
	stream  io.Closer
}

// A Notification is one that the companion sent.
type Notification struct {
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
	At     time.Time       `json:"-"`
}

// A StatusError is an answer of HTTP that is no success.
type StatusError struct {
	Code int
	Text string
}

func (e *StatusError) Error() string { return fmt.Sprintf("HTTP %d: %s", e.Code, e.Text) }

// Dial connects to a companion on the loopback address, with the requests that
// the real CLI makes. The first notification is the context.
func Dial(ctx context.Context, port int, token string) (*CLI, error) {
	c, err := Greet(ctx, Endpoint{Port: port, Token: token})
	if err != nil {
		return nil, err
	}
	return c, c.Listen(ctx)
}

// Greet makes the requests that come before the stream of notifications. The
// answer to one that is refused is a [*StatusError].
func Greet(ctx context.Context, to Endpoint) (*CLI, error) {
	// The CLI goes around a proxy on this way, too.
	c := &CLI{to: to, http: http.Client{Transport: &http.Transport{}}}
	name := to.Name
	if name == "" {
		name = "streamable-http-client"
	}
	var answer string
	for _, m := range []map[string]any{
		{"id": 1, "method": "initialize", "params": map[string]any{
			"protocolVersion": "2025-06-18", "capabilities": map[string]any{}, "clientInfo": map[string]any{"name": name, "version": "0"},
		}},
		{"method": "notifications/initialized"},
		{"id": 2, "method": "tools/list", "params": map[string]any{}},
	} {
		var err error
		if answer, err = c.post(ctx, m); err != nil {
			c.http.CloseIdleConnections()
			return nil, fmt.Errorf("%s: %w", m["method"], err)
		}
	}
	var list struct {
		Result struct{ Tools []struct{ Name string } }
	}
	if err := json.Unmarshal([]byte(message(answer)), &list); err != nil {
		c.http.CloseIdleConnections()
		return nil, fmt.Errorf("tools/list: %w", err)
	}
	for _, t := range list.Result.Tools {
		c.Tools = append(c.Tools, t.Name)
	}
	return c, nil
}

// Listen opens the stream of notifications, with a new channel Heard; after a
// Pause it does so again. The stream outlives ctx.
func (c *CLI) Listen(ctx context.Context) error {
	res, err := c.do(context.WithoutCancel(ctx), "GET", nil)
	if err != nil {
		return err
	}
	if res.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(res.Body)
		res.Body.Close()
		return &StatusError{res.StatusCode, strings.TrimSpace(string(text))}
	}
	c.stream, c.Ended = res.Body, nil
	c.Heard = make(chan Notification, 100000)
	go c.listen(res.Body, c.Heard)
	return nil
}

// Pause closes the stream; the session goes on.
func (c *CLI) Pause() {
	c.stream.Close()
	for range c.Heard { // until its end
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

// A Result is that of a tool.
type Result struct {
	Content []struct{ Type, Text string }
	IsError bool
}

// CallTool calls a tool and returns its result, which may be an error.
func (c *CLI) CallTool(ctx context.Context, tool string, args map[string]any) (Result, error) {
	answer, err := c.post(ctx, map[string]any{"id": 3, "method": "tools/call", "params": map[string]any{"name": tool, "arguments": args}})
	if err != nil {
		return Result{}, err
	}
	var res struct {
		Result Result
		Error  *struct{ Message string }
	}
	if err := json.Unmarshal([]byte(message(answer)), &res); err != nil {
		return Result{}, err
	}
	if res.Error != nil {
		return Result{}, errors.New(res.Error.Message)
	}
	return res.Result, nil
}

// Call calls a tool and returns the text of its result, as an error if it is
// one.
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

// CloseDiff takes a proposal back, as after an answer in the terminal.
func (c *CLI) CloseDiff(ctx context.Context, path string) (string, error) {
	return c.Call(ctx, "closeDiff", map[string]any{"filePath": path, "suppressNotification": true})
}

// message is the JSON of an answer, which may come as one event of a stream.
func message(answer string) string {
	if strings.HasPrefix(strings.TrimSpace(answer), "{") {
		return answer
	}
	_, data, _ := strings.Cut(answer, "data:")
	data, _, _ = strings.Cut(data, "\n")
	return data
}

// Session is the session's name.
func (c *CLI) Session() string { return c.session }

// Close ends the stream, all that a CLI does when it ends.
func (c *CLI) Close() {
	if c.stream != nil {
		c.stream.Close()
	}
	c.http.CloseIdleConnections()
}

// Leave ends the session too, which no CLI does.
func (c *CLI) Leave(ctx context.Context) {
	if res, err := c.do(ctx, "DELETE", nil); err == nil {
		res.Body.Close()
	}
	c.Close()
}

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
	text, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode/100 != 2 {
		err = &StatusError{res.StatusCode, strings.TrimSpace(string(text))}
	}
	if id := res.Header.Get("Mcp-Session-Id"); id != "" {
		c.session = id
	}
	return string(text), err
}

func (c *CLI) do(ctx context.Context, method string, body io.Reader) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.to.URL(), body)
	if err != nil {
		return nil, err
	}
	if c.to.Token != "" {
		req.Header.Set("Authorization", "Bearer "+c.to.Token)
	}
	req.Header.Set("Accept", "application/json, text/event-stream")
	req.Header.Set("Content-Type", "application/json")
	if c.session != "" {
		req.Header.Set("Mcp-Session-Id", c.session)
	}
	return c.http.Do(req)
}
