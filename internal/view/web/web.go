// Package web serves the review page: a client of the editor protocol like an editor's
// plugin. Its messages travel as an event stream and POST requests. The page has its own port
// and its own secrets, which lead to nothing else.
//
// The page's source is in web/ at the top of the repository. The build in page/ is
// embedded, so that neither a user nor `go build` needs Node.
//
// The page's files are public and contain no user data. The page exchanges the one-time
// secret of a link for the page secret, and sends that with every request. The secret of
// the link is in the URL's fragment, which browsers send to no server. The page secret
// is not a cookie, because browsers send a cookie to every port of a host. The page
// keeps it in sessionStorage, which belongs to one origin and one tab. It is valid while
// the companion runs.
package web

import (
	"bytes"
	"context"
	"crypto/rand"
	"embed"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"pollux/internal/editor"
	"pollux/internal/gate"
	"pollux/internal/jsonl"
)

//go:embed page
var page embed.FS

const (
	// maxLinks bounds the unused links. It is far above what a person asks for: a
	// link on the user's screen must work however old it is.
	maxLinks = 256
	// heartbeatInterval is short enough for proxies and browsers to keep an idle event
	// stream open.
	heartbeatInterval = 20 * time.Second
)

// A Server serves the page below /review/ on a port of this machine. It checks the Host and
// Origin headers of each request.
type Server struct {
	attach func(io.ReadWriteCloser)
	port   int
	secret string
	mux    *http.ServeMux
	http   *gate.Server

	mu      sync.Mutex
	links   []string            // the secrets of the unopened links, the oldest first
	streams map[string]net.Conn // the page's end of each connection, by stream
}

// Listen returns a page that listens on that port of 127.0.0.1, or on another one if the port is
// taken or 0. attach serves one client of the editor protocol until the connection ends.
func Listen(attach func(io.ReadWriteCloser), port int, log *slog.Logger) (*Server, error) {
	l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		l, err = net.Listen("tcp", "127.0.0.1:0")
	}
	if err != nil {
		return nil, fmt.Errorf("the review page cannot listen on loopback: %w", err)
	}
	s := New(attach, l.Addr().(*net.TCPAddr).Port)
	s.http = gate.New(gate.Config{Handler: s, Log: log, Listeners: []net.Listener{l}})
	return s, nil
}

// New returns a page without a listener. The caller calls ServeHTTP for the requests to the
// port, and neither Serve nor Close.
func New(attach func(io.ReadWriteCloser), port int) *Server {
	s := &Server{
		attach: attach, port: port, secret: rand.Text(),
		mux: http.NewServeMux(), streams: make(map[string]net.Conn),
	}
	s.mux.HandleFunc("GET /review/{$}", s.index)
	s.mux.HandleFunc("GET /review/{file}", s.file)
	s.mux.HandleFunc("POST /review/login", fromPageOnly(s.login))
	s.mux.HandleFunc("GET /review/events", fromPageOnly(s.events))
	s.mux.HandleFunc("POST /review/rpc", fromPageOnly(s.rpc))
	return s
}

// Link returns a link that opens the page once. It stays valid until then.
func (s *Server) Link() string {
	link := rand.Text()
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.links) >= maxLinks {
		s.links = slices.Delete(s.links, 0, 1)
	}
	s.links = append(s.links, link)
	return fmt.Sprintf("http://127.0.0.1:%d/review/#%s", s.port, link)
}

// Serve answers requests in the background until [Server.Close].
func (s *Server) Serve() { s.http.Serve() }

// Close ends the server. The requests that it still serves have a second, or until ctx ends.
func (s *Server) Close(ctx context.Context) error { return s.http.Close(ctx) }

// use reports whether the link with this secret was unused, and uses it up.
func (s *Server) use(link string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	// All are compared in constant time, so that the time does not reveal a part of one.
	found := -1
	for i, l := range s.links {
		if gate.SameSecret(link, l) {
			found = i
		}
	}
	if found < 0 {
		return false
	}
	s.links = slices.Delete(s.links, found, found+1)
	return true
}

