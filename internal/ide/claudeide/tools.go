package claudeide

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"pollux/internal/ide/blocking"
)

// The tools that the agents call. They do not look at the list. Claude Code shows the
// model no other tool than getDiagnostics and executeCode; the latter, which runs
// code in a notebook, is not here.
const (
	toolOpenDiff       = "openDiff"
	toolCloseTab       = "close_tab"
	toolCloseAll       = "closeAllDiffTabs"
	toolGetDiagnostics = "getDiagnostics"
)

const (
	openDiffSchema = `{"type":"object","properties":{
		"old_file_path":{"type":"string","description":"Absolute path of the file to change."},
		"new_file_path":{"type":"string","description":"The same path."},
		"new_file_contents":{"type":"string","description":"The proposed text of the whole file."},
		"tab_name":{"type":"string","description":"Names the diff for close_tab."}},
		"required":["new_file_path","new_file_contents","tab_name"]}`
	closeTabSchema = `{"type":"object","properties":{
		"tab_name":{"type":"string","description":"The name given to openDiff."}},"required":["tab_name"]}`
	noArgsSchema      = `{"type":"object","properties":{}}`
	diagnosticsSchema = `{"type":"object","properties":{
		"uri":{"type":"string","description":"The URI of a file. Without it, all open files."}}}`
)

func (s *Session) addTools(server *mcp.Server) {
	s.Calls.AddInTurn(server, toolOpenDiff, "Shows a proposed change in the editor. Returns when the user has decided: "+
		"FILE_SAVED and the final text, or DIFF_REJECTED.", openDiffSchema, s.openDiff)
	s.Calls.AddInTurn(server, toolCloseTab, "Closes a diff of this agent.", closeTabSchema,
		func(ctx context.Context, _ *blocking.Call, args json.RawMessage) ([]string, error) {
			tab, err := blocking.ParseTab(args, toolOpenDiff)
			if err != nil {
				return nil, err
			}
			s.Calls.Close(ctx, func(t string) bool { return t == tab })
			return []string{"TAB_CLOSED"}, nil
		})
	s.Calls.AddInTurn(server, toolCloseAll, "Closes all diffs of this agent.", noArgsSchema,
		func(ctx context.Context, _ *blocking.Call, _ json.RawMessage) ([]string, error) {
			n := s.Calls.Close(ctx, func(string) bool { return true })
			// The agent calls this at each prompt, which uses up the context.
			s.Feed.Refresh()
			return []string{fmt.Sprintf("CLOSED_%d_DIFF_TABS", n)}, nil
		})
	s.Calls.Add(server, toolGetDiagnostics, "Returns the problems that the editor shows, such as compiler errors.",
		diagnosticsSchema, s.getDiagnostics)
}

// openDiff shows a proposal and returns the answer. The agent takes TAB_CLOSED for a
// yes, so that is never the answer.
func (s *Session) openDiff(ctx context.Context, c *blocking.Call, args json.RawMessage) ([]string, error) {
	p, err := blocking.ParseProposed(args, "new_file_path")
	if err != nil {
		return nil, err
	}
	o, err := s.Calls.Open(ctx, c, p)
	switch {
	case err != nil:
		return nil, err
	case o.Accepted:
		return []string{"FILE_SAVED", o.Text}, nil
	}
	return []string{"DIFF_REJECTED", p.Tab}, nil
}
