package mcp

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pollux/internal/sys/systest"
)

// A site is an endpoint that serves on a network.
type site struct {
	*fixture
	endpoint Endpoint
	client   *http.Client
	opened   chan bool // one value for each event stream
}

// runHTTP runs a test in a bubble.
func runHTTP(t *testing.T, test func(t *testing.T, s *site)) {
	t.Helper()
	run(t, func(t *testing.T, f *fixture) {
		s := &site{fixture: f, opened: make(chan bool, 10)}
		s.endpoint.Admit, s.endpoint.GoneTimeout = admitAll, 5*time.Second
		s.endpoint.Open = func(*http.Request) (*Session, error) {
			session, err := f.open()
			if err != nil {
				return nil, err
			}
			session.dialect.StreamOpened = func(*http.Request) { s.opened <- true }
			return session.Session, nil
		}
		network := systest.NewNetwork()
		server := &http.Server{Handler: &s.endpoint}
		go server.Serve(network)
		transport := &http.Transport{DialContext: network.Dial}
		s.client = &http.Client{Transport: transport}
		test(t, s)
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		f.Close(ctx)
		transport.CloseIdleConnections()
		server.Close()
	})
}

// An exchange is a request and its response, which may take long.
type exchange struct {
	*http.Response
	events chan string // closed at the end; the body of a response without events
	cancel context.CancelFunc
}

// setHeaders sets the headers that every agent sends.
func setHeaders(r *http.Request) {
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
}

func admitAll(http.ResponseWriter, *http.Request) bool { return true }

// do sends a request.
func (s *site) do(method, session string, body io.Reader) *exchange {
	s.t.Helper()
	ctx, cancel := context.WithCancel(s.t.Context())
	r, err := http.NewRequestWithContext(ctx, method, "http://localhost/mcp", body)
	if err != nil {
		s.t.Fatal(err)
	}
	setHeaders(r)
	if session != "" {
		r.Header.Set(sessionHeader, session)
	}
	res, err := s.client.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	p := &exchange{res, make(chan string, 100), cancel}
	s.t.Cleanup(cancel)
	go func() {
		defer close(p.events)
		defer res.Body.Close()
		if res.Header.Get("Content-Type") != "text/event-stream" {
			data, _ := io.ReadAll(res.Body)
			p.events <- string(data)
			return
		}
		lines := bufio.NewScanner(res.Body)
		for lines.Scan() {
			if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
				p.events <- data
			}
		}
	}()
	return p
}

func (s *site) post(session, method, rest string) *exchange {
	s.t.Helper()
	return s.do(http.MethodPost, session, strings.NewReader(`{"jsonrpc":"2.0",`+rest+`"method":"`+method+`"}`))
}

func (s *site) call(session, tool string, id int) *exchange {
	s.t.Helper()
	return s.post(session, "tools/call", fmt.Sprintf(`"id":%d,"params":{"name":%q,"arguments":%d},`, id, tool, id))
}

// connect connects an agent without an event stream.
func (s *site) connect() (id string, session *testSession) {
	s.t.Helper()
	p := s.post("", "initialize", `"id":"i","params":`+hello+`,`)
	if got := <-p.events; !strings.Contains(got, "2025-06-18") {
		s.t.Fatal(got)
	}
	id = p.Header.Get(sessionHeader)
	if p := s.post(id, "notifications/initialized", ""); p.StatusCode != http.StatusAccepted {
		s.t.Fatal(p.Status)
	}
	return id, <-s.joined
}

// stream opens an event stream.
func (s *site) stream(session string) *exchange {
	s.t.Helper()
	p := s.do(http.MethodGet, session, nil)
	<-s.opened
	return p
}

