package jsonrpc

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"
)

// maxTest limits a message, in bytes.
const maxTest = 1 << 20

// A conn reads a fixed input and records what is written.
type conn struct {
	io.Reader
	bytes.Buffer
}

func (c *conn) Read(b []byte) (int, error)  { return c.Reader.Read(b) }
func (c *conn) Write(b []byte) (int, error) { return c.Buffer.Write(b) }
func (c *conn) Close() error                { return nil }

func framed(text string) string { return fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(text), text) }

func TestReadObject(t *testing.T) {
	for _, tt := range []struct{ name, in, want, err string }{
		{"lines", "{\"a\":1}\n{\"a\":2}\n", "1 2", "EOF"},
		{"no final line feed", `{"a":1}`, "1", "EOF"},
		{"blank lines", "{\"a\":1}\n\n  \n{\"a\":2}\n", "1 2", "EOF"},
		{"CRLF", "{\"a\":1}\r\n{\"a\":2}\r\n", "1 2", "EOF"},
		{"a broken line is skipped", "{\"a\":1}\n{oops\n{\"a\":2}\n", "1 2", "EOF"},
		{"headers", framed(`{"a":1}`) + framed(`{"a":2}`), "1 2", "EOF"},
		{"other headers, any case", "content-length:7\r\nContent-Type: x\r\n\r\n{\"a\":1}", "1", "EOF"},
		{"bare line feeds", "Content-Length: 7\n\n{\"a\":1}", "1", "EOF"},
		{"cut short", "Content-Length: 9\r\n\r\n{\"a\":1}", "", "unexpected EOF"},
		{"headers cut short", "Content-Length: 9\r\n", "", "unexpected EOF"},
		{"no length", "Content-Type: x\r\n\r\n", "", "no Content-Length"},
		{"negative length", "Content-Length: -1\r\n\r\n", "", "Content-Length"},
		{"huge length", "Content-Length: 99999999999\r\n\r\n", "", "the limit is"},
		{"endless header", "C" + strings.Repeat("x", maxHeader), "", "over"},
		{"neither", "hello\n", "", "starts with"},
		{"nothing", "", "", "EOF"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := NewFramed(&conn{Reader: strings.NewReader(tt.in)}, maxTest)
			var got []string
			var err error
			for {
				var v struct{ A int }
				if err = s.ReadObject(&v); err != nil {
					break
				}
				got = append(got, fmt.Sprint(v.A))
			}
			if strings.Join(got, " ") != tt.want || !strings.Contains(err.Error(), tt.err) {
				t.Errorf("read %v, then %v; want %q, then %q", got, err, tt.want, tt.err)
			}
		})
	}
}

func TestMessageOverTheLimit(t *testing.T) {
	s := NewFramed(&conn{Reader: strings.NewReader("{" + strings.Repeat(" ", 10000))}, 9000)
	if err := s.ReadObject(new(any)); !errors.Is(err, ErrFraming) {
		t.Errorf("%v", err)
	}
}

// A message that cannot be decoded leaves no fields in the next one.
func TestNoStaleFields(t *testing.T) {
	c := &conn{Reader: strings.NewReader("{\"a\":1,\"b\":\"x\"}\n{\"b\":2}\n")}
	var v struct{ A, B int }
	if err := NewFramed(c, maxTest).ReadObject(&v); err != nil || v.A != 0 || v.B != 2 {
		t.Errorf("read %+v, %v", v, err)
	}
}

// The reader does not wait for a client that writes before it reads. The writing
// goroutine answers what is not a message.
func TestMalformedMessagesAreAnsweredByTheWriter(t *testing.T) {
	mine, theirs := net.Pipe() // without buffers
	defer mine.Close()
	s := NewFramed(theirs, maxTest)
	var answers []any
	s.Malformed = func(answer any) { answers = append(answers, answer) }
	read := make(chan error, 1)
	go func() { read <- s.ReadObject(new(struct{ A int })) }()
	if _, err := io.WriteString(mine, "{oops\n{\"a\":\n{\"a\":1}\n"); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-read:
		if err != nil {
			t.Fatal(err)
		}
	case <-time.After(30 * time.Second):
		t.Fatal("the reader waits for a client to read")
	}
	if len(answers) != 2 {
		t.Fatalf("answers: %v", answers)
	}
	go s.WriteObject(answers[0])
	if line, err := bufio.NewReader(mine).ReadString('\n'); err != nil || !strings.Contains(line, "-32700") || !strings.Contains(line, `"id":null`) {
		t.Errorf("answered %q, %v", line, err)
	}
}

// The answer has the framing of the request.
func TestWriteObjectAnswersInKind(t *testing.T) {
	for in, want := range map[string]string{
		"{}\n":       "{\"a\":1}\n",
		framed("{}"): framed(`{"a":1}`),
	} {
		c := &conn{Reader: strings.NewReader(in)}
		s := NewFramed(c, maxTest)
		if err := s.ReadObject(new(any)); err != nil {
			t.Fatal(err)
		}
		if err := s.WriteObject(map[string]int{"a": 1}); err != nil {
			t.Fatal(err)
		}
		if got := c.String(); got != want {
			t.Errorf("after %q: wrote %q, want %q", in, got, want)
		}
	}
}

func FuzzStream(f *testing.F) {
	f.Add([]byte("{\"a\":1}\n[]\n"))
	f.Add([]byte(framed(`{"a":1}`) + framed("x")))
	f.Add([]byte("Content-Length: 5\nX: \r\n\r\n12345"))
	f.Fuzz(func(t *testing.T, data []byte) {
		c := &conn{Reader: bytes.NewReader(data)}
		s := NewFramed(c, maxTest)
		for range 100 {
			var v any
			if s.ReadObject(&v) != nil {
				return
			}
			// A message can be written and read again.
			again := &conn{}
			if err := NewLines(again, maxTest).WriteObject(v); err != nil {
				t.Fatal(err)
			}
			var w any
			if err := json.Unmarshal(again.Bytes(), &w); err != nil {
				t.Fatal(err)
			}
		}
	})
}
