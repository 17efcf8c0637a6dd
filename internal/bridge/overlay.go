package bridge

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"pollux/internal/hunk"
)

// An overlay is the files of a directory as they would be after changes that
// are written to nothing but the overlay. It implements [gemini.Files].
type overlay struct {
	dir string

	mu    sync.Mutex
	files map[string]*overlaid // by path, relative to dir with slashes
	order []string             // of the first change
	dirs  []string             // that were not there, the deepest first
}

// An overlaid file is one that was looked at or changed.
type overlaid struct {
	before, after string
	create        bool // it is not on the disk
	written       bool
}

func newOverlay(dir string) *overlay { return &overlay{dir: dir, files: make(map[string]*overlaid)} }

// file is the file of that name, read from the disk at the first time.
func (o *overlay) file(name string) (*overlaid, string, error) {
	_, err := os.Lstat(name)
	create := errors.Is(err, os.ErrNotExist)
	path, err := target(o.dir, block{path: name, create: create})
	if err != nil {
		return nil, "", err
	}
	f := o.files[path]
	if f == nil {
		f = &overlaid{create: create}
		if create {
			o.missing(filepath.Join(o.dir, filepath.FromSlash(path)))
		} else {
			root, err := os.OpenRoot(o.dir)
			if err != nil {
				return nil, "", err
			}
			defer root.Close()
			if f.before, err = readText(root, filepath.FromSlash(path)); err != nil {
				return nil, "", err
			}
		}
		f.after = f.before
		o.files[path] = f
	}
	return f, path, nil
}

// missing notes the directories that a new file would need.
func (o *overlay) missing(path string) {
	var dirs []string
	for d := filepath.Dir(path); d != o.dir && d != filepath.Dir(d); d = filepath.Dir(d) {
		if _, err := os.Lstat(d); !errors.Is(err, os.ErrNotExist) {
			break
		}
		dirs = append(dirs, d)
	}
	o.dirs = append(dirs, o.dirs...)
}

// tidy removes the directories that the CLI has made for new files on the disk
// all the same. They are empty.
func (o *overlay) tidy() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, d := range o.dirs {
		os.Remove(d)
	}
}

// Read implements [gemini.Files]. A file that is not there is empty: the CLI
// asks for the ones that it is about to make.
func (o *overlay) Read(name string) (string, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	f, _, err := o.file(name)
	if err != nil {
		return "", err
	}
	return f.after, nil
}

// Write implements [gemini.Files].
func (o *overlay) Write(name, text string) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	f, path, err := o.file(name)
	if err != nil {
		return err
	}
	if len(text) > maxTextFile {
		return errors.New("the file would be too large")
	}
	text = keepLineEnds(f.before, text)
	if !f.written {
		f.written = true
		o.order = append(o.order, path)
	}
	f.after = text
	return nil
}

// changes are the edits that make the files what they are now.
func (o *overlay) changes(prefix string) (*Changes, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	ch := &Changes{Edits: []Edit{}}
	var diff strings.Builder
	for _, path := range o.order {
		f := o.files[path]
		if !f.create && f.after == f.before {
			continue
		}
		if f.create {
			ch.Edits = append(ch.Edits, Edit{Path: path, New: strings.TrimSuffix(f.after, "\n"), Create: true})
		} else {
			ch.Edits = append(ch.Edits, edits(path, f.before, f.after)...)
		}
		d, err := unified(prefix+path, f.create, f.before, f.after)
		if err != nil {
			return nil, err
		}
		diff.WriteString(d)
	}
	ch.Diff = diff.String()
	return ch, nil
}

// edits are what differs between two texts of a file. Lines that only come in
// stand with the line after them, or the last one, which they replace together.
func edits(path, before, after string) (all []Edit) {
	old, new := hunk.Split(before), hunk.Split(after)
	for _, h := range hunk.Between(before, after) {
		gone, come := old[h.Old-1:h.Old-1+h.OldLines], new[h.New-1:h.New-1+h.NewLines]
		e := Edit{Path: path, StartLine: h.Old, EndLine: h.Old + h.OldLines - 1, Delete: len(come) == 0}
		switch {
		case h.OldLines > 0:
		case len(old) == 0: // all of an empty file
			e.StartLine, e.EndLine = 0, 0
		case h.Old <= len(old):
			gone, come = old[h.Old-1:h.Old], new[h.New-1:h.New+h.NewLines]
			e.EndLine = h.Old
		default:
			gone, come = old[len(old)-1:], new[h.New-2:h.New-1+h.NewLines]
			e.StartLine, e.EndLine = len(old), len(old)
		}
		e.Old, e.New = strings.Join(trimmed(gone), "\n"), strings.Join(trimmed(come), "\n")
		if n := len(all); n > 0 && e.StartLine > 0 && all[n-1].EndLine == e.StartLine {
			// Before and after the last line: that is one edit.
			all[n-1].New += strings.TrimPrefix(e.New, e.Old)
			continue
		}
		all = append(all, e)
	}
	return all
}

// keepLineEnds is a text with the line ends of the one before it: lines that
// stay have theirs, and others that of the line before them. The model writes
// line feeds, and the CLI one kind of ends throughout.
func keepLineEnds(before, text string) string {
	if !strings.Contains(before, "\r\n") {
		return text
	}
	plain := func(s string) string { return strings.ReplaceAll(s, "\r\n", "\n") }
	old, new := slices.Collect(strings.Lines(before)), slices.Collect(strings.Lines(plain(text)))
	end := func(i int) string { // of line i of old, or the next before it
		for i = min(i, len(old)-1); i >= 0; i-- {
			if body := strings.TrimRight(old[i], "\r\n"); body != old[i] {
				return old[i][len(body):]
			}
		}
		return old[0][len(strings.TrimRight(old[0], "\r\n")):]
	}
	var b strings.Builder
	i, j := 0, 0 // lines of old and new
	put := func(line string, end string) {
		if body, ok := strings.CutSuffix(line, "\n"); ok {
			line = body + end
		}
		b.WriteString(line)
	}
	for _, h := range hunk.Between(plain(before), plain(text)) {
		for ; j < h.New-1; i, j = i+1, j+1 {
			put(new[j], end(i))
		}
		for n := range h.NewLines {
			at := i + min(n, h.OldLines-1)
			if h.OldLines == 0 {
				at = i - 1
			}
			put(new[j], end(max(at, 0)))
			j++
		}
		i += h.OldLines
	}
	for ; j < len(new); i, j = i+1, j+1 {
		put(new[j], end(i))
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
