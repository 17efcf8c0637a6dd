package jsonl

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
)

func TestReadLine(t *testing.T) {
	long := strings.Repeat("x", 3*bufferSize)
	var tooLong *TooLongError
	for _, test := range []struct {
		what, in string
		limit    int
		want     []string // "" is a line that is too long
	}{
		{"lines", "a\nb\n", 10, []string{"a\n", "b\n"}},
		{"an empty line", "\na\n", 10, []string{"\n", "a\n"}},
		{"a last line without a line feed", "a\nb", 10, []string{"a\n", "b"}},
		{"a line of the limit", "1234\n", 5, []string{"1234\n"}},
		{"a line over the limit", "12345\nb\n", 5, []string{"", "b\n"}},
		{"a line longer than the buffer", long + "\nb\n", len(long) + 1, []string{long + "\n", "b\n"}},
		{"one that is too long", long + "\nb\n", len(long), []string{"", "b\n"}},
		{"two that are too long", long + "\n" + long + "\nb", 10, []string{"", "", "b"}},
		{"a last line that is too long", "a\n" + long, 10, []string{"a\n", ""}},
		{"nothing", "", 10, nil},
	} {
		for name, in := range map[string]io.Reader{
			"whole": strings.NewReader(test.in), "in pieces": iotest.HalfReader(strings.NewReader(test.in)),
		} {
			r := NewReader(in, test.limit)
			for i, want := range test.want {
				line, err := r.ReadLine()
				if want == "" && errors.As(err, &tooLong) && tooLong.Limit == test.limit && line == nil {
					continue
				}
				if string(line) != want || err != nil {
					t.Fatalf("%s, %s: line %d is %.20q, %v", test.what, name, i, line, err)
				}
			}
			if line, err := r.ReadLine(); err != io.EOF || line != nil {
				t.Errorf("%s, %s: at the end: %.20q, %v", test.what, name, line, err)
			}
		}
	}
}

// A line without an end is reported before it ends, and takes no more memory
// than the limit.
func TestEndlessLine(t *testing.T) {
	const limit = 1 << 20
	in, out := io.Pipe()
	defer in.Close()
	go func() {
		for {
			if _, err := out.Write(bytes.Repeat([]byte("x"), 1000)); err != nil {
				return
			}
		}
	}()
	r := NewReader(in, limit)
	var tooLong *TooLongError
	if _, err := r.ReadLine(); !errors.As(err, &tooLong) {
		t.Error(err)
	}
	if line := appendBounded(make([]byte, limit-10), make([]byte, 5), limit); cap(line) > limit {
		t.Errorf("the line takes %d bytes", cap(line))
	}
}

func TestReadError(t *testing.T) {
	broken := errors.New("broken")
	r := NewReader(io.MultiReader(strings.NewReader("a\nhalf"), iotest.ErrReader(broken)), 10)
	if line, err := r.ReadLine(); string(line) != "a\n" || err != nil {
		t.Errorf("%q, %v", line, err)
	}
	if line, err := r.ReadLine(); line != nil || err != broken {
		t.Errorf("%q, %v", line, err)
	}
}

// writes counts the calls of Write.
type writes struct {
	bytes.Buffer
	calls int
}

func (w *writes) Write(b []byte) (int, error) {
	w.calls++
	return w.Buffer.Write(b)
}

func TestWriter(t *testing.T) {
	var out writes
	w := NewWriter(&out)
	var all sync.WaitGroup
	for range 100 {
		all.Go(func() {
			if err := w.Encode(map[string]string{"a": "two\nlines"}); err != nil {
				t.Error(err)
			}
			if err := w.WriteLine([]byte("{}\n")); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if out.calls != 200 {
		t.Errorf("200 lines took %d writes", out.calls)
	}
	for line := range strings.Lines(out.String()) {
		if line != "{\"a\":\"two\\nlines\"}\n" && line != "{}\n" {
			t.Fatalf("a line is %q", line)
		}
	}
	if err := w.Encode(func() {}); err == nil {
		t.Error("a function is JSON")
	}
}
