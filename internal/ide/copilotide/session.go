package copilotide

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"io"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"pollux/internal/companion"
	"pollux/internal/editor"
	"pollux/internal/ide/blocking"
	"pollux/internal/sys"
)

// A Session is one connected agent. It implements [companion.Session].
//
// The agent posts its messages. The answer to a request is the response to its post, and
// notifications go to the one event stream that the agent has open. The MCP SDK's own
// HTTP server does not fit: it does not report when an answer has been written, and
// cannot keep a response alive that waits for the user.
//
// The session ends when the agent deletes it, or has no event stream for some time. It
// opens a broken one again after about a second. An agent that was killed cannot.
type Session struct {
	*blocking.Session
	textRules

	id       string
	server   *Server
	process  companion.Process
	incoming chan jsonrpc.Message // for the SDK

	mu      sync.Mutex
	pending map[jsonrpc.ID]chan []byte // the requests whose response is served; each holds at most one answer
	stream  *stream                    // nil if none is open
	gone    *time.Timer                // ends the session while no stream is open
}

// A stream is an event stream that the agent has opened.
type stream struct {
	messages chan []byte
	ctx      context.Context // ends with the stream
	cancel   context.CancelFunc
}

// names are the agent's names, as people know them, by the name that it sends.
var names = map[string]string{"copilot-cli": "Copilot CLI"}

// newSession returns a session of the agent that has sent the header with its process.
func (s *Server) newSession(process string) *Session {
	session := &Session{
		id: rand.Text(), server: s, incoming: make(chan jsonrpc.Message), pending: make(map[jsonrpc.ID]chan []byte),
	}
	if pid, err := strconv.Atoi(process); err == nil && pid > 0 {
		session.process = companion.Process{PID: pid, Dir: sys.WorkingDir(pid), Terminal: sys.Terminal(pid)}
	}
	session.Session = blocking.NewSession(blocking.SessionConfig{
		Backend: s.cfg.Backend, Log: s.cfg.Log, OnPanic: s.cfg.OnPanic, Self: session,
		Implementation: mcp.Implementation{Name: "pollux", Title: s.cfg.Editor.DisplayName, Version: s.cfg.Version},
		Names:          names, Delays: []time.Duration{0}, SkipNothing: true, Messages: &s.messages,
	})
	session.gone = time.AfterFunc(unstreamedTimeout, session.End)
	return session
}

// unstreamedTimeout bounds a session that never opens an event stream.
const unstreamedTimeout = time.Minute

// serve serves the agent until the session ends.
func (s *Session) serve() {
	s.Serve(conn{s}, s.addTools)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gone.Stop()
}

// Process implements [companion.Session].
func (s *Session) Process() companion.Process { return s.process }

// Transport implements [companion.Session].
func (s *Session) Transport() string { return "http" }

// receive gives a message of the agent to the SDK.
func (s *Session) receive(msg jsonrpc.Message) {
	select {
	case s.incoming <- msg:
	case <-s.Ctx.Done():
	}
}

// serveCall serves a request and its answer.
func (s *Session) serveCall(w http.ResponseWriter, r *http.Request, req *jsonrpc.Request) {
	received, id := make(chan []byte, 1), req.ID
	if !s.expect(id, received) {
		answer(w, http.StatusBadRequest, id.Raw(), codeInvalidRequest, "another request has this ID")
		return
	}
	// Before the response begins: then the agent may send its next call, which comes after
	// this one. From here on only the ID is kept, because the answer may take hours.
	s.receive(s.Calls.Received(req))
	out, stop := respond(s.Ctx, w, s.id)
	defer stop()
	answered, err := s.await(r.Context(), out, received)
	s.forget(id)
	if err != nil && !answered && s.Ctx.Err() == nil && len(received) == 0 {
		s.cancelCall(id)
		return
	}
	s.Calls.Written(id, err)
}

// cancelCall cancels a request whose response has ended before the answer: the agent has
// given the request up, or was killed. In the latter case the session ends in a moment,
// and a diff of it stays for the user.
func (s *Session) cancelCall(id jsonrpc.ID) {
	timer := time.NewTimer(s.server.cfg.GoneTimeout + closeTimeout)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-s.Ctx.Done():
		return
	}
	params, err := json.Marshal(mcp.CancelledParams{RequestID: id.Raw()})
	if err == nil {
		s.receive(&jsonrpc.Request{Method: "notifications/cancelled", Params: params})
	}
}

// expect adds a request whose answer goes to received. It reports false if the ID is in
// use.
func (s *Session) expect(id jsonrpc.ID, received chan []byte) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pending[id] != nil {
		return false
	}
	s.pending[id] = received
	return true
}

