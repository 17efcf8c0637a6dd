package claudeide

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"pollux/internal/companion"
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

type openDiffArgs struct {
	Path string  `json:"new_file_path"`
	Text *string `json:"new_file_contents"`
	Tab  string  `json:"tab_name"`

	binary string
}

func (a openDiffArgs) proposal() companion.Proposal {
	return companion.Proposal{Path: a.Path, Text: *a.Text, Binary: a.binary}
}

func (s *Session) addTools(server *mcp.Server) {
	add := func(name, description, schema string, handler mcp.ToolHandler) {
		server.AddTool(&mcp.Tool{Name: name, Description: description, InputSchema: json.RawMessage(schema)}, handler)
	}
	add(toolOpenDiff, "Shows a proposed change in the editor. Returns when the user has decided: "+
		"FILE_SAVED and the final text, or DIFF_REJECTED.", openDiffSchema,
		s.inTurn(func(ctx context.Context, c *call, args json.RawMessage) ([]string, error) {
			a, err := parseOpenDiff(args)
			if err != nil {
				return nil, err
			}
			return s.openDiff(ctx, c, a)
		}))
	add(toolCloseTab, "Closes a diff of this agent.", closeTabSchema,
		s.inTurn(func(ctx context.Context, _ *call, args json.RawMessage) ([]string, error) {
			var a struct {
				Tab *string `json:"tab_name"`
			}
			if err := unmarshal(args, &a); err != nil {
				return nil, err
			}
			if a.Tab == nil {
				return nil, errors.New("tab_name is missing: pass the name given to openDiff")
			}
			s.closeDiffs(ctx, func(r *review) bool { return r.tab == *a.Tab })
			return []string{"TAB_CLOSED"}, nil
		}))
	add(toolCloseAll, "Closes all diffs of this agent.", noArgsSchema,
		s.inTurn(func(ctx context.Context, _ *call, _ json.RawMessage) ([]string, error) {
			n := s.closeDiffs(ctx, func(*review) bool { return true })
			// The agent calls this at each prompt, which uses up the context.
			s.refresh.Set()
			s.server.cfg.Backend.Acted(s)
			return []string{fmt.Sprintf("CLOSED_%d_DIFF_TABS", n)}, nil
		}))
	add(toolGetDiagnostics, "Returns the problems that the editor shows. Pollux has none yet.", diagnosticsSchema,
		s.tool(func(context.Context, *mcp.CallToolRequest) ([]string, error) { return []string{"[]"}, nil }))
}

// inTurn returns an MCP handler that calls f when all earlier calls have taken effect.
func (s *Session) inTurn(f func(context.Context, *call, json.RawMessage) ([]string, error)) mcp.ToolHandler {
	return s.tool(func(ctx context.Context, req *mcp.CallToolRequest) ([]string, error) {
		c, err := s.find(req)
		if err != nil {
			return nil, err
		}
		defer s.tookEffect(c)
		if err := s.wait(c); err != nil {
			return nil, err
		}
		return f(ctx, c, req.Params.Arguments)
	})
}

// tool returns an MCP handler that calls f. An error of f becomes a result with
// isError, not a protocol error.
func (s *Session) tool(f func(context.Context, *mcp.CallToolRequest) ([]string, error)) mcp.ToolHandler {
	return func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		defer s.server.onPanic()
		texts, err := f(ctx, req)
		res := &mcp.CallToolResult{}
		if err != nil {
			res.IsError, texts = true, []string{err.Error()}
		}
		for _, text := range texts {
			res.Content = append(res.Content, &mcp.TextContent{Text: text})
		}
		return res, nil
	}
}

func parseOpenDiff(args json.RawMessage) (openDiffArgs, error) {
	var a openDiffArgs
	if err := unmarshal(args, &a); err != nil {
		return a, err
	}
	switch {
	case a.Path == "":
		return a, errors.New("new_file_path is missing: pass the file's absolute path")
	case strings.ContainsRune(a.Path, 0):
		return a, errors.New("new_file_path holds a NUL byte: pass the file's absolute path")
	case a.Text == nil:
		return a, errors.New("new_file_contents is missing: pass the proposed text of the whole file")
	}
	a.binary = companion.Unprintable(*a.Text, args)
	return a, nil
}

func unmarshal(args json.RawMessage, v any) error {
	if len(args) == 0 {
		return nil
	}
	if err := json.Unmarshal(args, v); err != nil {
		return fmt.Errorf("the arguments do not fit: %w", err)
	}
	return nil
}