func TestHTTPRequests(t *testing.T) {
	runHTTP(t, func(t *testing.T, s *site) {
		id, _ := s.connect()
		for name, tt := range map[string]struct {
			method, session, body string
			status                int
			want                  string
		}{
			"no session":      {"POST", "", `{"jsonrpc":"2.0","id":7,"method":"tools/list"}`, 400, "send initialize first"},
			"unknown session": {"POST", "x", `{}`, 404, "send initialize again"},
			"no stream":       {"GET", "", "", 400, "send initialize first"},
			"nothing to end":  {"DELETE", "", "", 400, "send initialize first"},
			"another method":  {"PUT", id, "", 405, "use POST"},
			"not JSON":        {"POST", id, "{", 400, "not one JSON-RPC message"},
			"a batch":         {"POST", id, `[{"jsonrpc":"2.0","id":7,"method":"ping"}]`, 400, "not one JSON-RPC message"},
			"unknown method":  {"POST", "", `{"jsonrpc":"2.0","id":"a","method":"x"}`, 200, `"id":"a","error":{"code":-32601`},
			"ID 0":            {"POST", "", `{"jsonrpc":"2.0","id":0,"method":"server/discover"}`, 200, `"id":0,"error":{"code":-32601`},
			"a notification":  {"POST", "", `{"jsonrpc":"2.0","method":"initialize"}`, 400, "send initialize first"},
			"an unknown one":  {"POST", id, `{"jsonrpc":"2.0","method":"notifications/future"}`, 202, ""},
			"an answer":       {"POST", id, `{"jsonrpc":"2.0","id":7,"result":{}}`, 202, ""},
			"ping":            {"POST", id, `{"jsonrpc":"2.0","id":7,"method":"ping"}`, 200, `{"jsonrpc":"2.0","id":7,"result":{}}`},
		} {
			p := s.do(tt.method, tt.session, strings.NewReader(tt.body))
			if got := <-p.events; p.StatusCode != tt.status || !strings.Contains(got, tt.want) {
				t.Errorf("%s: %s: %s", name, p.Status, got)
			}
		}
	})
}

// Calls take effect in the order in which their posts arrived, and an answer may come hours later.
func TestHTTPOrder(t *testing.T) {
	runHTTP(t, func(t *testing.T, s *site) {
		id, _ := s.connect()
		s.stream(id)
		slow, later, echo := s.call(id, "slow", 1), s.call(id, "later", 2), s.call(id, "echo", 3)
		synctest.Wait()
		if len(s.later)+len(echo.events) != 0 {
			t.Error("a call has not waited for the first one")
		}
		if p := s.call(id, "echo", 2); p.StatusCode != http.StatusBadRequest || !strings.Contains(<-p.events, "has this ID") {
			t.Errorf("a request with an ID in use: %s", p.Status)
		}
		s.proceed <- struct{}{}
		for p, want := range map[*exchange]string{slow: "done", echo: text("3")} {
			if got := <-p.events; !strings.Contains(got, want) {
				t.Errorf("%s, want %s", got, want)
			}
		}
		c := <-s.later
		time.Sleep(24 * time.Hour) // the response is kept alive
		written := make(chan error, 1)
		c.Answer(Text("x"), nil, func(err error) { written <- err })
		if got := <-later.events; !strings.Contains(got, text("x")) {
			t.Error(got)
		}
		if err := <-written; err != nil {
			t.Error(err)
		}
	})
}

// A notification waits for a stream, and goes to the next one if the stream breaks. Answers do not
// wait for it.
func TestHTTPStreams(t *testing.T) {
	runHTTP(t, func(t *testing.T, s *site) {
		id, session := s.connect()
		written := make(chan error, 10)
		notify := func(method string) { session.Notify(method, nil, 0, func(err error) { written <- err }) }
		expect := func(p *exchange, methods ...string) {
			t.Helper()
			for _, method := range methods {
				if got, want := <-p.events, `{"jsonrpc":"2.0","method":"`+method+`"}`; got != want {
					t.Errorf("%s, want %s", got, want)
				}
				if err := <-written; err != nil {
					t.Error(err)
				}
			}
		}
		notify("first")
		notify("second")
		if got := <-s.call(id, "echo", 5).events; !strings.Contains(got, text("5")) {
			t.Error(got)
		}
		if len(written) != 0 {
			t.Error("a notification was written without a stream")
		}
		one := s.stream(id)
		expect(one, "first", "second")
		time.Sleep(24 * time.Hour) // the stream is kept alive
		two := s.stream(id)        // replaces the first
		if _, more := <-one.events; more {
			t.Error("the first stream goes on")
		}
		notify("third")
		expect(two, "third")
		two.cancel()
		synctest.Wait()
		notify("fourth")
		time.Sleep(4 * time.Second)
		expect(s.stream(id), "fourth")
	})
}

