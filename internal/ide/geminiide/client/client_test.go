package client

import (
	"slices"
	"testing"
)

func TestMessages(t *testing.T) {
	for body, want := range map[string][]string{
		`{"id":1}`:                               {`{"id":1}`},
		"event: message\ndata: {\"a\":1}\n\n":    {" {\"a\":1}\n"},
		"data: {\"a\":1}\r\n\r\ndata: {}\r\n":    {" {\"a\":1}\n", " {}\n"},
		": alive\n\ndata: {\ndata: \"a\":1}\n\n": {" {\n \"a\":1}\n"},
		"":                                       nil,
	} {
		if got := messages(body); !slices.Equal(got, want) {
			t.Errorf("%q has %q, want %q", body, got, want)
		}
	}
}
