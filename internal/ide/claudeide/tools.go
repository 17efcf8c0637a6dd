package claudeide

import (
	"context"
	"encoding/json"

	"pollux/internal/companion"
	"pollux/internal/ide/attach"
	"pollux/internal/mcp"
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

func (s *Session) tools() []mcp.Tool {
	return []mcp.Tool{
		{
			Name: toolOpenDiff, Description: "Shows a proposed change in the editor. Returns when the user has decided: " +
				"FILE_SAVED and the final text, or DIFF_REJECTED.",
			Schema: openDiffSchema, Run: s.openDiff,
		},
		{Name: toolCloseTab, Description: "Closes a diff of this agent.", Schema: closeTabSchema, Run: s.closeTab},
		{Name: toolCloseAll, Description: "Announces a prompt. Diffs that wait for the user stay open.", Schema: noArgsSchema, Run: s.closeAll},
		{
			Name: toolGetDiagnostics, Description: "Returns the problems that the editor shows, such as compiler errors.",
			Schema: diagnosticsSchema, Run: s.getDiagnostics, Concurrent: true,
		},
	}
}

// openDiff shows a proposal. The agent takes TAB_CLOSED for a yes, so that is never the answer.
func (s *Session) openDiff(_ context.Context, c *mcp.Call) (*mcp.Result, error) {
	p, tab, err := parseOpenDiff(c.Args)
	if err != nil {
		return nil, err
	}
	return nil, s.Open(c, tab, p, func(o companion.Outcome) []string {
		if o.Accepted {
			return []string{"FILE_SAVED", o.Text}
		}
		return []string{"DIFF_REJECTED", tab}
	})
}

func parseOpenDiff(args json.RawMessage) (p companion.Proposal, tab string, err error) {
	var a struct {
		Path string  `json:"new_file_path"`
		Text *string `json:"new_file_contents"`
		Tab  string  `json:"tab_name"`
	}
	if err = mcp.DecodeArgs(args, &a); err == nil {
		p, err = attach.NewProposal(args, "new_file_path", a.Path, "new_file_contents", a.Text)
		p.Hidden = true
	}
	return p, a.Tab, err
}

func (s *Session) closeTab(_ context.Context, c *mcp.Call) (*mcp.Result, error) {
	_, err := s.CloseTab(c.Args, toolOpenDiff)
	return mcp.Text("TAB_CLOSED"), err
}

// closeAll closes no diff. Claude Code calls it at each prompt, and also when one of several
// subagents has ended, while it waits for the user's decision about the change of another one.
// It calls close_tab for each diff that has ended.
func (s *Session) closeAll(context.Context, *mcp.Call) (*mcp.Result, error) {
	s.Refresh() // the prompt uses up the context
	s.server.Backend.Acted(s)
	return mcp.Text("CLOSED_0_DIFF_TABS"), nil
}
