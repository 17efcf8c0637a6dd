package web

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// base is the longest one that a companion has.
const base = "http://127.0.0.1:65535"

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
		s := New(nil, base)
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
	s := New(nil, base)
	link := s.Link()
	for _, bad := range []string{base + "/review/#", base + "/review/", link[:len(link)-1], link + "A", strings.ToLower(link), New(nil, base).Link()} {
		if code := login(s, bad); code != http.StatusUnauthorized {
			t.Errorf("%s: %d", bad, code)
		}
	}
	if code := login(s, link); code != http.StatusOK {
		t.Errorf("the link itself: %d", code)
	}
}

// Links that nobody opens use a bounded amount of memory. The newest ones work.
func TestLinksAreBounded(t *testing.T) {
	s := New(nil, base)
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
