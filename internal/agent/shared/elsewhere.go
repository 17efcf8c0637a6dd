package shared

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"pollux/internal/agent"
	"pollux/internal/paths"
)

// A workspace is the directory of a request whose bridge may run on another machine.
//
// Agents need its real path: with another name, Gemini CLI takes the files to be outside
// of its workspace and writes them to the disk. The bridge knows the directory by the name
// that it sent.
//
// In change mode, the agent's tools create directories on disk for new files, although the
// files are the bridge's. A bridge on this machine removes them itself.
type workspace struct {
	named, real string

	mu   sync.Mutex
	dirs []string // directories that did not exist
}

func openWorkspace(named string) (*workspace, error) {
	dir, err := paths.Existing(named)
	if err == nil {
		var info os.FileInfo
		if info, err = os.Stat(dir); err == nil && info.IsDir() {
			return &workspace{named: named, real: dir}, nil
		}
	}
	return nil, fmt.Errorf("there is no directory %s where the pool runs: "+
		"give its name there with --map HERE=THERE", named)
}

// use lets a request work in the directory, with files that have the bridge's names.
func (w *workspace) use(req *agent.Request) {
	req.Dir = w.real
	if req.Change == nil {
		return
	}
	files, released := req.Change.Files, req.Released
	req.Change.Files = func() agent.Files { return workspaceFiles{files(), w} }
	req.Released = func() {
		w.tidy()
		released()
	}
}

// name returns the bridge's name of a file, and notes the directories that the file needs
// and that do not exist yet.
func (w *workspace) name(path string) string {
	rel, ok := paths.Rel(w.real, path)
	if !ok {
		actual := paths.Real(path)
		if rel, ok = paths.Rel(w.real, actual); !ok {
			return path
		}
		path = actual
	}
	missing := paths.Missing(w.real, path)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.dirs = append(missing, w.dirs...) // the deepest first
	return filepath.Join(w.named, rel)
}

// tidy removes the new directories that are empty.
func (w *workspace) tidy() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, dir := range w.dirs {
		os.Remove(dir)
	}
}

type workspaceFiles struct {
	files agent.Files
	w     *workspace
}

// Read implements [agent.Files]. Agents read a file before they create it.
func (f workspaceFiles) Read(path string) (string, error) {
	name := f.w.name(path)
	text, err := f.files.Read(name)
	return text, rename(err, name, path)
}

// Write implements [agent.Files].
func (f workspaceFiles) Write(path, text string) error {
	name := f.w.name(path)
	return rename(f.files.Write(name, text), name, path)
}

// rename returns an error about a file with another name of the file.
func rename(err error, from, to string) error {
	if err == nil || from == to {
		return err
	}
	return errors.New(strings.ReplaceAll(err.Error(), from, to))
}