// A session without a stream ends, and what waits for one is reported.
func TestHTTPGone(t *testing.T) {
	runHTTP(t, func(t *testing.T, s *site) {
		id, session := s.connect()
		time.Sleep(unstreamedTimeout - time.Second)
		s.stream(id).cancel()
		synctest.Wait()
		written := make(chan error, 10)
		session.Notify("x", nil, 0, func(err error) { written <- err })
		time.Sleep(4 * time.Second)
		if len(s.gone) != 0 {
			t.Error("the session has ended too early")
		}
		time.Sleep(2 * time.Second)
		<-s.gone
		if err := <-written; !errors.Is(err, ErrUndelivered) {
			t.Error(err)
		}
		if p := s.do(http.MethodGet, id, nil); p.StatusCode != http.StatusNotFound {
			t.Error(p.Status)
		}
		id = s.post("", "initialize", `"id":"i","params":`+hello+`,`).Header.Get(sessionHeader)
		s.stream(id) // the companion does not have this session
		time.Sleep(unstreamedTimeout + time.Second)
		if n := s.Sessions(); n != 0 {
			t.Errorf("%d sessions stay that were never connected", n)
		}
		id, _ = s.connect()
		for range 3 { // an agent that only posts stays
			time.Sleep(unstreamedTimeout - time.Second)
			if p := s.call(id, "echo", 1); p.StatusCode != http.StatusOK {
				t.Error(p.Status)
			}
		}
		time.Sleep(unstreamedTimeout)
		<-s.gone
		id, _ = s.connect()
		stream := s.stream(id)
		if p := s.do(http.MethodDelete, id, nil); p.StatusCode != http.StatusOK {
			t.Error(p.Status)
		}
		<-s.gone
		if _, more := <-stream.events; more {
			t.Error("the stream of a deleted session goes on")
		}
	})
}

// A call whose response the agent has closed is canceled, unless the agent is gone.
func TestHTTPAborted(t *testing.T) {
	runHTTP(t, func(t *testing.T, s *site) {
		id, _ := s.connect()
		s.stream(id)
		s.call(id, "later", 1).cancel()
		c := <-s.later
		time.Sleep(5 * time.Second)
		if c.ctx.Err() != nil {
			t.Error("the call is canceled before it is clear that the agent still runs")
		}
		time.Sleep(2 * time.Second)
		if c.ctx.Err() == nil {
			t.Error("the call is not canceled")
		}
		s.call(id, "later", 2).cancel()
		synctest.Wait()
		written := make(chan error, 1)
		(<-s.later).Answer(nil, nil, func(err error) { written <- err })
		if err := <-written; !errors.Is(err, ErrUndelivered) {
			t.Error(err)
		}
	})
}

// The response to a call that the agent has canceled ends without an answer.
func TestHTTPCanceled(t *testing.T) {
	runHTTP(t, func(t *testing.T, s *site) {
		id, _ := s.connect()
		p := s.call(id, "slow", 1)
		<-s.started
		s.post(id, "notifications/cancelled", `"params":{"requestId":1},`)
		if got, ok := <-p.events; ok {
			t.Errorf("the answer is %s", got)
		}
		if p := s.call(id, "echo", 1); !strings.Contains(<-p.events, text("1")) {
			t.Error("its ID cannot be used again")
		}
	})
}

