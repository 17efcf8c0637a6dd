package mcp

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"pollux/internal/crash"
	"pollux/internal/gate"
	"pollux/internal/jsonrpc"
)

const (
	sessionHeader  = "Mcp-Session-Id"
	protocolHeader = "Mcp-Protocol-Version"
	// impliedVersion is the version of MCP of a request without the header. Clients of another
	// version send it, too, such as MCP's conformance suite.
	impliedVersion = "2025-03-26"

	bodyTimeout = time.Minute
	// keepAlive is the interval of the comments in a response without messages. It is less than the
	// 300 s after which Gemini CLI's HTTP client cuts a silent response.
	keepAlive = 30 * time.Second
	// closeTimeout is how long an agent may take to read the rest of a response when its session
	// ends.
	closeTimeout = time.Second
	// unstreamedTimeout bounds a session that has no event stream and posts nothing.
	unstreamedTimeout = 5 * time.Minute
)

// An Endpoint serves the agents of a server over HTTP.
type Endpoint struct {
	// Admit reports whether a request comes from an agent of this user: it checks the Origin, the
	// Host and the secret. Otherwise it answers the request with [TurnAway].
	Admit func(w http.ResponseWriter, r *http.Request) bool
	// Open makes a session for an agent that has sent initialize.
	Open func(r *http.Request) (*Session, error)
	// GoneTimeout is how long an agent may be without an event stream.
	GoneTimeout time.Duration
	// MaxBody bounds a message in bytes; [MaxMessage] if 0.
	MaxBody int64

	mu       sync.Mutex
	sessions map[string]*httpSession // by ID
}

// An httpSession is a session over HTTP. It ends when the agent deletes it, or has no event
// stream for some time.
type httpSession struct {
	*Session
	id       string
	endpoint *Endpoint
	ready    chan *stream  // receives the open stream when it can carry a message
	closed   chan struct{} // closed when the companion no longer has the session

	mu     sync.Mutex
	opened int         // the number of the last stream
	stream *stream     // nil if none is open
	gone   *time.Timer // ends the session while no stream is open
}

// A stream is an event stream that the agent has opened.
type stream struct {
	number   int
	ctx      context.Context // ends with the stream
	cancel   context.CancelFunc
	messages chan []byte // one value after each that ready has received
	results  chan error  // one value for each message: nil once it is written
}

// open makes a session, and serves it in the background.
func (e *Endpoint) open(r *http.Request) (*httpSession, error) {
	session, err := e.Open(r)
	if err != nil {
		return nil, err
	}
	s := &httpSession{Session: session, id: rand.Text(), endpoint: e, ready: make(chan *stream), closed: make(chan struct{})}
	s.setMute(true)
	s.gone = time.AfterFunc(unstreamedTimeout, s.expire)
	e.mu.Lock()
	if e.sessions == nil {
		e.sessions = make(map[string]*httpSession)
	}
	e.sessions[s.id] = s
	e.mu.Unlock()
	s.start(s.toStream)
	go func() {
		<-s.Ctx.Done()
		e.mu.Lock()
		delete(e.sessions, s.id)
		e.mu.Unlock()
		s.wait()
		close(s.closed)
		s.gone.Stop()
	}()
	return s, nil
}

// session returns a session that has not ended, or nil.
func (e *Endpoint) session(id string) *httpSession {
	e.mu.Lock()
	defer e.mu.Unlock()
	if s := e.sessions[id]; s != nil && s.Ctx.Err() == nil {
		return s
	}
	return nil
}

// expectStream ends the session unless it has a stream, or one opens in time.
func (s *httpSession) expectStream(within time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stream == nil && s.Ctx.Err() == nil {
		s.gone.Reset(within)
	}
}

// expire ends the session if it has no stream, or the agent has not completed its start.
func (s *httpSession) expire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stream == nil || !s.isConnected() {
		s.End()
	}
}

