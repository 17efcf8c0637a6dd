package jsonrpc

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"pollux/internal/jsonl"
)

// maxHeader limits the header lines of one message, in bytes.
const maxHeader = 4 << 10

// ErrFraming reports that the other side does not send messages.
var ErrFraming = errors.New("not a message of JSON-RPC")

// A Framed is a [Stream] on a byte stream: one message per line, or with the header of the
// Language Server Protocol.
type Framed struct {
	// Malformed receives the answer to a message that is not valid JSON. A
	// goroutine other than the reading one must write it. If Malformed is nil,
	// there is no answer.
	Malformed func(answer any)

	r    *jsonl.Reader
	conn io.ReadWriteCloser
	max  int

	framed atomic.Int32 // a framing; not guarded by mu, which a slow peer can hold

	mu sync.Mutex
	w  *bufio.Writer
}

type framing = int32

const (
	unknown framing = iota
	lines
	headers
)

// NewFramed returns a stream that learns the framing of both directions from the first byte that
// it receives: C (of Content-Length) means headers, { means lines. A message of more than limit
// bytes ends the stream.
func NewFramed(conn io.ReadWriteCloser, limit int) *Framed {
	return &Framed{r: jsonl.NewReader(conn, limit), w: bufio.NewWriter(conn), conn: conn, max: limit}
}

// NewLines returns a stream of one message per line.
func NewLines(conn io.ReadWriteCloser, limit int) *Framed {
	s := NewFramed(conn, limit)
	s.framed.Store(lines)
	return s
}

// Lines is [NewLines] for two streams, such as those of a process. It skips lines that are not
// messages: agents, their hooks and their libraries print some.
func Lines(r io.ReadCloser, w io.WriteCloser, limit int) Stream { return NewLines(pair{r, w}, limit) }

type pair struct {
	io.ReadCloser
	w io.WriteCloser
}

func (p pair) Write(b []byte) (int, error) { return p.w.Write(b) }

func (p pair) Close() error { return errors.Join(p.w.Close(), p.ReadCloser.Close()) }

// ReadObject reads the next message into v. It skips a message that does not fit and
// answers it with Malformed. A broken header ends the stream.
func (s *Framed) ReadObject(v any) error {
	return s.read(func(data []byte) error {
		reflect.ValueOf(v).Elem().SetZero() // an earlier message may have set fields
		return json.Unmarshal(data, v)
	})
}

// ReadMessage implements [Stream].
func (s *Framed) ReadMessage() (m Message, err error) {
	err = s.read(func(data []byte) (err error) {
		m, err = Parse(data)
		return err
	})
	return m, err
}

// read reads messages until parse accepts one.
func (s *Framed) read(parse func([]byte) error) error {
	for {
		data, err := s.nextMessage()
		if err != nil {
			return err
		}
		if err = parse(data); err == nil {
			return nil
		}
		if s.Malformed != nil {
			s.Malformed(map[string]any{"jsonrpc": "2.0", "id": nil, "error": map[string]any{
				"code": CodeParseError, "message": "this is not a JSON-RPC message: " + err.Error(),
			}})
		}
	}
}

func (s *Framed) nextMessage() ([]byte, error) {
	f, err := s.sniff()
	if err != nil {
		return nil, err
	}
	if f == headers {
		return s.readFramed()
	}
	for {
		line, err := s.readLine(s.max)
		if err != nil || len(bytes.TrimSpace(line)) > 0 {
			return line, err
		}
	}
}

func (s *Framed) sniff() (framing, error) {
	if f := s.framed.Load(); f != unknown {
		return f, nil
	}
	first, err := s.r.Peek(1)
	if err != nil {
		return unknown, err
	}
	switch first[0] {
	case '{':
		s.framed.Store(lines)
	case 'C', 'c':
		s.framed.Store(headers)
	default:
		return unknown, fmt.Errorf("%w: it starts with %q; send a JSON object on a line, or a Content-Length header",
			ErrFraming, first)
	}
	return s.framed.Load(), nil
}

// readLine reads a line of at most limit bytes.
func (s *Framed) readLine(limit int) ([]byte, error) {
	line, err := s.r.ReadLineMax(limit)
	var tooLong *jsonl.TooLongError
	if errors.As(err, &tooLong) {
		return nil, fmt.Errorf("%w: %w", ErrFraming, err)
	}
	return line, err
}

func (s *Framed) readFramed() ([]byte, error) {
	length, budget := -1, maxHeader
	for {
		line, err := s.readLine(budget)
		if err != nil {
			if err == io.EOF && budget < maxHeader {
				err = io.ErrUnexpectedEOF
			}
			return nil, err
		}
		budget -= len(line)
		text := strings.TrimSpace(string(line))
		if text == "" {
			if length < 0 {
				return nil, fmt.Errorf("%w: no Content-Length header", ErrFraming)
			}
			break
		}
		name, value, _ := strings.Cut(text, ":")
		if !strings.EqualFold(name, "Content-Length") {
			continue
		}
		length, err = strconv.Atoi(strings.TrimSpace(value))
		if err != nil || length < 0 || length > s.max {
			return nil, fmt.Errorf("%w: Content-Length %.20q; the limit is %d", ErrFraming, value, s.max)
		}
	}
	var buf bytes.Buffer // grows with the data, not with the promised length
	if _, err := io.CopyN(&buf, s.r, int64(length)); err != nil {
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return nil, err
	}
	return buf.Bytes(), nil
}

// WriteObject writes one message.
func (s *Framed) WriteObject(v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return s.writeParts(data)
}

// WriteMessage implements [Stream]. It does not copy the body.
func (s *Framed) WriteMessage(head string, body json.RawMessage) error {
	return s.writeParts([]byte(head), body, []byte("}"))
}

// writeParts writes one message. Its parts contain no line feed.
func (s *Framed) writeParts(parts ...[]byte) error {
	length := 0
	for _, part := range parts {
		length += len(part)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	framed := s.framed.Load() == headers
	if framed {
		fmt.Fprintf(s.w, "Content-Length: %d\r\n\r\n", length)
	}
	for _, part := range parts {
		s.w.Write(part)
	}
	if !framed {
		s.w.WriteByte('\n')
	}
	return s.w.Flush()
}

// Close closes the byte stream.
func (s *Framed) Close() error { return s.conn.Close() }
