package shared

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"os"
	"reflect"
	"slices"
	"strconv"
	"sync"
	"time"

	"pollux/internal/agent"
	"pollux/internal/agent/queue"
	"pollux/internal/jsonrpc"
	"pollux/internal/sys/proc"
	"pollux/internal/sys/sock"
)

const (
	// helloTimeout limits the first message of a connection.
	helloTimeout = 5 * time.Second
	// aliveInterval is the time between two signs of life until a request is over.
	aliveInterval = 3 * time.Second
	// deadlineSlack is how much later than the bridge a pool ends a request.
	deadlineSlack = time.Second
	// maxKept limits the conversations that a pool keeps for other bridges, in bytes.
	maxKept = 64 << 20
)

// A Server serves the runners of agents to all bridges of a user. It belongs to a pool's
// process.
type Server struct {
	// Definition returns how the user's settings define the agent with a name now, or nil if they do
	// not. It is called for each request. It may be nil.
	Definition func(name string) (*agent.Definition, error)
	// Open opens the runner of the agent with a name, which is nil for an unknown name. The
	// source is for connections that name none. It is called once for each agent, and again if
	// its definition has changed: the runner before is closed after its last request.
	Open func(name string, own *agent.Definition) (*queue.Runner, agent.Source, error)
	// Version is the version of Pollux.
	Version string
	// IdleTimeout is how long the pool keeps running without a request.
	IdleTimeout time.Duration
	// Wall is the wall behind which the runners start agents.
	Wall agent.Wall
	// Settings are the pool's settings, for its status.
	Settings map[string]string
	Log      *slog.Logger

	started  time.Time
	end      func() // ends Serve, and all requests with agent.ErrClosed
	unlisten func() // closes the listener and removes its socket

	work          sync.WaitGroup // what Serve waits for
	opening       sync.Mutex     // held while a runner is opened, and before mu
	mu            sync.Mutex     // guards the fields below
	agents        map[string]*asked
	open          map[*asked]bool // also those that are not in agents any more
	conns         map[*serverConn]bool
	callers       int       // so far
	requests      int       // those that a process may still work on
	used          time.Time // the last request
	stopping      bool      // no new request may start
	conversations map[string]conversation
}

// An asked is the runner of an agent, with the source for connections that name none.
type asked struct {
	runner     *queue.Runner
	source     agent.Source
	definition *agent.Definition
	requests   int  // those that use the runner; guarded by Server.mu
	replaced   bool // it is closed after the last one; guarded by Server.mu
}

// A conversation is one that a process continues.
type conversation struct {
	owner *serverConn // the bridge that asked last
	kept  record      // what another bridge can continue; may be empty
}

// Serve serves the connections of a listener until no request has come for IdleTimeout,
// a command stops the pool, or ctx ends. Then it closes the runners. It closes the listener as
// soon as it no longer accepts requests, and before it ends connections, so that a
// bridge whose connection has ended can start another pool.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	life, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	s.init(func() { cancel(agent.ErrClosed) }, func() { l.Close() })
	defer s.stop(true)
	defer context.AfterFunc(ctx, func() { s.stop(true) })()
	s.work.Go(func() { s.watch(life, l) })
	sock.Accept(l, func(conn net.Conn) {
		s.work.Go(func() {
			defer conn.Close()
			defer context.AfterFunc(life, func() { conn.Close() })()
			s.serve(life, conn)
		})
	})
	<-life.Done()
	var errs []error
	for _, r := range s.runners() {
		errs = append(errs, r.Close())
	}
	s.work.Wait()
	return errors.Join(errs...)
}

func (s *Server) init(end, unlisten func()) {
	s.end, s.unlisten = end, sync.OnceFunc(unlisten)
	s.agents, s.open = make(map[string]*asked), make(map[*asked]bool)
	s.conns, s.conversations = make(map[*serverConn]bool), make(map[string]conversation)
	s.started, s.used = time.Now(), time.Now()
}

