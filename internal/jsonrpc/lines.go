package jsonrpc

import (
	"encoding/json"
	"errors"
	"io"
	"slices"

	"pollux/internal/jsonl"
)

// Lines returns a stream of one message per line. It skips lines that are not messages: agents,
// their hooks and their libraries print some. A line of more than limit bytes ends the stream.
func Lines(r io.ReadCloser, w io.WriteCloser, limit int) Stream {
	return &lines{jsonl.NewReader(r, limit), jsonl.NewWriter(w), r, w}
}

type lines struct {
	in   *jsonl.Reader
	out  *jsonl.Writer
	r, w io.Closer
}

func (l *lines) ReadMessage() (Message, error) {
	for {
		line, err := l.in.ReadLine()
		if m, refused := Parse(line); refused == nil {
			return m, nil
		}
		if err != nil {
			return Message{}, err
		}
	}
}

func (l *lines) WriteMessage(head string, body json.RawMessage) error {
	return l.out.WriteLine(slices.Concat([]byte(head), body, []byte("}\n")))
}

func (l *lines) Close() error { return errors.Join(l.w.Close(), l.r.Close()) }
