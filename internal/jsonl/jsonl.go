// Package jsonl reads and writes messages, one per line.
package jsonl

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"sync"
)

// A TooLongError reports a line longer than the reader's limit.
type TooLongError struct{ Limit int } // in bytes

func (e *TooLongError) Error() string { return fmt.Sprintf("a line is over %d bytes long", e.Limit) }

// bufferSize is how much a Reader reads in one call, in bytes.
const bufferSize = 64 << 10

// A Reader reads lines of limited length. One goroutine may use it at a time.
type Reader struct {
	buf   *bufio.Reader
	limit int
	skip  bool // the rest of a line that was too long
}

// NewReader returns a reader of lines of at most limit bytes, line feed
// included.
func NewReader(r io.Reader, limit int) *Reader {
	return &Reader{buf: bufio.NewReaderSize(r, bufferSize), limit: limit}
}

// ReadLine returns the next line with its line feed, which only the last one
// may lack. The caller owns the line. The error is io.EOF at the end, a
// [*TooLongError], or what the underlying reader returned. After a
// [*TooLongError] the next call returns the line that follows.
func (r *Reader) ReadLine() ([]byte, error) { return r.ReadLineMax(r.limit) }

// ReadLineMax is [Reader.ReadLine] with another limit for this line.
func (r *Reader) ReadLineMax(limit int) ([]byte, error) {
	var line []byte
	for {
		part, err := r.buf.ReadSlice('\n')
		ended := err != bufio.ErrBufferFull
		switch {
		case r.skip:
			r.skip = !ended
			if err != nil && ended {
				return nil, err
			}
			continue
		case len(line)+len(part) > limit:
			r.skip = !ended
			return nil, &TooLongError{limit}
		}
		line = appendBounded(line, part, limit)
		switch {
		case err == nil, err == io.EOF && len(line) > 0:
			return line, nil
		case ended:
			return nil, err
		}
	}
}

// appendBounded appends to line, whose capacity stays within limit.
func appendBounded(line, part []byte, limit int) []byte {
	if need := len(line) + len(part); need > cap(line) {
		grown := make([]byte, len(line), min(max(need, 2*cap(line)), limit))
		copy(grown, line)
		line = grown
	}
	return append(line, part...)
}

// Peek returns the next n bytes without reading them; n must be small.
func (r *Reader) Peek(n int) ([]byte, error) { return r.buf.Peek(n) }

// Read reads bytes as they are, for protocols that frame some messages
// otherwise.
func (r *Reader) Read(b []byte) (int, error) { return r.buf.Read(b) }

// A Writer writes lines, each with one call of the underlying Write. Several
// goroutines may use it at the same time.
type Writer struct {
	mu sync.Mutex // held while writing
	w  io.Writer
}

// NewWriter returns a writer of lines to w.
func NewWriter(w io.Writer) *Writer { return &Writer{w: w} }

// Encode writes v as JSON on one line.
func (w *Writer) Encode(v any) error {
	data, err := json.Marshal(v) // contains no line feed
	if err != nil {
		return err
	}
	return w.WriteLine(data)
}

// WriteLine writes a line, with a line feed if it has none. It may write into
// the capacity behind line.
func (w *Writer) WriteLine(line []byte) error {
	if n := len(line); n == 0 || line[n-1] != '\n' {
		line = append(line, '\n')
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	_, err := w.w.Write(line)
	return err
}
