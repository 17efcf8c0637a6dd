package geminiide

import (
	"context"
	"encoding/json"
	"errors"
	"strings"

	"pollux/internal/companion"
	"pollux/internal/ide/mcp"
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
		"suppressNotification":{"type":"boolean","description":"Set if the user has answered. Closing never sends a notification."}},
		"required":["filePath"]}`
)

func (s *Session) tools() []mcp.Tool {
	return []mcp.Tool{
		{
			Name: ToolOpenDiff, Description: "Opens a diff of a proposed change in the editor, where the user edits, accepts or rejects it. " +
				"Returns at once; the outcome arrives as an ide/diffAccepted or ide/diffRejected notification.",
			Schema: openDiffSchema, Run: s.openDiff,
		},
		{
			Name: ToolCloseDiff, Description: "Closes the diff of a file. Returns the content as the user left it.",
			Schema: closeDiffSchema, Run: s.closeDiff,
		},
	}
}

func (s *Session) openDiff(ctx context.Context, c *mcp.Call) ([]string, error) {
	req, err := ParseOpenDiff(c.Args)
	if err != nil {
		return nil, err
	}
	return nil, s.server.cfg.Backend.Propose(ctx, s, companion.Proposal{
		Path: req.FilePath, Text: req.NewContent, Binary: req.Binary,
	})
}

func (s *Session) closeDiff(ctx context.Context, c *mcp.Call) ([]string, error) {
	var req CloseDiffRequest
	if err := mcp.DecodeArgs(c.Args, &req); err != nil {
		return nil, err
	}
	end := s.server.cfg.Backend.Withdraw
	if !req.SuppressNotification { // after a hangup or Ctrl-C
		end = s.server.cfg.Backend.Abandon
	}
	content, err := end(ctx, s, req.FilePath)
	return []string{ClosedContent{Content: content}.Text()}, err
}

// ParseOpenDiff parses openDiff's arguments. It sets Binary for text that cannot
// go through an editor and come back unchanged.
func ParseOpenDiff(args json.RawMessage) (OpenDiffRequest, error) {
	var raw struct {
		FilePath   *string `json:"filePath"`
		NewContent *string `json:"newContent"`
	}
	if err := mcp.DecodeArgs(args, &raw); err != nil {
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
