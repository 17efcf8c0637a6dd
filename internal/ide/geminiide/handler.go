package geminiide

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"pollux/internal/gate"
)

const (
	sessionHeader  = "Mcp-Session-Id"
	protocolHeader = "Mcp-Protocol-Version"
)

// protocolVersions are the versions of MCP that have sessions and event streams.
// From 2026 on MCP over HTTP has neither.
var protocolVersions = []string{"2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"}

// handler returns the server's handler. It checks the Host (against DNS
// rebinding), the Origin (against web pages) and the token, in this order, before
// it looks at a request.
func (s *Server) handler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// An earlier request of the connection may have left a deadline: see endSoon.
		http.NewResponseController(w).SetWriteDeadline(time.Time{})
		h := w.Header()
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("X-Frame-Options", "DENY")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cache-Control", "no-store")
		if !s.hostAllowed(r.Host) {
			turnAway(w, r, http.StatusForbidden, "this Host is not served here: connect to 127.0.0.1")
			return
		}
		if !s.originAllowed(r) {
			turnAway(w, r, http.StatusForbidden, "requests from this Origin are not served")
			return
		}
		if strings.HasPrefix(r.URL.Path, "/review/") {
			s.mu.Lock()
			pages := s.pages
			s.mu.Unlock()
			if pages != nil {
				pages.ServeHTTP(w, r)
				return
			}
		}
		agent := s.agentOf(r)
		if agent == "" {
			h.Set("WWW-Authenticate", Realm)
			turnAway(w, r, http.StatusUnauthorized,
				"the bearer token is missing or wrong: it is in the discovery file (authToken)")
			return
		}
		gate.Authenticated(r.Context())
		if r.URL.Path != "/mcp" {
			turnAway(w, r, http.StatusNotFound, "the MCP endpoint is /mcp")
			return
		}
		s.serveMCP(w, r, agent)
	})
}

func (s *Server) hostAllowed(host string) bool {
	name, port, err := net.SplitHostPort(host)
	if err != nil || port != strconv.Itoa(s.port) {
		return false
	}
	if name == "127.0.0.1" || strings.EqualFold(name, "localhost") || name == "::1" {
		return true
	}
	extra := func(n string) bool { return strings.EqualFold(n, name) }
	return s.cfg.ExtraHost != "" && (name == s.cfg.ExtraHost || slices.ContainsFunc(s.cfg.ExtraNames, extra))
}

func (s *Server) originAllowed(r *http.Request) bool {
	values := r.Header.Values("Origin")
	if len(values) == 0 {
		return true
	}
	origin, err := url.Parse(values[0])
	return len(values) == 1 && err == nil && origin.Scheme == "http" && s.hostAllowed(origin.Host)
}

// agentOf returns the name of the program whose token the request has, or "" if
// it has none.
func (s *Server) agentOf(r *http.Request) (agent string) {
	scheme, token, ok := strings.Cut(r.Header.Get("Authorization"), " ")
	if !ok || !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	for _, c := range clis {
		if gate.SameSecret(token, c.token(s.cfg.Token)) {
			agent = c.name
		}
	}
	return agent
}

// refuse answers with a JSON-RPC error, which MCP clients display.
func refuse(w http.ResponseWriter, status int, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	w.Write(refusal(message))
}

// turnAway refuses a request and ends its connection.
func turnAway(w http.ResponseWriter, r *http.Request, status int, message string) {
	gate.TurnAway(w, r, status, refusal(message))
}

func refusal(message string) []byte {
	text, _ := json.Marshal(map[string]any{
		"jsonrpc": "2.0",
		"id":      nil,
		"error":   map[string]any{"code": -32000, "message": message},
	})
	return text
}

func (s *Server) serveMCP(w http.ResponseWriter, r *http.Request, agent string) {
	if v := r.Header.Get(protocolHeader); v != "" && !slices.Contains(protocolVersions, v) {
		refuse(w, http.StatusBadRequest, fmt.Sprintf("protocol version %.40q is not supported: use one of %s",
			v, strings.Join(protocolVersions, ", ")))
		return
	}
	id := r.Header.Get(sessionHeader)
	session := s.session(id)
	if id != "" && session == nil {
		refuse(w, http.StatusNotFound, "no such session: send initialize again")
		return
	}
	switch r.Method {
	case http.MethodPost:
		s.servePost(w, r, session, agent)
	case http.MethodGet:
		switch {
		case !accepts(r, "text/event-stream"):
			refuse(w, http.StatusNotAcceptable, "Accept must contain text/event-stream")
		case session == nil:
			refuse(w, http.StatusBadRequest, "the "+sessionHeader+" header is missing: send initialize first")
		default:
			session.serveStream(w, r)
		}
	case http.MethodDelete:
		if session == nil {
			refuse(w, http.StatusBadRequest, "the "+sessionHeader+" header is missing")
			return
		}
		session.Close()
		w.WriteHeader(http.StatusNoContent)
	default:
		w.Header().Set("Allow", "GET, POST, DELETE")
		refuse(w, http.StatusMethodNotAllowed, "use POST, GET or DELETE")
	}
}

