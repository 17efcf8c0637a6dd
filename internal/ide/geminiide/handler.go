package geminiide

import (
	"cmp"
	"fmt"
	"mime"
	"net/http"
	"slices"
	"strings"

	"pollux/internal/gate"
	"pollux/internal/ide/mcp"
)

const (
	protocolHeader = "Mcp-Protocol-Version"
	// impliedVersion is the version of MCP of a request without the header. Clients of another
	// version send it, too, such as MCP's conformance suite.
	impliedVersion = "2025-03-26"
)

// admit checks the Host, the Origin and the token, in this order, before it looks at a
// request.
func (s *Server) admit(w http.ResponseWriter, r *http.Request) {
	if reason := gate.Refusal(r, s.port, s.hosts...); reason != "" {
		mcp.TurnAway(w, r, http.StatusForbidden, reason)
		return
	}
	if s.agentOf(r) == "" {
		w.Header().Set("WWW-Authenticate", Realm)
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
	if v := cmp.Or(r.Header.Get(protocolHeader), impliedVersion); v != impliedVersion && !slices.Contains(mcp.ProtocolVersions, v) {
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