// use returns an agent's runner, and opens it if necessary. The caller must call unuse.
func (s *Server) use(name string) (*asked, error) {
	var definition *agent.Definition
	var err error
	if s.Definition != nil {
		definition, err = s.Definition(name)
	}
	s.opening.Lock()
	defer s.opening.Unlock()
	s.mu.Lock()
	a := s.agents[name]
	if a != nil && (err != nil || reflect.DeepEqual(a.definition, definition)) {
		a.requests++
		s.mu.Unlock()
		return a, nil
	}
	if a != nil {
		delete(s.agents, name)
		a.replaced = true
		s.closeLocked(a)
	}
	s.mu.Unlock()
	a = &asked{definition: definition, requests: 1}
	if err == nil {
		a.runner, a.source, err = s.Open(name, definition)
	}
	if err != nil {
		return nil, err
	}
	if a.runner == nil {
		return nil, fmt.Errorf("this pool of Pollux %s does not know the agent %q", s.Version, name)
	}
	s.mu.Lock()
	stopping := s.stopping // then nothing else closes the runner
	if !stopping {
		s.agents[name], s.open[a] = a, true
	}
	s.mu.Unlock()
	if stopping {
		return nil, errors.Join(agent.ErrClosed, a.runner.Close())
	}
	return a, nil
}

func (s *Server) unuse(a *asked) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a.requests--
	s.closeLocked(a)
}

// closeLocked closes a runner that is replaced and not used any more.
func (s *Server) closeLocked(a *asked) {
	if !a.replaced || a.requests > 0 {
		return
	}
	s.work.Go(func() {
		if err := a.runner.Close(); err != nil {
			s.Log.Warn("a runner whose settings have changed was not closed", "error", err)
		}
		s.mu.Lock()
		delete(s.open, a)
		s.mu.Unlock()
	})
}

// runners returns all open runners.
func (s *Server) runners() (all []*queue.Runner) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for a := range s.open {
		all = append(all, a.runner)
	}
	return all
}

// A replaceable listener knows whether bridges still find it.
type replaceable interface{ Replaced() bool }

// watch ends the pool when it has been idle for long enough. If bridges no longer find its
// socket, it ends after its last request.
func (s *Server) watch(ctx context.Context, l net.Listener) {
	look := time.NewTicker(max(s.IdleTimeout/20, 10*time.Millisecond))
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-look.C:
		}
		r, ok := l.(replaceable)
		replaced := ok && r.Replaced()
		s.mu.Lock()
		idle := s.requests == 0 && time.Since(s.used) >= s.IdleTimeout
		stopping := s.stopping
		s.mu.Unlock()
		switch {
		case stopping: // leave ends it
			return
		case replaced:
			s.Log.Warn("the pool ends: its socket was removed or replaced")
			s.stop(false)
		case idle:
			s.Log.Info("the pool ends: no request has come", "for", s.IdleTimeout)
			s.stop(false)
		}
	}
}

// stop lets bridges start another pool, and ends this one after its last request or, with
// now, immediately. It refuses requests only once a bridge that it refuses no longer finds it.
func (s *Server) stop(now bool) {
	s.unlisten()
	s.mu.Lock()
	s.stopping = true
	idle := s.requests == 0
	s.mu.Unlock()
	if now || idle {
		s.end()
	}
}

// enter counts a request, which must call leave. It reports false if no request may start.
func (s *Server) enter() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopping {
		return false
	}
	s.requests++
	s.used = time.Now()
	return true
}

func (s *Server) leave() {
	s.mu.Lock()
	s.requests--
	s.used = time.Now()
	over := s.requests == 0 && s.stopping
	s.mu.Unlock()
	if over {
		s.end()
	}
}

