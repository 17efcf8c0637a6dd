package change

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/aymanbagabas/go-udiff"

	"pollux/internal/hunk"
	"pollux/internal/paths"
)

// target returns the file of a block, relative to dir and with slashes. The file
// must be in dir, even after symbolic links are resolved, and must not belong to
// git. Its name must be one that a file can have; see [paths.Special].
func target(dir string, b block) (string, error) {
	abs := filepath.FromSlash(b.path)
	if !filepath.IsAbs(abs) {
		abs = filepath.Join(dir, abs)
	}
	if why := paths.Special(abs); why != "" {
		return "", fmt.Errorf("%s cannot be changed: %s", b.path, why)
	}
	outside := fmt.Errorf("%s is outside the working directory", b.path)
	if paths.OnOtherServer([]string{dir}, abs) {
		return "", outside
	}
	resolved := paths.Real(abs)
	if b.create {
		if _, err := os.Lstat(abs); err == nil {
			return "", fmt.Errorf("%s is not a new file: it exists", b.path)
		}
	} else {
		var err error
		resolved, err = paths.Existing(abs)
		if errors.Is(err, fs.ErrNotExist) {
			return "", fmt.Errorf("there is no file %s", b.path)
		} else if err != nil {
			return "", fmt.Errorf("%s cannot be read", b.path)
		}
	}
	rel, ok := paths.Rel(dir, resolved)
	if !ok || rel == "." {
		return "", outside
	}
	rel = filepath.ToSlash(rel)
	if slices.Contains(strings.Split(strings.ToLower(rel), "/"), ".git") {
		return "", fmt.Errorf("%s belongs to git", b.path)
	}
	if strings.ContainsAny(rel, "\n\r\t\"\\") {
		return "", fmt.Errorf("the name %q cannot be written in a diff", rel)
	}
	return rel, nil
}

// A file is a file that edits change.
type file struct {
	path   string
	create bool
	text   string
	eol    string   // the most frequent line ending
	lines  []string // without line endings
	edits  []placed
}

// A placed is an edit with its new lines. It distinguishes an empty line from no
// line.
type placed struct {
	Edit
	with []string // the new lines
}

