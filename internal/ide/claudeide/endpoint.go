package claudeide

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"pollux/internal/ide/blocking"
	"pollux/internal/sys/disk"
	"pollux/internal/sys/sock"
)

// An agent remembers the endpoint of a server: it tries to reconnect to it
// for about 17 s.
//
// A file keeps it while an agent is connected, so that the agent can come back after a
// crash. Before the next server listens, another user can listen on the port, and receive
// the token from the agent. So a server uses an old token only where the system names the
// user at the other end of a connection, and serves only this user and root with it.
type endpoint struct {
	Port  int    `json:"port"`
	Token string `json:"token"`

	touched time.Time // the file's
}

// fresh reports whether an agent may still try to come back.
func (e endpoint) fresh() bool { return time.Since(e.touched).Abs() <= maxAge }

const (
	// touchInterval is how often the file gets the current time.
	touchInterval = 2 * time.Second
	// maxAge is how old the file of a killed server may be: no agent tries to come back
	// after that.
	maxAge = 20 * time.Second
)

// listen listens on the port of a server for the same roots that was killed a moment ago,
// with its token. If the port is taken, or there was none, both are new.
func (s *Server) listen() (l net.Listener, err error) {
	if last, err := readEndpoint(s.state); err == nil && last.fresh() {
		l, err := net.Listen("tcp", "127.0.0.1:"+strconv.Itoa(last.Port))
		switch {
		case err != nil:
		case sock.SeesSocket(l):
			s.port, s.token, s.old = last.Port, last.Token, true
			return l, nil
		default:
			l.Close()
		}
	}
	if l, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		return nil, fmt.Errorf("cannot listen on loopback: %w", err)
	}
	s.port = l.Addr().(*net.TCPAddr).Port
	return l, nil
}

// keep keeps the endpoint while an agent is connected, and forgets it afterwards. Only
// watched calls it.
func (s *Server) keep() {
	connected := s.MCP.Sessions() > 0
	switch {
	case s.state == "":
		return
	case !connected && !s.kept.IsZero():
		s.forget()
		s.kept = time.Time{}
	case connected && time.Since(s.kept) >= touchInterval:
		s.touch()
	}
}

// touch writes the endpoint, or sets the time of its file. It does not touch the file of
// another server for the same roots that is running or was killed a moment ago.
func (s *Server) touch() {
	last, err := readEndpoint(s.state)
	own := err == nil && last.Token == s.token
	if err == nil && !own && last.fresh() {
		return
	}
	now := time.Now()
	if !own {
		data, _ := json.Marshal(endpoint{Port: s.port, Token: s.token})
		if err = disk.PrivateDir(filepath.Dir(s.state)); err == nil {
			err = disk.WriteFile(s.state, data)
		}
	}
	if err == nil {
		err = os.Chtimes(s.state, now, now)
	}
	if err != nil && s.kept.IsZero() {
		s.Log.Warn("Claude Code will not find this companion again if it crashes", "err", err)
	}
	s.kept = now
}

// forget removes the endpoint, unless the file belongs to another server.
func (s *Server) forget() {
	if last, err := readEndpoint(s.state); err == nil && last.Token == s.token {
		os.Remove(s.state)
	}
}

// readEndpoint reads a file that only the user can have written.
func readEndpoint(path string) (e endpoint, err error) {
	if path == "" {
		return e, os.ErrNotExist
	}
	dir := filepath.Dir(path)
	info, err := os.Lstat(dir)
	if err != nil {
		return e, err
	}
	if !info.IsDir() || !disk.Own(dir, info) || !disk.Private(dir, info) {
		return e, errors.New("the directory is not private")
	}
	if info, err = os.Lstat(path); err != nil {
		return e, err
	}
	e.touched = info.ModTime()
	data, err := disk.ReadFile(path, blocking.MaxLock)
	if err == nil {
		err = json.Unmarshal(data, &e)
	}
	if err == nil && (e.Port < 1 || e.Port > 65535 || e.Token == "") {
		err = errors.New("it has no port or no token")
	}
	return e, err
}

// statePath returns the file that keeps the endpoint, or "".
func (s *Server) statePath() string {
	dir := s.cfg.State
	if dir == "" {
		state, err := disk.StateDir()
		if err != nil {
			return ""
		}
		dir = filepath.Join(state, "claude")
	}
	sum := sha256.Sum256([]byte(strings.Join(s.cfg.Roots, "\x00")))
	return filepath.Join(dir, hex.EncodeToString(sum[:8])+".json")
}
