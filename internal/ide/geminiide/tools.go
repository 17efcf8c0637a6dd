package geminiide

import (
	"context"
	"encoding/json"

	"pollux/internal/companion"
	"pollux/internal/ide/attach"
	"pollux/internal/mcp"
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
				"Returns immediately; the outcome arrives as an ide/diffAccepted or ide/diffRejected notification.",
			Schema: openDiffSchema, Run: s.openDiff,
		},
		{
			Name: ToolCloseDiff, Description: "Closes the diff of a file. Returns the content as the user left it.",
			Schema: closeDiffSchema, Run: s.closeDiff,
		},
	}
}

func (s *Session) openDiff(_ context.Context, c *mcp.Call) (*mcp.Result, error) {
	p, err := parseOpenDiff(c.Args)
	if err != nil {
		return nil, err
	}
	return nil, s.server.cfg.Backend.Propose(s, p)
}

// parseOpenDiff parses openDiff's arguments. The CLI sends filePath with symlinks resolved, and
// newContent with LF line endings, even for a file with CRLF; it restores CRLF when it writes.
func parseOpenDiff(args json.RawMessage) (p companion.Proposal, err error) {
	var a struct {
		Path string  `json:"filePath"`
		Text *string `json:"newContent"`
	}
	if err := mcp.DecodeArgs(args, &a); err != nil {
		return p, err
	}
	return attach.NewProposal(args, "filePath", a.Path, "newContent", a.Text)
}

func (s *Session) closeDiff(_ context.Context, c *mcp.Call) (*mcp.Result, error) {
	var a struct {
		Path string `json:"filePath"`
		// Answered is not in the contract. The CLI sends it when the user has answered in the
		// terminal, but not after a hangup or Ctrl-C.
		Answered bool `json:"suppressNotification"`
	}
	if err := mcp.DecodeArgs(c.Args, &a); err != nil {
		return nil, err
	}
	end := s.server.cfg.Backend.Abandon
	if a.Answered {
		end = s.server.cfg.Backend.Withdraw
	}
	content, err := end(s, a.Path)
	return mcp.Text(ClosedContent{Content: content}.Text()), err
}
