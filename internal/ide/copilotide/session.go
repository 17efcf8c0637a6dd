package copilotide

import (
	"net/http"
	"strconv"
	"time"

	"pollux/internal/companion"
	"pollux/internal/editor"
	"pollux/internal/ide/blocking"
	"pollux/internal/mcp"
	"pollux/internal/sys/proc"
)

// A Session is one connected agent. It implements [companion.Session].
type Session struct {
	*blocking.Session
	textRules

	server  *Server
	process companion.Process
}

// names are the agent's names, as people know them, by the name that it sends.
var names = map[string]string{"copilot-cli": "Copilot CLI"}

// processHeader names the agent's process.
const processHeader = "X-Copilot-Pid"

// open makes a session for an agent that has sent initialize.
func (s *Server) open(r *http.Request) (*mcp.Session, error) {
	session := &Session{server: s}
	if pid, err := strconv.Atoi(r.Header.Get(processHeader)); err == nil && pid > 0 {
		session.process = companion.Process{PID: pid, Dir: proc.WorkingDir(pid), Terminal: proc.Terminal(pid)}
	}
	var err error
	session.Session, err = s.NewSession(blocking.Dialect{
		Dialect: mcp.Dialect{Tools: session.tools()},
		Self:    session, Delays: []time.Duration{0}, SkipNothing: true,
	})
	if err != nil {
		return nil, err
	}
	return session.Session.Session, nil
}

// Process implements [companion.Session].
func (s *Session) Process() companion.Process { return s.process }

// Transport implements [companion.Session].
func (s *Session) Transport() string { return "http" }

// ready is a text that the agent shows when it reads its keyboard.
const ready = "/ commands"

// Prompt returns what to type into the agent's terminal to ask about a file. Its @ syntax has no
// lines.
func Prompt(p editor.PromptParams, roots []string) editor.Prompt {
	text := ""
	if p.Path != "" {
		text = "@" + companion.NameIn(p.Path, roots) + companion.LineText(p)
	}
	return companion.NewPrompt(p, text, ready)
}
