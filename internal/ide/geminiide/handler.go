package geminiide

import (
	"fmt"
	"mime"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"pollux/internal/gate"
	"pollux/internal/ide/mcp"
)

const protocolHeader = "Mcp-Protocol-Version"

// handler returns the server's handler. It checks the Host (against DNS
// rebinding), the Origin (against web pages) and the token, in this order, before
// it looks at a request.
func (s *Server) handler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// An earlier request of the connection may have left a deadline.
		http.NewResponseController(w).SetWriteDeadline(time.Time{})
		h := w.Header()
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("X-Frame-Options", "DENY")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cache-Control", "no-store")
		if !s.hostAllowed(r.Host) {
			mcp.TurnAway(w, r, http.StatusForbidden, "this Host is not served here: connect to 127.0.0.1")
			return
		}
		if !s.originAllowed(r) {
			mcp.TurnAway(w, r, http.StatusForbidden, "requests from this Origin are not served")
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
		if s.agentOf(r) == "" {
			h.Set("WWW-Authenticate", Realm)
			mcp.TurnAway(w, r, http.StatusUnauthorized,
				"the bearer token is missing or wrong: it is in the discovery file (authToken)")
			return
		}
		if s.old && !gate.OwnUser(r.Context()) {
			mcp.TurnAway(w, r, http.StatusForbidden, "the token is of a companion that crashed: other users may know it")
			return
		}
		gate.Authenticated(r.Context())
		if r.URL.Path != "/mcp" {
			mcp.TurnAway(w, r, http.StatusNotFound, "the MCP endpoint is /mcp")
			return
		}
		s.serveMCP(w, r)
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

// serveMCP checks the headers of MCP, and serves the request.
func (s *Server) serveMCP(w http.ResponseWriter, r *http.Request) {
	if v := r.Header.Get(protocolHeader); v != "" && !slices.Contains(mcp.ProtocolVersions, v) {
		mcp.Refuse(w, http.StatusBadRequest, fmt.Sprintf("protocol version %.40q is not supported: use one of %s",
			v, strings.Join(mcp.ProtocolVersions, ", ")))
		return
	}
	switch r.Method {
	case http.MethodPost:
		if mt, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || mt != "application/json" {
			mcp.Refuse(w, http.StatusUnsupportedMediaType, "Content-Type must be application/json")
			return
		}
		if !accepts(r, "application/json") || !accepts(r, "text/event-stream") {
			mcp.Refuse(w, http.StatusNotAcceptable, "Accept must contain application/json and text/event-stream")
			return
		}
	case http.MethodGet:
		if !accepts(r, "text/event-stream") {
			mcp.Refuse(w, http.StatusNotAcceptable, "Accept must contain text/event-stream")
			return
		}
	}
	s.endpoint.ServeHTTP(w, r)
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