// readFile reads a file to change, or prepares one to create.
func readFile(dir, path string, create bool) (*file, error) {
	f := &file{path: path, create: create, eol: "\n"}
	if create {
		return f, nil
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	if f.text, err = ReadText(root, filepath.FromSlash(path)); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if crlf := strings.Count(f.text, "\r\n"); crlf > 0 && 2*crlf >= strings.Count(f.text, "\n") {
		f.eol = "\r\n"
	}
	f.lines = trimmed(hunk.Split(strings.TrimPrefix(f.text, bom))) // agents read files without it
	return f, nil
}

// splitLines splits a text into lines that keep their line endings.
func splitLines(text string) []string { return slices.Collect(strings.Lines(text)) }

// backslashed lists the file types in which a backslash has a meaning before a
// character that agents escape.
var backslashed = []string{".pl", ".pm", ".t", ".tex", ".sty", ".cls", ".ltx", ".dtx"}

// place finds the lines of the file that a block replaces. If the prompt was
// escaped, the block may contain an escape where the file has the plain
// character.
func (f *file) place(b block, unescape func(string) string) (e Edit, err error) {
	e = Edit{Path: f.path, Create: b.create}
	if len(b.old) > 0 {
		b.old = slices.Clone(b.old)
		b.old[0] = strings.TrimPrefix(b.old[0], bom) // as in f.lines
	}
	if !b.create {
		err = f.find(b, &e)
	}
	old, added := strings.Join(b.old, "\n"), strings.Join(b.new, "\n")
	if char := escaped(old+"\n"+added, unescape); char != "" {
		plain := b
		plain.old, plain.new = unescapeAll(b.old, unescape), unescapeAll(b.new, unescape)
		switch {
		case err != nil: // the block escapes each character, or does not fit at all
			if f.find(plain, &e) == nil {
				b, err = plain, nil
			}
		case strings.Contains(old, char): // OLD fits the unchanged file, so the block does not escape
		case slices.Contains(backslashed, filepath.Ext(f.path)):
			err = fmt.Errorf("a block of %[1]s contains \\%[2]s, which may mean %[2]s or be meant literally: "+
				"ask again without %[2]s in the prompt and the files", f.path, char)
		default:
			b.new = plain.new
		}
	}
	if err != nil {
		return e, err
	}
	e.Old, e.New = strings.Join(b.old, "\n"), strings.Join(b.new, "\n")
	e.Delete = !b.create && len(b.new) == 0
	for _, other := range f.edits {
		if e.StartLine <= other.EndLine && other.StartLine <= e.EndLine {
			return e, fmt.Errorf("two blocks change line %d of %s", max(e.StartLine, other.StartLine), f.path)
		}
	}
	f.edits = append(f.edits, placed{e, b.new})
	return e, nil
}

// escaped returns the first character in text after a backslash that unescape
// removes, or "". unescape may be nil.
func escaped(text string, unescape func(string) string) string {
	if unescape == nil || unescape(text) == text {
		return ""
	}
	for i, r := range text {
		if s := string(r); i > 0 && text[i-1] == '\\' && unescape(`\`+s) == s {
			return s
		}
	}
	return ""
}

func unescapeAll(lines []string, unescape func(string) string) []string {
	out := make([]string, len(lines))
	for i, l := range lines {
		out[i] = unescape(l)
	}
	return out
}

// find sets the lines of e to those that the block replaces.
func (f *file) find(b block, e *Edit) error {
	if f.text == "" && strings.TrimSpace(strings.Join(b.old, "")) == "" && b.end <= 1 {
		return nil // an empty file
	}
	if b.start != 0 || b.end != 0 {
		if b.start < 1 || b.end < b.start || b.end > len(f.lines) {
			return fmt.Errorf("%s has %d lines, but a block replaces lines %d to %d",
				f.path, len(f.lines), b.start, b.end)
		}
		old := b.old
		if len(old) == 0 {
			old = []string{""}
		}
		if !slices.Equal(f.lines[b.start-1:b.end], old) {
			return fmt.Errorf("lines %d to %d of %s differ from the OLD part of the block", b.start, b.end, f.path)
		}
		e.StartLine, e.EndLine = b.start, b.end
		return nil
	}
	if strings.TrimSpace(strings.Join(b.old, "")) == "" {
		return fmt.Errorf("a block of %s has neither line numbers nor an OLD part", f.path)
	}
	found := 0
	for i := 0; i+len(b.old) <= len(f.lines); i++ {
		if slices.Equal(f.lines[i:i+len(b.old)], b.old) {
			if found++; found == 1 {
				e.StartLine, e.EndLine = i+1, i+len(b.old)
			}
		}
	}
	switch found {
	case 0:
		return fmt.Errorf("%s does not contain the OLD part of a block", f.path)
	case 1:
		return nil
	}
	return fmt.Errorf("%s contains the OLD part of a block %d times, and the block has no line numbers", f.path, found)
}

// apply returns the text after the edits. It keeps the line endings.
func (f *file) apply() string {
	if f.create {
		text := f.edits[0].New
		if text != "" && !strings.HasSuffix(text, "\n") {
			text += "\n"
		}
		return text
	}
	lines := splitLines(f.text)
	edits := slices.SortedFunc(slices.Values(f.edits), func(a, b placed) int { return b.StartLine - a.StartLine })
	for _, e := range edits {
		eol := f.eol
		if e.StartLine > 0 && strings.HasSuffix(lines[e.StartLine-1], "\n") {
			// A file may mix both kinds of line endings: keep the kind of the
			// replaced lines.
			eol = lines[e.StartLine-1][len(strings.TrimRight(lines[e.StartLine-1], "\r\n")):]
		}
		var with []string
		for _, l := range e.with {
			with = append(with, l+eol)
		}
		if e.StartLine == 0 { // the file is empty
			lines = with
			continue
		}
		// Do not add a final line ending to a file without one.
		if last := lines[e.EndLine-1]; !strings.HasSuffix(last, "\n") {
			if n := len(with); n > 0 {
				with[n-1] = strings.TrimSuffix(with[n-1], eol)
			}
		}
		lines = slices.Replace(lines, e.StartLine-1, e.EndLine, with...)
	}
	return strings.Join(lines, "")
}

// diff returns the edits as a diff for git.
func (f *file) diff(prefix string) (string, error) {
	text := keepMark(f.text, f.apply())
	if text == f.text && !f.create {
		return "", nil
	}
	return unified(prefix+f.path, f.create, f.text, text)
}

// unified returns the change of a file, or its creation, as a diff for git.
func unified(path string, create bool, before, after string) (string, error) {
	from, to := "a/"+path, "b/"+path
	head := fmt.Sprintf("diff --git %s %s\n", from, to)
	if create {
		from, head = "/dev/null", head+"new file mode 100644\n"
		if after == "" {
			return head, nil
		}
	}
	body, err := udiff.ToUnified(from, to, before, udiff.Strings(before, after), udiff.DefaultContextLines)
	return head + body, err
}