// ServeHTTP serves a request.
func (e *Endpoint) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	defer crash.Report()
	if !e.Admit(w, r) {
		return
	}
	gate.Authenticated(r.Context())
	if r.URL.Path != "/mcp" {
		TurnAway(w, r, http.StatusNotFound, "the MCP endpoint is /mcp")
		return
	}
	if status, why := unfit(r); status != 0 {
		Refuse(w, status, why)
		return
	}
	id := r.Header.Get(sessionHeader)
	s := e.session(id)
	switch {
	case id != "" && s == nil:
		Refuse(w, http.StatusNotFound, "no such session: send initialize again")
	case r.Method == http.MethodPost:
		e.servePost(w, r, s)
	case s == nil:
		Refuse(w, http.StatusBadRequest, "the "+sessionHeader+" header is missing: send initialize first")
	case r.Method == http.MethodGet:
		s.serveStream(w, r)
	case r.Method == http.MethodDelete:
		s.End()
		select {
		case <-s.closed:
		case <-r.Context().Done():
		}
		w.WriteHeader(http.StatusOK) // Copilot CLI fails to connect again after a 204
	default:
		w.Header().Set("Allow", "GET, POST, DELETE")
		Refuse(w, http.StatusMethodNotAllowed, "use POST, GET or DELETE")
	}
}

// unfit returns why the headers of a request are not those of MCP, and the status that says so; 0
// if they are.
func unfit(r *http.Request) (status int, why string) {
	v := cmp.Or(r.Header.Get(protocolHeader), impliedVersion)
	if r.Header.Get(sessionHeader) != "" && v != impliedVersion && !slices.Contains(ProtocolVersions, v) {
		return http.StatusBadRequest, fmt.Sprintf("protocol version %.40q is not supported: use one of %s",
			v, strings.Join(ProtocolVersions, ", "))
	}
	switch r.Method {
	case http.MethodPost:
		if mt, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || mt != "application/json" {
			return http.StatusUnsupportedMediaType, "Content-Type must be application/json"
		}
		if !accepts(r, "application/json") || !accepts(r, "text/event-stream") {
			return http.StatusNotAcceptable, "Accept must contain application/json and text/event-stream"
		}
	case http.MethodGet:
		if !accepts(r, "text/event-stream") {
			return http.StatusNotAcceptable, "Accept must contain text/event-stream"
		}
	}
	return 0, ""
}

func accepts(r *http.Request, want string) bool {
	family, _, _ := strings.Cut(want, "/")
	for _, value := range r.Header.Values("Accept") {
		for part := range strings.SplitSeq(value, ",") {
			mt, _, _ := strings.Cut(part, ";")
			switch strings.ToLower(strings.TrimSpace(mt)) {
			case want, family + "/*", "*/*":
				return true
			}
		}
	}
	return false
}

// servePost serves a message.
func (e *Endpoint) servePost(w http.ResponseWriter, r *http.Request, s *httpSession) {
	if s != nil { // an agent that only posts stays as long as it posts
		s.expectStream(unstreamedTimeout)
	}
	body, err := e.readBody(w, r)
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		TurnAway(w, r, http.StatusRequestEntityTooLarge,
			fmt.Sprintf("the request is over %d MiB: the file is too large to review", large.Limit>>20))
		return
	case err != nil:
		TurnAway(w, r, http.StatusBadRequest, "the request's body did not arrive")
		return
	}
	m, err := parse(body)
	switch {
	case err != nil:
		writeJSON(w, http.StatusBadRequest, failure(nil, jsonrpc.CodeParseError, "the body is not one JSON-RPC message"))
	case m.isRequest() && methods[m.Method] == nil:
		// Copilot CLI first tries server/discover, of a later version of MCP. It waits for the
		// answer, and then sends initialize.
		writeJSON(w, http.StatusOK, failure(m.ID, jsonrpc.CodeMethodNotFound, fmt.Sprintf("method %.80q not found", m.Method)))
	case s == nil && m.isRequest() && m.Method == "initialize":
		if s, err = e.open(r); err != nil {
			w.Header().Set("Retry-After", "5")
			Refuse(w, http.StatusServiceUnavailable, err.Error())
			return
		}
		s.serveRequest(w, r, m)
		if !s.initialized() { // the request did not fit
			s.End()
		}
	case s == nil:
		Refuse(w, http.StatusBadRequest, "the "+sessionHeader+" header is missing: send initialize first")
	case m.isRequest():
		s.serveRequest(w, r, m)
	default:
		s.receive(m, nil)
		w.WriteHeader(http.StatusAccepted)
	}
}

