package blocking

import (
	"cmp"
	"encoding/json"
	"errors"
	"path/filepath"
	"runtime"
	"strings"

	"pollux/internal/editor"
	"pollux/internal/mcp"
)

// fileDiagnostics are the problems of a file as the agents take them. Their positions count
// from 0.
type fileDiagnostics struct {
	URI         string       `json:"uri"`
	Path        string       `json:"filePath,omitempty"`
	Diagnostics []diagnostic `json:"diagnostics"`
}

type diagnostic struct {
	Message  string `json:"message"`
	Severity string `json:"severity"`
	Range    struct {
		Start Position `json:"start"`
		End   Position `json:"end"`
	} `json:"range"`
	Source string `json:"source,omitempty"`
	Code   string `json:"code,omitempty"`
}

// EncodeDiagnostics returns a tool's answer with problems. severities maps the editor
// protocol's names to the agent's, unless they are the same. name returns the URI of a path, and the path itself if
// the agent wants it, too.
func EncodeDiagnostics(
	files []editor.FileDiagnostics, severities map[string]string, name func(path string) (uri, filePath string),
) (*mcp.Result, error) {
	all := make([]fileDiagnostics, len(files))
	for i, f := range files {
		all[i].URI, all[i].Path = name(f.Path)
		all[i].Diagnostics = make([]diagnostic, len(f.Diagnostics))
		for j, d := range f.Diagnostics {
			to := &all[i].Diagnostics[j]
			to.Message, to.Severity, to.Source, to.Code = d.Message, cmp.Or(severities[d.Severity], d.Severity), d.Source, d.Code
			to.Range.Start, to.Range.End = newPosition(d.Range.Start, 0), newPosition(d.Range.End, 0)
		}
	}
	data, err := json.Marshal(all)
	return mcp.Text(string(data)), err
}

// FileScheme starts the URIs of files.
const FileScheme = "file://"

// PathOf returns the path in a URI without escapes.
func PathOf(uri string) (string, error) {
	path, ok := strings.CutPrefix(uri, FileScheme)
	if runtime.GOOS == "windows" {
		path = strings.TrimPrefix(path, "/")
	}
	if !ok || !filepath.IsAbs(path) {
		return "", errors.New("uri names no file: pass " + FileScheme + " and the file's absolute path")
	}
	return filepath.Clean(path), nil
}
