// Package codexide lets Codex CLI use a companion: it answers what the user has open,
// on the socket that Codex CLI asks with each prompt once its user has typed /ide.
//
// No contract is published. The package follows what Codex CLI 0.171.0 does, and
// the public source of it and of older releases; docs/CODEX.md says what users notice of it.
//
// All companions of a user share the socket. One of them owns it, and asks the others
// when the agent is in one of their workspaces.
package codexide

import (
	"bufio"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"pollux/internal/companion"
	"pollux/internal/crash"
	"pollux/internal/gate"
	"pollux/internal/outbox"
	"pollux/internal/paths"
	"pollux/internal/sys/sock"
)

// A Backend is the companion that the server belongs to.
type Backend interface {
	Connect(s companion.Session)
	Disconnect(s companion.Session)
	Context() companion.Context
	Roots() []string
}

// A Config configures a [Server].
type Config struct {
	Backend Backend
	Log     *slog.Logger // none if nil
	// Socket is the socket to serve; [Socket] if empty.
	Socket string
	// Preferred are the sockets that agents try before; [Preferred] if nil.
	Preferred []string
	// Siblings returns the sockets of the user's other companions; the running ones if
	// nil.
	Siblings func() []string
}

const (
	// checkInterval is the interval at which the server looks after its socket and
	// its sessions.
	checkInterval = time.Second
	// stepBackDelay is how long the server leaves the socket to another program.
	stepBackDelay = 30 * time.Second
	// requestTimeout is how long an agent waits.
	requestTimeout = 5 * time.Second
	// maxConns limits the idle connections, and also the requests that the server answers
	// at the same time. It is far above what a person runs. An older agent keeps its
	// connection.
	maxConns = 64
)

// A Server is a companion's server for Codex CLI. It owns the socket while no other
// program does. watch, Publish and Unpublish change who owns it.
//
// Lock order: Server.claiming; Server.mu, the companion's lock. Requests do not need
// claiming, which is held during I/O.
type Server struct {
	cfg     Config
	ctx     context.Context
	stop    context.CancelFunc
	running sync.WaitGroup // watch, the accepting goroutines and their connections
	idle    gate.List      // the connections without a complete request
	busy    chan struct{}  // one value for each request that the server answers
	check   outbox.Signal  // the socket may have to change

	claiming  sync.Mutex
	published bool
	claim     *claim // nil while another program has the socket
	owner     probe
	preferred []*probe
	returnAt  time.Time // after another program has asked for the socket
	failure   string    // why the server could not listen last

	mu       sync.Mutex
	closed   bool
	sessions map[int]*Session // by process
	note     string
}

// New returns a server. It touches nothing until [Server.Publish].
func New(cfg Config) *Server {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Siblings == nil {
		cfg.Siblings = siblings
	}
	cfg.Socket = cmp.Or(cfg.Socket, Socket())
	if cfg.Preferred == nil {
		cfg.Preferred = Preferred()
	}
	s := &Server{
		cfg: cfg, busy: make(chan struct{}, maxConns), check: outbox.NewSignal(),
		owner: probe{path: cfg.Socket}, sessions: make(map[int]*Session),
	}
	for _, path := range cfg.Preferred {
		s.preferred = append(s.preferred, &probe{path: path})
	}
	s.ctx, s.stop = context.WithCancel(context.Background())
	return s
}

// Serve looks after the socket and the sessions in the background until
// [Server.Close].
func (s *Server) Serve() { s.running.Go(s.watch) }

func (s *Server) watch() {
	defer crash.Report()
	s.check.Every(s.ctx, checkInterval, func() {
		s.update()
		s.endSessions((*Session).endedLocked)
	})
}

// Publish lets agents find the server. A failure is only a note: the user may not have
// the agent.
func (s *Server) Publish(_, _ []string) error {
	s.claiming.Lock()
	s.published = true
	s.claiming.Unlock()
	s.update()
	return nil
}

// SetRoots does nothing: the server asks its backend.
func (s *Server) SetRoots([]string) error { return nil }

// AddEnv adds nothing: the socket has a fixed path.
func (s *Server) AddEnv(map[string]string) {}

// Kept returns nothing: the socket has a fixed path.
func (s *Server) Kept() (port int, token string) { return 0, "" }

// ViewsChanged does nothing: the agent proposes no changes.
func (s *Server) ViewsChanged() {}

// Unpublish removes the socket. Requests that have begun are answered.
func (s *Server) Unpublish() {
	s.claiming.Lock()
	defer s.claiming.Unlock()
	s.published = false
	s.releaseLocked()
}

