package conformance

import (
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

	"pollux/internal/ide/geminiide"
	"pollux/internal/ide/geminiide/client"
)

// A request is one of HTTP, which differs from a good one where it says so.
type request struct {
	method  string // POST if empty
	body    string
	headers map[string]string // an empty one is left out
	host    string
}

// answer is what came of it.
type answer struct {
	status int
	header http.Header
	body   string
}

const initialize = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"pollux-conformance","version":"0"}}}`

func (r *run) send(q request) (answer, error) {
	ctx, cancel := context.WithTimeout(r.ctx, answerWithin)
	defer cancel()
	method := q.method
	if method == "" {
		method = http.MethodPost
	}
	req, err := http.NewRequestWithContext(ctx, method, r.endpoint().URL(), strings.NewReader(q.body))
	if err != nil {
		return answer{}, err
	}
	headers := map[string]string{
		"Accept": "application/json, text/event-stream", "Content-Type": "application/json", "Authorization": "Bearer " + r.file.AuthToken,
	}
	for k, v := range q.headers {
		headers[k] = v
	}
	for k, v := range headers {
		if v != "" {
			req.Header.Set(k, v)
		}
	}
	if q.host != "" {
		req.Host = q.host
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	res, err := client.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer res.Body.Close()
	a := answer{status: res.StatusCode, header: res.Header}
	if method == http.MethodGet && res.StatusCode == http.StatusOK {
		return a, nil // a stream, which has no end
	}
	body, err := io.ReadAll(io.LimitReader(res.Body, 1<<20))
	a.body = string(body)
	return a, err
}

// refused says what is wrong with an answer that is not one of these statuses.
func (a answer) refused(err error, statuses ...int) error {
	if err != nil {
		return err
	}
	for _, s := range statuses {
		if a.status == s {
			return nil
		}
	}
	return fmt.Errorf("HTTP %d", a.status)
}

func (r *run) endpoint() client.Endpoint {
	return client.Endpoint{Port: r.file.Port, Token: r.file.AuthToken, Name: "pollux-conformance"}
}

// connect is a new session with its stream.
func (r *run) connect() (*client.CLI, error) {
	ctx, cancel := context.WithTimeout(r.ctx, answerWithin)
	defer cancel()
	c, err := client.Greet(ctx, r.endpoint())
	if err != nil {
		return nil, err
	}
	if err := listen(r.ctx, c); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// listen opens a stream, for which a companion has a while.
func listen(ctx context.Context, c *client.CLI) error {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	if err := c.Listen(ctx); err != nil {
		if errors.Is(err, context.DeadlineExceeded) {
			return errors.New("the answer to GET did not begin")
		}
		return err
	}
	return nil
}

// resume opens the stream of a session again. A companion may take a moment to
// see that the last one has ended.
func (r *run) resume(c *client.CLI) error {
	for deadline := time.Now().Add(answerWithin); ; time.Sleep(20 * time.Millisecond) {
		err := listen(r.ctx, c)
		var status *client.StatusError
		if !errors.As(err, &status) || status.Code != http.StatusConflict || time.Now().After(deadline) {
			return err
		}
	}
}

// session is the session of most checks.
func (r *run) session() (*client.CLI, error) {
	if r.cli == nil {
		c, err := r.connect()
		if err != nil {
			return nil, skip("no session could be had: " + err.Error())
		}
		r.cli = c
	}
	return r.cli, nil
}

// errEnded says that a stream ended when it should not have.
var errEnded = errors.New("the stream of notifications ended")

// errSilent says that nothing came that was waited for.
var errSilent = errors.New("nothing came in time")

// hear waits for the next notification. Contexts are kept.
func (r *run) hear(c *client.CLI, timeout <-chan time.Time) (n client.Notification, err error) {
	select {
	case n, ok := <-c.Heard:
		if !ok {
			return n, errEnded
		}
		r.keep(n)
		return n, nil
	case <-timeout:
		return n, errSilent
	case <-r.ctx.Done():
		return n, context.Cause(r.ctx)
	}
}

// outcome waits for the next notification about a diff.
func (r *run) outcome(c *client.CLI, within time.Duration) (method string, d geminiide.DiffAccepted, err error) {
	for timeout := time.After(within); ; {
		n, err := r.hear(c, timeout)
		switch {
		case errors.Is(err, errSilent):
			return "", d, fmt.Errorf("no notification came within %v", within)
		case err != nil:
			return "", d, err
		case n.Method == geminiide.MethodDiffAccepted || n.Method == geminiide.MethodDiffRejected:
			return n.Method, d, json.Unmarshal(n.Params, &d)
		}
	}
}

// drain passes over what an earlier check left, so that one fault is not told of
// as many.
func (r *run) drain(c *client.CLI) {
	for {
		select {
		case n, ok := <-c.Heard:
			if !ok {
				return
			}
			r.keep(n)
		default:
			return
		}
	}
}

func (r *run) keep(n client.Notification) {
	if n.Method == geminiide.MethodContextUpdate {
		r.contexts = append(r.contexts, n)
	}
}

// quiet reports an outcome that came although none was due.
func (r *run) quiet(c *client.CLI) error {
	method, d, err := r.outcome(c, silence)
	if err == nil {
		return fmt.Errorf("%s for %s came, too", method, d.FilePath)
	}
	if errors.Is(err, errEnded) {
		return err
	}
	return nil
}

// context waits for one that fits.
func (r *run) context(c *client.CLI, within time.Duration, fits func(geminiide.Context) bool) error {
	var v geminiide.Context
	if n := len(r.contexts); n > 0 && json.Unmarshal(r.contexts[n-1].Params, &v) == nil && fits(v) {
		return nil // it was so already
	}
	for timeout := time.After(within); ; {
		n, err := r.hear(c, timeout)
		var v geminiide.Context
		switch {
		case errors.Is(err, errSilent):
			return fmt.Errorf("no such %s came within %v", geminiide.MethodContextUpdate, within)
		case err != nil:
			return err
		case n.Method == geminiide.MethodContextUpdate && json.Unmarshal(n.Params, &v) == nil && fits(v):
			return nil
		}
	}
}

// open opens a diff.
func (r *run) open(c *client.CLI, file, text string) error {
	res, err := r.call(c, geminiide.ToolOpenDiff, map[string]any{"filePath": file, "newContent": text})
	switch {
	case err != nil:
		return err
	case res.IsError && len(res.Content) > 0:
		return fmt.Errorf("openDiff failed: %s", res.Content[0].Text)
	case res.IsError:
		return errors.New("openDiff failed, without a word")
	case len(res.Content) > 0:
		return fmt.Errorf("the content of openDiff's result is not empty: %q", res.Content[0].Text)
	}
	return nil
}

func (r *run) call(c *client.CLI, tool string, args map[string]any) (client.Result, error) {
	ctx, cancel := context.WithTimeout(r.ctx, answerWithin)
	defer cancel()
	return c.CallTool(ctx, tool, args)
}

// close closes a diff as the real CLI does when the user has answered in the
// terminal, and returns the text that it had.
func (r *run) close(c *client.CLI, file string) (text string, err error) {
	res, err := r.call(c, geminiide.ToolCloseDiff, map[string]any{"filePath": file, "suppressNotification": true})
	switch {
	case err != nil:
		return "", err
	case res.IsError:
		return "", errors.New("closeDiff failed")
	case len(res.Content) != 1 || res.Content[0].Type != "text":
		return "", fmt.Errorf("the result has %d blocks, not one of text", len(res.Content))
	}
	return res.Content[0].Text, nil
}

// content takes the text out of closeDiff's answer as the CLI does.
func content(answer string) (string, error) {
	var closed struct{ Content *string }
	if err := json.Unmarshal([]byte(answer), &closed); err != nil || closed.Content == nil {
		return "", fmt.Errorf(`it is not JSON with "content", but %.80q: Gemini CLI drops it, and the user's edits with it`, answer)
	}
	return *closed.Content, nil
}

