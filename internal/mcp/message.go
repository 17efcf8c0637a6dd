package mcp

import (
	"bytes"
	"encoding/json"
	"errors"

	"pollux/internal/jsonrpc"
)

const (
	// MaxMessage bounds a message of an agent in bytes: agents send whole files.
	MaxMessage = 256 << 20
	// maxID bounds the ID of a request in bytes.
	maxID = 256
)

// A message is a message of an agent. Its raw parts share the memory of the bytes that were
// read.
type message struct {
	Version string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id"` // nil for a notification
	Method  string          `json:"method"`
	Params  json.RawMessage `json:"params"` // nil for a call of a tool
	Result  json.RawMessage `json:"result"`
	Error   *jsonrpc.Error  `json:"error"`
	call    toolCall
}

// A toolCall is the parameters of a call of a tool.
type toolCall struct {
	Name string          `json:"name"`
	Args json.RawMessage `json:"arguments"`
	// Meta can be anything: Copilot CLI passes on what its model's calls have there, such as the
	// version of another protocol.
	Meta json.RawMessage `json:"_meta"`
	// Inputs are the answers to what the result of an earlier call has asked for.
	Inputs json.RawMessage `json:"inputResponses"`
}

// meta returns the _meta of a request; nil if it has none.
func (m message) meta() json.RawMessage {
	if m.Method == methodCall {
		return m.call.Meta
	}
	var params struct {
		Meta json.RawMessage `json:"_meta"`
	}
	if jsonrpc.Decode(m.Params, &params) != nil {
		return nil
	}
	return params.Meta
}

// isRequest reports whether the message wants an answer.
func (m message) isRequest() bool { return m.Method != "" && m.ID != nil }

// parse decodes a message. A call of a tool, which can be large, is decoded once.
func parse(data []byte) (m message, err error) {
	var call struct {
		Version string          `json:"jsonrpc"`
		ID      json.RawMessage `json:"id"`
		Method  string          `json:"method"`
		Call    toolCall        `json:"params"`
	}
	if jsonrpc.Decode(data, &call) == nil && call.Method == methodCall {
		m = message{Version: call.Version, ID: call.ID, Method: call.Method, call: call.Call}
	} else if err := jsonrpc.Decode(data, &m); err != nil {
		return m, err
	}
	if string(m.ID) == "null" {
		m.ID = nil
	}
	switch {
	case m.Version != "2.0":
		return m, errors.New("it is not JSON-RPC 2.0")
	case m.Method == "" && m.ID == nil:
		return m, errors.New("it is neither a request nor an answer")
	case m.ID != nil && (len(m.ID) > maxID || !bytes.ContainsAny(m.ID[:1], `"-0123456789`) || m.ID[0] != '"' && bytes.ContainsAny(m.ID, ".eE")):
		return m, errors.New("its id is neither an integer nor a short string")
	}
	return m, nil
}

// An outgoing message is encoded when it is written.
type outgoing struct {
	message any
	// latest, if set, returns the parameters of a notification, which message lacks, for the
	// stream with that number; nil if nothing is to be written.
	latest func(stream int) any
	size   int  // approximately, in bytes, as JSON
	answer bool // to a request
	kept   bool // flush waits for it, as for answers, if it can be written
	// written is called once, on a goroutine other than the sender's: with nil when the
	// message was written, with an error if it never will be; may be nil.
	written func(error)
}

// encode returns the message for a stream, or nil if nothing is to be written.
func (o *outgoing) encode(stream int) []byte {
	m := o.message
	if o.latest != nil {
		r := m.(request)
		if r.Params = o.latest(stream); r.Params == nil {
			return nil
		}
		m = r
	}
	data, err := jsonrpc.Encode(m)
	if err != nil {
		panic(err) // an agent's package sends texts, numbers and JSON
	}
	return data
}

// A response answers a request.
type response struct {
	Version string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id"`
	Result  any             `json:"result,omitempty"`
	Error   *jsonrpc.Error  `json:"error,omitempty"`
}

// A request is a request to an agent, or a notification, which has no ID.
type request struct {
	Version string `json:"jsonrpc"`
	ID      int    `json:"id,omitempty"`
	Method  string `json:"method"`
	Params  any    `json:"params,omitempty"`
}

// failure returns the answer to a request that failed. The ID is nil if it is not known.
func failure(id json.RawMessage, code int64, text string) response {
	return response{Version: "2.0", ID: id, Error: &jsonrpc.Error{Code: code, Message: text}}
}