// readBody reads the whole body, with a deadline that it removes afterwards: otherwise the
// deadline would later cancel the request.
func (e *Endpoint) readBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	rc := http.NewResponseController(w)
	rc.SetReadDeadline(time.Now().Add(bodyTimeout))
	defer rc.SetReadDeadline(time.Time{})
	limit := cmp.Or(e.MaxBody, MaxMessage)
	var b bytes.Buffer
	if n := r.ContentLength; n > 0 && n <= limit {
		b.Grow(int(n) + bytes.MinRead)
	}
	_, err := b.ReadFrom(io.LimitReader(r.Body, limit+1))
	if err == nil && int64(b.Len()) > limit {
		// Keep reading, up to a limit. Otherwise a client that is still writing would see a broken
		// connection instead of the answer.
		io.CopyN(io.Discard, r.Body, 4*limit)
		return nil, &http.MaxBytesError{Limit: limit}
	}
	return b.Bytes(), err
}

// serveRequest serves a request and its answer.
func (s *httpSession) serveRequest(w http.ResponseWriter, r *http.Request, m message) {
	answer, id := make(chan *outgoing, 1), slices.Clone(m.ID)
	// Before the response begins: then the agent may send its next request, which comes after
	// this one. From here on only the ID is kept, because the answer may take hours.
	if !s.receive(m, func(o *outgoing) { answer <- o }) {
		writeJSON(w, http.StatusBadRequest, failure(m.ID, jsonrpc.CodeInvalidRequest, "another request has this ID"))
		return
	}
	ctx, end := context.WithCancel(s.Ctx)
	defer end()
	defer context.AfterFunc(r.Context(), end)()
	out, stop := respond(ctx, w, s.id)
	defer stop()
	tick := time.NewTicker(keepAlive)
	defer tick.Stop()
	write := func(o *outgoing) {
		if o == nil {
			return
		}
		err := out.message(o.encode(0))
		s.wrote(o, err)
		if err == nil {
			s.expectStream(unstreamedTimeout)
		}
	}
	for {
		var err error
		select {
		case o := <-answer:
			write(o)
			return
		case <-tick.C:
			err = out.comment()
		case <-r.Context().Done():
			err = r.Context().Err()
		case <-s.Ctx.Done():
			<-s.closed // a call that ran at the end of the session has an answer
			select {
			case o := <-answer:
				write(o)
			default:
			}
			return
		}
		if err != nil {
			break
		}
	}
	// The agent has given the request up, or was killed. In the latter case the session ends in a
	// moment, and a diff of it stays for the user.
	cancel := time.NewTimer(s.endpoint.GoneTimeout + closeTimeout)
	defer cancel.Stop()
	for {
		select {
		case o := <-answer:
			if o != nil {
				s.wrote(o, ErrUndelivered)
			}
			return
		case <-cancel.C:
			s.cancelCall(id)
		case <-s.Ctx.Done():
			return
		}
	}
}

