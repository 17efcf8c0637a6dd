package geminiide

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"pollux/internal/companion"
	"pollux/internal/ide/attach"
	"pollux/internal/ide/blocking/blockingtest"
	"pollux/internal/mcp"
	"pollux/internal/sys/systest"
)

func TestMain(m *testing.M) {
	if os.Getenv(childServes) != "" {
		serveChild()
		return
	}
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("net/http.(*persistConn).readLoop"), goleak.IgnoreTopFunction("net/http.(*persistConn).writeLoop"))
}

// A backend is a companion that closes any diff, until it fails.
type backend struct {
	*blockingtest.Backend[*Session]
	changed chan *Session
	fail    error
}

func newBackend() *backend {
	return &backend{Backend: blockingtest.New[*Session](), changed: make(chan *Session, 10)}
}

func (b *backend) Propose(s companion.Session, p companion.Proposal) error {
	return errors.Join(b.Backend.Propose(s, p), b.fail)
}

func (b *backend) Changed(s companion.Session) {
	select {
	case b.changed <- s.(*Session):
	default: // few tests look
	}
}

func (b *backend) Abandon(s companion.Session, path string) (string, error) {
	return b.Withdraw(s, path)
}

func (b *backend) Withdraw(_ companion.Session, path string) (string, error) {
	return "closed " + path, b.fail
}

// setContext replaces the context and announces it.
func (b *backend) setContext(paths ...string) {
	var open companion.Context
	for _, p := range paths {
		open.Files = append(open.Files, companion.File{Path: p, Focused: 1})
	}
	b.SetContext(open)
}

func start(t *testing.T, b *backend, change func(*Config)) *Server {
	t.Helper()
	return startOn(t, b, change, nil)
}

// startOn starts a server that serves on a network, if one is given.
func startOn(t *testing.T, b *backend, change func(*Config), network *systest.Network) *Server {
	t.Helper()
	cfg := Config{Companion: attach.Companion{Backend: b, Log: slog.New(slog.DiscardHandler), Version: "test"}, Token: "secret"}
	if change != nil {
		change(&cfg)
	}
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if network != nil {
		s.http.Listeners[0].Close()
		s.http.Listeners[0] = network
	}
	s.Serve()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		s.Close(ctx)
	})
	return s
}

// A cl is a CLI on the wire.
type cl struct {
	t       *testing.T
	base    string
	token   string
	http    *http.Client
	session string
	id      int
}

func dial(t *testing.T, s *Server) *cl {
	return dialPort(t, s.port)
}

func dialPort(t *testing.T, port int) *cl {
	return &cl{
		t: t, base: fmt.Sprintf("http://127.0.0.1:%d", port), token: "secret",
		http: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}},
	}
}

// inBubble runs a test with a server and its client. In it, [synctest.Wait] waits until the
// server has noticed everything.
func inBubble(t *testing.T, test func(t *testing.T, b *backend, s *Server, c *cl)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b, network := newBackend(), systest.NewNetwork()
		s := startOn(t, b, nil, network)
		c := dial(t, s)
		transport := &http.Transport{DialContext: network.Dial}
		t.Cleanup(transport.CloseIdleConnections)
		c.http.Transport = transport
		test(t, b, s, c.initialize())
	})
}

func (c *cl) request(ctx context.Context, method string, body string) *http.Request {
	c.t.Helper()
	req, err := http.NewRequestWithContext(ctx, method, c.base+"/mcp", strings.NewReader(body))
	if err != nil {
		c.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+c.token)
	req.Header.Set("Accept", "application/json, text/event-stream")
	if method == "POST" {
		req.Header.Set("Content-Type", "application/json")
	}
	if c.session != "" {
		req.Header.Set("Mcp-Session-Id", c.session)
		req.Header.Set("Mcp-Protocol-Version", "2025-06-18")
	}
	return req
}

func (c *cl) do(req *http.Request) (int, string, http.Header) {
	c.t.Helper()
	res, err := c.http.Do(req)
	if err != nil {
		c.t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		c.t.Fatal(err)
	}
	return res.StatusCode, string(body), res.Header
}

// call posts a request and returns its result as JSON.
func (c *cl) call(method string, params any) string {
	c.t.Helper()
	c.id++
	body, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": c.id, "method": method, "params": params})
	if err != nil {
		c.t.Fatal(err)
	}
	code, text, _ := c.do(c.request(c.t.Context(), "POST", string(body)))
	if code != 200 {
		c.t.Fatalf("%s: %d %s", method, code, text)
	}
	data := text
	if _, event, ok := strings.Cut(text, "data: "); ok {
		data = event
	}
	var msg struct{ Result, Error json.RawMessage }
	if err := json.Unmarshal([]byte(data), &msg); err != nil {
		c.t.Fatalf("%s answered %q", method, text)
	}
	if msg.Error != nil {
		return string(msg.Error)
	}
	return string(msg.Result)
}

