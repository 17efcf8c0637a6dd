package mcp

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"pollux/internal/crash"
	"pollux/internal/jsonrpc"
	"pollux/internal/outbox"
)

// The limits of a session. A single message of any size finds room in a queue that is not full.
const (
	// maxCalls bounds the calls that have not been answered.
	maxCalls = 1024
	// maxWaiting bounds the arguments of calls that wait for their turn, in bytes.
	maxWaiting = 256 << 20
	// maxOutbox and maxOutboxSize bound the messages that wait to be written, in messages and in
	// bytes. The session of an agent that exceeds them ends.
	maxOutbox     = 4096
	maxOutboxSize = 256 << 20
)

// A Dialect describes what an agent's package adds to a session. All fields may be zero.
type Dialect struct {
	Tools []Tool
	// Received is called for each request and notification when it arrives. The params of a
	// call of a tool are nil. It returns soon.
	Received func(method string, params json.RawMessage)
	// Connected is called once the agent has sent notifications/initialized, and Disconnected when
	// the session has ended after that. They return soon.
	Connected, Disconnected func()
	// InputEnded is called when the agent has closed its side of a stream, before its last answers
	// are awaited. It returns soon.
	InputEnded func()
	// StreamOpened is called when an agent has opened an event stream with a request, and before
	// that carries a message. It returns soon.
	StreamOpened func(r *http.Request)
}

// A Session is the server's side of MCP with one agent. An agent's package embeds it.
type Session struct {
	// Ctx ends with the session.
	Ctx context.Context

	server  *Server
	dialect Dialect
	since   time.Time
	cancel  context.CancelFunc
	queue   *outbox.Queue[job] // what has not taken effect, in the order of arrival
	out     *outbox.Outbox[*outgoing]

	mu        sync.Mutex
	client    *client // nil until initialize
	greeted   bool    // notifications/initialized has arrived
	connected bool    // [Dialect.Connected] has returned
	mute      bool    // without a stream, only answers can be sent
	ended     bool    // Go starts nothing any more
	over      bool    // nothing can be written any more
	calls     map[string]*Call
	asked     int                  // the number of requests to the agent
	answers   map[int]chan message // of the requests that the agent has not answered, by ID
	unwritten map[*outgoing]bool
	idle      chan struct{}  // closed when no answer is left to write; nil unless flush waits
	tasks     sync.WaitGroup // added to under mu while the session has not ended
}

// A client describes an agent in its own words.
type client struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	// roots is set if the agent can name its folders.
	roots bool
}

// NewSession returns a session, unless there are too many. The caller calls [Session.Serve] or
// [Session.Discard].
func (srv *Server) NewSession(d Dialect) (*Session, error) {
	s := &Session{
		server: srv, dialect: d, since: time.Now(), calls: make(map[string]*Call),
		answers: make(map[int]chan message), unwritten: make(map[*outgoing]bool),
		queue: outbox.NewQueue(outbox.Limits[job]{Bytes: maxWaiting, Size: func(j job) int { return j.size }}),
	}
	s.Ctx, s.cancel = context.WithCancel(context.Background())
	if err := srv.add(s); err != nil {
		s.cancel()
		return nil, err
	}
	return s, nil
}

// Discard ends a session that was not served.
func (s *Session) Discard() {
	s.End()
	s.server.remove(s)
}

// End ends the session. It does not wait.
func (s *Session) End() { s.cancel() }

// start starts the session's goroutines. write writes a message for the agent; it must end soon
// after its context does. After an error the session ends.
func (s *Session) start(write func(context.Context, *outgoing) error) {
	s.out = outbox.New(outbox.Limits[*outgoing]{
		Items: maxOutbox, Bytes: maxOutboxSize, Size: func(o *outgoing) int { return o.size },
	}, func(ctx context.Context, o *outgoing) {
		defer crash.Report()
		err := write(ctx, o)
		if err != nil {
			s.End()
		}
		s.wrote(o, err)
	}, s.End)
	s.Go(s.work)
}

// wait waits until the session has ended.
func (s *Session) wait() {
	<-s.Ctx.Done()
	s.mu.Lock()
	s.ended = true
	s.mu.Unlock()
	s.tasks.Wait()
	s.out.Close()
	if s.isConnected() && s.dialect.Disconnected != nil {
		s.dialect.Disconnected()
	}
	s.mu.Lock()
	s.over = true
	left := s.unwritten
	s.unwritten = nil
	s.idleLocked()
	s.mu.Unlock()
	for o := range left {
		if o.written != nil {
			o.written(ErrUndelivered)
		}
	}
	s.server.remove(s)
}

// Go runs f on another goroutine, unless the session has ended. f returns soon after Ctx ends.
func (s *Session) Go(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return
	}
	s.tasks.Go(func() {
		defer crash.Report()
		f()
	})
}

func (s *Session) isConnected() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.connected
}

