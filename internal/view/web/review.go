// Package web serves the browser page: a client of the adapter protocol like
// any editor, whose messages travel as an event stream and POST requests.
//
// The page's source is in web/; its build, in page/, is embedded, so that
// neither a user nor `go build` needs Node.
//
// The page's files are public and hold nothing of the user's. The page exchanges
// the one-time secret of a link for the page secret and sends that with every
// request. The link's secret is in the URL's fragment, which browsers send to no
// server. The page secret is no cookie, because a cookie goes to every port of a
// host: the page keeps it in sessionStorage, which belongs to one origin and
// one tab. It is good for this companion as long as that runs.
package web

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"embed"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"sync"
	"time"

	"pollux/internal/editor"
	"pollux/internal/jsonl"
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
	secret string
	mux    *http.ServeMux

	mu      sync.Mutex
	links   map[string]time.Time
	streams map[string]net.Conn // the pages' ends of their connections
}

// New makes the page of a companion that listens at base, a URL without a
// path. attach serves one client of the adapter protocol until it goes.
func New(attach func(io.ReadWriteCloser), base string) *Server {
	s := &Server{
		attach: attach, base: base, secret: rand.Text(),
		mux: http.NewServeMux(), links: make(map[string]time.Time), streams: make(map[string]net.Conn),
	}
	s.mux.HandleFunc("GET /review/{$}", s.index)
	s.mux.HandleFunc("GET /review/{file}", s.file)
	s.mux.HandleFunc("POST /review/login", own(s.login))
	s.mux.HandleFunc("GET /review/events", own(s.events))
	s.mux.HandleFunc("POST /review/rpc", own(s.rpc))
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
	return s.base + "/review/#" + link
}

// ServeHTTP implements [http.Handler].
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'")
	s.mux.ServeHTTP(w, r)
}

// fromPage reports whether a request can come from the page itself. Browsers
// name the origin of every POST, and the newer ones say of every request
// whether it crosses origins; programs need not say either. A form cannot send
// JSON.
func fromPage(r *http.Request) bool {
	origin, site := r.Header.Values("Origin"), r.Header.Values("Sec-Fetch-Site")
	return (len(origin) == 0 && r.Method == http.MethodGet || len(origin) == 1 && origin[0] == "http://"+r.Host) &&
		(len(site) == 0 || len(site) == 1 && site[0] == "same-origin") &&
		(r.Method != http.MethodPost || r.Header.Get("Content-Type") == "application/json")
}

// own returns a handler that serves the page's requests only.
func own(serve http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if !fromPage(r) {
			refuse(w, http.StatusForbidden, "Only the review page itself may ask for this. Open it with a link from Pollux: pollux status --link")
			return
		}
		serve(w, r)
	}
}

// admit reports whether a request has the page secret. If not, it answers the
// request.
func (s *Server) admit(w http.ResponseWriter, r *http.Request) bool {
	got, want := sha256.Sum256([]byte(r.Header.Get("Authorization"))), sha256.Sum256([]byte("Bearer "+s.secret))
	if subtle.ConstantTimeCompare(got[:], want[:]) != 1 {
		refuse(w, http.StatusUnauthorized, "The page secret is missing or wrong. Open the page with a link from Pollux: pollux status --link")
		return false
	}
	editor.Authenticated(r.Context())
	return true
}

func refuse(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	fmt.Fprintln(w, text)
}

// login exchanges the secret of a link for the page secret.
func (s *Server) login(w http.ResponseWriter, r *http.Request) {
	var body struct {
		Link string `json:"link"`
	}
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 4096)).Decode(&body); err != nil {
		refuse(w, http.StatusBadRequest, "The request is not valid JSON. Reload the page.")
		return
	}
	s.mu.Lock()
	made, ok := s.links[body.Link]
	delete(s.links, body.Link)
	s.mu.Unlock()
	if !ok || time.Since(made) > linkAge {
		refuse(w, http.StatusUnauthorized, "This link was used, or is too old. For a new one: pollux status --link")
		return
	}
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(map[string]string{"secret": s.secret})
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
	h.Set("Cross-Origin-Opener-Policy", "same-origin") // the opener gets no handle to this window
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
	if !s.admit(w, r) {
		return
	}
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
	fmt.Fprintf(w, "event: stream\ndata: %s\n\n", id)
	if rc.Flush() != nil {
		return
	}
	messages := make(chan []byte)
	attached.Go(func() {
		defer close(messages)
		in := jsonl.NewReader(mine, math.MaxInt) // our own messages, of any size
		for {
			line, err := in.ReadLine()
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
	if !s.admit(w, r) {
		return
	}
	s.mu.Lock()
	conn := s.streams[r.URL.Query().Get("stream")]
	s.mu.Unlock()
	if conn == nil {
		refuse(w, http.StatusGone, "this stream has ended: connect again")
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, editor.MaxMessage))
	if err != nil {
		refuse(w, http.StatusRequestEntityTooLarge, "the message is too large")
		return
	}
	var line bytes.Buffer // one message, one line
	if err := json.Compact(&line, body); err != nil {
		refuse(w, http.StatusBadRequest, "the message is not valid JSON")
		return
	}
	line.WriteByte('\n')
	if _, err := conn.Write(line.Bytes()); err != nil {
		refuse(w, http.StatusGone, "this stream has ended: connect again")
		return
	}
	w.WriteHeader(http.StatusNoContent)
}