func (s *Server) servePost(w http.ResponseWriter, r *http.Request, session *Session, agent string) {
	if mt, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || mt != "application/json" {
		refuse(w, http.StatusUnsupportedMediaType, "Content-Type must be application/json")
		return
	}
	if !accepts(r, "application/json") || !accepts(r, "text/event-stream") {
		refuse(w, http.StatusNotAcceptable, "Accept must contain application/json and text/event-stream")
		return
	}
	body, err := s.readBody(w, r)
	if err != nil {
		var large *http.MaxBytesError
		if errors.As(err, &large) {
			turnAway(w, r, http.StatusRequestEntityTooLarge,
				fmt.Sprintf("the request is over %d MiB: the file is too large to review", large.Limit>>20))
		} else {
			refuse(w, http.StatusBadRequest, "the request's body did not arrive")
		}
		return
	}
	first, err := parsePost(body)
	if session != nil {
		if err == nil && first.Method != "" && !known[first.Method] {
			answerUnknown(w, first.ID, first.Method)
			return
		}
		if session.mcp.InitializeParams() != nil {
			session.connected() // this request may overtake the rest of the first one
		}
		session.servePost(func() {
			if err != nil || !session.serveTool(w, r, first) {
				session.serve(w, withBody(r, body))
			}
		})
		return
	}
	if err != nil || first.Method != "initialize" {
		refuse(w, http.StatusBadRequest, "the "+sessionHeader+" header is missing: send initialize first")
		return
	}
	session, err = s.newHTTPSession(agent)
	if err != nil {
		w.Header().Set("Retry-After", "5")
		refuse(w, http.StatusServiceUnavailable, err.Error())
		return
	}
	session.servePost(func() { session.serve(w, withBody(r, body)) })
	if session.mcp.InitializeParams() == nil {
		session.Close()
		return
	}
	session.connected()
}

// withBody gives a request a body that was read before.
func withBody(r *http.Request, body []byte) *http.Request {
	r.Body = io.NopCloser(bytes.NewReader(body))
	return r
}

// known are the methods that the SDK's transport accepts. It answers 400 to
// others, which disconnects Gemini CLI. JSON-RPC has an error for them.
var known = map[string]bool{
	"initialize": true, "ping": true, "tools/list": true, "tools/call": true,
	"notifications/initialized": true, "notifications/cancelled": true, "notifications/progress": true,
	"notifications/roots/list_changed": true,
}

func answerUnknown(w http.ResponseWriter, id json.RawMessage, method string) {
	if id == nil {
		w.WriteHeader(http.StatusAccepted)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(map[string]any{
		"jsonrpc": "2.0", "id": id,
		"error": map[string]any{"code": -32601, "message": fmt.Sprintf("method %.80q not found", method)},
	})
}

// readBody reads the whole body, with a deadline that it removes afterwards:
// otherwise the deadline would later cancel the request.
func (s *Server) readBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	rc := http.NewResponseController(w)
	rc.SetReadDeadline(time.Now().Add(bodyTimeout))
	defer rc.SetReadDeadline(time.Time{})
	var b bytes.Buffer
	if n := r.ContentLength; n > 0 && n <= s.cfg.MaxBody {
		b.Grow(int(n) + bytes.MinRead)
	}
	_, err := b.ReadFrom(io.LimitReader(r.Body, s.cfg.MaxBody+1))
	if err == nil && int64(b.Len()) > s.cfg.MaxBody {
		// Keep reading, up to a limit. Otherwise a client that is still writing would
		// see a broken connection instead of the answer.
		io.CopyN(io.Discard, r.Body, 4*s.cfg.MaxBody)
		return nil, &http.MaxBytesError{Limit: s.cfg.MaxBody}
	}
	return b.Bytes(), err
}

func accepts(r *http.Request, want string) bool {
	family, _, _ := strings.Cut(want, "/")
	for _, value := range r.Header.Values("Accept") {
		for part := range strings.SplitSeq(value, ",") {
			mt, _, _ := strings.Cut(part, ";")
			switch strings.ToLower(strings.TrimSpace(mt)) {
			case want, family + "/*", "*/*":
				return true
			}
		}
	}
	return false
}