func (s *Session) initialized() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.client != nil
}

var (
	// ProtocolVersions are the versions of MCP in which a client connects before it calls a tool,
	// the newest first. 2025-03-26 is missing: its servers must accept batches, and over HTTP this
	// package does not.
	ProtocolVersions = []string{"2025-11-25", "2025-06-18", "2024-11-05"}
	// AllVersions are the versions that can be served over a stream, the newest first.
	AllVersions = []string{Stateless, "2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"}
)

// initialize serves the method with this name.
func (s *Session) initialize(c *Call, m message) {
	var p struct {
		Version      string       `json:"protocolVersion"`
		Client       client       `json:"clientInfo"`
		Capabilities capabilities `json:"capabilities"`
	}
	if err := jsonrpc.Decode(m.Params, &p); err != nil {
		c.fail(jsonrpc.CodeInvalidParams, "the parameters of initialize do not fit: "+err.Error())
		return
	}
	s.introduce(p.Client, p.Capabilities)
	versions := slices.DeleteFunc(slices.Clone(s.server.versions()), func(v string) bool { return v >= Stateless })
	if !slices.Contains(versions, p.Version) {
		p.Version = versions[0]
	}
	c.succeed(struct {
		Version string `json:"protocolVersion"`
		about
		Server serverInfo `json:"serverInfo"`
	}{p.Version, s.server.about(), s.server.info()})
}

// introduce notes who the agent is, when it first says so.
func (s *Session) introduce(info client, offers capabilities) {
	info.roots = offers.Roots != nil && string(offers.Roots) != "null"
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.client == nil {
		s.client = &info
	}
}

// capabilities says what an agent can do.
type capabilities struct {
	Roots json.RawMessage `json:"roots"`
}

// An about describes the server to an agent that connects.
type about struct {
	Capabilities struct {
		Experimental map[string]any `json:"experimental,omitempty"`
		Tools        struct{}       `json:"tools"`
	} `json:"capabilities"`
	Instructions string `json:"instructions,omitempty"`
}

func (srv *Server) about() (a about) {
	a.Instructions = srv.cfg.Instructions
	if f := srv.cfg.Experimental; f != nil {
		a.Capabilities.Experimental = f()
	}
	return a
}

func (srv *Server) info() serverInfo { return serverInfo{"pollux", srv.cfg.Title, srv.cfg.Version} }

type serverInfo struct {
	Name    string `json:"name"`
	Title   string `json:"title,omitempty"`
	Version string `json:"version"`
}

// listTools serves tools/list.
func (s *Session) listTools(c *Call, _ message) {
	type tool struct {
		Name        string          `json:"name"`
		Title       string          `json:"title,omitempty"`
		Description string          `json:"description"`
		Schema      json.RawMessage `json:"inputSchema"`
		Output      json.RawMessage `json:"outputSchema,omitempty"`
		Hints       *Hints          `json:"annotations,omitempty"`
		Meta        map[string]any  `json:"_meta,omitempty"`
	}
	list := struct {
		head
		Tools []tool `json:"tools"`
	}{head: c.listHead()}
	for _, t := range s.dialect.Tools {
		row := tool{t.Name, "", t.Description, json.RawMessage(t.Schema), json.RawMessage(t.Output), t.Hints, t.Meta}
		if t.Hints != nil {
			row.Title = t.Hints.Title
		}
		list.Tools = append(list.Tools, row)
	}
	c.succeed(list)
}

// greet handles notifications/initialized: the agent is connected when it returns.
func (s *Session) greet() {
	s.mu.Lock()
	first := s.client != nil && !s.greeted && !s.ended
	if first {
		s.greeted = true
		s.tasks.Add(1) // so that Disconnected comes after Connected
	}
	s.mu.Unlock()
	if !first {
		return
	}
	greeted := make(chan struct{})
	go func() { // a panic ends the process: an HTTP server would recover from it
		defer close(greeted)
		defer s.tasks.Done()
		defer crash.Report()
		s.connect()
	}()
	<-greeted
}

func (s *Session) connect() {
	if s.dialect.Connected != nil {
		s.dialect.Connected()
	}
	s.mu.Lock()
	s.connected = true
	s.mu.Unlock()
}

// Send sends a notification, and returns when it is written. The params may be encoded already, as
// a [json.RawMessage].
func (s *Session) Send(ctx context.Context, method string, params any) error {
	written := make(chan error, 1)
	m := request{Version: "2.0", Method: method, Params: params}
	s.send(&outgoing{message: m, written: func(err error) { written <- err }}, s.toOutbox)
	select {
	case err := <-written:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-s.Ctx.Done():
		return ErrUndelivered
	}
}

// Notify queues a notification whose params have about size bytes as JSON. written is that of
// [Call.Answer].
func (s *Session) Notify(method string, params any, size int, written func(error)) {
	m := request{Version: "2.0", Method: method, Params: params}
	s.send(&outgoing{message: m, size: size, kept: true, written: written}, s.toOutbox)
}