// cutAfter is how long the CLI's HTTP client waits for a stream that carries
// nothing.
const cutAfter = 300 * time.Second

// idle waits until an idle stream carries anything, at most for a while.
func (r *run) idle(within time.Duration) error {
	a, err := r.send(request{body: initialize})
	if err != nil {
		return err
	}
	defer r.forget(a)
	if _, err := r.send(request{body: `{"jsonrpc":"2.0","method":"notifications/initialized"}`, headers: sessionOf(a)}); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(r.ctx)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.endpoint().URL(), nil)
	if err != nil {
		return err
	}
	for k, v := range map[string]string{"Accept": "text/event-stream", "Authorization": "Bearer " + r.file.AuthToken, "Mcp-Session-Id": a.header.Get("Mcp-Session-Id")} {
		req.Header.Set(k, v)
	}
	began := time.Now()
	defer time.AfterFunc(within, cancel).Stop()
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	res, err := client.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	buf := make([]byte, 64<<10)
	for {
		if _, err := res.Body.Read(buf); err != nil {
			return fmt.Errorf("after what came at first nothing did within %v (%w)", within, err)
		}
		if time.Since(began) > answerWithin { // what comes at first is no sign
			return nil
		}
	}
}

// addresses are this machine's that are not loopback.
func addresses() (all []string) {
	addrs, _ := net.InterfaceAddrs()
	for _, a := range addrs {
		if ip, ok := a.(*net.IPNet); ok && !ip.IP.IsLoopback() && !ip.IP.IsLinkLocalUnicast() {
			all = append(all, ip.IP.String())
		}
	}
	return all
}

func reachable(host string, port int) bool {
	conn, err := net.DialTimeout("tcp", net.JoinHostPort(host, strconv.Itoa(port)), time.Second)
	if err == nil {
		conn.Close()
	}
	return err == nil
}

// nulls names the first field of a value that is null: the CLI's schema lets
// fields be left out, but not be null.
func nulls(raw json.RawMessage) (path string) {
	var walk func(v any, at string) string
	walk = func(v any, at string) string {
		switch v := v.(type) {
		case nil:
			return at
		case map[string]any:
			for k, w := range v {
				if p := walk(w, at+"."+k); p != "" {
					return p
				}
			}
		case []any:
			for i, w := range v {
				if p := walk(w, fmt.Sprintf("%s[%d]", at, i)); p != "" {
					return p
				}
			}
		}
		return ""
	}
	var v any
	if json.Unmarshal(raw, &v) != nil || v == nil {
		return "params"
	}
	return walk(v, "params")
}
