package geminiide

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"pollux/internal/companion"
	"pollux/internal/outbox"
	"pollux/internal/sys"
	"pollux/internal/termtext"
)

// errUndelivered reports to an outcome's done function that the session ended
// before the client received the outcome.
var errUndelivered = errors.New("the CLI ended before it received the outcome")

// A Session is one connected CLI. It implements [companion.Session].
//
// The MCP SDK cannot send custom notifications, so the session keeps the
// transport's connection and writes to it from one goroutine, the writer. Outcomes
// of diffs are queued, even while the client has no event stream, and written in
// order. The session keeps only the latest context. If a write fails, no stream is
// open: the writer keeps the message and waits for the next stream.
//
// A client that does not read, such as a suspended one, blocks the writer and
// nothing else. The write has no deadline, since a broken stream would
// disconnect the CLI until the user reconnects it. Close sets one.
type Session struct {
	textRules

	id     string
	agent  string // the program whose token the client has; "" over stdio
	server *Server
	since  time.Time
	mcp    *mcp.ServerSession
	conn   mcp.Connection
	http   *mcp.StreamableServerTransport // nil over stdio
	bytes  io.Closer                      // the client's byte stream over stdio

	ctx     context.Context // ends with the session
	cancel  context.CancelFunc
	started chan struct{} // closed when mcp and conn are set
	closed  chan struct{} // closed when Close has done everything
	wake    outbox.Signal // something may have to be written
	done    sync.WaitGroup

	mu        sync.Mutex
	ready     bool          // a stream is open for writing
	stream    *streamWriter // the open event stream, HTTP only
	outcomes  []outcome
	context   bool                         // the context may have to be sent
	sent      string                       // the key of the context that the stream carried last
	busy      bool                         // the writer is in a write
	writing   *streamWriter                // to this stream, HTTP only
	responses map[http.ResponseWriter]bool // to requests that are being served
	calls     map[string]bool              // the calls of serveTool, by ID
	drained   []chan bool                  // closed when nothing is queued
	gone      *time.Timer                  // ends the session when it has no stream
	timer     int                          // the number of that timer
	process   companion.Process            // the client's

	connect   sync.Once // calls Backend.Connect, or prevents the call
	announced bool      // Backend.Connect was called; set by connect
}

type outcome struct {
	method string
	params any
	done   func(error)
}

// Since implements [companion.Session].
func (s *Session) Since() time.Time { return s.since }

// Client implements [companion.Session].
func (s *Session) Client() (name, version string) {
	p := s.mcp.InitializeParams()
	if p == nil || p.ClientInfo == nil {
		return agentName("", "", s.agent)
	}
	return agentName(p.ClientInfo.Name, p.ClientInfo.Version, s.agent)
}

// placeholder is the version that Qwen Code sends instead of its real one. Gemini
// CLI 0.20 does so, too.
const placeholder = "1.0.0"

// agentName returns a client's name, as people know it, and its version. The
// CLIs send the name of their transport instead of their name, so their token
// identifies them. Over stdio, without a token, the version does. A client
// that sends no name gets one in the same way.
func agentName(name, version, agent string) (string, string) {
	switch name {
	case "", "streamable-http-client", "stdio-client":
	default:
		return shown(name), shown(version)
	}
	if agent == "" {
		agent = geminiCLI
		if version == placeholder {
			agent = qwenCode
		}
	}
	if version == placeholder {
		version = ""
	}
	return agent, shown(version)
}

// Refuses implements [companion.TextRules].
func (s *Session) Refuses(text, _, proposed string) string {
	if text != "" || proposed == "" {
		return ""
	}
	name, _ := s.Client()
	return name + " ignores an empty text and would write its own proposal. " +
		"Reject the change and empty the file yourself."
}

// maxName bounds a client's name and version, in bytes.
const maxName = 64

// shown returns a name that is safe to show.
func shown(name string) string {
	if line := termtext.Line(name, maxName); line != "" || name == "" {
		return line
	}
	return "?"
}

// Transport implements [companion.Session].
func (s *Session) Transport() string {
	if s.http != nil {
		return "http"
	}
	return "stdio"
}