const initializeRequest = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},` +
	`"clientInfo":{"name":"streamable-http-client","version":"` + placeholder + `"}}}`

func (c *cl) initialize() *cl {
	c.t.Helper()
	code, body, header := c.do(c.request(c.t.Context(), "POST", initializeRequest))
	if code != http.StatusOK {
		c.t.Fatalf("initialize: %d %s", code, body)
	}
	c.session = header.Get("Mcp-Session-Id")
	if code, body, _ := c.do(c.request(c.t.Context(), "POST", `{"jsonrpc":"2.0","method":"notifications/initialized"}`)); code != http.StatusAccepted {
		c.t.Fatalf("notifications/initialized: %d %s, want 202", code, body)
	}
	return c
}

// A stream is a client's event stream.
type stream struct {
	t      *testing.T
	events chan string
	end    context.CancelFunc
}

func (c *cl) listen() *stream {
	c.t.Helper()
	ctx, cancel := context.WithCancel(c.t.Context())
	c.t.Cleanup(cancel)
	res, err := c.http.Do(c.request(ctx, "GET", ""))
	if err != nil {
		c.t.Fatal(err)
	}
	if res.StatusCode != 200 {
		c.t.Fatalf("GET: %s", res.Status)
	}
	s := &stream{t: c.t, events: make(chan string, 1000), end: cancel}
	go func() {
		defer close(s.events)
		defer res.Body.Close()
		lines := bufio.NewScanner(res.Body)
		lines.Buffer(nil, 16<<20)
		for lines.Scan() {
			if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
				s.events <- data
			} else if strings.HasPrefix(lines.Text(), ": keep-alive") {
				s.events <- "comment"
			}
		}
	}()
	return s
}

// next returns the next event; "end" if the stream has ended.
func (s *stream) next() string {
	s.t.Helper()
	return cmp.Or(systest.Receive(s.t, s.events), "end")
}

const emptyContext = `{"jsonrpc":"2.0","method":"ide/contextUpdate","params":{"workspaceState":{"openFiles":[]}}}`

func accepted(path, content string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","method":"ide/diffAccepted","params":{"filePath":%q,"content":%q}}`, path, content)
}

