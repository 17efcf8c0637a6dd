package shared

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/sourcegraph/jsonrpc2"

	"pollux/internal/agent"
	"pollux/internal/agent/queue"
	"pollux/internal/sys/proc"
	"pollux/internal/sys/sock"
)

// helloTimeout limits the first message of a connection.
const helloTimeout = 5 * time.Second

// maxKept limits the conversations that a pool keeps for other bridges, in bytes.
const maxKept = 64 << 20

// A Server serves the runners of agents to all bridges of a user. It belongs to a pool's
// process.
type Server struct {
	// Agent is the agent that Runner asks. Connections that name no agent use it.
	Agent  *agent.Agent
	Runner *queue.Runner
	// Source is used for connections to Agent that name none.
	Source agent.Source
	// Open returns a runner for another agent, or nil for a name that the pool does not
	// know. It is called once for each agent. If Open is nil, there are no others.
	Open func(name string) (*queue.Runner, error)
	// Version is the version of Pollux.
	Version string
	// IdleTimeout is how long the pool keeps running without a request.
	IdleTimeout time.Duration
	// Wall is that of the runner.
	Wall agent.Wall
	// Settings are those of the pool, for its status.
	Settings map[string]string
	Log      *slog.Logger

	started time.Time
	end     func() // ends Serve, and all runs with agent.ErrClosed

	opening  sync.Mutex               // held while a runner is opened, and before mu
	mu       sync.Mutex               // guards the fields below
	others   map[string]*queue.Runner // by the names of their agents
	conns    map[*serverConn]bool
	callers  int                     // so far
	runs     int                     // two per request: until the answer, and until its process is free
	used     time.Time               // the last request
	stopping bool                    // no new request may start
	unlisten func()                  // closes the listener and removes its socket
	owners   map[string]string       // conversation -> the caller that it belongs to
	kept     map[string]conversation // those that another bridge can continue
}

// Serve serves the connections of a listener until no request has come for IdleTimeout,
// a bridge calls stop, or ctx ends. Then it closes the runner. It closes the listener as
// soon as it no longer accepts requests, and before it ends connections, so that a
// bridge whose connection has ended can start another pool.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	signal := ctx
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(signal))
	s.end = func() {
		s.refuse()
		cancel(agent.ErrClosed)
	}
	s.conns, s.owners, s.kept = make(map[*serverConn]bool), make(map[string]string), make(map[string]conversation)
	s.started, s.used = time.Now(), time.Now()
	s.unlisten = sync.OnceFunc(func() { l.Close() })
	defer s.end()
	defer context.AfterFunc(signal, s.end)()
	var watching sync.WaitGroup
	watching.Go(func() { s.watch(ctx, l) })
	s.accept(ctx, l)
	s.end()
	watching.Wait()
	var errs []error
	for _, r := range s.runners() {
		errs = append(errs, r.Close())
	}
	return errors.Join(errs...)
}

// runner returns the runner of an agent, and opens it if necessary. The name may be empty.
func (s *Server) runner(name string) (*queue.Runner, error) {
	if name == "" || name == s.Agent.Name {
		return s.Runner, nil
	}
	s.opening.Lock()
	defer s.opening.Unlock()
	s.mu.Lock()
	r := s.others[name]
	s.mu.Unlock()
	if r != nil {
		return r, nil
	}
	var err error
	if s.Open != nil {
		r, err = s.Open(name)
	}
	if err != nil {
		return nil, err
	}
	if r == nil {
		return nil, fmt.Errorf("this pool of Pollux %s does not know the agent %q", s.Version, name)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.others == nil {
		s.others = make(map[string]*queue.Runner)
	}
	s.others[name] = r
	return r, nil
}

// runners returns all open runners.
func (s *Server) runners() []*queue.Runner {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]*queue.Runner{s.Runner}, slices.Collect(maps.Values(s.others))...)
}

// workers returns the processes of all agents, the oldest first.
func (s *Server) workers() []agent.Worker {
	all := []agent.Worker{}
	for _, r := range s.runners() {
		all = append(all, r.Workers()...)
	}
	slices.SortFunc(all, func(a, b agent.Worker) int { return a.Started.Compare(b.Started) })
	return all
}

// accept serves connections until ctx ends. The listener may be closed before that.
func (s *Server) accept(ctx context.Context, l net.Listener) {
	var serving sync.WaitGroup
	sock.Accept(l, func(conn net.Conn) {
		serving.Go(func() {
			defer conn.Close()
			defer context.AfterFunc(ctx, func() { conn.Close() })()
			s.serve(ctx, conn)
		})
	})
	<-ctx.Done()
	serving.Wait()
}

// A replaceable listener knows whether bridges still find it.
type replaceable interface{ Replaced() bool }

