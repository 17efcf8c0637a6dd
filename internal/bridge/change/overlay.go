package change

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"pollux/internal/hunk"
	"pollux/internal/paths"
)

// An Overlay shows the files below a directory as they would be with changes.
// The changes are kept in memory: nothing is written to disk. Paths are
// absolute. The methods may be called from several goroutines.
type Overlay struct {
	dir string

	mu    sync.Mutex           // not held during file access
	files map[string]*overlaid // by path, relative to dir with slashes
	order []string             // paths in the order of the first change
	dirs  []string             // directories that did not exist, the deepest first
}

// An overlaid is a file that was read or changed.
type overlaid struct {
	before, after string
	create        bool // it does not exist on disk
	written       bool
}

func newOverlay(dir string) *Overlay { return &Overlay{dir: dir, files: make(map[string]*overlaid)} }

// load reads a file into the overlay, unless it was read before, and returns its
// path in o.files.
func (o *Overlay) load(name string) (path string, err error) {
	if !paths.OnOtherServer([]string{o.dir}, name) { // which target refuses
		_, err = os.Lstat(name)
	}
	create := errors.Is(err, os.ErrNotExist)
	if path, err = target(o.dir, block{path: name, create: create}); err != nil {
		return "", err
	}
	o.mu.Lock()
	known := o.files[path] != nil
	o.mu.Unlock()
	if known {
		return path, nil
	}
	f := &overlaid{create: create}
	var dirs []string
	if create {
		dirs = paths.Missing(o.dir, filepath.Join(o.dir, filepath.FromSlash(path)))
	} else {
		root, err := os.OpenRoot(o.dir)
		if err != nil {
			return "", err
		}
		defer root.Close()
		if f.before, err = ReadText(root, filepath.FromSlash(path)); err != nil {
			return "", err
		}
	}
	f.after = f.before
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.files[path] == nil {
		o.files[path] = f
		o.dirs = append(dirs, o.dirs...)
	}
	return path, nil
}

// tidy removes the empty directories that the agent created on disk for new
// files.
func (o *Overlay) tidy() {
	o.mu.Lock()
	dirs := slices.Clone(o.dirs)
	o.mu.Unlock()
	for _, d := range dirs {
		os.Remove(d)
	}
}

// Read returns the text of a file. It returns "" for a missing file, because
// agents read a file that they are about to create.
func (o *Overlay) Read(name string) (string, error) {
	path, err := o.load(name)
	if err != nil {
		return "", err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.files[path].after, nil
}

// Write replaces the text of a file.
func (o *Overlay) Write(name, text string) error {
	path, err := o.load(name)
	if err != nil {
		return err
	}
	if len(text) > MaxFile {
		return fmt.Errorf("the file would have %d bytes, over the limit of %d", len(text), MaxFile)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	f := o.files[path]
	if !f.written {
		f.written = true
		o.order = append(o.order, path)
	}
	f.after = keepLineEndings(f.before, keepMark(f.before, text))
	return nil
}

// edits returns the edits that lead to the current texts. The paths in the diff
// start with prefix.
func (o *Overlay) edits(prefix string) (Set, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	set := Set{Edits: []Edit{}}
	for _, path := range o.order {
		f := o.files[path]
		if !f.create && f.after == f.before {
			continue
		}
		if f.create {
			set.Edits = append(set.Edits, Edit{Path: path, New: strings.TrimSuffix(f.after, "\n"), Create: true})
		} else {
			set.Edits = append(set.Edits, between(path, f.before, f.after)...)
		}
		d, err := unified(prefix+path, f.create, f.before, f.after)
		if err != nil {
			return Set{}, err
		}
		set.Diff += d
	}
	return set, nil
}

// between returns the edits that turn one text of a file into another. An
// insertion becomes a replacement of the line after it, or of the last line.
func between(path, before, after string) (all []Edit) {
	old, changed := hunk.Split(before), hunk.Split(after)
	for _, h := range hunk.Between(before, after) {
		removed, added := old[h.Old-1:h.Old-1+h.OldLines], changed[h.New-1:h.New-1+h.NewLines]
		e := Edit{Path: path, StartLine: h.Old, EndLine: h.Old + h.OldLines - 1, Delete: len(added) == 0}
		switch {
		case h.OldLines > 0:
		case len(old) == 0: // an empty file
			e.StartLine, e.EndLine = 0, 0
		case h.Old <= len(old):
			removed, added = old[h.Old-1:h.Old], changed[h.New-1:h.New+h.NewLines]
			e.EndLine = h.Old
		default:
			removed, added = old[len(old)-1:], changed[h.New-2:h.New-1+h.NewLines]
			e.StartLine, e.EndLine = len(old), len(old)
		}
		e.Old, e.New = strings.Join(trimmed(removed), "\n"), strings.Join(trimmed(added), "\n")
		if n := len(all); n > 0 && e.StartLine > 0 && all[n-1].EndLine == e.StartLine {
			// Insertions before and after the last line are one edit.
			all[n-1].New += strings.TrimPrefix(e.New, e.Old)
			continue
		}
		all = append(all, e)
	}
	return all
}

const bom = "\uFEFF"

// keepMark returns text with the byte order mark of the text before: agents read files without it.
func keepMark(before, text string) string {
	if strings.HasPrefix(before, bom) && text != "" && !strings.HasPrefix(text, bom) {
		return bom + text
	}
	return text
}

// keepLineEndings returns text with the line endings of the text before. Unchanged
// lines keep theirs, other lines get the line ending of the line before them.
// Models write line feeds, and agents use one kind of line ending throughout.
func keepLineEndings(before, text string) string {
	if !strings.Contains(before, "\r\n") {
		return text
	}
	plain := func(s string) string { return strings.ReplaceAll(s, "\r\n", "\n") }
	old, changed := splitLines(before), splitLines(plain(text))
	// end returns the line ending of line i of old, or of the nearest line before
	// it that has one.
	end := func(i int) string {
		for i = min(i, len(old)-1); i >= 0; i-- {
			if body := strings.TrimRight(old[i], "\r\n"); body != old[i] {
				return old[i][len(body):]
			}
		}
		return old[0][len(strings.TrimRight(old[0], "\r\n")):]
	}
	var b strings.Builder
	i, j := 0, 0 // line numbers in old and changed
	put := func(line string, end string) {
		if body, ok := strings.CutSuffix(line, "\n"); ok {
			line = body + end
		}
		b.WriteString(line)
	}
	for _, h := range hunk.Between(plain(before), plain(text)) {
		for ; j < h.New-1; i, j = i+1, j+1 {
			put(changed[j], end(i))
		}
		for n := range h.NewLines {
			at := i + min(n, h.OldLines-1)
			if h.OldLines == 0 {
				at = i - 1
			}
			put(changed[j], end(max(at, 0)))
			j++
		}
		i += h.OldLines
	}
	for ; j < len(changed); i, j = i+1, j+1 {
		put(changed[j], end(i))
	}
	return b.String()
}

func trimmed(lines []string) []string {
	out := make([]string, len(lines))
	for i, l := range lines {
		out[i] = strings.TrimRight(l, "\r\n")
	}
	return out
}