// Every refusal, in the order of the checks, each with a text that says what
// to do.
func TestRefusals(t *testing.T) {
	s := start(t, newBackend(), nil)
	s.endpoint.MaxBody = 1 << 20
	c := dial(t, s).initialize()
	ok := `{"jsonrpc":"2.0","id":9,"method":"ping"}`
	for _, tt := range []struct {
		name   string
		method string
		body   string
		change func(*http.Request)
		want   int
		says   string
	}{
		{"fine", "POST", ok, func(*http.Request) {}, 200, ""},
		{"no token", "POST", ok, func(r *http.Request) { r.Header.Del("Authorization") }, 401, "authToken"},
		{"wrong token", "POST", ok, func(r *http.Request) { r.Header.Set("Authorization", "Bearer secres") }, 401, "authToken"},
		{"longer token", "POST", ok, func(r *http.Request) { r.Header.Set("Authorization", "Bearer secret2") }, 401, "authToken"},
		{"other scheme", "POST", ok, func(r *http.Request) { r.Header.Set("Authorization", "Basic secret") }, 401, "authToken"},
		{"scheme in lower case", "POST", ok, func(r *http.Request) { r.Header.Set("Authorization", "bearer secret") }, 200, ""},
		{"foreign Host", "POST", ok, func(r *http.Request) { r.Host = "evil.example" }, 403, "127.0.0.1"},
		{"foreign Host, our port", "POST", ok, func(r *http.Request) { r.Host = fmt.Sprintf("evil.example:%d", s.port) }, 403, "127.0.0.1"},
		{"Host without port", "POST", ok, func(r *http.Request) { r.Host = "127.0.0.1" }, 403, "127.0.0.1"},
		{"localhost", "POST", ok, func(r *http.Request) { r.Host = fmt.Sprintf("localhost:%d", s.port) }, 200, ""},
		{"foreign Host comes before the token", "POST", ok, func(r *http.Request) { r.Host = "evil"; r.Header.Del("Authorization") }, 403, ""},
		{"foreign Origin", "POST", ok, func(r *http.Request) { r.Header.Set("Origin", "http://evil.example") }, 403, "Origin"},
		{"null Origin", "POST", ok, func(r *http.Request) { r.Header.Set("Origin", "null") }, 403, "Origin"},
		{"own Origin", "POST", ok, func(r *http.Request) { r.Header.Set("Origin", fmt.Sprintf("http://127.0.0.1:%d", s.port)) }, 200, ""},
		{"another port's Origin", "POST", ok, func(r *http.Request) { r.Header.Set("Origin", "http://127.0.0.1:1") }, 403, "Origin"},
		{"other path", "POST", ok, func(r *http.Request) { r.URL.Path = "/" }, 404, "/mcp"},
		{"other path, no token", "POST", ok, func(r *http.Request) { r.URL.Path = "/x"; r.Header.Del("Authorization") }, 401, ""},
		{"PUT", "PUT", ok, func(*http.Request) {}, 405, "POST"},
		{"text body", "POST", ok, func(r *http.Request) { r.Header.Set("Content-Type", "text/plain") }, 415, "application/json"},
		{"JSON only", "POST", ok, func(r *http.Request) { r.Header.Set("Accept", "application/json") }, 406, "event-stream"},
		{"any type", "POST", ok, func(r *http.Request) { r.Header.Set("Accept", "*/*") }, 200, ""},
		{"GET of JSON", "GET", "", func(r *http.Request) { r.Header.Set("Accept", "application/json") }, 406, "event-stream"},
		{"future version", "POST", ok, func(r *http.Request) { r.Header.Set("Mcp-Protocol-Version", "2026-07-28") }, 400, "2025-11-25"},
		{"implied version", "POST", ok, func(r *http.Request) { r.Header.Set("Mcp-Protocol-Version", "2025-03-26") }, 200, ""},
		{"too large", "POST", strings.Repeat(" ", 1<<20) + ok, func(*http.Request) {}, 413, "1 MiB"},
		{"too large, unannounced", "POST", strings.Repeat(" ", 1<<20) + ok, func(r *http.Request) { r.ContentLength = -1 }, 413, "1 MiB"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			req := c.request(t.Context(), tt.method, tt.body)
			tt.change(req)
			code, body, header := c.do(req)
			if code != tt.want || !strings.Contains(body, tt.says) {
				t.Errorf("%d %s; want %d and %q", code, body, tt.want, tt.says)
			}
			if strings.Contains(body, "secret") || header.Get("X-Content-Type-Options") != "nosniff" || header.Get("Access-Control-Allow-Origin") != "" {
				t.Errorf("headers %v, body %q", header, body)
			}
		})
	}
}

// The tools' answers, byte for byte.
func TestTools(t *testing.T) {
	b := newBackend()
	c := dial(t, start(t, b, nil)).initialize()
	<-b.Joined
	list := c.call("tools/list", map[string]any{})
	for _, name := range []string{`"name":"openDiff"`, `"name":"closeDiff"`} {
		if !strings.Contains(list, name) {
			t.Errorf("tools/list = %s", list)
		}
	}
	tool := func(name string, args any) string {
		return c.call("tools/call", map[string]any{"name": name, "arguments": args})
	}
	if got, want := tool("openDiff", map[string]any{"filePath": "/f", "newContent": "x", "future": 1}), `{"content":[]}`; got != want {
		t.Errorf("openDiff = %s, want %s", got, want)
	}
	if req := <-b.Proposed; req.Path != "/f" || req.Text != "x" {
		t.Errorf("the backend was asked %+v", req)
	}
	if got, want := tool("closeDiff", map[string]any{"filePath": "/f", "suppressNotification": true}), `{"content":[{"type":"text","text":"{\"content\":\"closed /f\"}"}]}`; got != want {
		t.Errorf("closeDiff = %s, want %s", got, want)
	}
	for args, want := range map[string]string{
		`{}`: "filePath is missing", `{"filePath":"/f"}`: "newContent is missing", `{"filePath":1}`: "do not fit",
	} {
		if got := tool("openDiff", json.RawMessage(args)); !strings.Contains(got, want) || !strings.Contains(got, `"isError":true`) {
			t.Errorf("openDiff of %s = %s, want %s", args, got, want)
		}
	}
	b.fail = errors.New("no editor")
	for _, name := range []string{"openDiff", "closeDiff"} {
		got := tool(name, map[string]any{"filePath": "/f", "newContent": ""})
		if !strings.Contains(got, `"isError":true`) || !strings.Contains(got, "no editor") {
			t.Errorf("%s of a failing backend = %s", name, got)
		}
	}
}

