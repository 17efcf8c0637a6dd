package copilotide

import (
	"context"
	"encoding/json"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"pollux/internal/ide/blocking"
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

func (s *Session) addTools(server *mcp.Server) {
	s.Calls.AddInTurn(server, toolOpenDiff, "Shows a proposed change in the editor. Returns when the user has decided: "+
		"SAVED or REJECTED.", openDiffSchema, s.openDiff)
	s.Calls.AddInTurn(server, toolCloseDiff, "Closes a diff of this agent.", closeDiffSchema,
		func(ctx context.Context, _ *blocking.Call, args json.RawMessage) ([]string, error) {
			tab, err := blocking.ParseTab(args, toolOpenDiff)
			if err != nil {
				return nil, err
			}
			s.Calls.Close(ctx, func(t string) bool { return t == tab })
			return result(diffResult{Success: true, Tab: tab, Message: "The diff is closed."})
		})
	s.Calls.Add(server, toolSessionName, "Sets the session's name. It has no effect.", sessionNameSchema,
		func(context.Context, json.RawMessage) ([]string, error) { return []string{`{"success":true}`}, nil })
	s.Calls.Add(server, toolGetSelection, "Returns the file that the user has open in the editor, and the selected text.",
		noArgsSchema, s.getSelection)
	s.Calls.Add(server, toolGetDiagnostics, "Returns the problems that the editor shows.", diagnosticsSchema, s.getDiagnostics)
}

// openDiff shows a proposal and returns the answer. The agent writes its own text,
// whatever the answer holds.
func (s *Session) openDiff(ctx context.Context, c *blocking.Call, args json.RawMessage) ([]string, error) {
	p, err := blocking.ParseProposed(args, "original_file_path")
	if err != nil {
		return nil, err
	}
	p.ReadOnly = readOnly
	o, err := s.Calls.Open(ctx, c, p)
	if err != nil {
		return nil, err
	}
	r := diffResult{Success: true, Result: "REJECTED", Trigger: "rejected_via_button", Tab: p.Tab,
		Message: "The user has rejected the change."}
	if o.Accepted {
		r.Result, r.Trigger, r.Message = "SAVED", "accepted_via_button", "The user has accepted the change."
	}
	return result(r)
}

func result(v any) ([]string, error) {
	data, err := json.Marshal(v)
	return []string{string(data)}, err
}

// A selected answers get_selection.
type selected struct {
	blocking.Selection
	// Current is set while the file is open: the text is not one from earlier.
	Current bool `json:"current"`
}

// getSelection returns the same as the last notification, or null if nothing is open.
func (s *Session) getSelection(ctx context.Context, _ json.RawMessage) ([]string, error) {
	m, ok := s.Feed.Selection(ctx)
	switch {
	case !ok:
		return nil, blocking.ErrUndelivered
	case m.FilePath == "":
		return []string{"null"}, nil
	}
	return result(selected{m, true})
}
