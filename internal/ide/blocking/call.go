package blocking

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"pollux/internal/companion"
	"pollux/internal/editor"
)

// A Call is a call of a tool that opens or closes diffs. The SDK runs all calls at the
// same time, and does not tell a tool which request called it. These calls take effect
// one after the other, in the order in which the agent sent them, and each has its own
// answer.
type Call struct {
	id   jsonrpc.ID    // of the request; not valid if it is not the agent's call
	key  string        // names the call to the tool
	turn chan struct{} // closed when all calls before this one have taken effect
	args json.RawMessage
}

// Calls are the calls of one connected agent. The transport passes each request through
// [Calls.Received], and reports each response to [Calls.Written].
//
// The locks of the companion come before the one of Calls, which is not held while a
// method of the Backend runs.
type Calls struct {
	ctx     context.Context // of the session
	session companion.Session
	backend Backend
	onPanic OnPanic

	mu       sync.Mutex
	started  bool
	names    []string      // of the tools of AddInTurn
	numbered int           // how many calls there were
	calls    []*Call       // that have not been answered
	queue    []*Call       // that have not taken effect; it is the first one's turn
	reviews  []*review     // the oldest first
	idle     chan struct{} // closed when no decision is left to write; nil unless Flush waits
}

// NewCalls returns the calls of a session, which ends with the context.
func NewCalls(ctx context.Context, session companion.Session, backend Backend, onPanic OnPanic) *Calls {
	return &Calls{ctx: ctx, session: session, backend: backend, onPanic: onPanic}
}

// Start lets calls take effect: the companion is about to receive the session.
func (s *Calls) Start() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.started = true
}

// metaCall is the field of a request's _meta that holds the call's key.
const metaCall = "pollux/call"

var errNotConnected = errors.New("not connected: send notifications/initialized first")

// A toolCall is the parameters of a call of a tool.
type toolCall struct {
	Meta json.RawMessage `json:"_meta,omitempty"`
	Name string          `json:"name"`
	Args json.RawMessage `json:"arguments,omitempty"`
}

// Decode decodes a message of the agent. [Calls.Received] completes a request. The SDK
// would decode and copy the text of a change several times.
func Decode(data []byte) (jsonrpc.Message, error) {
	var m struct {
		Version string   `json:"jsonrpc"`
		ID      any      `json:"id"`
		Method  string   `json:"method"`
		Call    toolCall `json:"params"`
	}
	if editor.Decode(data, &m) == nil && m.Version == "2.0" && m.Method == "tools/call" && m.Call.Name != "" {
		if id, err := jsonrpc.MakeID(m.ID); err == nil && id.IsValid() {
			return &jsonrpc.Request{ID: id, Method: m.Method, Extra: m.Call}, nil
		}
	}
	return jsonrpc.DecodeMessage(data)
}

// Received prepares a request of the agent for the SDK. It keeps the arguments of the
// tools of [Calls.AddInTurn]. Other calls have no _meta: Copilot CLI passes on what its
// model's calls have there, the version of another protocol, which the SDK refuses.
func (s *Calls) Received(req *jsonrpc.Request) *jsonrpc.Request {
	call, ok := req.Extra.(toolCall)
	if !ok {
		return req
	}
	call.Meta = nil
	if s.ordered(call.Name) {
		// The SDK refuses a second request with the same ID.
		if c := s.enqueue(req.ID, call.Args); c != nil {
			call.Meta = json.RawMessage(`{"` + metaCall + `":"` + c.key + `"}`)
		}
		call.Args = json.RawMessage("{}")
	}
	params, err := editor.Encode(call)
	if err != nil {
		panic(err) // it was decoded
	}
	return &jsonrpc.Request{ID: req.ID, Method: req.Method, Params: params}
}

// ordered reports whether the calls of a tool take effect in order.
func (s *Calls) ordered(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Contains(s.names, name)
}

// enqueue adds a call at the end of the queue. It returns nil if the ID is in use.
func (s *Calls) enqueue(id jsonrpc.ID, args json.RawMessage) *Call {
	s.mu.Lock()
	defer s.mu.Unlock()
	if id.IsValid() && slices.ContainsFunc(s.calls, func(c *Call) bool { return c.id == id }) {
		return nil
	}
	s.numbered++
	c := &Call{id: id, key: strconv.Itoa(s.numbered), turn: make(chan struct{}), args: args}
	s.calls = append(s.calls, c)
	s.queue = append(s.queue, c)
	if len(s.queue) == 1 {
		close(c.turn)
	}
	return c
}

