// Package review is the browser page: a client of the adapter protocol like
// any editor, whose messages travel as server-sent events and POST requests.
//
// The page's source is in web/; its build, in page/, is embedded, so that
// neither a user nor `go build` needs Node.
//
// Who may see it: a link with a one-time secret is exchanged for a cookie that
// is good for this companion and as long as it runs. The cookie is HttpOnly and
// SameSite=Strict, a message must come from the page's own origin, the policy
// allows no outside resource, no framing and no inline script.
package review

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"embed"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"pollux/internal/adapter"
	"pollux/internal/ide"
)

//go:embed page
var page embed.FS

const (
	// linkAge is how long a link waits to be opened.
	linkAge  = 10 * time.Minute
	maxLinks = 32
	// heartbeat keeps an idle event stream from being taken for dead.
	heartbeat = 20 * time.Second
)

// A Server serves the page below /review/. The listener's owner checks Host
// and Origin before it asks.
type Server struct {
	attach func(io.ReadWriteCloser)
	base   string
	cookie string // its name: cookies are shared by all ports of a host
	secret string
	mux    *http.ServeMux

	mu      sync.Mutex
	links   map[string]time.Time
	streams map[string]net.Conn // the pages' ends of their connections
}

// New makes the page of a companion that listens at base, a URL without a
// path. attach serves one client of the adapter protocol until it goes.
func New(attach func(io.ReadWriteCloser), base string) *Server {
	u, err := url.Parse(base)
	if err != nil {
		panic(err)
	}
	s := &Server{
		attach: attach, base: base, cookie: "pollux_" + u.Port(), secret: rand.Text(),
		mux: http.NewServeMux(), links: make(map[string]time.Time), streams: make(map[string]net.Conn),
	}
	s.mux.HandleFunc("GET /review/open/{link}", s.open)
	s.mux.HandleFunc("GET /review/{$}", s.index)
	s.mux.HandleFunc("GET /review/{file}", s.file)
	s.mux.HandleFunc("GET /review/events", s.events)
	s.mux.HandleFunc("POST /review/rpc", s.rpc)
	return s
}

// Link returns a link that opens the page once, in the next ten minutes.
func (s *Server) Link() string {
	link := rand.Text()
	s.mu.Lock()
	defer s.mu.Unlock()
	var oldest string
	for l, made := range s.links {
		if time.Since(made) > linkAge {
			delete(s.links, l)
		} else if oldest == "" || made.Before(s.links[oldest]) {
			oldest = l
		}
	}
	if len(s.links) >= maxLinks {
		delete(s.links, oldest)
	}
	s.links[link] = time.Now()
	return s.base + "/review/open/" + link
}

// ServeHTTP implements [http.Handler].
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'")
	if !strings.HasPrefix(r.URL.Path, "/review/open/") && !s.authorized(r) {
		refuse(w, http.StatusUnauthorized, "This page opens with a link from Pollux. For a new one: pollux status --link")
		return
	}
	s.mux.ServeHTTP(w, r)
}

func (s *Server) authorized(r *http.Request) bool {
	c, err := r.Cookie(s.cookie)
	if err != nil {
		return false
	}
	got, want := sha256.Sum256([]byte(c.Value)), sha256.Sum256([]byte(s.secret))
	if subtle.ConstantTimeCompare(got[:], want[:]) != 1 {
		return false
	}
	ide.Authenticated(r.Context())
	return true
}

func refuse(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	fmt.Fprintln(w, text)
}

func (s *Server) open(w http.ResponseWriter, r *http.Request) {
	link := r.PathValue("link")
	s.mu.Lock()
	made, ok := s.links[link]
	delete(s.links, link)
	s.mu.Unlock()
	switch {
	case ok && time.Since(made) <= linkAge:
		http.SetCookie(w, &http.Cookie{
			Name: s.cookie, Value: s.secret, Path: "/review/", HttpOnly: true, SameSite: http.SameSiteStrictMode,
		})
	case !s.authorized(r): // a browser that has the cookie may reload the link
		refuse(w, http.StatusForbidden, "This link was used, or is too old. For a new one: pollux status --link")
		return
	}
	http.Redirect(w, r, "/review/", http.StatusSeeOther)
}

func (s *Server) index(w http.ResponseWriter, _ *http.Request) {
	html, err := page.ReadFile("page/index.html")
	if err != nil {
		refuse(w, http.StatusInternalServerError, err.Error())
		return
	}
	nonce := rand.Text() // for the styles that CodeMirror adds
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self' 'nonce-"+nonce+"'; connect-src 'self'; "+
		"img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
	w.Write(bytes.ReplaceAll(html, []byte("{{nonce}}"), []byte(nonce)))
}

func (s *Server) file(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("file")
	if name == "index.html" {
		http.NotFound(w, r)
		return
	}
	http.ServeFileFS(w, r, page, "page/"+name)
}

// events is one page's connection to the door, as long as its event stream is
// open. The first event names the stream, for the page's POST requests.
func (s *Server) events(w http.ResponseWriter, r *http.Request) {
	mine, theirs := net.Pipe()
	id := rand.Text()
	s.mu.Lock()
	s.streams[id] = mine
	s.mu.Unlock()
	ctx, cancel := context.WithCancel(r.Context())
	var attached sync.WaitGroup
	attached.Go(func() { s.attach(theirs) })
	defer func() {
		cancel()
		s.mu.Lock()
		delete(s.streams, id)
		s.mu.Unlock()
		mine.Close()
		attached.Wait()
	}()

	w.Header().Set("Content-Type", "text/event-stream")
	rc := http.NewResponseController(w)
	fmt.Fprintf(w, "retry: 1000\nevent: stream\ndata: %s\n\n", id)
	if rc.Flush() != nil {
		return
	}
	messages := make(chan []byte)
	attached.Go(func() {
		defer close(messages)
		in := bufio.NewReader(mine)
		for {
			line, err := in.ReadBytes('\n')
			if err != nil {
				return
			}
			select {
			case messages <- line:
			case <-ctx.Done():
				return
			}
		}
	})
	beat := time.NewTicker(heartbeat)
	defer beat.Stop()
	for {
		select {
		case line, ok := <-messages:
			if !ok {
				return
			}
			fmt.Fprintf(w, "data: %s\n", line) // the line has its line feed
		case <-beat.C:
			io.WriteString(w, ": \n\n")
		case <-ctx.Done():
			return
		}
		if rc.Flush() != nil {
			return
		}
	}
}

func (s *Server) rpc(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Origin") != "http://"+r.Host || r.Header.Get("Content-Type") != "application/json" {
		refuse(w, http.StatusForbidden, "messages come from the page itself")
		return
	}
	s.mu.Lock()
	conn := s.streams[r.URL.Query().Get("stream")]
	s.mu.Unlock()
	if conn == nil {
		refuse(w, http.StatusGone, "this stream has ended: connect again")
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, adapter.MaxMessage))
	if err != nil {
		refuse(w, http.StatusRequestEntityTooLarge, "the message is too large")
		return
	}
	var line bytes.Buffer // one message, one line
	if err := json.Compact(&line, body); err != nil {
		refuse(w, http.StatusBadRequest, "the message is no JSON")
		return
	}
	line.WriteByte('\n')
	if _, err := conn.Write(line.Bytes()); err != nil {
		refuse(w, http.StatusGone, "this stream has ended: connect again")
		return
	}
	w.WriteHeader(http.StatusNoContent)
}
