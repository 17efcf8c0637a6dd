package claudeide

import (
	"context"
	"net/url"

	"pollux/internal/editor"
	"pollux/internal/ide/blocking"
	"pollux/internal/mcp"
)

// Claude Code calls getDiagnostics right before it writes a file, for that file, and waits
// at most 500 ms; after three timeouts it no longer does so in the session. Before the next
// request to its model it asks for all files, and waits at most 2 s. The model receives the
// problems that are new. An answer with isError to the first call leaves the file out of
// the comparison.

// severities maps the editor protocol's names to the agent's.
var severities = map[string]string{
	editor.SeverityError: "Error", editor.SeverityWarning: "Warning",
	editor.SeverityInformation: "Info", editor.SeverityHint: "Hint",
}

// getDiagnostics returns the current problems of a file, or those of all files after the
// editors have checked what the agent has written.
func (s *Session) getDiagnostics(ctx context.Context, c *mcp.Call) (*mcp.Result, error) {
	var a struct {
		URI string `json:"uri"`
	}
	if err := mcp.DecodeArgs(c.Args, &a); err != nil {
		return nil, err
	}
	if a.URI != "" {
		return s.diagnosticsOf(ctx, a.URI)
	}
	s.server.Backend.AfterWrites(ctx, s)
	files, err := s.server.Backend.Diagnostics(ctx, "")
	if err != nil {
		return nil, err
	}
	return encodeDiagnostics(files, fileURI)
}

// diagnosticsOf returns the problems of a file that the agent may be about to write.
func (s *Session) diagnosticsOf(ctx context.Context, uri string) (*mcp.Result, error) {
	path, err := blocking.PathOf(uri)
	if err != nil {
		return nil, err
	}
	files, err := s.server.Backend.BeforeWrite(ctx, s, path)
	if plain, bad := url.PathUnescape(path); err == nil && len(files) == 0 && bad == nil && plain != path {
		// The agent does not escape the path; the model may.
		files, err = s.server.Backend.BeforeWrite(ctx, s, plain)
	}
	if err != nil {
		return nil, err
	}
	// The agent ignores an answer for another URI.
	return encodeDiagnostics(files, func(string) string { return uri })
}

// fileURI returns the agent's form of a path: nothing in it is escaped.
func fileURI(path string) string { return blocking.FileScheme + path }

// encodeDiagnostics returns the tool's answer. uri returns the URI of a path.
func encodeDiagnostics(files []editor.FileDiagnostics, uri func(path string) string) (*mcp.Result, error) {
	return blocking.EncodeDiagnostics(files, severities, func(path string) (string, string) { return uri(path), "" })
}
