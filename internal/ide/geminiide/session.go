package geminiide

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"pollux/internal/termtext"
)

// ErrUndelivered is passed to an outcome's done function when the session ended
// before the client received it.
var ErrUndelivered = errors.New("the CLI ended before it received the outcome")

// A Session is one connected CLI.
//
// The MCP SDK has no way to send a notification of our own, so the session
// keeps the transport's connection and writes to it from one goroutine, the
// writer. Outcomes of diffs are queued and written in order, however long the
// client is without an event stream; of the context only the latest state is
// kept. An error of a write means that no stream is open: the writer keeps the
// message and waits until the next stream is ready.
//
// A client that does not read, a suspended one for instance, blocks the writer
// and nothing else, with no deadline: a broken stream would disconnect the CLI
// for good when it wakes. Close sets one.
type Session struct {
	id     string
	server *Server
	since  time.Time
	mcp    *mcp.ServerSession
	conn   mcp.Connection
	http   *mcp.StreamableServerTransport // nil over stdio
	bytes  io.Closer                      // the client's byte stream over stdio

	ctx     context.Context // ends with the session
	cancel  context.CancelFunc
	started chan struct{} // closed when mcp and conn are set
	wake    chan struct{} // capacity 1
	done    sync.WaitGroup

	mu        sync.Mutex
	ready     bool          // a stream is open for writing
	stream    *streamWriter // the open event stream, HTTP only
	outcomes  []outcome
	context   bool                         // the context must be sent
	busy      bool                         // the writer is in a write
	writing   *streamWriter                // to this stream, HTTP only
	responses map[http.ResponseWriter]bool // to requests that are being served
	drained   []chan bool                  // told when nothing is queued
	gone      *time.Timer                  // ends the session when it has no stream
	timer     int                          // the number of that timer
	announced bool
}

type outcome struct {
	method string
	params any
	done   func(error)
}

// ID is unique among all sessions.
func (s *Session) ID() string { return s.id }

// Since is when the client connected.
func (s *Session) Since() time.Time { return s.since }

// Client returns the name and version that the client gave, fit to be shown.
func (s *Session) Client() (name, version string) {
	p := s.mcp.InitializeParams()
	if p == nil || p.ClientInfo == nil {
		return "", ""
	}
	return shown(p.ClientInfo.Name), shown(p.ClientInfo.Version)
}

// maxName bounds a client's name and version, in bytes.
const maxName = 64

func shown(name string) string {
	if line := termtext.Line(name, maxName); line != "" || name == "" {
		return line
	}
	return "?"
}

// Transport is "http" or "stdio".
func (s *Session) Transport() string {
	if s.http != nil {
		return "http"
	}
	return "stdio"
}

