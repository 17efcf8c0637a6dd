package cli

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"unicode"

	"pollux/internal/agent"
	"pollux/internal/bridge"
	"pollux/internal/termtext"
)

// A screen shows a question in progress. If standard output is a terminal, it gets the
// model's text as it arrives. If standard error is one, its last line shows what the agent
// is doing.
//
// What a terminal shows cannot be taken back. Each text that turns out not to be the answer
// is therefore followed by a line that says why: a tool use, after which the answer starts
// again, or a message. If what was shown last is still not the answer, the answer is printed
// as a whole.
type screen struct {
	streams IO
	agent   *agent.Agent
	live    bool // show the text as it arrives
	status  statusLine
	stop    func() // ends the question; may be nil

	mu sync.Mutex // guards the fields below, and writes
	// text has arrived since the last tool use or the start of an attempt. again is
	// the offset at which the agent may have started it again.
	text  strings.Builder
	again int
	space string // at the end of text, not written yet
	open  bool   // the cursor is behind text
	lost  bool   // text of an earlier attempt is shown, or narration
	// failed is set if text could not be written as it arrived: the reader of a pipe has
	// ended. No one waits for more.
	failed error
}

// newScreen returns a screen. plain is whether the answer is the model's own text.
func newScreen(streams IO, row *agent.Agent, plain bool) *screen {
	return &screen{
		streams: streams, agent: row, live: plain && isTerminal(streams.Out), status: newStatusLine(streams.Err),
	}
}

// event shows an event of the agent.
func (s *screen) event(ev agent.Event) {
	if !s.live {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch ev := ev.(type) {
	case agent.Text:
		s.text.WriteString(ev.Text)
		s.write(ev.Text)
	case agent.ToolUse:
		if s.end() && s.status.shown() {
			s.tell("(" + bridge.Doing(s.agent, ev) + ")")
		}
		s.restart()
	case agent.ToolResult:
		s.end()
		s.restart()
	case agent.Started:
		s.note("the text above is incomplete: the question is asked again")
		s.restart()
	case agent.FellBack:
		s.note("the text above is incomplete, because %s failed (%s): asking %s", ev.From, ev.Why, ev.To)
		s.restart()
	case agent.Retry:
		if !ev.Unsure {
			s.note("%s; %s %s, and may repeat the text above", ev.Kind, s.agent.DisplayName, ev.Next())
			s.again = s.text.Len()
		}
	}
}

// note says something about the text so far, if there is any.
func (s *screen) note(format string, args ...any) {
	if s.text.Len() > 0 {
		s.end()
		s.tell(fmt.Sprintf("pollux: "+format, args...))
	}
}

// write writes a piece of text without white space at the start and the end of the whole.
func (s *screen) write(text string) {
	text = s.space + text
	body := strings.TrimRightFunc(text, unicode.IsSpace)
	s.space = text[len(body):]
	if !s.open {
		body = strings.TrimLeftFunc(body, unicode.IsSpace)
	}
	if body == "" {
		return
	}
	if !s.open {
		s.status.clear()
	}
	s.open = true
	if _, err := io.WriteString(s.streams.Out, termtext.Text(body)); err != nil {
		s.failed = err
		if s.stop != nil {
			s.stop()
		}
	}
}

// err returns why text could not be written as it arrived, if it could not.
func (s *screen) err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failed
}

// end ends the line of text, and reports whether there was one.
func (s *screen) end() bool {
	open := s.open
	if open {
		fmt.Fprintln(s.streams.Out)
	}
	s.open, s.space = false, ""
	return open
}

// restart forgets the text so far: the answer starts after it.
func (s *screen) restart() {
	s.lost = s.lost || strings.TrimSpace(s.text.String()) != ""
	s.text.Reset()
	s.again = 0
}

// tell prints a line on standard error.
func (s *screen) tell(line string) {
	s.status.clear()
	fmt.Fprintln(s.streams.Err, prose(s.streams.Err, line))
}

// answer shows the complete answer, unless it is on the screen.
func (s *screen) answer(text string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	shown := s.text.String()
	s.end()
	if s.live && (strings.TrimSpace(shown) == text || strings.TrimSpace(shown[s.again:]) == text) {
		return nil
	}
	if strings.TrimSpace(shown) != "" && s.live {
		s.tell("pollux: the text above is not the whole answer, which follows")
	}
	return s.print(text)
}

// part shows an incomplete answer, unless a part is on the screen. It may be empty.
func (s *screen) part(text string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.end()
	if text == "" || s.live && (s.lost || s.text.Len() > 0) {
		return nil
	}
	return s.print(text)
}

func (s *screen) print(text string) error {
	_, err := fmt.Fprintln(s.streams.Out, forOutput(s.streams.Out, text))
	return err
}

// report returns a function that shows a message on the status line, or nil for a screen
// without a status line.
func (s *screen) report() func(string) {
	if !s.status.shown() {
		return nil
	}
	return func(message string) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if !s.open && (!s.live || s.text.Len() == 0) {
			s.status.show(message)
		}
	}
}

// clear removes the status line.
func (s *screen) clear() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.open {
		s.status.clear()
	}
}
