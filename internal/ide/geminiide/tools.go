package geminiide

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"pollux/internal/companion"
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

func (s *Session) addTools(server *mcp.Server) {
	server.AddTool(&mcp.Tool{
		Name: ToolOpenDiff,
		Description: "Opens a diff of a proposed change in the editor, where the user edits, accepts or rejects it. " +
			"Returns at once; the outcome arrives as an ide/diffAccepted or ide/diffRejected notification.",
		InputSchema: json.RawMessage(openDiffSchema),
	}, s.tool(func(ctx context.Context, args json.RawMessage) ([]mcp.Content, error) {
		req, err := ParseOpenDiff(args)
		if err != nil {
			return nil, err
		}
		return []mcp.Content{}, s.server.cfg.Backend.Propose(ctx, s, companion.Proposal{
			Path: req.FilePath, Text: req.NewContent, Binary: req.Binary,
		})
	}))
	server.AddTool(&mcp.Tool{
		Name:        ToolCloseDiff,
		Description: "Closes the diff of a file. Returns the content as the user left it.",
		InputSchema: json.RawMessage(closeDiffSchema),
	}, s.tool(func(ctx context.Context, args json.RawMessage) ([]mcp.Content, error) {
		var req CloseDiffRequest
		if err := unmarshalArgs(args, &req); err != nil {
			return nil, err
		}
		content, err := s.server.cfg.Backend.Withdraw(ctx, s, req.FilePath)
		return []mcp.Content{&mcp.TextContent{Text: ClosedContent{Content: content}.Text()}}, err
	}))
}

// tool returns an MCP handler that calls f. An error of f becomes a result with
// isError, not a protocol error.
func (s *Session) tool(f func(context.Context, json.RawMessage) ([]mcp.Content, error)) mcp.ToolHandler {
	return func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		defer s.server.onPanic()
		content, err := f(ctx, req.Params.Arguments)
		if err != nil {
			return &mcp.CallToolResult{IsError: true, Content: []mcp.Content{&mcp.TextContent{Text: err.Error()}}}, nil
		}
		return &mcp.CallToolResult{Content: content}, nil
	}
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
	req := OpenDiffRequest{FilePath: *raw.FilePath, NewContent: *raw.NewContent}
	req.Binary = companion.Unprintable(req.NewContent, args)
	return req, nil
}

func unmarshalArgs(args json.RawMessage, v any) error {
	if len(args) == 0 {
		args = json.RawMessage("{}")
	}
	if err := json.Unmarshal(args, v); err != nil {
		return fmt.Errorf("the arguments do not fit: %w", err)
	}
	return nil
}