func (srv *Server) newSession() *Session {
	s := &Session{
		id: rand.Text(), server: srv, since: time.Now(), started: make(chan struct{}), wake: make(chan struct{}, 1),
		responses: make(map[http.ResponseWriter]bool),
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s
}

func (srv *Server) newHTTPSession() (*Session, error) {
	s := srv.newSession()
	s.http = &mcp.StreamableServerTransport{SessionID: s.id}
	if err := s.start(s.http, nil); err != nil {
		return nil, err
	}
	s.mu.Lock()
	s.expectStreamLocked(unstreamedAfter)
	s.mu.Unlock()
	return s, nil
}

// ServeConn serves one client over a byte stream of newline-delimited JSON
// (the CLI's stdio transport, carried by `pollux connect`) until it ends.
func (srv *Server) ServeConn(conn io.ReadWriteCloser) error {
	s := srv.newSession()
	s.bytes = conn
	err := s.start(&mcp.IOTransport{Reader: conn, Writer: conn, MaxLineLength: int(srv.cfg.MaxBody)}, func() {
		s.connected()
		s.streamReady(nil)
	})
	if err != nil {
		conn.Close()
		return err
	}
	err = s.mcp.Wait()
	s.Close()
	return err
}

// start connects the session's MCP server to its transport.
func (s *Session) start(t mcp.Transport, initialized func()) error {
	capabilities := &mcp.ServerCapabilities{Tools: &mcp.ToolCapabilities{}}
	if roots := s.server.cfg.Roots; roots != nil {
		capabilities.Experimental = map[string]any{RootsCapability: map[string]any{"roots": roots()}}
	}
	server := mcp.NewServer(&mcp.Implementation{Name: "pollux", Title: s.server.cfg.Title, Version: s.server.cfg.Version}, &mcp.ServerOptions{
		Capabilities:              capabilities,
		SupportedProtocolVersions: protocolVersions,
		InitializedHandler: func(context.Context, *mcp.InitializedRequest) {
			if initialized != nil {
				<-s.started
				initialized()
			}
		},
	})
	s.addTools(server)
	var err error
	if s.mcp, err = server.Connect(s.ctx, keepConn{t, &s.conn}, nil); err != nil {
		s.cancel()
		return err
	}
	close(s.started)
	// Only now can others find it.
	if err := s.server.add(s); err != nil {
		s.cancel()
		s.mcp.Close()
		return err
	}
	s.done.Go(s.write)
	return nil
}

// keepConn is a transport that hands out the connection it makes.
type keepConn struct {
	mcp.Transport
	conn *mcp.Connection
}

func (k keepConn) Connect(ctx context.Context) (mcp.Connection, error) {
	conn, err := k.Transport.Connect(ctx)
	*k.conn = conn
	return conn, err
}

func (s *Session) connected() {
	s.mu.Lock()
	first := !s.announced
	s.announced = true
	s.mu.Unlock()
	if first {
		name, version := s.Client()
		s.server.cfg.Log.Info("a CLI connected", "client", name, "version", version, "transport", s.Transport())
		s.server.cfg.Backend.Connected(s)
	}
}

// Notify queues a notification about a diff. done is called once, on another
// goroutine, with nil when the notification was written, else with
// [ErrUndelivered].
func (s *Session) Notify(method string, params any, done func(error)) {
	s.mu.Lock()
	if s.ctx.Err() != nil {
		s.mu.Unlock()
		go done(ErrUndelivered)
		return
	}
	s.outcomes = append(s.outcomes, outcome{method, params, done})
	s.mu.Unlock()
	s.poke()
}

func (s *Session) contextChanged() {
	s.mu.Lock()
	s.context = true
	s.mu.Unlock()
	s.poke()
}

func (s *Session) poke() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// write is the writer goroutine.
func (s *Session) write() {
	defer s.server.onPanic()
	keepAlive := time.NewTicker(s.server.cfg.KeepAlive)
	defer keepAlive.Stop()
	for {
		for s.writeNext() {
		}
		select {
		case <-s.wake:
		case <-keepAlive.C:
			s.mu.Lock()
			stream := s.stream
			s.busy, s.writing = stream != nil, stream
			s.mu.Unlock()
			if stream != nil {
				stream.comment()
				s.mu.Lock()
				s.busy, s.writing = false, nil
				s.mu.Unlock()
			}
		case <-s.ctx.Done():
			return
		}
	}
}

// writeNext writes one message and reports whether there may be another.
func (s *Session) writeNext() bool {
	s.mu.Lock()
	if !s.ready || s.ctx.Err() != nil || len(s.outcomes) == 0 && !s.context {
		s.tellDrainedLocked()
		s.mu.Unlock()
		return false
	}
	var next outcome
	isOutcome := len(s.outcomes) > 0
	if isOutcome {
		next = s.outcomes[0]
	} else {
		s.context = false
	}
	stream := s.stream
	s.busy, s.writing = true, stream
	s.mu.Unlock()

	if !isOutcome {
		next = outcome{method: MethodContextUpdate, params: s.server.cfg.Backend.Context()}
	}
	err := s.send(next)

	s.mu.Lock()
	s.busy, s.writing = false, nil
	if err != nil {
		if s.stream == stream {
			s.ready = false
		}
		s.context = s.context || !isOutcome
		s.mu.Unlock()
		return true
	}
	if isOutcome {
		s.outcomes = s.outcomes[1:]
	}
	s.mu.Unlock()
	if isOutcome {
		next.done(nil)
	}
	return true
}

func (s *Session) send(o outcome) error {
	params, err := json.Marshal(o.params)
	if err != nil {
		return err
	}
	return s.conn.Write(s.ctx, &jsonrpc.Request{Method: o.method, Params: params})
}

func (s *Session) tellDrainedLocked() {
	if s.busy || s.ready && s.ctx.Err() == nil && len(s.outcomes) > 0 {
		return
	}
	for _, c := range s.drained {
		close(c)
	}
	s.drained = nil
}

// flush waits until the queued outcomes are written, if the client has a
// stream to write them to.
func (s *Session) flush(ctx context.Context) {
	c := make(chan bool)
	s.mu.Lock()
	s.drained = append(s.drained, c)
	s.mu.Unlock()
	s.poke()
	select {
	case <-c:
	case <-s.ctx.Done():
	case <-ctx.Done():
	}
}

// expectStreamLocked ends the session unless a stream opens in time. Callers
// decide that there is none under the same lock: a stream that opens in between
// would be cut.
func (s *Session) expectStreamLocked(within time.Duration) {
	s.stopTimerLocked()
	if s.ctx.Err() == nil {
		number := s.timer
		s.gone = time.AfterFunc(within, func() { s.expire(number) })
	}
}

// stopTimerLocked stops the timer, also one that has run out and waits for the
// lock: its number is not the current one any more.
func (s *Session) stopTimerLocked() {
	if s.gone != nil {
		s.gone.Stop()
		s.gone = nil
	}
	s.timer++
}

// expire ends the session if the timer with that number is still the current
// one.
func (s *Session) expire(number int) {
	s.closeIf(func() bool { return s.timer == number })
}

func (s *Session) streamReady(w *streamWriter) {
	s.mu.Lock()
	s.ready, s.stream = true, w
	s.context = true // the first thing a stream carries
	s.stopTimerLocked()
	s.mu.Unlock()
	s.poke()
}

func (s *Session) streamEnded(w *streamWriter) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stream == w {
		s.ready, s.stream = false, nil
		s.expectStreamLocked(s.server.cfg.GoneAfter)
	}
}