// watch ends the pool when it has been idle for long enough. If bridges no longer find its
// socket, it ends after its last run.
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
		if s.stopping { // leave ends it
			s.mu.Unlock()
			return
		}
		idle := s.runs == 0 && time.Since(s.used) >= s.IdleTimeout
		if idle {
			s.stopping = true
		}
		s.mu.Unlock()
		if replaced {
			s.Log.Warn("the pool ends: its socket was removed or replaced")
			s.stop(false)
			return
		}
		if idle {
			s.Log.Info("the pool ends: nobody has asked it anything", "for", s.IdleTimeout)
			s.end()
		}
	}
}

// refuse lets no new request start, and lets bridges start another pool.
func (s *Server) refuse() {
	s.mu.Lock()
	s.stopping = true
	s.mu.Unlock()
	s.unlisten()
}

// stop ends the pool after its last run, or at once.
func (s *Server) stop(now bool) {
	s.refuse()
	s.mu.Lock()
	idle := s.runs == 0
	s.mu.Unlock()
	if now || idle {
		s.end()
	}
}

// enter counts a run, which must call leave twice. It reports false if no run may start.
func (s *Server) enter() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopping {
		return false
	}
	s.runs += 2
	s.used = time.Now()
	return true
}

func (s *Server) leave() {
	s.mu.Lock()
	s.runs--
	s.used = time.Now()
	over := s.runs == 0 && s.stopping
	s.mu.Unlock()
	if over {
		s.end()
	}
}