// ServeHTTP implements [http.Handler].
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Security-Policy",
		"default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'")
	if reason := gate.Refusal(r, s.port); reason != "" {
		gate.TurnAway(w, r, http.StatusForbidden, plain, []byte(reason+"\n"))
		return
	}
	s.mux.ServeHTTP(w, r)
}

// fromPage reports whether a request can come from the page itself. Browsers send the
// origin with every POST, and newer ones report with every request whether it crosses
// origins. Other programs need not send either. A form cannot send JSON.
func fromPage(r *http.Request) bool {
	origin, site := r.Header.Values("Origin"), r.Header.Values("Sec-Fetch-Site")
	return (len(origin) == 0 && r.Method == http.MethodGet || len(origin) == 1 && origin[0] == "http://"+r.Host) &&
		(len(site) == 0 || len(site) == 1 && site[0] == "same-origin") &&
		(r.Method != http.MethodPost || r.Header.Get("Content-Type") == "application/json")
}

const openPage = "To open the page: pollux open"

// fromPageOnly returns a handler that serves only the page's requests.
func fromPageOnly(serve http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if !fromPage(r) {
			refuse(w, http.StatusForbidden, "Only the review page may request this. "+openPage)
			return
		}
		serve(w, r)
	}
}

// admit reports whether a request has the page secret. If not, it refuses the request.
func (s *Server) admit(w http.ResponseWriter, r *http.Request) bool {
	if !gate.SameSecret(r.Header.Get("Authorization"), "Bearer "+s.secret) {
		refuse(w, http.StatusUnauthorized, "The page secret is missing or wrong. "+openPage)
		return false
	}
	gate.Authenticated(r.Context())
	return true
}

const plain = "text/plain; charset=utf-8"

func refuse(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", plain)
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
	if !s.use(body.Link) {
		refuse(w, http.StatusUnauthorized,
			"This link was used, or is not one of this companion. To open the page again: pollux open")
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
	h.Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self' 'nonce-"+nonce+"'; "+
		"connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
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

// events serves one page's event stream, and connects the page to the companion for as
// long as the stream is open. The first event names the stream for the page's POST
// requests.
func (s *Server) events(w http.ResponseWriter, r *http.Request) {
	if !s.admit(w, r) {
		return
	}
	conn, companionEnd := net.Pipe()
	id := rand.Text()
	s.mu.Lock()
	s.streams[id] = conn
	s.mu.Unlock()
	ctx, cancel := context.WithCancel(r.Context())
	var group sync.WaitGroup
	group.Go(func() { s.attach(companionEnd) })
	defer func() {
		cancel()
		s.mu.Lock()
		delete(s.streams, id)
		s.mu.Unlock()
		conn.Close()
		group.Wait()
	}()

	w.Header().Set("Content-Type", "text/event-stream")
	rc := http.NewResponseController(w)
	fmt.Fprintf(w, "event: stream\ndata: %s\n\n", id)
	if rc.Flush() != nil {
		return
	}
	messages := make(chan []byte)
	group.Go(func() {
		defer close(messages)
		in := jsonl.NewReader(conn, math.MaxInt) // the companion limits its messages
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
	beat := time.NewTicker(heartbeatInterval)
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
		refuse(w, http.StatusGone, "This stream has ended. Reload the page.")
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, editor.MaxMessage))
	if err != nil {
		refuse(w, http.StatusRequestEntityTooLarge, "The message is too large.")
		return
	}
	var line bytes.Buffer // one message, one line
	if err := json.Compact(&line, body); err != nil {
		refuse(w, http.StatusBadRequest, "The message is not valid JSON.")
		return
	}
	line.WriteByte('\n')
	if _, err := conn.Write(line.Bytes()); err != nil {
		refuse(w, http.StatusGone, "This stream has ended. Reload the page.")
		return
	}
	w.WriteHeader(http.StatusNoContent)
}