func (srv *Server) newSession() *Session {
	s := &Session{
		id: rand.Text(), server: srv, since: time.Now(), wake: outbox.NewSignal(),
		started: make(chan struct{}), closed: make(chan struct{}), responses: make(map[http.ResponseWriter]bool),
		calls: make(map[string]bool),
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s
}

func (srv *Server) newHTTPSession(agent string) (*Session, error) {
	s := srv.newSession()
	s.agent = agent
	s.http = &mcp.StreamableServerTransport{SessionID: s.id}
	if err := s.start(s.http, nil); err != nil {
		return nil, err
	}
	s.mu.Lock()
	s.expectStreamLocked(unstreamedTimeout)
	s.mu.Unlock()
	return s, nil
}

// Process implements [companion.Session].
func (s *Session) Process() companion.Process {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.process
}

// locate finds the process that has sent a request. Over
// stdio they stay unknown, since a relay is at the other end.
func (s *Session) locate(r *http.Request) {
	if s.Process().PID != 0 {
		return
	}
	local, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	pid := sys.PeerProcess(local, r.RemoteAddr)
	if pid == 0 {
		return
	}
	process := companion.Process{PID: pid, Dir: sys.WorkingDir(pid), Terminal: sys.Terminal(pid)}
	s.mu.Lock()
	s.process = process
	s.mu.Unlock()
	s.server.cfg.Backend.Changed(s)
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
	self := &mcp.Implementation{Name: "pollux", Title: s.server.cfg.Editor.DisplayName, Version: s.server.cfg.Version}
	server := mcp.NewServer(self, &mcp.ServerOptions{
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
	s.done.Go(s.write)
	// Only now can others find it, and close it.
	if err := s.server.add(s); err != nil {
		s.connect.Do(func() {})
		s.cancel()
		close(s.started)
		s.mcp.Close()
		s.done.Wait()
		return err
	}
	close(s.started)
	return nil
}

// A keepConn is a transport that stores the connection it makes.
type keepConn struct {
	mcp.Transport
	conn *mcp.Connection
}

func (k keepConn) Connect(ctx context.Context) (mcp.Connection, error) {
	conn, err := k.Transport.Connect(ctx)
	*k.conn = conn
	return conn, err
}

// connected adds the session to the backend, once.
func (s *Session) connected() {
	s.connect.Do(func() {
		s.announced = true
		name, version := s.Client()
		s.server.cfg.Log.Info("an agent connected", "client", name, "version", version, "transport", s.Transport())
		s.server.cfg.Backend.Connect(s)
	})
}

// Resolve implements [companion.Session] with a notification. It sends none for a
// superseded proposal: notifications name only the path, and the CLI would take it
// for the answer to the new proposal. It also sends none for a proposal that the
// user answers in the terminal.
func (s *Session) Resolve(p companion.Proposal, o companion.Outcome, done func(error)) {
	if o.Superseded || o.Failed {
		go done(nil)
		return
	}
	next := outcome{MethodDiffRejected, DiffRejected{FilePath: p.Path}, done}
	if o.Accepted {
		next.method, next.params = MethodDiffAccepted, DiffAccepted{FilePath: p.Path, Content: o.Text}
	}
	s.mu.Lock()
	if s.ctx.Err() != nil {
		s.mu.Unlock()
		go done(errUndelivered)
		return
	}
	s.outcomes = append(s.outcomes, next)
	s.mu.Unlock()
	s.wake.Set()
}

// ContextChanged implements [companion.Session].
func (s *Session) ContextChanged() {
	s.mu.Lock()
	s.context = true
	s.mu.Unlock()
	s.wake.Set()
}

// write writes all messages to the client. It runs on the writer goroutine.
func (s *Session) write() {
	defer s.server.onPanic()
	keepAlive := time.NewTicker(s.server.cfg.KeepAliveInterval)
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
	last := s.sent
	s.busy, s.writing = true, stream
	s.mu.Unlock()

	key := ""
	var err error
	if !isOutcome {
		update := s.server.context()
		key = update.key
		next = outcome{method: MethodContextUpdate, params: update.params}
	}
	if isOutcome || key != last {
		err = s.send(stream, next)
	}

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
	} else if s.stream == stream {
		s.sent = key
	}
	s.mu.Unlock()
	if isOutcome {
		next.done(nil)
	}
	return true
}

// send writes a notification. The SDK would encode and copy it again.
func (s *Session) send(stream *streamWriter, o outcome) error {
	params := encodeParams(o.params)
	if stream == nil { // over stdio
		return s.conn.Write(s.ctx, &jsonrpc.Request{Method: o.method, Params: params})
	}
	if err := writeEvent(stream, `{"jsonrpc":"2.0","method":"`+o.method+`","params":`, params); err != nil {
		return err
	}
	return stream.FlushError()
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
	s.wake.Set()
	select {
	case <-c:
	case <-s.ctx.Done():
	case <-ctx.Done():
	}
}

// expectStreamLocked ends the session unless a stream opens in time. Callers
// check under the same lock that no stream is open; otherwise a stream that
// opens in between would be cut.
func (s *Session) expectStreamLocked(within time.Duration) {
	s.stopTimerLocked()
	if s.ctx.Err() == nil {
		number := s.timer
		s.gone = time.AfterFunc(within, func() { s.expire(number) })
	}
}

// stopTimerLocked stops the timer, even if it has run out and waits for the
// lock: its number is no longer the current one.
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
	s.context, s.sent = true, "" // a stream first carries the context
	s.stopTimerLocked()
	s.mu.Unlock()
	s.wake.Set()
}

func (s *Session) streamEnded(w *streamWriter) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stream == w {
		s.ready, s.stream = false, nil
		s.expectStreamLocked(s.server.cfg.GoneTimeout)
	}
}

