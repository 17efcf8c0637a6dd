// Package wirecli is a CLI as a companion sees one: it sends what Gemini CLI
// sends and records what it hears. The tests and benchmarks use it where what
// matters is the wire and its time; the real CLI has tests of its own.
package wirecli

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// A CLI is one connected CLI.
type CLI struct {
	// Heard are the notifications, in the order in which they came; closed at
	// the end of the stream.
	Heard chan Notification

	port           int
	token, session string
	stream         io.Closer
}

// A Notification is one that the companion sent.
type Notification struct {
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
	At     time.Time       `json:"-"`
}

// Dial connects to a companion, with the requests that the real CLI makes. The
// first notification is the context.
func Dial(ctx context.Context, port int, token string) (*CLI, error) {
	c := &CLI{Heard: make(chan Notification, 100000), port: port, token: token}
	for i, m := range []map[string]any{
		{"id": 1, "method": "initialize", "params": map[string]any{
			"protocolVersion": "2025-06-18", "capabilities": map[string]any{}, "clientInfo": map[string]any{"name": "streamable-http-client", "version": "0"},
		}},
		{"method": "notifications/initialized"},
		{"id": 2, "method": "tools/list", "params": map[string]any{}},
	} {
		if _, err := c.post(ctx, m); err != nil {
			return nil, fmt.Errorf("message %d: %w", i, err)
		}
	}
	res, err := c.do(context.WithoutCancel(ctx), "GET", nil)
	if err != nil {
		return nil, err
	}
	c.stream = res.Body
	go c.listen(res.Body)
	return c, nil
}

func (c *CLI) listen(stream io.Reader) {
	defer close(c.Heard)
	lines := bufio.NewScanner(stream)
	lines.Buffer(nil, 64<<20)
	for lines.Scan() {
		data, ok := bytes.CutPrefix(lines.Bytes(), []byte("data:"))
		n := Notification{At: time.Now()}
		if ok && json.Unmarshal(data, &n) == nil {
			c.Heard <- n
		}
	}
}

// Call calls a tool and returns the text of its result, as an error if it is
// one.
func (c *CLI) Call(ctx context.Context, tool string, args map[string]any) (string, error) {
	answer, err := c.post(ctx, map[string]any{"id": 3, "method": "tools/call", "params": map[string]any{"name": tool, "arguments": args}})
	if err != nil {
		return "", err
	}
	if _, data, ok := strings.Cut(answer, "data:"); ok {
		answer = data
	}
	var res struct {
		Result struct {
			Content []struct{ Text string }
			IsError bool
		}
		Error *struct{ Message string }
	}
	if err := json.Unmarshal([]byte(answer), &res); err != nil {
		return "", err
	}
	text := ""
	for _, part := range res.Result.Content {
		text += part.Text
	}
	switch {
	case res.Error != nil:
		return "", errors.New(res.Error.Message)
	case res.Result.IsError:
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

// Close ends the stream, all that a CLI does when it ends.
func (c *CLI) Close() { c.stream.Close() }

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
		err = fmt.Errorf("%s: %s", res.Status, text)
	}
	if id := res.Header.Get("Mcp-Session-Id"); id != "" {
		c.session = id
	}
	return string(text), err
}

func (c *CLI) do(ctx context.Context, method string, body io.Reader) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, fmt.Sprintf("http://127.0.0.1:%d/mcp", c.port), body)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+c.token)
	req.Header.Set("Accept", "application/json, text/event-stream")
	req.Header.Set("Content-Type", "application/json")
	if c.session != "" {
		req.Header.Set("Mcp-Session-Id", c.session)
	}
	return http.DefaultClient.Do(req)
}
