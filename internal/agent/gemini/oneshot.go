package gemini

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"pollux/internal/agent"
)

const (
	// exitTimeout is how long the CLI may take to end after its result. The answer then waits no
	// longer.
	exitTimeout = 3 * time.Second
	// noResult is the message of a process that has ended without a result and an error.
	noResult = "it printed no result"
)

// A oneShot is an [agent.Conn] with a process that answers one prompt. The prompt goes to its
// standard input, never to its arguments, which every user of the machine can read.
type oneShot struct {
	in     io.ReadCloser
	out    io.WriteCloser
	parser parser
	read   func()        // starts to read, once the client knows the prompt
	done   chan struct{} // closed when its output has ended
}

func connectOneShot(r io.ReadCloser, w io.WriteCloser, _ bool, client agent.Client) agent.Conn {
	c := &oneShot{in: r, out: w, parser: parser{update: client.Update, ended: make(chan struct{})}, done: make(chan struct{})}
	c.read = sync.OnceFunc(func() {
		go func() {
			defer close(c.done)
			c.parser.read(r)
		}()
	})
	return c
}

// Initialize implements [agent.Conn].
func (*oneShot) Initialize(context.Context) error { return nil }

// NewSession implements [agent.Conn].
func (*oneShot) NewSession(context.Context, string) (agent.Session, error) {
	return agent.Session{}, nil
}

// SetModel implements [agent.Conn]. The model is among the arguments.
func (*oneShot) SetModel(context.Context, string, string) error { return nil }

// Prompt implements [agent.Conn]. It waits for the end of the process, whose exit code matters.
// Only that end cancels its work.
func (c *oneShot) Prompt(_ context.Context, _ string, content []agent.Content) (agent.PromptResult, error) {
	c.read()
	text := ""
	for _, part := range content {
		if part.Type == "image" {
			part.Text = "\n\n" + Mention(part.Path)
		}
		text += part.Text
	}
	// The CLI may end before it has read everything. Then Close closes the pipe, and this
	// goroutine ends too.
	go func() {
		io.WriteString(c.out, text)
		c.out.Close()
	}()
	select {
	case <-c.done:
	case <-c.parser.ended:
		select {
		case <-c.done:
		case <-time.After(exitTimeout):
		}
	}
	result := agent.PromptResult{Message: c.parser.message, Raw: c.parser.stats}
	if c.parser.status == "success" {
		return result, nil
	}
	if !c.parser.hasEnded() && result.Message == "" {
		result.Message = noResult
	}
	return result, &agent.Refused{Message: result.Message}
}

// Done implements [agent.Conn].
func (c *oneShot) Done() <-chan struct{} { return c.done }

// Close implements [agent.Conn].
func (c *oneShot) Close() error {
	err := errors.Join(c.out.Close(), c.in.Close())
	c.read() // to the end, without a prompt
	<-c.done
	return err
}