func (s *Session) serveStream(w http.ResponseWriter, r *http.Request) {
	s.locate(r) // the stream's connection stays open meanwhile
	sw := &streamWriter{ResponseWriter: w}
	sw.onReady = func() { s.streamReady(sw) }
	s.serve(sw, r)
	if r.Context().Err() != nil {
		sw.unblock() // the client may have closed only its half, and may not read
	}
	sw.end()
	s.streamEnded(sw)
}

// serve lets the SDK answer a request.
func (s *Session) serve(w http.ResponseWriter, r *http.Request) {
	s.answering(w, func() { s.http.ServeHTTP(w, r) })
}

// answering runs f, which answers a request, so that Close can end it.
func (s *Session) answering(w http.ResponseWriter, f func()) {
	s.mu.Lock()
	s.responses[w] = true
	if s.ctx.Err() != nil {
		endSoon(w)
	}
	s.mu.Unlock()
	f()
	s.mu.Lock()
	delete(s.responses, w)
	s.mu.Unlock()
}

// endSoon gives a response the time to end gracefully, and no more.
func endSoon(w http.ResponseWriter) {
	http.NewResponseController(w).SetWriteDeadline(time.Now().Add(closeTimeout))
}

// servePost serves one message. A client that only posts stays connected as long
// as it posts.
func (s *Session) servePost(serve func()) {
	serve()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stream == nil && s.gone != nil {
		s.expectStreamLocked(unstreamedTimeout)
	}
}

// Close ends the session: it ends the client's streams gracefully, reports
// undelivered outcomes, and notifies the backend. If the session is being closed
// already, Close waits for that.
func (s *Session) Close() { s.closeIf(func() bool { return true }) }

// closeIf closes the session if the condition holds, which it checks under the
// lock.
func (s *Session) closeIf(holds func() bool) {
	s.mu.Lock()
	if s.ctx.Err() != nil {
		s.mu.Unlock()
		<-s.closed
		return
	}
	if !holds() {
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
	undelivered := s.outcomes
	s.outcomes = nil
	s.tellDrainedLocked()
	s.mu.Unlock()
	for _, o := range undelivered {
		o.done(errUndelivered)
	}
	s.connect.Do(func() {})
	if s.announced {
		s.server.cfg.Log.Info("an agent has disconnected", "transport", s.Transport())
		s.server.cfg.Backend.Disconnect(s)
	}
	close(s.closed)
	s.server.live.Done()
}

// A streamWriter is the ResponseWriter of an event stream. It reports when the
// stream is ready, keeps our comments from landing inside an event, and writes
// nothing after its request has ended.
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

// FlushError flushes the stream. The SDK first calls it when the headers are
// complete, while it holds a lock that a write would wait for. So FlushError only
// wakes the writer.
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

// unblock makes a write fail that waits for the client to read.
func (w *streamWriter) unblock() {
	http.NewResponseController(w.ResponseWriter).SetWriteDeadline(time.Now())
}

func (w *streamWriter) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ended = true
}
