package copilotide

import (
	"context"
	"encoding/json"

	"pollux/internal/companion"
	"pollux/internal/ide/attach"
	"pollux/internal/ide/blocking"
	"pollux/internal/mcp"
)

// The tools. The agent calls the first three itself, and lets the model call the others.
const (
	toolOpenDiff       = "open_diff"
	toolCloseDiff      = "close_diff"
	toolSessionName    = "update_session_name"
	toolGetSelection   = "get_selection"
	toolGetDiagnostics = "get_diagnostics"
)

const (
	openDiffSchema = `{"type":"object","properties":{
		"original_file_path":{"type":"string","description":"Absolute path of the file to change."},
		"new_file_contents":{"type":"string","description":"The proposed text of the whole file."},
		"tab_name":{"type":"string","description":"Names the diff for close_diff."}},
		"required":["original_file_path","new_file_contents","tab_name"]}`
	closeDiffSchema = `{"type":"object","properties":{
		"tab_name":{"type":"string","description":"The name given to open_diff."}},"required":["tab_name"]}`
	sessionNameSchema = `{"type":"object","properties":{
		"name":{"type":"string","description":"The session's name."}},"required":["name"]}`
	noArgsSchema      = `{"type":"object","properties":{}}`
	diagnosticsSchema = `{"type":"object","properties":{
		"uri":{"type":"string","description":"The URI of a file. Without it, all open files."}}}`
)

// A diffResult answers open_diff and close_diff, as JSON in a text.
type diffResult struct {
	Success bool   `json:"success"`
	Result  string `json:"result,omitempty"`
	Trigger string `json:"trigger,omitempty"`
	Tab     string `json:"tab_name"`
	Message string `json:"message"`
}

func (s *Session) tools() []mcp.Tool {
	return []mcp.Tool{
		{
			Name: toolOpenDiff, Description: "Shows a proposed change in the editor. Returns when the user has decided: " +
				"SAVED or REJECTED.",
			Schema: openDiffSchema, Run: s.openDiff,
		},
		{Name: toolCloseDiff, Description: "Closes a diff of this agent.", Schema: closeDiffSchema, Run: s.closeDiff},
		{
			Name: toolSessionName, Description: "Sets the session's name. It has no effect.", Schema: sessionNameSchema,
			Run: func(context.Context, *mcp.Call) (*mcp.Result, error) { return mcp.Text(`{"success":true}`), nil }, Concurrent: true,
		},
		{
			Name: toolGetSelection, Description: "Returns the file that the user has open in the editor, and the selected text.",
			Schema: noArgsSchema, Run: s.getSelection, Concurrent: true,
		},
		{
			Name: toolGetDiagnostics, Description: "Returns the problems that the editor shows.", Schema: diagnosticsSchema,
			Run: s.getDiagnostics, Concurrent: true,
		},
	}
}

// openDiff shows a proposal. The agent writes its own text, regardless of the answer.
func (s *Session) openDiff(_ context.Context, c *mcp.Call) (*mcp.Result, error) {
	var a struct {
		Path string  `json:"original_file_path"`
		Text *string `json:"new_file_contents"`
		Tab  string  `json:"tab_name"`
	}
	if err := mcp.DecodeArgs(c.Args, &a); err != nil {
		return nil, err
	}
	p, err := attach.NewProposal(c.Args, "original_file_path", a.Path, "new_file_contents", a.Text)
	if err != nil {
		return nil, err
	}
	p.ReadOnly = readOnly
	return nil, s.Open(c, a.Tab, p, func(o companion.Outcome) []string {
		res := diffResult{Success: true, Result: "REJECTED", Trigger: "rejected_via_button", Tab: a.Tab,
			Message: "The user has rejected the change."}
		if o.Accepted {
			res.Result, res.Trigger, res.Message = "SAVED", "accepted_via_button", "The user has accepted the change."
		}
		return []string{encode(res)}
	})
}

func (s *Session) closeDiff(_ context.Context, c *mcp.Call) (*mcp.Result, error) {
	tab, err := s.CloseTab(c.Args, toolOpenDiff)
	if err != nil {
		return nil, err
	}
	return mcp.Text(encode(diffResult{Success: true, Tab: tab, Message: "The diff is closed."})), nil
}

func encode(v any) string {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err) // v consists of texts and numbers
	}
	return string(data)
}

// A selected answers get_selection.
type selected struct {
	blocking.Selection
	// Current is set while the file is open: the text is not one from earlier.
	Current bool `json:"current"`
}

// getSelection returns the same as the last notification, or null if nothing is open.
func (s *Session) getSelection(ctx context.Context, _ *mcp.Call) (*mcp.Result, error) {
	m, ok := s.Selection(ctx)
	switch {
	case !ok:
		return nil, mcp.ErrUndelivered
	case m.FilePath == "":
		return mcp.Text("null"), nil
	}
	return mcp.Text(encode(selected{m, true})), nil
}
