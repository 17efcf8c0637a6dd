package claudeide

import (
	"cmp"
	"context"
	"encoding/json"
	"path/filepath"
	"time"

	"pollux/internal/companion"
	"pollux/internal/paths"
	"pollux/internal/sys/proc"
	"pollux/internal/sys/sock"
	"pollux/internal/termtext"
)

// Process implements [companion.Session].
func (s *Session) Process() companion.Process {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.process
}

// locate finds the agent's process and its working directory.
func (s *Session) locate() {
	pid := sock.PeerProcess(s.local, s.remote)
	dir := proc.WorkingDir(pid)
	if dir == "" {
		dir = s.askFolder()
	}
	s.located(pid, dir)
}

// claim takes the agent's word for its process, on a system that does not know. In a
// container, an agent's process has another number.
func (s *Session) claim(params json.RawMessage) {
	var p struct {
		PID int `json:"pid"`
	}
	if !sock.KnowsPeers && json.Unmarshal(params, &p) == nil {
		s.located(p.PID, "")
	}
}

// located records the agent's process and folder.
func (s *Session) located(pid int, dir string) {
	if pid <= 0 && dir == "" {
		return
	}
	terminal := proc.Terminal(pid)
	s.mu.Lock()
	p := &s.process
	p.PID, p.Dir, p.Terminal = max(pid, p.PID), cmp.Or(dir, p.Dir), cmp.Or(terminal, p.Terminal)
	s.mu.Unlock()
	s.server.Backend.Changed(s)
}

// rootsTimeout is how long an agent may take to name its folder.
const rootsTimeout = 5 * time.Second

// maxDir bounds the name of a folder, in bytes.
const maxDir = 4 << 10

// askFolder asks the agent for its folder. It returns "" if the agent does not say.
func (s *Session) askFolder() string {
	ctx, cancel := context.WithTimeout(s.Ctx, rootsTimeout)
	defer cancel()
	roots, err := s.Roots(ctx)
	if err != nil || len(roots) == 0 {
		return ""
	}
	dir, ok := paths.FromURL(roots[0])
	if !ok || !filepath.IsAbs(dir) {
		return ""
	}
	return termtext.Line(dir, maxDir)
}