// A call that runs when the session ends still gets its answer.
func TestHTTPEnds(t *testing.T) {
	runHTTP(t, func(t *testing.T, s *site) {
		id, _ := s.connect()
		slow := s.call(id, "slow", 1)
		<-s.started
		began := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		s.End(ctx)
		if got := <-slow.events; !strings.Contains(got, `"isError":true`) || time.Since(began) < time.Second {
			t.Errorf("after %s: %s", time.Since(began), got)
		}
	})
}

// An agent that has closed its side of the connection and does not read is gone, although the
// write to it is blocked.
func TestHTTPHalfClosed(t *testing.T) {
	f := newFixture(t)
	server := httptest.NewServer(&Endpoint{Admit: admitAll, GoneTimeout: time.Millisecond, Open: func(*http.Request) (*Session, error) {
		s, err := f.open()
		return s.Session, err
	}})
	defer server.Close()
	dial := func(context.Context, string, string) (net.Conn, error) {
		return net.Dial("tcp", server.Listener.Addr().String())
	}
	transport := &http.Transport{DialContext: dial}
	defer transport.CloseIdleConnections()
	id, session := (&site{fixture: f, client: &http.Client{Transport: transport}}).connect()
	conn, err := dial(t.Context(), "", "")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "GET /mcp HTTP/1.1\r\nHost: x\r\nAccept: text/event-stream\r\n%s: %s\r\n\r\n", sessionHeader, id)
	written := make(chan error, 1)
	session.Notify("x", strings.Repeat("x", 64<<20), 64<<20, func(err error) { written <- err })
	io.ReadFull(conn, make([]byte, 1<<20)) // the write has begun
	conn.(*net.TCPConn).CloseWrite()
	<-f.gone
	if err := <-written; err == nil {
		t.Error("a message that nobody read was written")
	}
}

func TestHTTPLimits(t *testing.T) {
	runHTTP(t, func(t *testing.T, s *site) {
		for range s.cfg.MaxSessions {
			s.connect()
		}
		p := s.post("", "initialize", `"id":1,"params":`+hello+`,`)
		if got := <-p.events; p.StatusCode != http.StatusServiceUnavailable || !strings.Contains(got, "end some of the connected agents") {
			t.Errorf("%s: %s", p.Status, got)
		}
	})
}

// A stream that opens while the last one ends stays open: the timer for the agent's return is set
// under the lock that guards the stream.
func TestHTTPStreamThatOpensInTimeStays(t *testing.T) {
	e := &Endpoint{GoneTimeout: time.Minute}
	s := &httpSession{Session: &Session{Ctx: t.Context(), connected: true}, endpoint: e, gone: time.NewTimer(time.Hour)}
	for range 20_000 {
		newStream := func() *stream { return &stream{cancel: func() {}} }
		last, next := newStream(), newStream()
		s.openStream(last)
		var both sync.WaitGroup
		both.Go(func() { s.streamEnded(last) })
		both.Go(func() { s.openStream(next) })
		both.Wait()
		if armed := s.gone.Stop(); armed {
			t.Fatal("the session will end, although its agent has a stream")
		}
		s.streamEnded(next)
	}
	s.gone.Stop()
}

// The timer ran out at the moment the stream opened.
func TestHTTPLateTimerEndsNothing(t *testing.T) {
	run(t, func(t *testing.T, f *fixture) {
		session, err := f.open()
		if err != nil {
			t.Fatal(err)
		}
		defer session.Discard()
		session.connected = true
		s := &httpSession{Session: session.Session, endpoint: &Endpoint{GoneTimeout: time.Minute}, gone: time.NewTimer(time.Hour)}
		defer s.gone.Stop()
		st := &stream{cancel: func() {}}
		s.openStream(st)
		s.streamEnded(st)
		s.openStream(&stream{cancel: func() {}})
		s.expire()
		s.streamEnded(&stream{cancel: func() {}}) // not the open one
		s.expire()
		if s.Ctx.Err() != nil {
			t.Error("a session with a stream ended")
		}
		s.streamEnded(s.stream)
		s.expire()
		if s.Ctx.Err() == nil {
			t.Error("a session without a stream goes on")
		}
	})
}