func (s *Server) releaseLocked() {
	if s.claim != nil {
		s.claim.release()
		s.claim = nil
	}
}

// Close ends all sessions. An agent gets no answer that it still waits for.
func (s *Server) Close(context.Context) error {
	s.Unpublish()
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.stop()
	s.running.Wait()
	s.endSessions(func(*Session) bool { return true })
	return nil
}

// Note returns why agents do not ask this companion, and what to do; "" if they do.
func (s *Server) Note() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.note
}

// update takes or gives up the socket.
func (s *Server) update() {
	s.claiming.Lock()
	defer s.claiming.Unlock()
	if !s.published {
		return
	}
	if s.claim != nil && !s.claim.held() {
		s.cfg.Log.Info("another program has removed or replaced the socket for Codex CLI")
		s.releaseLocked()
	}
	note := s.rivalLocked()
	if s.claim == nil {
		note = cmp.Or(s.claimLocked(), note)
	}
	s.mu.Lock()
	s.note = note
	s.mu.Unlock()
}

// rivalLocked returns a note about a program that agents ask first, or "".
func (s *Server) rivalLocked() string {
	for _, p := range s.preferred {
		if pid, live := p.look(); live {
			return served(p.path, pid)
		}
	}
	return ""
}

// served returns a note about another program that serves agents.
func served(path string, pid int) string {
	process := ""
	if pid > 0 {
		process = fmt.Sprintf(" (process %d)", pid)
	}
	return fmt.Sprintf("another program%s answers Codex CLI's /ide on %s, so Codex CLI does not receive what is open here: "+
		"end that program to change that", process, path)
}

// claimLocked takes the socket, if it is free. Otherwise it returns a note about the
// reason, or "" if another companion has it.
func (s *Server) claimLocked() string {
	if time.Now().Before(s.returnAt) {
		return "another program wants the socket of Codex CLI's /ide, so Pollux leaves it free for a while: " +
			"type /ide in Codex CLI again later"
	}
	if !wanted() {
		return ""
	}
	// Whether a pipe exists is only known from an attempt to make it.
	if !sock.IsPipe(s.cfg.Socket) {
		if note, live := s.ownerLocked(); live {
			return note
		}
	}
	c, err := newClaim(s.cfg.Socket)
	switch {
	case errors.Is(err, errTaken) && sock.IsPipe(s.cfg.Socket):
		note, _ := s.ownerLocked()
		return note
	case errors.Is(err, errTaken):
		return "" // the next look tells by whom
	case err != nil:
		if s.failure != err.Error() {
			s.cfg.Log.Warn("Codex CLI will not find this companion", "err", err)
		}
		s.failure = err.Error()
		return "Codex CLI does not find this companion: " + s.failure
	}
	s.failure = ""
	s.claim = c
	s.owner = probe{path: s.cfg.Socket}
	ctx, stop := context.WithCancel(s.ctx)
	s.running.Go(func() {
		defer stop()
		sock.ServeConns(ctx, c.listener, func(conn net.Conn) {
			if s.serveConn(conn) && c.file == nil {
				stop() // the pipe is there until the last connection has ended
			}
		})
	})
	return ""
}

// ownerLocked returns whether another program has the socket, and a note about it, or ""
// if it is another companion.
func (s *Server) ownerLocked() (note string, live bool) {
	pid, live := s.owner.look()
	switch {
	case !live:
		return "", false
	case s.owner.foreign:
		return fmt.Sprintf("a program of another user, or one that runs as administrator, has %s. Windows has only one such pipe, "+
			"so Codex CLI does not receive what is open here: end that program", s.cfg.Socket), true
	case s.isSibling(pid):
		return "", true
	}
	return served(s.cfg.Socket, pid), true
}

// stepBack leaves the socket to another program for a while. The program may look for a
// free path, or remove an abandoned socket.
func (s *Server) stepBack() {
	s.claiming.Lock()
	defer s.claiming.Unlock()
	if s.claim == nil {
		return
	}
	s.cfg.Log.Info("another program wants the socket for Codex CLI: leaving it free", "seconds", stepBackDelay.Seconds())
	s.returnAt = time.Now().Add(stepBackDelay)
	s.releaseLocked()
	s.check.Set()
}

// errSteppedBack ends a connection after [Server.stepBack].
var errSteppedBack = errors.New("the server has stepped back")

