package copilotide

import (
	"context"
	"net/url"

	"pollux/internal/ide/blocking"
	"pollux/internal/mcp"
	"pollux/internal/paths"
)

// getDiagnostics returns the problems of a file, or of all files, for the agent's model.
func (s *Session) getDiagnostics(ctx context.Context, c *mcp.Call) (*mcp.Result, error) {
	var a struct {
		URI string `json:"uri"`
	}
	if err := mcp.DecodeArgs(c.Args, &a); err != nil {
		return nil, err
	}
	path := ""
	if a.URI != "" {
		uri, err := url.PathUnescape(a.URI)
		if err != nil {
			uri = a.URI
		}
		if path, err = blocking.PathOf(uri); err != nil {
			return nil, err
		}
	}
	files, err := s.server.Backend.Diagnostics(ctx, path)
	if err != nil {
		return nil, err
	}
	return blocking.EncodeDiagnostics(files, nil, func(path string) (string, string) {
		return paths.ToURL(path), path
	})
}
