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

// A request is an HTTP request. Its fields change a correct one.
type request struct {
	method  string // POST if empty
	body    string
	headers map[string]string // an empty value removes the header
	host    string
}

// An answer is the answer to a request.
type answer struct {
	status int
	header http.Header
	body   string
}

const (
	initialize = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18",` +
		`"capabilities":{},"clientInfo":{"name":"pollux-conformance","version":"0"}}}`
	initialized = `{"jsonrpc":"2.0","method":"notifications/initialized"}`
	listTools   = `{"jsonrpc":"2.0","id":2,"method":"tools/list"}`
)

func (r *run) send(q request) (answer, error) {
	ctx, cancel := context.WithTimeout(r.ctx, r.timeouts.answer)
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
		"Accept":        "application/json, text/event-stream",
		"Content-Type":  "application/json",
		"Authorization": "Bearer " + r.file.AuthToken,
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

// refused returns an error for an answer that has none of these statuses.
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

// connect returns a new session with an open stream.
func (r *run) connect() (*client.CLI, error) {
	ctx, cancel := context.WithTimeout(r.ctx, r.timeouts.answer)
	defer cancel()
	c, err := client.Greet(ctx, r.endpoint())
	if err != nil {
		return nil, err
	}
	if err := r.listen(c); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// listen opens a stream and waits for the companion to answer.
func (r *run) listen(c *client.CLI) error {
	ctx, cancel := context.WithTimeout(r.ctx, r.timeouts.answer)
	defer cancel()
	if err := c.Listen(ctx); err != nil {
		if errors.Is(err, context.DeadlineExceeded) {
			return errors.New("the answer to GET did not begin")
		}
		return err
	}
	return nil
}

// pause closes the stream of a session. A companion that has not noticed this yet may
// lose an outcome.
func (r *run) pause(c *client.CLI) {
	c.Pause()
	select {
	case <-time.After(r.timeouts.notice):
	case <-r.ctx.Done():
	}
}

// resume opens the stream of a session again. A companion may need a moment to
// notice that the last one has ended.
func (r *run) resume(c *client.CLI) error {
	for deadline := time.Now().Add(r.timeouts.answer); ; time.Sleep(20 * time.Millisecond) {
		err := r.listen(c)
		var status *client.StatusError
		if !errors.As(err, &status) || status.Code != http.StatusConflict || time.Now().After(deadline) {
			return err
		}
	}
}

// session returns the session of most checks.
func (r *run) session() (*client.CLI, error) {
	if r.cli == nil {
		c, err := r.connect()
		if err != nil {
			return nil, skip("no session could be opened: " + err.Error())
		}
		r.cli = c
	}
	return r.cli, nil
}

// errEnded reports a stream that ended too early.
var errEnded = errors.New("the stream of notifications ended")

// errSilent reports that an expected notification did not come.
var errSilent = errors.New("nothing came in time")

// next waits for the next notification. It keeps contexts.
func (r *run) next(c *client.CLI, timeout <-chan time.Time) (n client.Notification, err error) {
	select {
	case n, ok := <-c.Notifications:
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
		n, err := r.next(c, timeout)
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

// drain skips what an earlier check left, so that one fault is not reported
// several times.
func (r *run) drain(c *client.CLI) {
	for {
		select {
		case n, ok := <-c.Notifications:
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

// quiet returns an error if an unexpected outcome comes.
func (r *run) quiet(c *client.CLI) error {
	method, d, err := r.outcome(c, r.timeouts.quiet)
	if err == nil {
		return fmt.Errorf("%s for %s came, too", method, d.FilePath)
	}
	if errors.Is(err, errEnded) {
		return err
	}
	return nil
}

// maxLate is more outcomes than earlier checks leave.
const maxLate = 20

// settle waits until no outcome comes.
func (r *run) settle(c *client.CLI) {
	for range maxLate {
		if err := r.quiet(c); err == nil || errors.Is(err, errEnded) {
			return
		}
	}
}

// context waits for a context that fits.
func (r *run) context(c *client.CLI, within time.Duration, fits func(geminiide.Context) bool) error {
	var v geminiide.Context
	if n := len(r.contexts); n > 0 && json.Unmarshal(r.contexts[n-1].Params, &v) == nil && fits(v) {
		return nil // the last one fits already
	}
	for timeout := time.After(within); ; {
		n, err := r.next(c, timeout)
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
		return errors.New("openDiff failed without a message")
	case len(res.Content) > 0:
		return fmt.Errorf("the content of openDiff's result is not empty: %q", res.Content[0].Text)
	}
	return nil
}

func (r *run) call(c *client.CLI, tool string, args map[string]any) (client.Result, error) {
	ctx, cancel := context.WithTimeout(r.ctx, r.timeouts.answer)
	defer cancel()
	return c.CallTool(ctx, tool, args)
}

// closeDiff closes a diff as the real CLI does when the user has answered in the
// terminal, and returns its text.
func (r *run) closeDiff(c *client.CLI, file string) (text string, err error) {
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

// content returns the text of an answer to closeDiff as the CLI reads it.
func content(answer string) (string, error) {
	var closed struct{ Content *string }
	if err := json.Unmarshal([]byte(answer), &closed); err != nil || closed.Content == nil {
		return "", fmt.Errorf(`it is not JSON with "content", but %.80q: `+
			"Gemini CLI drops it, and the user's edits with it", answer)
	}
	return *closed.Content, nil
}

// idleTimeout is how long the CLI's HTTP client waits for a stream that carries
// nothing.
const idleTimeout = 300 * time.Second

// idle returns an error if an idle stream carries nothing for that long.
func (r *run) idle(within time.Duration) error {
	a, err := r.send(request{body: initialize})
	if err != nil {
		return err
	}
	defer r.forget(a)
	if _, err := r.send(request{body: initialized, headers: sessionOf(a)}); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(r.ctx)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.endpoint().URL(), nil)
	if err != nil {
		return err
	}
	for k, v := range map[string]string{
		"Accept": "text/event-stream", "Authorization": "Bearer " + r.file.AuthToken,
		"Mcp-Session-Id": a.header.Get("Mcp-Session-Id"),
	} {
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
			return fmt.Errorf("after the first messages the stream carried nothing within %v (%w)", within, err)
		}
		if time.Since(began) > r.timeouts.answer { // the first messages do not count
			return nil
		}
	}
}

// addresses returns the addresses of this machine that are not loopback.
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

// nulls returns the name of the first field that is null. The CLI's schema allows
// a missing field, but not null.
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