// answer gives an answer to the response that waits for it. It reports false if none does.
func (s *Session) answer(id jsonrpc.ID, data []byte) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	received := s.pending[id]
	if received == nil {
		return false
	}
	select {
	case received <- data: // under the lock, so that it comes before forget
		return true
	default: // a second answer
		return false
	}
}

func (s *Session) forget(id jsonrpc.ID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.pending, id)
}

// await writes the answer to a request when there is one. It reports whether there was
// one, and returns an error if it was not written: the agent no longer waits for it, or
// the session ends first.
func (s *Session) await(ctx context.Context, out response, received chan []byte) (answered bool, err error) {
	tick := time.NewTicker(keepAliveInterval)
	defer tick.Stop()
	for {
		select {
		case data := <-received:
			return true, out.message(data)
		case <-tick.C:
			if err := out.comment(); err != nil {
				return false, err
			}
		case <-ctx.Done():
			return false, ctx.Err()
		case <-s.Ctx.Done():
			return false, blocking.ErrUndelivered
		}
	}
}

// serveStream serves an event stream. It replaces the last one: the agent has one.
func (s *Session) serveStream(w http.ResponseWriter, r *http.Request) {
	st := &stream{messages: make(chan []byte)}
	st.ctx, st.cancel = context.WithCancel(s.Ctx)
	defer s.ended(st)
	s.mu.Lock()
	if s.stream != nil {
		s.stream.cancel()
	}
	s.stream = st
	s.gone.Stop()
	s.mu.Unlock()
	out, stop := respond(st.ctx, w, s.id)
	defer stop()
	s.Feed.Refresh() // a stream first carries the context
	tick := time.NewTicker(keepAliveInterval)
	defer tick.Stop()
	for {
		var err error
		select {
		case data := <-st.messages:
			err = out.message(data)
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

// ended forgets a stream. The session ends unless another one opens in time.
func (s *Session) ended(st *stream) {
	st.cancel()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stream == st && s.Ctx.Err() == nil {
		s.stream = nil
		s.gone.Reset(s.server.cfg.GoneTimeout)
	}
}

// send gives a notification to the event stream. It returns [blocking.ErrDropped] if none
// is open: one that opens gets the state as it is then.
func (s *Session) send(data []byte) error {
	s.mu.Lock()
	st := s.stream
	s.mu.Unlock()
	dropped := func() error { return cmp.Or(s.Ctx.Err(), blocking.ErrDropped) }
	if st == nil {
		return dropped()
	}
	select {
	case st.messages <- data:
		return nil
	case <-st.ctx.Done():
		return dropped()
	}
}

// A conn is the connection of a session, for the SDK.
type conn struct{ s *Session }

// SessionID implements [mcp.Connection].
func (c conn) SessionID() string { return c.s.id }

// Close implements [mcp.Connection].
func (c conn) Close() error {
	c.s.End()
	return nil
}

// Read implements [mcp.Connection].
func (c conn) Read(ctx context.Context) (jsonrpc.Message, error) {
	select {
	case msg := <-c.s.incoming:
		return msg, nil
	case <-c.s.Ctx.Done():
	case <-ctx.Done():
		c.s.End()
	}
	return nil, io.EOF
}

// Write implements [mcp.Connection]. It writes nothing for a session that ends: an
// error that only says so would reach the agent as the answer.
func (c conn) Write(_ context.Context, msg jsonrpc.Message) error {
	if err := c.s.Ctx.Err(); err != nil {
		return err
	}
	data, err := jsonrpc.EncodeMessage(msg)
	if err != nil {
		return err
	}
	res, ok := msg.(*jsonrpc.Response)
	if !ok {
		return c.s.send(data)
	}
	if !c.s.answer(res.ID, data) {
		c.s.Calls.Written(res.ID, blocking.ErrUndelivered) // the agent no longer waits
	}
	return nil
}

// Send implements [blocking.Conn].
func (c conn) Send(_ context.Context, message []byte) error { return c.s.send(message) }

// ready is a text that the agent shows when it reads its keyboard.
const ready = "/ commands"

// Prompt implements [companion.Session].
func (s *Session) Prompt(p editor.PromptParams, roots []string) editor.Prompt {
	return Prompt(p, roots)
}

// Prompt is [Session.Prompt] for when the agent is not connected. The agent's @ syntax
// has no lines.
func Prompt(p editor.PromptParams, roots []string) editor.Prompt {
	text := ""
	if p.Path != "" {
		text = "@" + companion.NameIn(p.Path, roots) + companion.LineText(p)
	}
	return companion.NewPrompt(p, text, ready)
}