// serveConn serves an agent on the socket. It refuses other users. It reports whether the
// server has stepped back for the program at the other end. If too many connections are
// idle, it closes the oldest one; it never closes one whose request it is answering.
func (s *Server) serveConn(conn net.Conn) (steppedBack bool) {
	defer crash.Report()
	peer, ok := sock.PeerOf(conn)
	if ok && peer.UID != os.Getuid() {
		return false
	}
	s.idle.Add(conn, maxConns)
	defer s.idle.Remove(conn)
	id := rand.Text()
	err := s.serveRequests(conn, func(req request, reply func(response) error) error {
		if !s.idle.Remove(conn) {
			return net.ErrClosed
		}
		defer s.idle.Add(conn, maxConns)
		select {
		case s.busy <- struct{}{}:
			defer func() { <-s.busy }()
		default:
			return reply(req.failure(errTimeout))
		}
		if req.wantsServer(id) {
			s.stepBack()
			return errors.Join(errSteppedBack, reply(req.failure(errNoClient)))
		}
		return reply(s.answer(req, peer.PID, id))
	})
	if err != nil && s.ctx.Err() == nil {
		s.cfg.Log.Debug("a connection for Codex CLI has ended", "err", err)
	}
	return errors.Is(err, errSteppedBack)
}

// serveRequests serves the requests on a connection, until it ends or serve fails. An agent
// may keep a connection between requests, but not stop within one.
func (s *Server) serveRequests(rw io.ReadWriter, serve func(req request, reply func(response) error) error) error {
	// limit sets the time in which the next reads and writes must end; none if 0.
	limit := func(d time.Duration) {
		conn, ok := rw.(net.Conn)
		switch {
		case !ok:
		case d == 0:
			conn.SetDeadline(time.Time{})
		default:
			conn.SetDeadline(time.Now().Add(d))
		}
	}
	reply := func(res response) error {
		limit(requestTimeout)
		return writeFrame(rw, res)
	}
	r := bufio.NewReader(rw)
	limit(requestTimeout)
	for {
		if _, err := r.Peek(1); err != nil {
			return ignoreEOF(err)
		}
		limit(requestTimeout)
		data, err := readFrame(r, maxRequest)
		if err != nil {
			return err
		}
		var req request
		if err := json.Unmarshal(data, &req); err != nil {
			return err
		}
		if err := serve(req, reply); err != nil {
			return err
		}
		limit(0)
	}
}

// ignoreEOF returns nil for the end of a connection.
func ignoreEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// answer returns the response to an agent. The id names the agent's connection.
func (s *Server) answer(req request, pid int, id string) response {
	switch {
	case req.Type == typeRequest && req.Method == methodContext:
		return s.findContext(req, pid)
	case req.initializes(desktopType), req.Type == typeRequest && req.Method == methodInitialize && req.Source == codexTUI:
		return req.success(initializeResult{ClientID: id})
	}
	return req.failure(errNoHandler)
}

// findContext returns the context of the companion that fits the agent's directory best:
// this one or another one.
func (s *Server) findContext(req request, pid int) response {
	ctx, cancel := context.WithTimeout(s.ctx, requestTimeout)
	defer cancel()
	req.Params.Process = pid
	return s.inTime(req, func() response {
		own := s.candidate(paths.Real(req.Params.WorkspaceRoot))
		if best := s.bestSibling(ctx, req); best != nil {
			defer best.conn.Close()
			defer context.AfterFunc(ctx, func() { best.conn.Close() })()
			if best.better(own) {
				res, err := best.context(req)
				if err == nil {
					return res
				}
				s.cfg.Log.Debug("another companion has not answered", "err", err)
			}
		}
		return s.ownContext(req, pid)
	})
}

// ownContext returns this companion's context, if it fits the agent's directory.
func (s *Server) ownContext(req request, pid int) response {
	dir := req.Params.WorkspaceRoot
	if !filepath.IsAbs(dir) {
		return req.failure(errNoClient)
	}
	dir = paths.Real(dir)
	if s.candidate(dir).Root == 0 {
		return req.failure(errNoClient)
	}
	result := contextResult{newContext(s.cfg.Backend.Context(), s.cfg.Backend.Roots(), dir)}
	if req.Source != doctor {
		s.asked(pid, dir)
	}
	return req.success(result)
}

// errTimeout answers a request when a disk does not answer in time.
const errTimeout = "request-timeout"

// inTime returns the result of f, which reads the disk, or a failure when the agent has
// given up.
func (s *Server) inTime(req request, f func() response) response {
	answer := make(chan response, 1)
	go func() {
		defer crash.Report()
		answer <- f()
	}()
	timeout := time.NewTimer(requestTimeout)
	defer timeout.Stop()
	select {
	case res := <-answer:
		return res
	case <-timeout.C:
	case <-s.ctx.Done():
	}
	return req.failure(errTimeout)
}
