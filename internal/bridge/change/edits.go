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

	"pollux/internal/paths"
)

// target is the file of a block, relative to dir and with slashes. Only files
// that really lie in dir can be changed, and none of git's own.
func target(dir string, b block) (string, error) {
	name := filepath.FromSlash(b.path)
	abs := name
	if !filepath.IsAbs(abs) {
		abs = filepath.Join(dir, name)
	}
	real := abs
	if b.create {
		// Of a new file, the directory that is there must lie in dir.
		if _, err := os.Lstat(abs); err == nil {
			return "", fmt.Errorf("%s exists and is not a new file", b.path)
		}
		rest := ""
		for parent := abs; ; parent = filepath.Dir(parent) {
			r, err := filepath.EvalSymlinks(parent)
			if err == nil {
				real = filepath.Join(r, rest)
				break
			}
			if parent == filepath.Dir(parent) {
				return "", fmt.Errorf("%s has no directory", b.path)
			}
			rest = filepath.Join(filepath.Base(parent), rest)
		}
	} else {
		r, err := filepath.EvalSymlinks(abs)
		if errors.Is(err, fs.ErrNotExist) {
			return "", fmt.Errorf("there is no file %s", b.path)
		} else if err != nil {
			return "", fmt.Errorf("%s cannot be read", b.path)
		}
		real = r
	}
	rel, ok := paths.Rel(dir, real)
	if !ok || rel == "." {
		return "", fmt.Errorf("%s is outside of the working directory", b.path)
	}
	rel = filepath.ToSlash(rel)
	if slices.Contains(strings.Split(strings.ToLower(rel), "/"), ".git") {
		return "", fmt.Errorf("%s belongs to git", b.path)
	}
	if strings.ContainsAny(rel, "\n\r\t\"\\") {
		return "", fmt.Errorf("%q is a name that no diff can hold", rel)
	}
	return rel, nil
}

// A file is one that edits change.
type file struct {
	path   string
	create bool
	text   string
	eol    string
	lines  []string // without their ends
	edits  []placed
}

// A placed edit knows an empty line from no line.
type placed struct {
	Edit
	with []string
}

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
	f.lines = splitLines(f.text)
	for i, l := range f.lines {
		f.lines[i] = strings.TrimRight(l, "\r\n")
	}
	return f, nil
}

// splitLines cuts a text into lines with their ends.
func splitLines(text string) []string {
	return slices.Collect(strings.Lines(text))
}

// backslashed are the ends of files in which \@ has a meaning of its own.
var backslashed = []string{".pl", ".pm", ".t", ".tex", ".sty", ".cls", ".ltx", ".dtx"}

// place finds where a block belongs in its file. In a guarded call a block may
// hold \@ where the file has, or is to have, an @.
func (f *file) place(b block, unescape func(string) string) (e Edit, err error) {
	e = Edit{Path: f.path, Create: b.create}
	if !b.create {
		err = f.find(b, &e)
	}
	old, new := strings.Join(b.old, "\n"), strings.Join(b.new, "\n")
	if unescape != nil && strings.Contains(old+new, `\@`) {
		unescaped := b
		unescaped.old, unescaped.new = unescapeAll(b.old, unescape), unescapeAll(b.new, unescape)
		switch {
		case err != nil: // the block writes each @ so, or does not fit at all
			if f.find(unescaped, &e) == nil {
				b, err = unescaped, nil
			}
		case strings.Contains(old, "@"): // it tells them apart
		case slices.Contains(backslashed, filepath.Ext(f.path)):
			err = fmt.Errorf("a block of %s holds \\@, and it cannot be told whether that is @: ask without an @ in the prompt and the files", f.path)
		default:
			b.new = unescaped.new
		}
	}
	if err != nil {
		return e, err
	}
	e.Old, e.New = strings.Join(b.old, "\n"), strings.Join(b.new, "\n")
	if b.create {
		f.edits = append(f.edits, placed{e, b.new})
		return e, nil
	}
	e.Delete = len(b.new) == 0
	for _, other := range f.edits {
		if e.StartLine <= other.EndLine && other.StartLine <= e.EndLine {
			return e, fmt.Errorf("two blocks change line %d of %s", max(e.StartLine, other.StartLine), f.path)
		}
	}
	f.edits = append(f.edits, placed{e, b.new})
	return e, nil
}

func unescapeAll(lines []string, unescape func(string) string) []string {
	out := make([]string, len(lines))
	for i, l := range lines {
		out[i] = unescape(l)
	}
	return out
}

// find sets the lines that a block replaces.
func (f *file) find(b block, e *Edit) error {
	if f.text == "" && strings.TrimSpace(strings.Join(b.old, "")) == "" && b.end <= 1 {
		return nil // all of an empty file
	}
	if b.start != 0 || b.end != 0 {
		if b.start < 1 || b.end < b.start || b.end > len(f.lines) {
			return fmt.Errorf("%s has %d lines, and a block is for lines %d to %d", f.path, len(f.lines), b.start, b.end)
		}
		old := b.old
		if len(old) == 0 {
			old = []string{""}
		}
		if !slices.Equal(f.lines[b.start-1:b.end], old) {
			return fmt.Errorf("lines %d to %d of %s are not what the block says they are", b.start, b.end, f.path)
		}
		e.StartLine, e.EndLine = b.start, b.end
		return nil
	}
	if strings.TrimSpace(strings.Join(b.old, "")) == "" {
		return fmt.Errorf("a block of %s says neither which lines nor what is in them", f.path)
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
		return fmt.Errorf("%s does not hold what a block wants to replace", f.path)
	case 1:
		return nil
	}
	return fmt.Errorf("%s holds what a block wants to replace %d times, and the block does not say which lines", f.path, found)
}

// apply is the file's text after its edits, with its line ends.
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
			// The replaced lines' own, where a file has both kinds.
			eol = lines[e.StartLine-1][len(strings.TrimRight(lines[e.StartLine-1], "\r\n")):]
		}
		var with []string
		for _, l := range e.with {
			with = append(with, l+eol)
		}
		if e.StartLine == 0 { // an empty file
			lines = with
			continue
		}
		// The last line of a file without a final line end stays one.
		if last := lines[e.EndLine-1]; !strings.HasSuffix(last, "\n") {
			if n := len(with); n > 0 {
				with[n-1] = strings.TrimSuffix(with[n-1], eol)
			}
		}
		lines = slices.Replace(lines, e.StartLine-1, e.EndLine, with...)
	}
	return strings.Join(lines, "")
}

// diff is the file's edits as a diff that git takes.
func (f *file) diff(prefix string) (string, error) {
	text := f.apply()
	if text == f.text && !f.create {
		return "", nil
	}
	return unified(prefix+f.path, f.create, f.text, text)
}

// unified is a change of a file, or a new one, as a diff that git takes.
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
