package mcp

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"pollux/internal/jsonrpc"
)

// Stateless is the version of MCP without initialize: each request says which version it follows
// and who the client is. The server sends no requests. Instead the result of a call asks for input,
// and the client repeats the call with it.
const Stateless = "2026-07-28"

// The members of _meta that Stateless adds.
const (
	metaVersion      = "io.modelcontextprotocol/protocolVersion"
	metaClient       = "io.modelcontextprotocol/clientInfo"
	metaCapabilities = "io.modelcontextprotocol/clientCapabilities"
	metaServer       = "io.modelcontextprotocol/serverInfo"
)

// codeVersion is the code of the error for a version that is not supported.
const codeVersion = -32022

// statelessMethods are the methods of requests that follow Stateless.
var statelessMethods = map[string]func(*Session, *Call, message){
	"server/discover": (*Session).discover,
	"tools/list":      (*Session).listTools,
	methodCall:        (*Session).callTool,
}

// identify notes the client of a request that follows Stateless. It returns the error that answers
// the request, or nil.
func (s *Session) identify(c *Call, m message) *jsonrpc.Error {
	versions := s.server.versions()
	if !slices.Contains(versions, Stateless) {
		return nil
	}
	var meta map[string]json.RawMessage
	var version string
	if jsonrpc.Decode(m.meta(), &meta) != nil || jsonrpc.Decode(meta[metaVersion], &version) != nil || version < Stateless {
		return nil
	}
	c.stateless = true
	if !slices.Contains(versions, version) {
		data, _ := json.Marshal(map[string]any{"supported": versions, "requested": version})
		return &jsonrpc.Error{Code: codeVersion, Message: "unsupported protocol version", Data: data}
	}
	var info client
	var named error
	if sent := meta[metaClient]; sent != nil {
		named = jsonrpc.Decode(sent, &info)
	}
	var offers capabilities
	if err := cmp.Or(named, jsonrpc.Decode(meta[metaCapabilities], &offers)); err != nil {
		return &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: fmt.Sprintf("the _meta of the request does not fit: %v", err)}
	}
	s.introduce(info, offers)
	return nil
}

// discover serves server/discover, which replaces initialize.
func (s *Session) discover(c *Call, _ message) {
	c.succeed(struct {
		head
		Versions []string `json:"supportedVersions"`
		about
	}{c.listHead(), s.server.versions(), s.server.about()})
}

// A head holds the members that all results share.
type head struct {
	Meta map[string]any `json:"_meta,omitempty"`
	// Stateless adds the others. TTL, in milliseconds, and Scope say how long and for whom
	// the client may keep a list.
	Type  string `json:"resultType,omitempty"`
	TTL   *int   `json:"ttlMs,omitempty"`
	Scope string `json:"cacheScope,omitempty"`
}

// head returns the head of a result with that _meta.
func (c *Call) head(meta map[string]any) head {
	if !c.stateless {
		return head{Meta: meta}
	}
	own := map[string]any{metaServer: c.session.server.info()}
	maps.Copy(own, meta)
	return head{Meta: own, Type: "complete"}
}

// listHead returns the head of a list that the client asks for each time.
func (c *Call) listHead() head {
	h := c.head(nil)
	if c.stateless {
		h.TTL, h.Scope = new(int), "public"
	}
	return h
}

// ErrInput is the error of [Call.Roots] for a call that the client repeats with its roots. It is
// also an error of [Tool.Run].
var ErrInput = errors.New("the client repeats the call with its roots")

// askForRoots answers the call with a request for the client's roots.
func (c *Call) askForRoots() {
	type input struct {
		Method string   `json:"method"`
		Params struct{} `json:"params"`
	}
	h := c.head(nil)
	h.Type = "input_required"
	c.succeed(struct {
		head
		Requests map[string]input `json:"inputRequests"`
	}{h, map[string]input{inputRoots: {Method: methodRoots}}})
}

const inputRoots = "roots"