// status returns the state of the pool.
func (s *Server) status() Status {
	st := Status{
		PID: os.Getpid(), Version: s.Version, Started: s.started, Memory: proc.Memory(os.Getpid()),
		Workers: s.workers(), Queues: []queue.Load{}, Sessions: []Session{},
		Wall: s.Wall.String(), Settings: s.Settings,
	}
	for _, r := range s.runners() {
		st.Queues = append(st.Queues, r.Loads()...)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	st.Stopping = s.stopping
	if s.runs == 0 {
		st.Ends = s.used.Add(s.IdleTimeout)
	}
	for c := range s.conns {
		if c.caller == "" {
			continue
		}
		session := Session{Caller: c.caller, PID: c.hello.PID, Dir: c.hello.Dir, Since: c.since, Requests: len(c.runs)}
		for _, owner := range s.owners {
			if owner == c.caller {
				session.Conversations++
			}
		}
		st.Sessions = append(st.Sessions, session)
	}
	slices.SortFunc(st.Sessions, func(a, b Session) int { return a.Since.Compare(b.Since) })
	return st
}

// A serverConn is the connection of one bridge.
type serverConn struct {
	server *Server
	rpc    *jsonrpc2.Conn
	hello  Hello
	source agent.Source
	runner *queue.Runner
	since  time.Time
	ctx    context.Context // ends with the connection
	work   sync.WaitGroup

	// Server.mu guards these.
	runs   map[int]context.CancelFunc
	caller string // its name in the queue; empty for one that asks only for the status
}

// serve serves one connection until it ends, and then ends its requests and drops its
// conversations.
func (s *Server) serve(ctx context.Context, conn net.Conn) {
	// Root cannot be kept out, and is the usual user in a container with the socket.
	if p, ok := sock.PeerOf(conn); ok && p.UID != os.Getuid() && p.UID != 0 {
		s.Log.Warn("a process of another user has connected and is refused", "uid", p.UID, "pid", p.PID)
		return
	}
	l := newLink(conn)
	c := &serverConn{server: s, since: time.Now(), runs: make(map[int]context.CancelFunc)}
	conn.SetReadDeadline(time.Now().Add(helloTimeout))
	if err := l.ReadObject(&c.hello); err != nil {
		return
	}
	conn.SetReadDeadline(time.Time{})
	w := Welcome{Name: welcomeName, Protocol: Protocol, Version: s.Version, PID: os.Getpid(), Walled: s.Wall.Stands()}
	var err error
	if c.hello.Protocol != Protocol {
		err = otherProtocol(s.Version)
	} else {
		c.runner, err = s.runner(c.hello.Agent)
	}
	if err != nil {
		w.Error = err.Error()
	}
	if l.WriteObject(w) != nil || err != nil {
		return
	}
	if c.runner == s.Runner {
		c.source = s.Source
	}
	if c.hello.Source != nil {
		c.source = *c.hello.Source
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c.ctx = ctx
	s.mu.Lock()
	s.conns[c] = true
	s.mu.Unlock()
	ready := make(chan struct{})
	c.rpc = newConn(ctx, l, func(ctx context.Context, conn *jsonrpc2.Conn, req *jsonrpc2.Request) {
		<-ready
		c.handle(ctx, req)
	})
	close(ready)
	<-c.rpc.DisconnectNotify()
	cancel()
	c.work.Wait()
	s.forgetCaller(c)
}

// forgetCaller removes a connection and drops its conversations.
func (s *Server) forgetCaller(c *serverConn) {
	var dropped []string
	s.mu.Lock()
	delete(s.conns, c)
	for session, owner := range s.owners {
		if owner == c.caller {
			delete(s.owners, session)
			delete(s.kept, session)
			dropped = append(dropped, session)
		}
	}
	s.mu.Unlock()
	for _, session := range dropped {
		c.runner.Forget(session)
	}
}

// own records that a conversation belongs to the caller that asked in it last.
func (c *serverConn) own(session string) {
	if session == "" {
		return
	}
	s := c.server
	s.mu.Lock()
	s.owners[session] = c.caller
	s.mu.Unlock()
	// What another agent knows of the conversation is old now.
	for _, r := range s.runners() {
		if r != c.runner {
			r.Forget(session)
		}
	}
}

// forget drops a conversation of the connection.
func (c *serverConn) forget(session string) {
	s := c.server
	s.mu.Lock()
	owned := s.owners[session] == c.caller
	if owned {
		delete(s.owners, session)
		delete(s.kept, session)
	}
	s.mu.Unlock()
	if owned {
		c.runner.Forget(session)
	}
}

// keep stores a conversation of the connection, so that another bridge can continue it.
func (c *serverConn) keep(conv conversation) {
	s := c.server
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.owners[conv.Session] != c.caller {
		return
	}
	delete(s.kept, conv.Session) // an old state must not be continued
	size := len(conv.Data)
	for _, other := range s.kept {
		size += len(other.Data)
	}
	if size <= maxKept {
		s.kept[conv.Session] = conv
	}
}

// keptBeyond returns a conversation that has more exchanges than the bridge knows, or an
// empty one.
func (s *Server) keptBeyond(known conversation) conversation {
	s.mu.Lock()
	defer s.mu.Unlock()
	if conv := s.kept[known.Session]; conv.N > known.N {
		return conv
	}
	return conversation{}
}

// params decodes the parameters of a message.
func params[T any](req *jsonrpc2.Request) (p T, err error) {
	if req.Params != nil {
		err = json.Unmarshal(*req.Params, &p)
	}
	return p, err
}

// handle handles one message. It must not block, so that messages are handled in order.
func (c *serverConn) handle(ctx context.Context, req *jsonrpc2.Request) {
	answer := func(f func() any) {
		c.work.Go(func() { c.rpc.Reply(ctx, req.ID, f()) })
	}
	s := c.server
	switch req.Method {
	case methodStatus:
		answer(func() any { return s.status() })
		return
	case methodStop:
		p, _ := params[stopParams](req)
		c.work.Go(func() {
			c.rpc.Reply(ctx, req.ID, struct{}{}) // the end of the pool closes the connection
			s.stop(p.Now)
		})
		return
	case methodPing:
		answer(func() any { return struct{}{} })
		return
	}
	s.mu.Lock()
	if c.caller == "" {
		s.callers++
		c.caller = strconv.Itoa(s.callers)
	}
	s.mu.Unlock()
	switch req.Method {
	case methodRun:
		p, err := params[runParams](req)
		if err != nil {
			c.replyError(ctx, req, err)
			return
		}
		c.run(ctx, req.ID, p)
	case methodCancel:
		p, _ := params[runID](req)
		s.mu.Lock()
		cancel := c.runs[p.Run]
		s.mu.Unlock()
		if cancel != nil {
			cancel()
		}
	case methodCheck:
		answer(func() any { return c.check() })
	case methodWorkers:
		answer(func() any { return s.workers() })
	case methodForget:
		if p, err := params[sessionParams](req); err == nil {
			c.forget(p.Session)
		}
	case methodKeep:
		if p, err := params[conversation](req); err == nil {
			c.keep(p)
		}
	case methodKept:
		p, _ := params[conversation](req)
		answer(func() any { return s.keptBeyond(p) })
	case methodAhead:
		if p, err := params[aheadParams](req); err == nil {
			c.work.Go(func() { c.ahead(p.Dir) })
		}
	default:
		c.replyError(ctx, req, fmt.Errorf("no method %q", req.Method))
	}
}

// replyError answers a request with an error. It does nothing for a notification.
func (c *serverConn) replyError(ctx context.Context, req *jsonrpc2.Request, err error) {
	if !req.Notif {
		c.work.Go(func() {
			c.rpc.ReplyWithError(ctx, req.ID, &jsonrpc2.Error{Code: jsonrpc2.CodeInvalidRequest, Message: err.Error()})
		})
	}
}

func (c *serverConn) check() checkResult {
	program, err := c.runner.Check(c.ctx, c.source)
	r := checkResult{Program: program}
	if err != nil && !errors.As(err, &r.Fault) {
		r.Error = err.Error()
	}
	return r
}

// run starts a run. Its goroutine answers the request.
func (c *serverConn) run(ctx context.Context, id jsonrpc2.ID, p runParams) {
	s := c.server
	if !s.enter() {
		c.work.Go(func() { c.rpc.Reply(ctx, id, runResult{Closed: true}) })
		return
	}
	runCtx, cancel := c.runContext(p.TimeLeft)
	s.mu.Lock()
	c.runs[p.Run] = cancel
	s.mu.Unlock()
	c.work.Go(func() {
		defer cancel()
		result, err := c.ask(runCtx, c.request(p), func(ev agent.Event) { c.event(p.Run, ev) })
		c.own(p.Session)
		s.mu.Lock()
		delete(c.runs, p.Run)
		s.mu.Unlock()
		c.rpc.Reply(ctx, id, c.outcome(result, err))
		s.leave()
	})
}

// ask asks the runner.
func (c *serverConn) ask(ctx context.Context, req agent.Request, emit func(agent.Event)) (agent.Result, error) {
	if !c.elsewhere() {
		return c.runner.Run(ctx, req, emit)
	}
	w, err := openWorkspace(req.Dir)
	if err != nil {
		req.Released()
		return agent.Result{}, err
	}
	req.Dir = w.real
	if req.Change != nil {
		req.Change = w.change(req.Change)
		released := req.Released
		req.Released = func() {
			w.tidy()
			released()
		}
	}
	return c.runner.Run(ctx, req, emit)
}

// ahead starts a process before the first request, which counts as a use of the pool.
func (c *serverConn) ahead(dir string) {
	c.server.mu.Lock()
	stopping := c.server.stopping
	c.server.used = time.Now()
	c.server.mu.Unlock()
	if stopping {
		return
	}
	if w, err := openWorkspace(dir); err == nil {
		c.runner.Ahead(c.source, w.real)
	}
}

// elsewhere reports whether the bridge may run on another machine, with other files.
func (c *serverConn) elsewhere() bool { return c.hello.PID == 0 }

// deadlineSlack is how much later than the bridge a pool ends a run.
const deadlineSlack = time.Second

// runContext returns the context of a run with the time that is left, or 0. The bridge
// cancels the run at its deadline. The deadline here is for the runner, which does not
// begin what cannot end in time.
func (c *serverConn) runContext(left time.Duration) (context.Context, context.CancelFunc) {
	if left > 0 {
		return context.WithTimeout(c.ctx, left+deadlineSlack)
	}
	return context.WithCancel(c.ctx)
}

// request returns the request of a run.
func (c *serverConn) request(p runParams) agent.Request {
	p.Turn.Caller = c.caller
	req := agent.Request{
		Prompt: p.Prompt, Images: p.Images, Model: p.Model, Dir: p.Dir, Verbatim: p.Verbatim, Spawn: p.Spawn,
		Session: p.Session, Replay: p.Replay, Turn: p.Turn, Source: c.source,
		Released: func() {
			c.rpc.Notify(context.Background(), methodReleased, runID{p.Run})
			c.server.leave()
		},
	}
	if p.Change != nil {
		attempts := 0
		req.Change = &agent.Change{Prompt: p.Change.Prompt, Replay: p.Change.Replay, Files: func() agent.Files {
			attempts++
			f := &remoteFiles{c, fileParams{Run: p.Run, Attempt: attempts}}
			f.call(methodAttempt, f.fileParams, nil) // an error ends the connection, and so the run
			return f
		}}
	}
	return req
}

func (c *serverConn) outcome(result agent.Result, err error) runResult {
	r := runResult{Result: result}
	switch {
	case err == nil || errors.As(err, &r.Fault):
	case errors.Is(err, agent.ErrClosed):
		r.Closed = true
	default:
		r.Error = err.Error()
	}
	return r
}

func (c *serverConn) event(run int, ev agent.Event) {
	if p, err := newEventParams(run, ev); err == nil {
		c.rpc.Notify(c.ctx, methodEvent, p)
	}
}

// remoteFiles are the files of a bridge's attempt.
type remoteFiles struct {
	conn *serverConn
	fileParams
}

func (f *remoteFiles) call(method string, p fileParams, result any) error {
	err := f.conn.rpc.Call(f.conn.ctx, method, p, result)
	var refused *jsonrpc2.Error
	if errors.As(err, &refused) {
		return errors.New(refused.Message)
	}
	return err
}

// Read implements [agent.Files].
func (f *remoteFiles) Read(path string) (string, error) {
	p := f.fileParams
	p.Path = path
	var r fileResult
	err := f.call(methodRead, p, &r)
	return r.Text, err
}

// Write implements [agent.Files].
func (f *remoteFiles) Write(path, text string) error {
	p := f.fileParams
	p.Path, p.Text = path, text
	return f.call(methodWrite, p, nil)
}
