package claudeide

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"strconv"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// A call is a call of a tool that opens or closes diffs. The SDK runs all calls at the
// same time, and does not tell a tool which request called it. These calls take effect
// one after the other, in the order in which the agent sent them, and each has its own
// answer.
type call struct {
	id   jsonrpc.ID    // of the request; not valid if the session made the call
	key  string        // names the call to the tool
	turn chan struct{} // closed when all calls before this one have taken effect
}

// metaCall is the field of a request's _meta that holds the call's key.
const metaCall = "pollux/call"

var errNotConnected = errors.New("not connected: send notifications/initialized first")

// received prepares a request of the agent for the SDK.
func (s *Session) received(req *jsonrpc.Request) *jsonrpc.Request {
	var params map[string]json.RawMessage // its names are exact, unlike those of a struct
	var name string
	if req.Method != "tools/call" || !req.IsCall() || json.Unmarshal(req.Params, &params) != nil ||
		json.Unmarshal(params["name"], &name) != nil ||
		!slices.Contains([]string{toolOpenDiff, toolCloseTab, toolCloseAll}, name) {
		return req
	}
	c := s.enqueue(req.ID)
	if c == nil {
		return req // the SDK refuses a second request with the same ID
	}
	// The arguments keep their bytes: see [companion.Unprintable].
	args := params["arguments"]
	if len(args) == 0 {
		args = json.RawMessage("{}")
	}
	var b bytes.Buffer
	b.Grow(len(args) + 100)
	b.WriteString(`{"_meta":{"` + metaCall + `":"` + c.key + `"},"name":"` + name + `","arguments":`)
	b.Write(args)
	b.WriteString("}")
	changed := *req
	changed.Params = b.Bytes()
	return &changed
}

// enqueue adds a call at the end of the queue. It returns nil if the ID is in use.
func (s *Session) enqueue(id jsonrpc.ID) *call {
	s.mu.Lock()
	defer s.mu.Unlock()
	if id.IsValid() && slices.ContainsFunc(s.calls, func(c *call) bool { return c.id == id }) {
		return nil
	}
	s.numbered++
	c := &call{id: id, key: strconv.Itoa(s.numbered), turn: make(chan struct{})}
	s.calls = append(s.calls, c)
	s.queue = append(s.queue, c)
	if len(s.queue) == 1 {
		close(c.turn)
	}
	return c
}

// tookEffect lets the next call continue. It may be called more than once for a call.
func (s *Session) tookEffect(c *call) {
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
func (s *Session) find(req *mcp.CallToolRequest) (*call, error) {
	key, _ := req.Params.GetMeta()[metaCall].(string)
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.IndexFunc(s.calls, func(c *call) bool { return c.key == key })
	if i < 0 || s.client == nil {
		return nil, errNotConnected
	}
	return s.calls[i], nil
}

// wait waits until it is the call's turn. It returns an error if the session ends.
func (s *Session) wait(c *call) error {
	select {
	case <-c.turn:
	case <-s.ctx.Done():
	}
	if s.ctx.Err() != nil {
		return errUndelivered
	}
	return nil
}

// written forgets the call of a request whose answer was written, or could not be.
func (s *Session) written(id jsonrpc.ID, err error) {
	s.mu.Lock()
	i := slices.IndexFunc(s.calls, func(c *call) bool { return c.id == id })
	var c *call
	if i >= 0 {
		c = s.calls[i]
	}
	s.mu.Unlock()
	if c != nil {
		s.answered(c, err)
	}
}
