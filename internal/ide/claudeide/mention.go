package claudeide

import (
	"context"
	"errors"
	"time"

	"pollux/internal/companion"
	"pollux/internal/paths"
)

// An atMentioned is the notification that brings a file into the agent's input line. The
// lines count from 0; Claude Code refuses null.
type atMentioned struct {
	FilePath  string `json:"filePath"`
	LineStart *int   `json:"lineStart,omitempty"`
	LineEnd   *int   `json:"lineEnd,omitempty"`
}

var (
	errBusy  = errors.New("it does not read its messages: continue it if it is stopped, then try again")
	errEnded = errors.New("it has just ended: start it again")
)

// Mention implements [companion.Mentioner].
func (s *Session) Mention(ctx context.Context, path string, line, endLine int) error {
	var m atMentioned
	m.FilePath = path
	if inside, ok := paths.In(s.server.Backend.Roots(), path); ok {
		m.FilePath = inside
	}
	if line > 0 {
		first, last := line-1+s.lineShift(), endLine-1+s.lineShift()
		m.LineStart, m.LineEnd = &first, &last
	} else if s.isOpencode() {
		return companion.ErrNoMention // it ignores a mention without lines
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(s.Ctx, func() { cancel(errEnded) })()
	// An agent silently drops what comes too early after it has connected.
	early := time.NewTimer(time.Until(s.Since().Add(refreshDelays[len(refreshDelays)-1])))
	defer early.Stop()
	var err error
	select {
	case <-early.C:
		// Until it is written nothing else is sent, so later attempts add no second one.
		err = s.Between(ctx, func() error { return s.Send(s.Ctx, "at_mentioned", m) })
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return errBusy
	}
	return err
}

// isOpencode reports whether the agent is opencode.
func (s *Session) isOpencode() bool {
	name, _ := s.ClientInfo()
	return name == opencode
}