func FuzzParseOpenDiff(f *testing.F) {
	f.Add([]byte(`{"filePath":"/f","newContent":"a\ufffdb"}`))
	f.Add([]byte(`{"filePath":"/f","newContent":"\ud83d\ude00\r\n"}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		req, err := parseOpenDiff(data)
		if err != nil || req.Binary != "" {
			return
		}
		// An accepted request survives a round trip through JSON.
		again, err := json.Marshal(map[string]string{"filePath": req.Path, "newContent": req.Text})
		if err != nil {
			t.Fatal(err)
		}
		if got, err := parseOpenDiff(again); err != nil || got != req {
			t.Errorf("%+v became %+v, %v", req, got, err)
		}
	})
}

// A stream starts with the context, even after a reconnect, and an update right
// after it is not lost.
func TestContextGoesOutAsSoonAsAStreamOpens(t *testing.T) {
	inBubble(t, func(t *testing.T, b *backend, s *Server, c *cl) {
		for range 3 {
			st := c.listen()
			if got := st.next(); got != emptyContext {
				t.Fatalf("first event %s, want %s", got, emptyContext)
			}
			b.setContext("/a")
			if got := st.next(); !strings.Contains(got, `"path":"/a"`) {
				t.Errorf("then %s", got)
			}
			b.setContext("/a") // the same
			synctest.Wait()
			if len(st.events) > 0 {
				t.Errorf("then %s", st.next())
			}
			st.end()
			for st.next() != "end" {
			}
			b.setContext() // while no stream is open
			synctest.Wait()
		}
	})
}

// A superseded proposal gets no notification, since the CLI would take it for the
// answer to the next one, and neither does one that the user answers in the
// terminal.
func TestNoNotificationForUndecidedProposals(t *testing.T) {
	b := newBackend()
	s := start(t, b, nil)
	c := dial(t, s).initialize()
	session := <-b.Joined
	st := c.listen()
	st.next()
	for _, o := range []companion.Outcome{{Superseded: true}, {Failed: true}, {Accepted: true, Text: "2"}} {
		told := make(chan error, 1)
		session.Resolve(companion.Proposal{Path: "/f"}, o, func(err error) { told <- err })
		if err := <-told; err != nil {
			t.Errorf("%+v: %v", o, err)
		}
	}
	if got, want := st.next(), accepted("/f", "2"); got != want {
		t.Errorf("the CLI received %s, want %s", got, want)
	}
}

// A client without a stream counts as gone after a while, and its undelivered
// outcomes are reported.
func TestGone(t *testing.T) {
	inBubble(t, func(t *testing.T, b *backend, s *Server, c *cl) {
		session := <-b.Joined
		st := c.listen()
		st.next()
		st.end()
		synctest.Wait()
		told := make(chan error, 1)
		session.Resolve(companion.Proposal{Path: "/f"}, companion.Outcome{}, func(err error) { told <- err })
		if got := <-b.Gone; got != session {
			t.Errorf("gone: %v", got)
		}
		if err := <-told; !errors.Is(err, mcp.ErrUndelivered) {
			t.Errorf("the outcome was reported as %v", err)
		}
		session.Resolve(companion.Proposal{}, companion.Outcome{}, func(err error) { told <- err })
		if err := <-told; !errors.Is(err, mcp.ErrUndelivered) {
			t.Errorf("an outcome after the end was reported as %v", err)
		}
		if code, _, _ := c.do(c.request(t.Context(), "GET", "")); code != 404 {
			t.Errorf("the ended session answers %d, want 404", code)
		}
	})
}

// Close delivers the outcomes, then ends the streams gracefully: an error on
// the stream would disconnect the CLI permanently.
func TestCloseFlushesAndEndsGracefully(t *testing.T) {
	b := newBackend()
	s := start(t, b, nil)
	c := dial(t, s).initialize()
	session := <-b.Joined
	st := c.listen()
	st.next()
	for i := range 100 {
		session.Resolve(companion.Proposal{Path: fmt.Sprint(i)}, companion.Outcome{}, func(error) {})
	}
	if err := s.Close(t.Context()); err != nil {
		t.Error(err)
	}
	for i := range 100 {
		if got := st.next(); !strings.Contains(got, fmt.Sprintf(`"filePath":"%d"`, i)) {
			t.Fatalf("event %d: %s", i, got)
		}
	}
	if got := st.next(); got != "end" {
		t.Errorf("then %s, want the end", got)
	}
	if _, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", s.port)); err == nil {
		t.Error("the port still answers")
	}
}

func TestKeepAliveComments(t *testing.T) {
	inBubble(t, func(t *testing.T, _ *backend, _ *Server, c *cl) {
		st := c.listen()
		st.next()
		for range 3 {
			time.Sleep(time.Minute)
			if got := st.next(); got != "comment" {
				t.Errorf("an idle stream carries %s", got)
			}
		}
	})
}

// The stdio transport: notifications only after the client is initialized.
func TestServeConn(t *testing.T) {
	b := newBackend()
	s := start(t, b, nil)
	mine, theirs := net.Pipe()
	ended := make(chan error, 1)
	go func() { ended <- s.ServeConn(theirs) }()
	lines := bufio.NewScanner(mine)
	say := func(line string) {
		if _, err := mine.Write([]byte(line + "\n")); err != nil {
			t.Fatal(err)
		}
	}
	hear := func() string {
		if !lines.Scan() {
			t.Fatal("the connection ended")
		}
		return lines.Text()
	}
	say(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"stdio-client","version":"1"}}}`)
	if got := hear(); !strings.Contains(got, `"serverInfo"`) {
		t.Errorf("initialize answered %s", got)
	}
	say(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	if got := hear(); got != emptyContext {
		t.Errorf("first notification %s", got)
	}
	session := <-b.Joined
	if name, _ := session.Client(); name != "Gemini CLI" || session.Transport() != "stdio" {
		t.Errorf("the session is %s's over %s", name, session.Transport())
	}
	session.Resolve(companion.Proposal{Path: "/f"}, companion.Outcome{Accepted: true, Text: "1"}, func(error) {})
	if got := hear(); got != accepted("/f", "1") {
		t.Errorf("received %s", got)
	}
	mine.Close()
	<-ended
	if got := <-b.Gone; got != session {
		t.Error("the wrong session is gone")
	}
}

func TestTooManySessions(t *testing.T) {
	s := start(t, newBackend(), nil)
	for range maxSessions {
		session, err := s.newSession("", true)
		if err != nil {
			t.Fatal(err)
		}
		defer session.Discard()
	}
	c := dial(t, s)
	if code, body, _ := c.do(c.request(t.Context(), "POST", initializeRequest)); code != http.StatusServiceUnavailable {
		t.Errorf("%d %s", code, body)
	}
}

func TestExtraHost(t *testing.T) {
	s := start(t, newBackend(), func(c *Config) { c.ExtraHost, c.ExtraNames = "127.0.0.2", []string{"host.docker.internal"} })
	c := dial(t, s)
	c.base = fmt.Sprintf("http://127.0.0.2:%d", s.port)
	c.initialize()
	req := c.request(t.Context(), "POST", `{"jsonrpc":"2.0","id":1,"method":"ping"}`)
	req.Host = fmt.Sprintf("host.docker.internal:%d", s.port)
	if code, body, _ := c.do(req); code != 200 {
		t.Errorf("%d %s", code, body)
	}
}

// After a crash another user can take the old port, and receives the old token
// from a CLI that reconnects. It opens nothing on the new port.
func TestAnotherPortHasAnotherToken(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	port := taken.Addr().(*net.TCPAddr).Port
	other := start(t, newBackend(), func(c *Config) { c.Port, c.Token = port, "old" })
	if other.port == port || other.cfg.Token == "old" || len(other.cfg.Token) < 20 {
		t.Errorf("port %d has the token %q", other.port, other.cfg.Token)
	}
	taken.Close()
	same := start(t, newBackend(), func(c *Config) { c.Port, c.Token = port, "old" })
	if same.port != port || same.cfg.Token != "old" {
		t.Errorf("the free port was not taken again with its token: %d, %q", same.port, same.cfg.Token)
	}
}

// After a crash another user can have had the old port for a moment, and received the
// token there.
func TestOldTokenIsForThisUserOnly(t *testing.T) {
	s := start(t, newBackend(), func(c *Config) { c.Port, c.Token = systest.FreePort(t), "old" })
	for uid, want := range map[int]int{os.Getuid(): http.StatusOK, 12345: http.StatusForbidden} {
		var conn net.Conn
		if err := systest.AsUser(t, uid, func() (err error) {
			conn, err = net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", s.port))
			return err
		}); err != nil {
			t.Fatal(err)
		}
		c := dial(t, s)
		c.http.Transport.(*http.Transport).DialContext = func(context.Context, string, string) (net.Conn, error) { return conn, nil }
		c.token = "old"
		if code, body, _ := c.do(c.request(t.Context(), "POST", initializeRequest)); code != want {
			t.Errorf("user %d: %d %s, want %d", uid, code, body, want)
		}
	}
}