// NotifyLatest queues a notification of a state. When it can be written, params returns the state
// for the stream with that number, or nil if nothing is to be written; it may be called again if the
// stream breaks.
func (s *Session) NotifyLatest(method string, params func(stream int) any) {
	s.send(&outgoing{message: request{Version: "2.0", Method: method}, latest: params}, s.toOutbox)
}

// Roots asks the agent for the URIs of its folders. It returns none if the agent cannot name them.
func (s *Session) Roots(ctx context.Context) (uris []string, err error) {
	if !s.clientInfo().roots {
		return nil, nil
	}
	answer := make(chan message, 1)
	s.mu.Lock()
	s.asked++
	id := s.asked
	s.answers[id] = answer
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.answers, id)
	}()
	s.send(&outgoing{message: request{Version: "2.0", ID: id, Method: methodRoots}}, s.toOutbox)
	var m message
	select {
	case m = <-answer:
	case <-ctx.Done():
		s.Notify(methodCanceled, canceled{json.RawMessage(strconv.Itoa(id))}, 0, nil)
		return nil, ctx.Err()
	case <-s.Ctx.Done():
		return nil, ErrUndelivered
	}
	if m.Error != nil {
		return nil, m.Error
	}
	return rootURIs(m.Result)
}

const methodRoots = "roots/list"

// rootURIs returns the URIs in an answer to roots/list.
func rootURIs(answer json.RawMessage) (uris []string, err error) {
	var list struct {
		Roots []struct {
			URI string `json:"uri"`
		} `json:"roots"`
	}
	if err := jsonrpc.Decode(answer, &list); err != nil {
		return nil, err
	}
	for _, root := range list.Roots {
		uris = append(uris, root.URI)
	}
	return uris, nil
}

// answered handles the answer to a request to the agent.
func (s *Session) answered(m message) {
	id, err := strconv.Atoi(string(m.ID))
	s.mu.Lock()
	answer := s.answers[id]
	delete(s.answers, id)
	s.mu.Unlock()
	if err == nil && answer != nil {
		answer <- m
	}
}

// send queues a message with put.
func (s *Session) send(o *outgoing, put func(*outgoing)) {
	s.mu.Lock()
	ok := s.acceptLocked(o)
	s.mu.Unlock()
	if ok {
		put(o)
	} else if o.written != nil {
		go o.written(ErrUndelivered)
	}
}

// acceptLocked counts a message as one to be written, unless nothing can be written any more.
func (s *Session) acceptLocked(o *outgoing) bool {
	if !s.over {
		s.unwritten[o] = true
	}
	return !s.over
}

// toOutbox puts a message into the outbox, unless it is nil. What that drops is reported when the
// session ends.
func (s *Session) toOutbox(o *outgoing) {
	if o != nil {
		s.out.Put(o)
	}
}

// wrote reports that a message was written, or could not be.
func (s *Session) wrote(o *outgoing, err error) {
	s.mu.Lock()
	left := s.unwritten[o]
	delete(s.unwritten, o)
	s.idleLocked()
	s.mu.Unlock()
	if left && o.written != nil {
		o.written(err)
	}
}

// flush waits until the agent has the answers to its calls that do not wait for the user, and the
// notifications of [Session.Notify] that can be written now, for as long as ctx allows.
func (s *Session) flush(ctx context.Context) {
	s.mu.Lock()
	if !s.answeringLocked() {
		s.mu.Unlock()
		return
	}
	if s.idle == nil {
		s.idle = make(chan struct{})
	}
	idle := s.idle
	s.mu.Unlock()
	select {
	case <-idle:
	case <-s.Ctx.Done():
	case <-ctx.Done():
	}
}

// answeringLocked reports whether a message has not been written that flush waits for.
func (s *Session) answeringLocked() bool {
	for o := range s.unwritten {
		if o.answer || o.kept && !s.mute {
			return true
		}
	}
	for _, c := range s.calls {
		if !c.later {
			return true
		}
	}
	return false
}

// Muted reports whether a notification would wait for the next event stream.
func (s *Session) Muted() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mute
}

// setMute sets whether without a stream, only answers can be sent.
func (s *Session) setMute(mute bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mute = mute
	s.idleLocked()
}

func (s *Session) idleLocked() {
	if s.idle != nil && !s.answeringLocked() {
		close(s.idle)
		s.idle = nil
	}
}

// ClientInfo returns the name and the version that the agent sends; both are empty before it has.
func (s *Session) ClientInfo() (name, version string) {
	info := s.clientInfo()
	return info.Name, info.Version
}

func (s *Session) clientInfo() client {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.client == nil {
		return client{}
	}
	return *s.client
}

// Since returns when the session was made.
func (s *Session) Since() time.Time { return s.since }