func (s *Session) serveStream(w http.ResponseWriter, r *http.Request) {
	sw := &streamWriter{ResponseWriter: w}
	sw.onReady = func() { s.streamReady(sw) }
	s.serve(sw, r)
	if r.Context().Err() != nil {
		sw.unblock() // the client may have closed its half only, and not read
	}
	sw.end()
	s.streamEnded(sw)
}

// serve has the SDK answer a request, in a way that Close can end.
func (s *Session) serve(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.responses[w] = true
	if s.ctx.Err() != nil {
		endSoon(w)
	}
	s.mu.Unlock()
	s.http.ServeHTTP(w, r)
	s.mu.Lock()
	delete(s.responses, w)
	s.mu.Unlock()
}

// endSoon gives a response the time to end gracefully, and no more.
func endSoon(w http.ResponseWriter) {
	http.NewResponseController(w).SetWriteDeadline(time.Now().Add(closeTimeout))
}

// servePost serves one message of the client's. A client that only posts stays
// connected as long as it does.
func (s *Session) servePost(w http.ResponseWriter, r *http.Request) {
	s.serve(w, r)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stream == nil && s.gone != nil {
		s.expectStreamLocked(unstreamedAfter)
	}
}

// Close ends the session: the client's streams end gracefully, what could not
// be delivered is reported as such, and the backend is notified.
func (s *Session) Close() { s.closeIf(func() bool { return true }) }

// closeIf is Close if the condition holds, which it asks under the lock.
func (s *Session) closeIf(holds func() bool) {
	s.mu.Lock()
	if s.ctx.Err() != nil || !holds() {
		s.mu.Unlock()
		return
	}
	s.cancel()
	s.stopTimerLocked()
	for w := range s.responses {
		endSoon(w)
	}
	if s.writing != nil {
		s.writing.unblock()
	}
	s.mu.Unlock()

	s.server.remove(s)
	if s.bytes != nil {
		s.bytes.Close() // a client that does not read would block what follows
	}
	s.mcp.Close()
	s.done.Wait()

	s.mu.Lock()
	undelivered, announced := s.outcomes, s.announced
	s.outcomes = nil
	s.tellDrainedLocked()
	s.mu.Unlock()
	for _, o := range undelivered {
		o.done(ErrUndelivered)
	}
	if announced {
		s.server.cfg.Log.Info("a CLI is gone", "transport", s.Transport())
		s.server.cfg.Backend.Gone(s)
	}
}

// A streamWriter is the event stream's ResponseWriter. It tells when the
// stream is ready, keeps our comments from landing inside an event, and is
// silent once its request has ended.
type streamWriter struct {
	http.ResponseWriter
	onReady func()

	mu    sync.Mutex
	ended bool
	ready bool
}

func (w *streamWriter) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended {
		return 0, http.ErrHandlerTimeout
	}
	return w.ResponseWriter.Write(b)
}

// FlushError is first called when the stream's headers are complete. The SDK
// then holds a lock that a write would wait for, so readiness only wakes the
// writer.
func (w *streamWriter) FlushError() error {
	w.mu.Lock()
	if w.ended {
		w.mu.Unlock()
		return http.ErrHandlerTimeout
	}
	err := http.NewResponseController(w.ResponseWriter).Flush()
	first := !w.ready
	w.ready = true
	w.mu.Unlock()
	if first {
		w.onReady()
	}
	return err
}

func (w *streamWriter) comment() {
	if _, err := w.Write([]byte(": keep-alive\n\n")); err == nil {
		w.FlushError()
	}
}

// Unwrap lets an [http.ResponseController] reach the connection.
func (w *streamWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// unblock makes a write that the client does not read fail.
func (w *streamWriter) unblock() {
	http.NewResponseController(w.ResponseWriter).SetWriteDeadline(time.Now())
}

func (w *streamWriter) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ended = true
}
