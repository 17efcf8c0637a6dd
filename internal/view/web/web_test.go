package web

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pollux/internal/gate"
)

// port makes the longest links.
const (
	port = 65535
	base = "http://127.0.0.1:65535"
)

// login opens a link as the page does, and returns the status.
func login(s *Server, link string) int {
	_, secret, _ := strings.Cut(link, "#")
	r := httptest.NewRequest(http.MethodPost, base+"/review/login", strings.NewReader(`{"link":"`+secret+`"}`))
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Origin", base)
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	return w.Code
}

// A link opens the page however old it is, and only once, even when several programs try
// at the same time. It fits in a terminal, and each one has its own secret.
func TestLink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(nil, port)
		old, other := s.Link(), s.Link()
		if len(old) > 72 {
			t.Errorf("the link has %d characters", len(old))
		}
		_, secret, _ := strings.Cut(old, "#")
		if len(secret) < 26 || old == other { // 130 bits
			t.Errorf("the links are %s and %s", old, other)
		}
		time.Sleep(30 * 24 * time.Hour)
		var opened atomic.Int32
		var group sync.WaitGroup
		for range 8 {
			group.Go(func() {
				if login(s, old) == http.StatusOK {
					opened.Add(1)
				}
			})
		}
		group.Wait()
		if n := opened.Load(); n != 1 {
			t.Errorf("one link opened the page %d times", n)
		}
		if code := login(s, other); code != http.StatusOK {
			t.Errorf("the other link: %d", code)
		}
	})
}

// No other text is a link, and a companion does not take another one's.
func TestLinkOfAnother(t *testing.T) {
	s := New(nil, port)
	link := s.Link()
	for _, bad := range []string{base + "/review/#", base + "/review/", link[:len(link)-1], link + "A", strings.ToLower(link), New(nil, port).Link()} {
		if code := login(s, bad); code != http.StatusUnauthorized {
			t.Errorf("%s: %d", bad, code)
		}
	}
	if code := login(s, link); code != http.StatusOK {
		t.Errorf("the link itself: %d", code)
	}
}

// Unused links take a bounded amount of memory. The newest ones work.
func TestLinksAreBounded(t *testing.T) {
	s := New(nil, port)
	first, second := s.Link(), s.Link()
	for range maxLinks - 1 {
		s.Link()
	}
	if code := login(s, first); code != http.StatusUnauthorized {
		t.Errorf("the oldest link: %d", code)
	}
	if code := login(s, second); code != http.StatusOK {
		t.Errorf("the oldest link that is kept: %d", code)
	}
}

// listen returns a page that serves on a port, or on another one.
func listen(t *testing.T, port int) *Server {
	t.Helper()
	s, err := Listen(nil, port, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	s.Serve()
	t.Cleanup(func() { s.Close(context.Background()) })
	return s
}

// After a crash, open tabs find the page at its old port, unless another program has that.
func TestListen(t *testing.T) {
	first := listen(t, 0)
	if second := listen(t, first.port); second.port == first.port || second.port == 0 {
		t.Errorf("two pages listen on port %d", first.port)
	}
	first.Close(context.Background())
	if again := listen(t, first.port); again.port != first.port {
		t.Errorf("the page listens on port %d, was %d", again.port, first.port)
	}
}

// send sends a request without a body on a connection, and returns the response and its body.
func send(t *testing.T, conn net.Conn, method, path string, header http.Header) (*http.Response, string) {
	t.Helper()
	r, err := http.NewRequest(method, "http://"+conn.RemoteAddr().String()+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header = header
	r.Host = cmp.Or(header.Get("Host"), r.Host)
	conn.SetDeadline(time.Now().Add(30 * time.Second))
	if err := r.Write(conn); err != nil {
		t.Fatal(err)
	}
	res, err := http.ReadResponse(bufio.NewReader(conn), r)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res, string(text)
}

func dial(t *testing.T, s *Server) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", s.port))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// A page of another site, or a host name that it has made lead to this machine, receives not
// even the page's own files.
func TestOtherSites(t *testing.T) {
	s := listen(t, 0)
	own := fmt.Sprintf("127.0.0.1:%d", s.port)
	for name, tt := range map[string]struct {
		header http.Header
		status int
	}{
		"the page":            {http.Header{"Origin": {"http://" + own}}, 200},
		"localhost":           {http.Header{"Host": {fmt.Sprintf("localhost:%d", s.port)}}, 200},
		"another host":        {http.Header{"Host": {fmt.Sprintf("evil.example:%d", s.port)}}, 403},
		"another port":        {http.Header{"Host": {"127.0.0.1:1"}}, 403},
		"another site":        {http.Header{"Origin": {"http://evil.example"}}, 403},
		"an encrypted origin": {http.Header{"Origin": {"https://" + own}}, 403},
		"two origins":         {http.Header{"Origin": {"http://" + own, "http://" + own}}, 403},
		"no site":             {http.Header{"Origin": {"null"}}, 403},
	} {
		res, text := send(t, dial(t, s), http.MethodGet, "/review/app.js", tt.header)
		if res.StatusCode != tt.status || (tt.status == 403) != strings.Contains(text, "not served") ||
			res.Header.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s: %s, %.100q", name, res.Status, text)
		}
	}
}

// A connection without the page secret ends soon. The page's own connections stay.
func TestStrangersHaveLittleTime(t *testing.T) {
	s := listen(t, 0)
	page, other, silent := dial(t, s), dial(t, s), dial(t, s)
	rpc := func(conn net.Conn, secret string) int {
		res, _ := send(t, conn, http.MethodPost, "/review/rpc?stream=x", http.Header{
			"Origin": {fmt.Sprintf("http://127.0.0.1:%d", s.port)}, "Content-Type": {"application/json"}, "Authorization": {"Bearer " + secret},
		})
		return res.StatusCode
	}
	if got := rpc(page, s.secret); got != http.StatusGone { // there is no such stream
		t.Errorf("with the secret: %d", got)
	}
	if got := rpc(other, "x"); got != http.StatusUnauthorized {
		t.Errorf("with another secret: %d", got)
	}
	s.http.Sweep(time.Now().Add(gate.Timeout))
	if got := rpc(page, s.secret); got != http.StatusGone {
		t.Errorf("with the secret, later: %d", got)
	}
	for _, conn := range []net.Conn{other, silent} {
		conn.SetDeadline(time.Now().Add(30 * time.Second))
		if _, err := conn.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("a connection without the secret stays open: %v", err)
		}
	}
}
