package client

import (
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
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

// A companion answers with a stream of another content type, which does not end. Listen
// waited for its end.
func TestListenToAnotherStream(t *testing.T) {
	companion := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/plain")
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	}))
	defer companion.Close()
	c := &CLI{to: Endpoint{Port: companion.Listener.Addr().(*net.TCPAddr).Port}}
	var status *StatusError
	if err := c.Listen(t.Context()); !errors.As(err, &status) || !strings.Contains(status.Text, `the content type is "text/plain"`) {
		t.Errorf("the error is %v", err)
	}
}
