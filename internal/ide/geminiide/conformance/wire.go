package conformance

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"pollux/internal/ide/geminiide"
	"pollux/internal/ide/geminiide/client"
)

type headers = map[string]string

// A request is an HTTP request. Its fields change a correct one.
type request struct {
	method  string // POST if empty
	body    string
	headers headers // an empty value removes the header
	host    string
}

// An answer is the answer to a request.
type answer struct {
	status int
	header http.Header
	body   string
}

const (
	sessionHeader = "Mcp-Session-Id"

	initialize = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18",` +
		`"capabilities":{},"clientInfo":{"name":"pollux-conformance","version":"0"}}}`
	initialized = `{"jsonrpc":"2.0","method":"notifications/initialized"}`
	listTools   = `{"jsonrpc":"2.0","id":2,"method":"tools/list"}`
)

// begin sends a request, and returns when the response begins.
func (r *run) begin(ctx context.Context, q request) (*http.Response, error) {
	req, err := r.endpoint().Request(ctx, cmp.Or(q.method, http.MethodPost), strings.NewReader(q.body))
	if err != nil {
		return nil, err
	}
	for k, v := range q.headers {
		req.Header.Set(k, v)
		if v == "" {
			req.Header.Del(k)
		}
	}
	req.Host = cmp.Or(q.host, req.Host)
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	return client.Do(req)
}

// send sends a request, and returns the answer. That to a GET has no body: it is a stream, which
// has no end.
func (r *run) send(q request) answer {
	ctx, cancel := context.WithTimeout(r.ctx, r.timeouts.answer)
	defer cancel()
	res := value(r.begin(ctx, q))
	defer res.Body.Close()
	a := answer{status: res.StatusCode, header: res.Header}
	if q.method != http.MethodGet || res.StatusCode != http.StatusOK {
		a.body = string(value(io.ReadAll(io.LimitReader(res.Body, 1<<20))))
	}
	return a
}

// want ends the check unless the answer has one of these statuses.
func (a answer) want(statuses ...int) {
	if !slices.Contains(statuses, a.status) {
		fail("HTTP %d", a.status)
	}
}

// session returns the header that names the session that an answer to initialize opened.
func (a answer) session() headers { return headers{sessionHeader: a.header.Get(sessionHeader)} }

// greet opens a session, and returns the header that names it.
func (r *run) greet() headers { return r.send(request{body: initialize}).session() }

// forget ends a session.
func (r *run) forget(session headers) error {
	ctx, cancel := context.WithTimeout(r.ctx, r.timeouts.answer)
	defer cancel()
	res, err := r.begin(ctx, request{method: http.MethodDelete, headers: session})
	if err == nil {
		res.Body.Close()
	}
	return err
}

// token returns the token that requests need.
func (r *run) token() string {
	if r.file.AuthToken == "" {
		must(skip("there is no token"))
	}
	return r.file.AuthToken
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
func (r *run) session() *client.CLI {
	if r.cli == nil {
		c, err := r.connect()
		if err != nil {
			must(skip("no session could be opened: " + err.Error()))
		}
		r.cli = c
	}
	return r.cli
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
	if n.Method != geminiide.MethodContextUpdate {
		return
	}
	var v geminiide.Context
	c := sent{raw: n.Params, err: json.Unmarshal(n.Params, &v)}
	if c.err == nil && v.WorkspaceState != nil {
		c.files = v.WorkspaceState.OpenFiles
	}
	r.contexts = append(r.contexts, c)
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

// context waits until the last context fits.
func (r *run) context(within time.Duration, fits func([]geminiide.File) bool) {
	c := r.session()
	fitting := func() bool {
		n := len(r.contexts)
		return n > 0 && r.contexts[n-1].err == nil && fits(r.contexts[n-1].files)
	}
	for timeout := time.After(within); !fitting(); {
		_, err := r.next(c, timeout)
		if errors.Is(err, errSilent) {
			fail("no such %s came within %v", geminiide.MethodContextUpdate, within)
		}
		must(err)
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

// wantContent ends the check unless the CLI reads that text in an answer to closeDiff.
func wantContent(answer, want string) {
	var closed struct{ Content *string }
	if err := json.Unmarshal([]byte(answer), &closed); err != nil || closed.Content == nil {
		fail(`it is not JSON with "content", but %.80q: Gemini CLI drops it, and the user's edits with it`, answer)
	}
	if *closed.Content != want {
		fail("the text is %q, want %q", *closed.Content, want)
	}
}

// idleTimeout is how long the CLI's HTTP client waits for a stream that carries
// nothing.
const idleTimeout = 300 * time.Second

// idle ends the check if an idle stream carries nothing for that long.
func (r *run) idle(within time.Duration) {
	session := r.greet()
	defer r.forget(session)
	r.send(request{body: initialized, headers: session})
	ctx, cancel := context.WithCancel(r.ctx)
	defer cancel()
	began := time.Now()
	defer time.AfterFunc(within, cancel).Stop()
	res := value(r.begin(ctx, request{method: http.MethodGet, headers: session}))
	defer res.Body.Close()
	buf := make([]byte, 64<<10)
	for time.Since(began) <= r.timeouts.answer { // the first messages do not count
		if _, err := res.Body.Read(buf); err != nil {
			fail("after the first messages the stream carried nothing within %v (%w)", within, err)
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
