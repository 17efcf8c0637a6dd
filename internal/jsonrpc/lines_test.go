package jsonrpc

import (
	"errors"
	"io"
	"strings"
	"testing"

	"pollux/internal/jsonl"
)

func TestParse(t *testing.T) {
	for line, want := range map[string]bool{
		`{"jsonrpc":"2.0","method":"m"}`:                true,
		`{"method":"m","id":0}`:                         true,
		` {"jsonrpc":"2.0","id":1,"result":null} `:      true,
		`{"jsonrpc":"2.0","id":"a","error":{"code":1}}`: true,
		`{"level":"info"}`:                              false,
		`{"jsonrpc":"2.0"}`:                             false,
		`{"jsonrpc":"2.0","id":1}`:                      false,
		`{"id":{},"method":"m"}`:                        false,
		`{"id":1,"method":"m","result":1}`:              false,
		`[{"jsonrpc":"2.0","method":"m"}]`:              false,
		`{"jsonrpc":"2.0","method":"m"} and more`:       false,
		``: false,
	} {
		if _, err := Parse([]byte(line)); (err == nil) != want {
			t.Errorf("%s: %v", line, err)
		}
	}
}

type readOnly struct{ io.Reader }

func (readOnly) Close() error                { return nil }
func (readOnly) Write(b []byte) (int, error) { return len(b), nil }

// Lines that are not messages are skipped, wherever they are cut.
func FuzzLines(f *testing.F) {
	message := `{"jsonrpc":"2.0","method":"m"}`
	f.Add("noise\n{not json}\n\n[1]\n" + message + "\n")
	f.Add(message)
	f.Add("\x00\xff\n{\n" + message + "\n" + message + "\n")
	f.Fuzz(func(t *testing.T, text string) {
		want := 0
		for line := range strings.Lines(text) {
			if _, err := Parse([]byte(line)); err == nil {
				want++
			}
		}
		s := Lines(readOnly{strings.NewReader(text)}, readOnly{}, 1<<20)
		for got := 0; ; got++ {
			if _, err := s.ReadMessage(); err != nil {
				if !errors.Is(err, io.EOF) || got != want {
					t.Fatalf("%d messages of %d, then %v", got, want, err)
				}
				return
			}
		}
	})
}

// A line that is too long ends the connection.
func TestLongLine(t *testing.T) {
	s := Lines(readOnly{io.MultiReader(strings.NewReader(`{"a":"`), zeros{})}, readOnly{}, 1<<20)
	if _, err := s.ReadMessage(); !errors.As(err, new(*jsonl.TooLongError)) {
		t.Errorf("got %v", err)
	}
}

// zeros is an endless reader of zeros.
type zeros struct{}

func (zeros) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = '0'
	}
	return len(b), nil
}