// status returns the state of the pool.
func (s *Server) status() Status {
	st := Status{
		PID: os.Getpid(), Version: s.Version, Started: s.started, Memory: proc.Memory(os.Getpid()),
		Workers: []agent.Worker{}, Queues: []queue.Load{}, Sessions: []Session{},
		Wall: s.Wall.String(), Settings: s.Settings,
	}
	for _, r := range s.runners() {
		st.Workers = append(st.Workers, r.Workers()...)
		st.Queues = append(st.Queues, r.Loads()...)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	st.Stopping = s.stopping
	if s.requests == 0 {
		st.Ends = s.used.Add(s.IdleTimeout)
	}
	for c := range s.conns {
		session := Session{Caller: c.caller, PID: c.hello.PID, Dir: c.hello.Dir, Since: c.since, Requests: len(c.cancels)}
		for _, t := range s.conversations {
			if t.owner == c {
				session.Conversations++
			}
		}
		st.Sessions = append(st.Sessions, session)
	}
	slices.SortFunc(st.Workers, func(a, b agent.Worker) int { return a.Started.Compare(b.Started) })
	slices.SortFunc(st.Sessions, func(a, b Session) int { return a.Since.Compare(b.Since) })
	return st
}

// A serverConn is the connection of one bridge or command.
type serverConn struct {
	server *Server
	rpc    *jsonrpc.Conn
	hello  Hello
	caller string // its name in the queues
	since  time.Time
	ctx    context.Context // ends with the connection
	work   sync.WaitGroup

	cancels map[int]context.CancelFunc // of its requests; guarded by Server.mu
}

// serve serves one connection until it ends, and then ends its requests and drops its
// conversations.
func (s *Server) serve(ctx context.Context, conn net.Conn) {
	// Root cannot be kept out, and is the usual user in a container with the socket.
	peer, ok := sock.PeerOf(conn)
	if ok && peer.UID != os.Getuid() && peer.UID != 0 {
		s.Log.Warn("a process of another user has connected and is refused", "uid", peer.UID, "pid", peer.PID)
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	l := newLink(conn)
	c := &serverConn{server: s, since: time.Now(), ctx: ctx, cancels: make(map[int]context.CancelFunc)}
	conn.SetReadDeadline(time.Now().Add(helloTimeout))
	// The pool is outside of the wall: it would run the programs of an asked agent there.
	confined := sock.ConfinedPeer(conn)
	if l.greeting(&c.hello) != nil || !c.welcome(l, confined) {
		return
	}
	conn.SetReadDeadline(time.Time{})
	if c.hello.Agent != "" {
		s.mu.Lock()
		s.callers++
		c.caller = strconv.Itoa(s.callers)
		s.conns[c] = true
		s.mu.Unlock()
	}
	ready := make(chan struct{})
	c.rpc = jsonrpc.NewConn(ctx, l.messages(), func(_ *jsonrpc.Conn, req *jsonrpc.Request) {
		<-ready
		c.dispatch(req)
	})
	close(ready)
	<-c.rpc.DisconnectNotify()
	cancel()
	c.rpc.Wait()
	c.work.Wait()
	s.drop(func(_ string, t conversation) bool { return t.owner == c })
	s.mu.Lock()
	delete(s.conns, c)
	s.mu.Unlock()
}

// welcome answers the first message. It reports whether the connection is served. confined says
// that the other end is behind a wall.
func (c *serverConn) welcome(l *link, confined bool) bool {
	s := c.server
	w := Welcome{Name: welcomeName, Protocol: Protocol, Version: s.Version, PID: os.Getpid(), Walled: s.Wall.Stands()}
	var err error
	switch {
	case c.hello.Agent == "":
	case c.hello.Protocol != Protocol:
		err = otherProtocol(s.Version)
	case confined:
		err = sock.ErrConfined
	default:
		var a *asked
		if a, err = s.use(c.hello.Agent); err == nil {
			s.unuse(a)
		}
	}
	if errors.Is(err, agent.ErrClosed) {
		return false // as if the pool had ended: the bridge asks the next one
	}
	if err != nil {
		w.Error = err.Error()
	}
	return l.w.Encode(w) == nil && err == nil
}

// params decodes the parameters of a message.
func params[T any](req *jsonrpc.Request) (p T, err error) {
	if req.Params != nil {
		err = jsonrpc.Decode(req.Params, &p)
	}
	return p, err
}

// dispatch handles one message. It must not block, so that messages are handled in order.
func (c *serverConn) dispatch(req *jsonrpc.Request) {
	s := c.server
	method := req.Method
	if c.hello.Agent == "" && method != methodStatus && method != methodStop {
		method = ""
	}
	answer := func(f func() any) {
		c.work.Go(func() { c.rpc.Reply(req.ID, f()) })
	}
	switch method {
	case methodStatus:
		answer(func() any { return s.status() })
	case methodStop:
		p, _ := params[stopParams](req)
		c.work.Go(func() {
			c.rpc.Reply(req.ID, struct{}{}) // the end of the pool closes the connection
			s.stop(p.Now)
		})
	case methodRun:
		p, err := params[runParams](req)
		if err != nil {
			c.refuse(req, jsonrpc.CodeInvalidParams, err.Error())
			return
		}
		if !s.enter() {
			c.refuse(req, codeEnding, errLost.Error())
			return
		}
		c.accept(req, p)
	case methodCancel:
		p, _ := params[requestID](req)
		s.mu.Lock()
		cancel := c.cancels[p.ID]
		s.mu.Unlock()
		if cancel != nil {
			cancel()
		}
	case methodForget:
		p, _ := params[record](req)
		s.drop(func(id string, t conversation) bool { return id == p.ID && t.owner == c })
	case methodKeep:
		p, _ := params[record](req)
		c.keep(p)
		answer(func() any { return struct{}{} })
	case methodKept:
		p, _ := params[record](req)
		answer(func() any { return s.keptBeyond(p) })
	case methodAhead:
		p, _ := params[aheadParams](req)
		c.work.Go(func() { c.ahead(p.Dir) })
	case methodCheck:
		answer(func() any {
			a, err := s.use(c.hello.Agent)
			if err != nil {
				return checkResult{failure: failureOf(err)}
			}
			defer s.unuse(a)
			program, err := a.runner.Check(c.ctx, c.source(a))
			return checkResult{program, failureOf(err)}
		})
	default:
		c.refuse(req, jsonrpc.CodeMethodNotFound, fmt.Sprintf("no method %q", req.Method))
	}
}

// refuse answers a call with an error. It does nothing for a notification.
func (c *serverConn) refuse(req *jsonrpc.Request, code int64, message string) {
	if !req.Notif {
		c.work.Go(func() { c.rpc.Answer(req.ID, nil, &jsonrpc.Error{Code: code, Message: message}) })
	}
}

// accept starts a request that was counted with enter.
func (c *serverConn) accept(req *jsonrpc.Request, p runParams) {
	s := c.server
	// The bridge cancels the request at its deadline. The deadline here is for the runner,
	// which does not begin what cannot end in time.
	asking, cancel := context.WithCancel(c.ctx)
	if p.TimeLeft > 0 {
		asking, cancel = context.WithTimeout(c.ctx, p.TimeLeft+deadlineSlack)
	}
	s.mu.Lock()
	c.cancels[p.ID] = cancel
	s.mu.Unlock()
	over := make(chan struct{})
	c.work.Go(func() { c.signLife(over) })
	c.work.Go(func() {
		defer s.leave()
		defer close(over)
		released := make(chan struct{})
		result, err := c.perform(asking, p, func() { close(released) })
		cancel()
		s.mu.Lock()
		delete(c.cancels, p.ID)
		s.mu.Unlock()
		if errors.Is(err, agent.ErrClosed) {
			c.rpc.Answer(req.ID, nil, &jsonrpc.Error{Code: codeEnding, Message: errLost.Error()})
			<-released
			return
		}
		c.notify(eventParams{ID: p.ID, Outcome: &outcome{result, failureOf(err)}})
		<-released
		c.rpc.Reply(req.ID, struct{}{})
	})
}

// signLife sends signs of life to the bridge, until a request is over.
func (c *serverConn) signLife(over <-chan struct{}) {
	tick := time.NewTicker(aliveInterval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			c.notify(eventParams{})
		case <-over:
			return
		}
	}
}

func (c *serverConn) notify(p eventParams) { c.rpc.Notify(methodEvent, p) }

// source says for whom an agent runs.
func (c *serverConn) source(a *asked) agent.Source {
	if c.hello.Source != nil {
		return *c.hello.Source
	}
	return a.source
}

// perform asks the runner. released is called as [agent.Request.Released].
func (c *serverConn) perform(ctx context.Context, p runParams, released func()) (agent.Result, error) {
	a, err := c.server.use(c.hello.Agent)
	if err != nil {
		released()
		return agent.Result{}, err
	}
	defer c.own(p.Request.Conversation, a)
	req := p.Request
	req.Source = c.source(a)
	req.Released = func() {
		c.server.unuse(a)
		released()
	}
	if req.Change != nil {
		attempt := 0
		req.Change.Files = func() agent.Files {
			attempt++
			c.notify(eventParams{ID: p.ID, Attempt: attempt})
			return remoteFiles{c, p.ID, attempt}
		}
	}
	if c.elsewhere() {
		w, err := openWorkspace(req.Dir)
		if err != nil {
			req.Released()
			return agent.Result{}, err
		}
		w.use(&req)
	}
	return a.runner.RunFor(ctx, c.caller, req, func(ev agent.Event) {
		if ev, err := newEventParams(p.ID, ev); err == nil {
			c.notify(ev)
		}
	})
}

// elsewhere reports whether the bridge may run on another machine, with other files.
func (c *serverConn) elsewhere() bool { return c.hello.PID == 0 }

// ahead starts a process before the first request, which counts as a use of the pool.
func (c *serverConn) ahead(dir string) {
	c.server.mu.Lock()
	stopping := c.server.stopping
	c.server.used = time.Now()
	c.server.mu.Unlock()
	if stopping {
		return
	}
	w, err := openWorkspace(dir)
	if err != nil {
		return
	}
	if a, err := c.server.use(c.hello.Agent); err == nil {
		a.runner.Ahead(c.source(a), w.real)
		c.server.unuse(a)
	}
}

// own records that a conversation belongs to the bridge that asked in it last, with a runner.
func (c *serverConn) own(id string, with *asked) {
	if id == "" {
		return
	}
	s := c.server
	s.mu.Lock()
	t := s.conversations[id]
	t.owner = c
	s.conversations[id] = t
	s.mu.Unlock()
	// Other agents have an older state of the conversation.
	for _, r := range s.runners() {
		if r != with.runner {
			r.Forget(id)
		}
	}
}

// drop drops the conversations that match.
func (s *Server) drop(match func(id string, t conversation) bool) {
	s.mu.Lock()
	dropped := maps.Clone(s.conversations)
	maps.DeleteFunc(dropped, func(id string, t conversation) bool { return !match(id, t) })
	maps.DeleteFunc(s.conversations, match)
	s.mu.Unlock()
	for _, r := range s.runners() {
		for id := range dropped {
			r.Forget(id)
		}
	}
}

// keep stores a conversation of the connection, so that another bridge can continue it.
func (c *serverConn) keep(r record) {
	s := c.server
	s.mu.Lock()
	defer s.mu.Unlock()
	conv := s.conversations[r.ID]
	if conv.owner != c || r.N < conv.kept.N { // a later call may arrive first
		return
	}
	conv.kept = record{} // an old state must not be continued
	s.conversations[r.ID] = conv
	size := len(r.Data)
	for _, other := range s.conversations {
		size += len(other.kept.Data)
	}
	if size <= maxKept {
		conv.kept = r
		s.conversations[r.ID] = conv
	}
}

// keptBeyond returns a conversation that has more exchanges than the bridge knows, or an
// empty one.
func (s *Server) keptBeyond(known record) record {
	s.mu.Lock()
	defer s.mu.Unlock()
	if kept := s.conversations[known.ID].kept; kept.N > known.N {
		return kept
	}
	return record{}
}

// remoteFiles are the files of a bridge's attempt.
type remoteFiles struct {
	conn             *serverConn
	request, attempt int
}

func (f remoteFiles) call(path string, text *string) (string, error) {
	var result string
	err := f.conn.rpc.Call(f.conn.ctx, methodFile, fileParams{f.request, f.attempt, path, text}, &result)
	if refused, ok := errors.AsType[*jsonrpc.Error](err); ok {
		err = errors.New(refused.Message)
	}
	return result, err
}

// Read implements [agent.Files].
func (f remoteFiles) Read(path string) (string, error) { return f.call(path, nil) }

// Write implements [agent.Files].
func (f remoteFiles) Write(path, text string) error {
	_, err := f.call(path, &text)
	return err
}
