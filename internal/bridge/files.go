package bridge

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"pollux/internal/bridge/change"
	"pollux/internal/paths"
)

const (
	maxFiles     = 20
	maxImage     = 5_000_000
	maxFilesText = 6 << 20 // in all, below what the CLI takes as a prompt
)

var imageTypes = []string{".png", ".jpg", ".jpeg", ".gif", ".webp", ".bmp"}

// attachments are the files of a call.
type attachments struct {
	text    string   // the text files, framed for a prompt
	images  []string // paths relative to the directory
	skipped []string // "NAME: why", for files that were left out
}

// attach reads the files that a call names.
func (c *call) attach(names []string, all bool) (attachments, error) {
	a, err := attach(c.dir, names, c.b.cfg.Agent.Escapes)
	if err == nil && all && len(a.skipped) > 0 {
		err = fmt.Errorf("%s: name files that can go along", strings.Join(a.skipped, "; "))
	}
	return a, err
}

// attach reads files. One that cannot go along is skipped with the reason.
func attach(dir string, names []string, escapes func(string) bool) (attachments, error) {
	var a attachments
	if len(names) == 0 {
		return a, nil
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return a, err
	}
	defer root.Close()
	var b strings.Builder
	for _, name := range names {
		rel, err := within(dir, name)
		if err == nil && slices.Contains(imageTypes, strings.ToLower(filepath.Ext(rel))) {
			if err = checkImage(root, rel); err == nil {
				a.images = append(a.images, rel)
				continue
			}
		} else if err == nil {
			var text string
			if text, err = change.ReadText(root, rel); err == nil && b.Len()+len(text) > maxFilesText {
				err = fmt.Errorf("the files are over %d bytes together", maxFilesText)
			}
			switch {
			case err != nil:
			case strings.Contains(text, `\@`) && escapes(text):
				// On the way through the CLI its @ and its \@ would be one.
				fmt.Fprintf(&b, "\n\nThe file %s: read it yourself, with read_file.", filepath.ToSlash(rel))
				continue
			default:
				frame(&b, filepath.ToSlash(rel), text)
				continue
			}
		}
		a.skipped = append(a.skipped, name+": "+err.Error())
	}
	a.text = b.String()
	return a, nil
}

// within is the real path of a file relative to dir, itself a real path. A
// file that lies outside of dir is an error.
func within(dir, name string) (string, error) {
	if !filepath.IsAbs(name) {
		name = filepath.Join(dir, name)
	}
	path, err := filepath.EvalSymlinks(name)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return "", errors.New("there is no such file")
		}
		return "", errors.New("it cannot be read")
	}
	rel, ok := paths.Rel(dir, path)
	if !ok {
		return "", fmt.Errorf("it is outside of %s", dir)
	}
	return rel, nil
}

func checkImage(root *os.Root, rel string) error {
	if strings.ContainsAny(rel, "\r\n\"") {
		return errors.New("its name has a line break or a quote, which Gemini CLI does not take")
	}
	f, err := change.Open(root, rel, maxImage)
	if err == nil {
		f.Close()
	}
	return err
}

// frame writes a file into a prompt, in a fence longer than any in it.
func frame(b *strings.Builder, name, text string) {
	fence := "```"
	for strings.Contains(text, fence) {
		fence += "`"
	}
	if text != "" && !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	fmt.Fprintf(b, "\n\nThe file %s:\n%s\n%s%s", name, fence, text, fence)
}
