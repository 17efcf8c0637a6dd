package copilotide

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"pollux/internal/gate"
	"pollux/internal/ide/blocking"
)

const (
	sessionHeader = "Mcp-Session-Id"
	processHeader = "X-Copilot-Pid" // the agent's process
	scheme        = "Nonce "

	// maxBody bounds a request's body in bytes: an agent sends whole files.
	maxBody     = 256 << 20
	bodyTimeout = time.Minute
	// keepAliveInterval is the interval of the comments that keep a response alive on
	// which nothing else is written.
	keepAliveInterval = 30 * time.Second
	// closeTimeout is how long an agent may take to read the rest of a response when its
	// session ends.
	closeTimeout = time.Second
)

// The codes of JSON-RPC errors.
const (
	codeParse          = -32700
	codeInvalidRequest = -32600
	codeNoMethod       = -32601
)

// serveHTTP serves a request, once it has refused web pages, which always send an Origin,
// and clients without the nonce.
func (s *Server) serveHTTP(w http.ResponseWriter, r *http.Request) {
	defer s.cfg.OnPanic.Report()
	// An earlier request of the connection may have left a deadline: see respond.
	http.NewResponseController(w).SetWriteDeadline(time.Time{})
	w.Header().Set("Cache-Control", "no-store")
	switch {
	case len(r.Header.Values("Origin")) > 0:
		turnAway(w, r, http.StatusForbidden, "requests from web pages are not served")
		return
	case !gate.SameSecret(r.Header.Get("Authorization"), scheme+s.nonce):
		turnAway(w, r, http.StatusUnauthorized, "the nonce is missing or wrong: it is in the lock file")
		return
	}
	gate.Authenticated(r.Context())
	if r.URL.Path != "/mcp" {
		refuse(w, http.StatusNotFound, "the MCP endpoint is /mcp")
		return
	}
	id := r.Header.Get(sessionHeader)
	session := s.session(id)
	switch {
	case id != "" && session == nil:
		refuse(w, http.StatusNotFound, "no such session: send initialize again")
	case r.Method == http.MethodPost:
		s.servePost(w, r, session)
	case session == nil:
		refuse(w, http.StatusBadRequest, "the "+sessionHeader+" header is missing: send initialize first")
	case r.Method == http.MethodGet:
		session.serveStream(w, r)
	case r.Method == http.MethodDelete:
		session.End()
		w.WriteHeader(http.StatusOK) // the agent fails to connect again after a 204
	default:
		w.Header().Set("Allow", "GET, POST, DELETE")
		refuse(w, http.StatusMethodNotAllowed, "use POST, GET or DELETE")
	}
}

// servePost serves a message.
func (s *Server) servePost(w http.ResponseWriter, r *http.Request, session *Session) {
	body, err := readBody(w, r)
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		turnAway(w, r, http.StatusRequestEntityTooLarge,
			fmt.Sprintf("the request is over %d MiB: the file is too large to review", large.Limit>>20))
		return
	case err != nil:
		turnAway(w, r, http.StatusBadRequest, "the request's body did not arrive")
		return
	}
	msg, err := blocking.Decode(body)
	if err != nil {
		answer(w, http.StatusBadRequest, nil, codeParse, "the body is not one JSON-RPC message")
		return
	}
	req, isRequest := msg.(*jsonrpc.Request)
	switch {
	case isRequest && req.IsCall() && !known[req.Method]:
		// The agent first tries server/discover, of a later version of MCP. It waits for
		// the answer, and then sends initialize.
		answer(w, http.StatusOK, req.ID.Raw(), codeNoMethod, fmt.Sprintf("method %.80q not found", req.Method))
	case session == nil && isRequest && req.IsCall() && req.Method == "initialize":
		session = s.newSession(r.Header.Get(processHeader))
		if err := s.add(session); err != nil {
			refuse(w, http.StatusServiceUnavailable, err.Error())
			return
		}
		session.serveCall(w, r, req)
	case session == nil:
		refuse(w, http.StatusBadRequest, "the "+sessionHeader+" header is missing: send initialize first")
	case isRequest && req.IsCall():
		session.serveCall(w, r, req)
	default:
		session.receive(msg)
		w.WriteHeader(http.StatusAccepted)
	}
}

// known are the methods of requests.
var known = map[string]bool{"initialize": true, "ping": true, "tools/list": true, "tools/call": true}

// readBody reads the whole body, with a deadline that it removes afterwards: otherwise the
// deadline would later cancel the request.
func readBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	rc := http.NewResponseController(w)
	rc.SetReadDeadline(time.Now().Add(bodyTimeout))
	defer rc.SetReadDeadline(time.Time{})
	return io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
}

// refuse answers with a JSON-RPC error, which MCP clients display.
func refuse(w http.ResponseWriter, status int, message string) {
	answer(w, status, nil, codeInvalidRequest, message)
}

// turnAway refuses a request and ends its connection.
func turnAway(w http.ResponseWriter, r *http.Request, status int, message string) {
	gate.TurnAway(w, r, status, errorText(nil, codeInvalidRequest, message))
}

// answer answers the request with that ID, nil if it is not known, with an error.
func answer(w http.ResponseWriter, status int, id any, code int, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	w.Write(errorText(id, code, message))
}

func errorText(id any, code int, message string) []byte {
	text, _ := json.Marshal(map[string]any{
		"jsonrpc": "2.0", "id": id, "error": map[string]any{"code": code, "message": message},
	})
	return text
}

// A response writes events to the agent. It is used by one goroutine.
type response struct {
	w  http.ResponseWriter
	rc *http.ResponseController
}

// respond starts a response that may take hours. It gets closeTimeout to end when ctx
// does; the caller calls stop.
func respond(ctx context.Context, w http.ResponseWriter, session string) (out response, stop func() bool) {
	out = response{w, http.NewResponseController(w)}
	stop = context.AfterFunc(ctx, func() { out.rc.SetWriteDeadline(time.Now().Add(closeTimeout)) })
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set(sessionHeader, session)
	w.WriteHeader(http.StatusOK)
	out.rc.Flush()
	return out, stop
}

// message writes a JSON-RPC message.
func (r response) message(data []byte) error { return r.write("event: message\ndata: %s\n\n", data) }

// comment writes what the agent ignores.
func (r response) comment() error { return r.write(": keep-alive\n\n") }

func (r response) write(format string, args ...any) error {
	if _, err := fmt.Fprintf(r.w, format, args...); err != nil {
		return err
	}
	return r.rc.Flush()
}
