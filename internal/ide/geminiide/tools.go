package geminiide

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"pollux/internal/companion"
	"pollux/internal/editor"
)

// The schemas allow unknown arguments: the real CLI sends closeDiff one that the
// contract does not have, and would treat a refusal as a failure.
const (
	openDiffSchema = `{"type":"object","properties":{
		"filePath":{"type":"string","description":"Absolute path of the file to change."},
		"newContent":{"type":"string","description":"The proposed new content of the whole file."}},
		"required":["filePath","newContent"]}`
	closeDiffSchema = `{"type":"object","properties":{
		"filePath":{"type":"string","description":"Absolute path of the file whose diff to close."},
		"suppressNotification":{"type":"boolean","description":"Accepted and without effect: closing never sends a notification."}},
		"required":["filePath"]}`
)

// tools are the tools by their names.
var tools = map[string]func(*Session, context.Context, json.RawMessage) ([]textBlock, error){
	ToolOpenDiff: func(s *Session, ctx context.Context, args json.RawMessage) ([]textBlock, error) {
		req, err := ParseOpenDiff(args)
		if err != nil {
			return nil, err
		}
		return []textBlock{}, s.server.cfg.Backend.Propose(ctx, s, companion.Proposal{
			Path: req.FilePath, Text: req.NewContent, Binary: req.Binary,
		})
	},
	ToolCloseDiff: func(s *Session, ctx context.Context, args json.RawMessage) ([]textBlock, error) {
		var req CloseDiffRequest
		if err := unmarshalArgs(args, &req); err != nil {
			return nil, err
		}
		content, err := s.server.cfg.Backend.Withdraw(ctx, s, req.FilePath)
		return []textBlock{{"text", ClosedContent{Content: content}.Text()}}, err
	},
}

// A toolResult is the result of a tool. An error of the tool is a result with isError,
// not a protocol error.
type toolResult struct {
	Content []textBlock `json:"content"`
	IsError bool        `json:"isError,omitempty"`
}

type textBlock struct {
	Type string `json:"type"`
	Text string `json:"text"`
}

// run runs a tool.
func (s *Session) run(ctx context.Context, tool string, args json.RawMessage) toolResult {
	defer s.server.onPanic()
	content, err := tools[tool](s, ctx, args)
	if err != nil {
		return toolResult{[]textBlock{{"text", err.Error()}}, true}
	}
	return toolResult{Content: content}
}

// addTools adds the tools to the SDK's server. It lists them, and serves the calls that
// [Session.serveTool] does not serve.
func (s *Session) addTools(server *mcp.Server) {
	s.addTool(server, ToolOpenDiff, openDiffSchema,
		"Opens a diff of a proposed change in the editor, where the user edits, accepts or rejects it. "+
			"Returns at once; the outcome arrives as an ide/diffAccepted or ide/diffRejected notification.")
	s.addTool(server, ToolCloseDiff, closeDiffSchema,
		"Closes the diff of a file. Returns the content as the user left it.")
}

func (s *Session) addTool(server *mcp.Server, name, schema, description string) {
	tool := &mcp.Tool{Name: name, Description: description, InputSchema: json.RawMessage(schema)}
	server.AddTool(tool, func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		res := s.run(ctx, name, req.Params.Arguments)
		content := []mcp.Content{}
		for _, block := range res.Content {
			content = append(content, &mcp.TextContent{Text: block.Text})
		}
		return &mcp.CallToolResult{Content: content, IsError: res.IsError}, nil
	})
}

// A post is a message that a client has posted. Its raw parts share the memory of the body.
type post struct {
	head
	Call struct {
		Name string          `json:"name"`
		Args json.RawMessage `json:"arguments"`
	} `json:"params"`
}

type head struct {
	Version string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id"`
	Method  string          `json:"method"`
}

// parsePost parses a message. It returns an error for a batch.
func parsePost(body []byte) (p post, err error) {
	if editor.Decode(body, &p) != nil { // perhaps params of another method
		p = post{}
		err = editor.Decode(body, &p.head)
	}
	return p, err
}

// serveTool serves a call of a tool. The SDK would decode and copy the text of a change
// several times. serveTool reports false for what the SDK serves: any other message, and
// what it refuses.
func (s *Session) serveTool(w http.ResponseWriter, r *http.Request, p post) bool {
	valid := p.Version == "2.0" && p.Method == "tools/call" && len(p.ID) > 0 && strings.ContainsAny(string(p.ID[:1]), `"-0123456789`) &&
		len(r.Header.Values("Last-Event-ID")) == 0 && s.mcp.InitializeParams() != nil
	if !valid || tools[p.Call.Name] == nil {
		return false
	}
	id := string(p.ID)
	s.mu.Lock()
	twice, ended := s.calls[id], s.ctx.Err() != nil
	if !twice && !ended {
		s.calls[id] = true
		s.done.Add(1)
	}
	s.mu.Unlock()
	switch {
	case ended:
		refuse(w, http.StatusNotFound, "no such session: send initialize again")
		return true
	case twice:
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusBadRequest)
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32600,"message":"another request has this id"}}`, id)
		return true
	}
	defer s.done.Done()
	defer func() {
		s.mu.Lock()
		delete(s.calls, id)
		s.mu.Unlock()
	}()
	s.answering(w, func() {
		// The call outlives its request, like one that the SDK serves. A panic ends the
		// process: net/http would recover from one on this goroutine.
		answer := make(chan toolResult, 1)
		go func() { answer <- s.run(s.ctx, p.Call.Name, p.Call.Args) }()
		result, err := editor.Encode(<-answer)
		if err != nil {
			panic(err) // texts only
		}
		w.Header().Set("Content-Type", "text/event-stream")
		w.Header().Set("Cache-Control", "no-cache, no-transform")
		writeEvent(w, `{"jsonrpc":"2.0","id":`+id+`,"result":`, result)
	})
	return true
}

// writeEvent writes an event with the message that consists of head, body and a closing
// brace. It does not copy the body.
func writeEvent(w io.Writer, head string, body json.RawMessage) error {
	if _, err := io.WriteString(w, "event: message\ndata: "+head); err != nil {
		return err
	}
	if _, err := w.Write(body); err != nil {
		return err
	}
	_, err := io.WriteString(w, "}\n\n")
	return err
}

// ParseOpenDiff parses openDiff's arguments. It sets Binary for text that cannot
// go through an editor and come back unchanged.
func ParseOpenDiff(args json.RawMessage) (OpenDiffRequest, error) {
	var raw struct {
		FilePath   *string `json:"filePath"`
		NewContent *string `json:"newContent"`
	}
	if err := unmarshalArgs(args, &raw); err != nil {
		return OpenDiffRequest{}, err
	}
	switch {
	case raw.FilePath == nil || *raw.FilePath == "":
		return OpenDiffRequest{}, errors.New("filePath is missing: pass the file's absolute path")
	case raw.NewContent == nil:
		return OpenDiffRequest{}, errors.New("newContent is missing: pass the proposed content of the whole file")
	case strings.ContainsRune(*raw.FilePath, 0):
		return OpenDiffRequest{}, errors.New("filePath holds a NUL byte: pass the file's absolute path")
	}
	return OpenDiffRequest{
		FilePath: *raw.FilePath, NewContent: *raw.NewContent, Binary: companion.Unprintable(*raw.NewContent, args),
	}, nil
}

func unmarshalArgs(args json.RawMessage, v any) error {
	if len(args) == 0 {
		args = json.RawMessage("{}")
	}
	if err := editor.Decode(args, v); err != nil {
		return fmt.Errorf("the arguments do not fit: %w", err)
	}
	return nil
}
