package claudeide

import (
	"context"
	"errors"
	"time"

	"pollux/internal/companion"
)

// An atMentioned is the notification that brings a file into the agent's input line. The
// lines count from 0; Claude Code refuses null.
type atMentioned struct {
	FilePath  string `json:"filePath"`
	LineStart *int   `json:"lineStart,omitempty"`
	LineEnd   *int   `json:"lineEnd,omitempty"`
}

// A mention waits to be sent. sent holds at most one result.
type mention struct {
	atMentioned
	sent chan error
}

var errBusy = errors.New("it does not read its messages: continue it if it is stopped, then try again")

// Mention implements [companion.Mentioner].
func (s *Session) Mention(ctx context.Context, path string, line, endLine int) error {
	m := mention{sent: make(chan error, 1)}
	m.FilePath, _ = pathIn(path, s.server.cfg.Backend.Roots())
	if line > 0 {
		first, last := line-1+s.shift(), endLine-1+s.shift()
		m.LineStart, m.LineEnd = &first, &last
	} else if s.clientInfo().Name == opencode {
		return companion.ErrNoMention // it ignores a mention without lines
	}
	// An agent silently drops what comes too early after it has connected.
	early := time.NewTimer(time.Until(s.since.Add(refreshDelays[len(refreshDelays)-1])))
	defer early.Stop()
	select {
	case <-early.C:
	case <-ctx.Done():
		return errBusy
	case <-s.ctx.Done():
		return errEnded
	}
	select {
	case s.mentions <- m:
	case <-ctx.Done():
		return errBusy
	case <-s.ctx.Done():
		return errEnded
	}
	select {
	case err := <-m.sent:
		return err
	case <-ctx.Done():
		return errBusy
	case <-s.ctx.Done():
		return errEnded
	}
}

var errEnded = errors.New("it has just ended: start it again")
