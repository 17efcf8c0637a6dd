package codexide

import (
	"errors"
	"strings"
	"time"

	"pollux/internal/companion"
	"pollux/internal/editor"
	"pollux/internal/sys/proc"
	"pollux/internal/sys/sock"
)

// idleTTL is how long a process counts as connected after its last request, if the
// system cannot say when it ends.
const idleTTL = 10 * time.Minute

// A Session is one process of Codex CLI that has asked for the context. It implements
// [companion.Session].
//
// The agent connects for each request, and says nothing when the user turns /ide off.
// So a session lasts from the first request until the process ends.
type Session struct {
	noProposals

	pid int    // 0 if unknown
	dir string // where it ran at its first request
	// terminal is the one it ran in at its first request; "" if unknown.
	terminal string
	since    time.Time
	used     time.Time // of the last request; guarded by Server.mu
}

// asked connects the process that has received the context for its directory, unless it
// is connected.
func (s *Server) asked(pid int, dir string) {
	s.mu.Lock()
	known := s.sessions[pid] != nil
	s.mu.Unlock()
	terminal := ""
	if !known {
		terminal = proc.Terminal(pid)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	session := s.sessions[pid]
	if session == nil {
		session = &Session{pid: pid, dir: dir, terminal: terminal, since: time.Now()}
		s.sessions[pid] = session
		s.cfg.Log.Info("an agent connected", "client", title, "transport", session.Transport())
		s.cfg.Backend.Connect(session)
	}
	session.used = time.Now()
}

// endSessions disconnects the sessions that match.
func (s *Server) endSessions(match func(*Session) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for pid, session := range s.sessions {
		if match(session) {
			delete(s.sessions, pid)
			s.cfg.Log.Info("an agent has disconnected", "transport", session.Transport())
			s.cfg.Backend.Disconnect(session)
		}
	}
}

// endedLocked reports whether the process has ended.
func (s *Session) endedLocked() bool {
	if s.pid > 0 {
		return !proc.Alive(s.pid)
	}
	return time.Since(s.used) > idleTTL
}

// title is the agent's name, as people know it.
const title = "Codex CLI"

// Client implements [companion.Session]. The agent does not say its version.
func (s *Session) Client() (name, version string) { return title, "" }

// Transport implements [companion.Session].
func (s *Session) Transport() string {
	if sock.IsPipe(Socket()) {
		return "pipe"
	}
	return "socket"
}

// Process implements [companion.Session].
func (s *Session) Process() companion.Process {
	return companion.Process{PID: s.pid, Dir: s.dir, Terminal: s.terminal}
}

// Since implements [companion.Session].
func (s *Session) Since() time.Time { return s.since }

// Limits implements [companion.LimitedSession].
func (s *Session) Limits() string { return "no review: it asks about changes in its own terminal" }

// ContextChanged implements [companion.Session]. The agent asks for the context itself.
func (s *Session) ContextChanged() {}

// ready is a text that Codex CLI shows when it reads its keyboard.
const ready = "? for shortcuts"

// Prompt returns what to type into the agent's terminal to ask about a file.
func Prompt(p editor.PromptParams, roots []string) editor.Prompt {
	text := ""
	if p.Path != "" {
		name := companion.NameIn(p.Path, roots)
		if strings.ContainsAny(name, " \t") {
			name = `"` + name + `"`
		}
		text = name + companion.LineText(p)
	}
	return companion.NewPrompt(p, text, ready)
}

// noProposals is the part of a session that an agent without proposals never uses.
type noProposals struct{ companion.LFRules }

var errNoProposals = errors.New("the agent proposes nothing")

// Resolve implements [companion.Session].
func (noProposals) Resolve(_ companion.Proposal, _ companion.Outcome, done func(error)) {
	go done(errNoProposals)
}