// serveStream serves an event stream. It replaces the last one: an agent has one.
func (s *httpSession) serveStream(w http.ResponseWriter, r *http.Request) {
	st := &stream{messages: make(chan []byte, 1), results: make(chan error, 1)}
	st.ctx, st.cancel = context.WithCancel(s.Ctx)
	// An agent that has gone may leave a write blocked.
	defer context.AfterFunc(r.Context(), st.cancel)()
	defer s.streamEnded(st)
	s.openStream(st)
	out, stop := respond(st.ctx, w, s.id)
	defer stop()
	if s.dialect.StreamOpened != nil {
		s.dialect.StreamOpened(r)
	}
	tick := time.NewTicker(keepAlive)
	defer tick.Stop()
	for {
		var err error
		select {
		case s.ready <- st:
			err = out.message(<-st.messages)
			st.results <- err
		case <-tick.C:
			err = out.comment()
		case <-r.Context().Done():
			return
		case <-st.ctx.Done():
			return
		}
		if err != nil {
			return
		}
	}
}

// openStream makes a stream the session's only one.
func (s *httpSession) openStream(st *stream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stream != nil {
		s.stream.cancel()
	}
	s.opened++
	st.number, s.stream = s.opened, st
	if s.isConnected() {
		s.gone.Stop()
	}
	s.setMute(false)
}

// streamEnded forgets a stream. The session ends unless another one opens in time.
func (s *httpSession) streamEnded(st *stream) {
	st.cancel()
	s.mu.Lock()
	last := s.stream == st
	if last {
		s.stream = nil
		s.setMute(true)
	}
	s.mu.Unlock()
	if last {
		s.expectStream(s.endpoint.GoneTimeout)
	}
}

// toStream writes a message to an event stream: the open one, or one that opens later.
func (s *httpSession) toStream(ctx context.Context, o *outgoing) error {
	for {
		select {
		case st := <-s.ready:
			var data []byte
			replaced := st.ctx.Err() != nil
			if !replaced {
				data = o.encode(st.number)
			}
			st.messages <- data
			if err := <-st.results; err == nil && !replaced {
				return nil
			}
		case <-ctx.Done():
			return ErrUndelivered
		}
	}
}

// Refuse answers with a JSON-RPC error, which MCP clients display.
func Refuse(w http.ResponseWriter, status int, text string) {
	writeJSON(w, status, failure(nil, jsonrpc.CodeInvalidRequest, text))
}

// TurnAway refuses a request and ends its connection.
func TurnAway(w http.ResponseWriter, r *http.Request, status int, text string) {
	document, _ := json.Marshal(failure(nil, jsonrpc.CodeInvalidRequest, text))
	gate.TurnAway(w, r, status, "application/json", document)
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	document, _ := json.Marshal(v)
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	w.Write(document)
}

// A responder writes events to the agent. It is used by one goroutine.
type responder struct {
	w  http.ResponseWriter
	rc *http.ResponseController
}

// respond starts a response that may take hours. It gets closeTimeout to end when ctx does; the
// caller calls stop.
func respond(ctx context.Context, w http.ResponseWriter, session string) (out responder, stop func()) {
	out = responder{w, http.NewResponseController(w)}
	limited := make(chan struct{})
	unlimited := context.AfterFunc(ctx, func() {
		defer close(limited)
		out.rc.SetWriteDeadline(time.Now().Add(closeTimeout)) // [http.Server] removes it
	})
	stop = func() {
		if !unlimited() {
			<-limited // a later deadline would cut the connection's next response
		}
	}
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set(sessionHeader, session)
	w.WriteHeader(http.StatusOK)
	out.rc.Flush()
	return out, stop
}

// message writes a message as an event, unless it is nil.
func (r responder) message(data []byte) error {
	if data == nil {
		return nil
	}
	return r.write([]byte("event: message\ndata: "), data, []byte("\n\n"))
}

// comment writes what the agent ignores.
func (r responder) comment() error { return r.write([]byte(": keep-alive\n\n")) }

func (r responder) write(parts ...[]byte) error {
	for _, part := range parts {
		if _, err := r.w.Write(part); err != nil {
			return err
		}
	}
	return r.rc.Flush()
}
