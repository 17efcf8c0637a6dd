package client

import (
	"context"
	"encoding/json"
	"fmt"
	"io"

	"pollux/internal/jsonl"
	"pollux/internal/jsonrpc"
)

// A Companion describes a companion in its own words.
type Companion struct {
	// Title is the title of its editor.
	Title string
	// Experimental are its experimental capabilities.
	Experimental map[string]json.RawMessage
	// Tools are the names of its tools.
	Tools []string
}

// maxLine bounds a message of a companion in bytes.
const maxLine = 32 << 20

// GreetStream sends the requests of [Greet] on a stream with one message per line, under a name. It
// closes the stream. A line that is not a message ends it, too.
func GreetStream(ctx context.Context, stream io.ReadWriteCloser, name string) (c Companion, err error) {
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	lines := strict{jsonrpc.NewLines(stream, maxLine), jsonl.NewReader(stream, maxLine), end}
	conn := jsonrpc.NewConn(ctx, lines, func(conn *jsonrpc.Conn, r *jsonrpc.Request) {
		if !r.Notif {
			conn.Answer(r.ID, nil, &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound, Message: r.Method + " is not supported"})
		}
	})
	defer conn.Close()
	defer func() {
		if err != nil && ctx.Err() != nil {
			err = context.Cause(ctx)
		}
	}()
	var hello struct {
		Server struct {
			Title string `json:"title"`
		} `json:"serverInfo"`
		Capabilities struct {
			Experimental map[string]json.RawMessage `json:"experimental"`
		} `json:"capabilities"`
	}
	if err := conn.Call(ctx, "initialize", greeting(name), &hello); err != nil {
		return c, fmt.Errorf("initialize: %w", err)
	}
	if err := conn.Notify("notifications/initialized", nil); err != nil {
		return c, fmt.Errorf("notifications/initialized: %w", err)
	}
	var list toolList
	if err := conn.Call(ctx, "tools/list", struct{}{}, &list); err != nil {
		return c, fmt.Errorf("tools/list: %w", err)
	}
	return Companion{hello.Server.Title, hello.Capabilities.Experimental, list.names()}, nil
}

// A strict is a stream that ends at what is not a message.
type strict struct {
	jsonrpc.Stream // writes
	r              *jsonl.Reader
	end            context.CancelCauseFunc
}

func (s strict) ReadMessage() (m jsonrpc.Message, err error) {
	line, err := s.r.ReadLine()
	if err == nil {
		m, err = jsonrpc.Parse(line)
	}
	if err != nil {
		s.end(err)
	}
	return m, err
}
