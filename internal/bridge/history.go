package bridge

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"pollux/internal/lazy"
	"pollux/internal/sys/disk"
)

const (
	// HistoryTTL is how long a history keeps a conversation after its last use. It keeps
	// at most maxHistory conversations.
	HistoryTTL = 14 * 24 * time.Hour
	maxHistory = 50
)

// A History keeps conversations in a directory that only the user can read, for callers
// whose process ends after each query. Several processes may use one directory.
//
// A file is named after a conversation: a hash of its directory, a dash, and its ID. The
// modification time is the time of the last use.
type History struct {
	dir string
	// report receives the error of a conversation that could not be kept.
	report func(error)
}

// NewHistory returns the history in a directory, which may not exist yet.
func NewHistory(dir string, report func(error)) *History { return &History{dir: dir, report: report} }

// sessionID matches the ID of a conversation.
var sessionID = lazy.Regexp(`^[A-Z2-7]{26}$`)

// errUnreadable reports a conversation in a format that this version does not know.
var errUnreadable = errors.New("this version of Pollux does not know its format")

// Last returns the ID of the conversation that was used last in a directory, or "" if the
// directory has no conversation. It fails if the directory does not exist or the history
// cannot be read.
func (h *History) Last(dir string) (id string, err error) {
	dir, err = workingDirectory(dir)
	if err != nil {
		return "", err
	}
	files, err := h.files()
	for _, f := range files {
		if strings.HasPrefix(f.Name(), dirHash(dir)+"-") {
			return sessionOf(f.Name()), nil
		}
	}
	return "", err
}

// Has reports whether the history has a conversation. It fails if the history cannot be
// read.
func (h *History) Has(id string) (bool, error) {
	path, err := h.path(id)
	return path != "", err
}

// Add keeps a copy of a conversation of another bridge, and returns the ID of the copy.
// data comes from the keeper of that bridge.
func (h *History) Add(data []byte) (id string, err error) {
	var t transcript
	if err := t.read(data); err != nil {
		return "", err
	}
	if _, err := workingDirectory(t.Dir); err != nil {
		return "", fmt.Errorf("the directory of the conversation, %w", err)
	}
	id = rand.Text()
	return id, h.write(id, t.Dir, data)
}

// Keep implements keeper.
func (h *History) Keep(id string, _ int, data []byte) {
	var t transcript
	err := t.read(data)
	if err == nil {
		err = h.write(id, t.Dir, data)
	}
	if err != nil {
		h.report(err)
	}
}

// Kept implements keeper.
func (h *History) Kept(_ context.Context, id string, n int) ([]byte, error) {
	path, err := h.path(id)
	if err != nil || path == "" {
		return nil, err
	}
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) { // removed in the meantime, because it was old
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var t transcript
	if err := t.read(data); err != nil {
		return nil, err
	}
	if len(t.Said) <= n {
		return nil, nil
	}
	return data, nil
}

// write writes the file of a conversation, and removes old ones.
func (h *History) write(id, dir string, data []byte) error {
	if err := os.MkdirAll(h.dir, 0o700); err != nil {
		return err
	}
	if err := disk.Narrow(h.dir); err != nil {
		return err
	}
	if err := disk.WriteFile(filepath.Join(h.dir, dirHash(dir)+"-"+id+".json"), data); err != nil {
		return err
	}
	files, err := h.files()
	for i, f := range files {
		if info, err := f.Info(); err == nil && (i >= maxHistory || time.Since(info.ModTime()) > HistoryTTL) {
			os.Remove(filepath.Join(h.dir, f.Name()))
		}
	}
	disk.TempFiles.Remove(h.dir)
	return err
}

// path returns the path of a conversation's file, or "" if the file does not exist.
func (h *History) path(id string) (string, error) {
	files, err := h.files()
	for _, f := range files {
		if sessionID().MatchString(id) && sessionOf(f.Name()) == id {
			return filepath.Join(h.dir, f.Name()), nil
		}
	}
	return "", err
}

// files returns the files of conversations, the last used first.
func (h *History) files() ([]fs.DirEntry, error) {
	entries, err := os.ReadDir(h.dir)
	if _, missing := os.Lstat(h.dir); errors.Is(missing, fs.ErrNotExist) { // Windows also reports that for a file
		err = nil
	}
	entries = slices.DeleteFunc(entries, func(e fs.DirEntry) bool { return sessionOf(e.Name()) == "" })
	used := make(map[string]time.Time)
	for _, e := range entries {
		if info, err := e.Info(); err == nil {
			used[e.Name()] = info.ModTime()
		}
	}
	slices.SortStableFunc(entries, func(a, b fs.DirEntry) int { return used[b.Name()].Compare(used[a.Name()]) })
	return entries, err
}

// sessionOf returns the ID in the name of a file, or "" for another file.
func sessionOf(name string) string {
	name, ok := strings.CutSuffix(name, ".json")
	_, id, dash := strings.Cut(name, "-")
	if !ok || !dash || !sessionID().MatchString(id) {
		return ""
	}
	return id
}

func dirHash(dir string) string {
	sum := sha256.Sum256([]byte(dir))
	return hex.EncodeToString(sum[:8])
}
