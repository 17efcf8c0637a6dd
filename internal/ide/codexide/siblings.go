package codexide

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"pollux/internal/crash"
	"pollux/internal/editor"
	"pollux/internal/paths"
)

const (
	// preamble is the first line of a connection between companions.
	preamble = "codex-ipc\n"
	// candidateTimeout limits the search for the right companion. Some releases of
	// Codex CLI wait for no more than 500 ms.
	candidateTimeout = 300 * time.Millisecond
	// siblingTimeout is how long another companion may take to return its context.
	siblingTimeout = 3 * time.Second
)

// A candidate says how well a companion fits a directory.
type candidate struct {
	// Root is the length of the workspace root that contains the directory; 0 if
	// none does.
	Root int `json:"root"`
	// Focused is when a file of the companion last had the focus, in milliseconds
	// since the Unix epoch; 0 is never.
	Focused int64 `json:"focused"`
}

// better reports whether c is a better choice than other: its workspace is more
// specific, or the user was there later.
func (c candidate) better(other candidate) bool {
	return c.Root > other.Root || c.Root == other.Root && c.Root > 0 && c.Focused > other.Focused
}

// candidate returns how well this companion fits a directory, a real path.
func (s *Server) candidate(dir string) (c candidate) {
	for _, root := range s.cfg.Backend.Roots() {
		if paths.Contains(root, dir) {
			c.Root = max(c.Root, len(root))
		}
	}
	for _, f := range s.cfg.Backend.Context().Files {
		c.Focused = max(c.Focused, f.Focused)
	}
	return c
}

// siblings returns the sockets of the user's other companions.
func siblings() []string {
	all, _ := editor.Sockets()
	return slices.DeleteFunc(all, func(socket string) bool { return ownerOf(socket) == os.Getpid() })
}

// ownerOf returns the process that a companion's socket is named after.
func ownerOf(socket string) (pid int) {
	fmt.Sscanf(filepath.Base(socket), "%d-", &pid)
	return pid
}

// isSibling reports whether a process is one of the user's other companions. An unknown
// process is one if there are any.
func (s *Server) isSibling(pid int) bool {
	return slices.ContainsFunc(s.cfg.Siblings(), func(socket string) bool { return pid == 0 || ownerOf(socket) == pid })
}

// A sibling is a connection to another companion that fits the directory of a request.
type sibling struct {
	conn net.Conn
	candidate
}

// bestSibling returns the other companion that fits the request best, or nil. The
// caller closes its connection.
func (s *Server) bestSibling(ctx context.Context, req request) (best *sibling) {
	ctx, cancel := context.WithTimeout(ctx, candidateTimeout)
	defer cancel()
	var asking sync.WaitGroup
	var mu sync.Mutex
	for _, socket := range s.cfg.Siblings() {
		asking.Go(func() {
			defer crash.Report()
			found, err := askSibling(ctx, socket, req)
			if err != nil {
				return // it has ended, is stopped, or is an older release
			}
			mu.Lock()
			defer mu.Unlock()
			switch {
			case best == nil && found.Root > 0:
				best = found
			case best != nil && found.better(best.candidate):
				best.conn.Close()
				best = found
			default:
				found.conn.Close()
			}
		})
	}
	asking.Wait()
	return best
}

// askSibling connects to another companion and asks it how well it fits.
func askSibling(ctx context.Context, socket string, req request) (*sibling, error) {
	conn, err := editor.Dial(ctx, socket)
	if err != nil {
		return nil, err
	}
	s := &sibling{conn: conn}
	deadline, _ := ctx.Deadline()
	conn.SetDeadline(deadline)
	req.Method = methodCandidate
	if _, err = io.WriteString(conn, preamble); err == nil {
		var res response
		if res, err = call(s.conn, req); err == nil {
			err = json.Unmarshal(res.Result, &s.candidate)
		}
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	return s, nil
}

// context returns the other companion's answer to a request for the context.
func (s *sibling) context(req request) (response, error) {
	s.conn.SetDeadline(time.Now().Add(siblingTimeout))
	return call(s.conn, req)
}

var errNotAnAnswer = errors.New("not an answer to the request")

// call sends a request and returns the answer.
func call(conn io.ReadWriter, req request) (res response, err error) {
	if err := writeFrame(conn, req); err != nil {
		return res, err
	}
	data, err := readFrame(conn, maxAnswer)
	if err != nil {
		return res, err
	}
	if err := json.Unmarshal(data, &res); err != nil {
		return res, err
	}
	if res.Type != typeResponse || res.RequestID != req.RequestID {
		return res, errNotAnAnswer
	}
	return res, nil
}

// Preamble returns the line that a connection from another companion starts with.
func (s *Server) Preamble() string { return preamble }

// ServeConn serves another companion, which owns the agents' socket.
func (s *Server) ServeConn(conn io.ReadWriteCloser) error {
	defer conn.Close()
	return s.serveRequests(conn, func(req request, reply func(response) error) error {
		switch req.Method {
		case methodCandidate:
			return reply(s.inTime(req, func() response { return req.success(s.candidate(paths.Real(req.Params.WorkspaceRoot))) }))
		case methodContext:
			return reply(s.inTime(req, func() response { return s.ownContext(req, req.Params.Process) }))
		}
		return reply(req.failure(errNoHandler))
	})
}