// tookEffect lets the next call continue. It may be called more than once for a call.
func (s *Calls) tookEffect(c *Call) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.Index(s.queue, c)
	if i < 0 {
		return
	}
	s.queue = slices.Delete(s.queue, i, i+1)
	if i == 0 && len(s.queue) > 0 {
		close(s.queue[0].turn)
	}
}

// find returns the call that a tool runs for.
func (s *Calls) find(req *mcp.CallToolRequest) (*Call, error) {
	key, _ := req.Params.GetMeta()[metaCall].(string)
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.IndexFunc(s.calls, func(c *Call) bool { return c.key == key })
	if i < 0 || !s.started {
		return nil, errNotConnected
	}
	return s.calls[i], nil
}

// wait waits until it is the call's turn. It returns an error if the session ends.
func (s *Calls) wait(c *Call) error {
	select {
	case <-c.turn:
	case <-s.ctx.Done():
	}
	if s.ctx.Err() != nil {
		return ErrUndelivered
	}
	return nil
}

// Written forgets the call of a request whose answer was written, or could not be.
func (s *Calls) Written(id jsonrpc.ID, err error) {
	s.mu.Lock()
	i := slices.IndexFunc(s.calls, func(c *Call) bool { return c.id == id })
	var c *Call
	if i >= 0 {
		c = s.calls[i]
	}
	s.mu.Unlock()
	if c != nil {
		s.answered(c, err)
	}
}

// answered forgets a call whose answer was written, or could not be.
func (s *Calls) answered(c *Call, err error) {
	s.tookEffect(c)
	s.mu.Lock()
	var done func(error)
	s.calls = slices.DeleteFunc(s.calls, func(other *Call) bool { return other == c })
	s.reviews = slices.DeleteFunc(s.reviews, func(r *review) bool {
		if r.call == c {
			done = r.done
		}
		return r.call == c
	})
	s.idleLocked()
	s.mu.Unlock()
	if done != nil {
		done(err)
	}
}

// AddInTurn adds a tool whose calls take effect in order. f is called when all earlier
// calls have taken effect, and returns the texts of the result.
func (s *Calls) AddInTurn(server *mcp.Server, name, description, schema string,
	f func(context.Context, *Call, json.RawMessage) ([]string, error)) {
	s.mu.Lock()
	s.names = append(s.names, name)
	s.mu.Unlock()
	s.add(server, name, description, schema, func(ctx context.Context, req *mcp.CallToolRequest) ([]string, error) {
		c, err := s.find(req)
		if err != nil {
			return nil, err
		}
		defer s.tookEffect(c)
		if err := s.wait(c); err != nil {
			return nil, err
		}
		return f(ctx, c, s.takeArgs(c))
	})
}

// takeArgs returns the arguments of a call, which may take hours, and drops them.
func (s *Calls) takeArgs(c *Call) json.RawMessage {
	s.mu.Lock()
	defer s.mu.Unlock()
	args := c.args
	c.args = nil
	return args
}

// Add adds a tool. f returns the texts of the result. The schema is JSON.
func (s *Calls) Add(server *mcp.Server, name, description, schema string,
	f func(context.Context, json.RawMessage) ([]string, error)) {
	s.add(server, name, description, schema, func(ctx context.Context, req *mcp.CallToolRequest) ([]string, error) {
		return f(ctx, req.Params.Arguments)
	})
}

// add adds a tool. An error of f becomes a result with isError, not a protocol error.
func (s *Calls) add(server *mcp.Server, name, description, schema string,
	f func(context.Context, *mcp.CallToolRequest) ([]string, error)) {
	tool := &mcp.Tool{Name: name, Description: description, InputSchema: json.RawMessage(schema)}
	server.AddTool(tool, func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		defer s.onPanic.Report()
		texts, err := f(ctx, req)
		res := &mcp.CallToolResult{}
		if err != nil {
			res.IsError, texts = true, []string{err.Error()}
		}
		for _, text := range texts {
			res.Content = append(res.Content, &mcp.TextContent{Text: text})
		}
		return res, nil
	})
}

// Unmarshal parses the arguments of a tool.
func Unmarshal(args json.RawMessage, v any) error {
	if len(args) == 0 {
		return nil
	}
	if err := editor.Decode(args, v); err != nil {
		return fmt.Errorf("the arguments do not fit: %w", err)
	}
	return nil
}
