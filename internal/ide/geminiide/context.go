package geminiide

import (
	"encoding/json"
	"slices"
	"strings"

	"pollux/internal/companion"
	"pollux/internal/jsonrpc"
)

// wireContext returns the context as the CLI receives it: the newest files,
// with a bounded selection. The active file is always the newest, since the CLI
// accepts no other as active.
func wireContext(c companion.Context) Context {
	ws := &WorkspaceState{OpenFiles: []File{}, IsTrusted: c.Trusted}
	for _, f := range c.Files[:min(len(c.Files), MaxOpenFiles)] {
		ws.OpenFiles = append(ws.OpenFiles, File{
			Path: f.Path, Timestamp: f.Focused, IsActive: f.Active,
			Cursor: f.Cursor, SelectedText: cut(f.Selection, MaxSelectedText),
		})
	}
	if files := ws.OpenFiles; len(files) > 1 && files[0].IsActive {
		files[0].Timestamp = max(files[0].Timestamp, files[1].Timestamp+1)
	}
	return Context{WorkspaceState: ws}
}

// encode encodes a value that consists of strings, numbers and JSON.
func encode(v any) json.RawMessage {
	data, err := jsonrpc.Encode(v)
	if err != nil {
		panic(err)
	}
	return data
}

// key returns the part of a context that the CLI compares. Of the timestamps,
// only the order counts that they give to the files.
func (c Context) key() string {
	ws := *c.WorkspaceState
	ws.OpenFiles = slices.Clone(ws.OpenFiles)
	for i := range ws.OpenFiles {
		ws.OpenFiles[i].Timestamp = 0
	}
	return string(encode(ws))
}

// cut returns at most limit bytes of s, which is valid UTF-8, and splits no
// character.
func cut(s string, limit int) string {
	return strings.ToValidUTF8(s[:min(len(s), limit)], "")
}
