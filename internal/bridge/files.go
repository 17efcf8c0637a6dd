package bridge

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"pollux/internal/agent"
	"pollux/internal/bridge/change"
	"pollux/internal/paths"
)

const (
	maxFiles     = 20
	maxImage     = 5_000_000
	maxFilesText = 6 << 20 // for all files together; below the agents' limits of prompts
)

var imageTypes = []string{".png", ".jpg", ".jpeg", ".gif", ".webp", ".bmp"}

// attachments are the files of a call.
type attachments struct {
	text    string   // the text files, formatted for the prompt
	images  []string // paths relative to the directory
	skipped []string // "NAME: reason", for files that were left out
}

// attach reads the files that a call names. With all, a file that cannot be
// attached is an error.
func (c *call) attach(names []string, all bool) (attachments, error) {
	a, err := attach(c.dir, names, c.agent.Agent)
	if err == nil && all && len(a.skipped) > 0 {
		err = InputError{fmt.Errorf("%s: attach UTF-8 text or image files from this directory", strings.Join(a.skipped, "; "))}
	}
	return a, err
}

// attach reads files below dir. It skips a file that cannot be attached, and
// returns the reason.
func attach(dir string, names []string, row *agent.Agent) (attachments, error) {
	var a attachments
	if len(names) == 0 {
		return a, nil
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return a, err
	}
	defer root.Close()
	for _, name := range names {
		if err := a.add(root, dir, name, row); err != nil {
			a.skipped = append(a.skipped, name+": "+err.Error())
		}
	}
	return a, nil
}

// add attaches one file.
func (a *attachments) add(root *os.Root, dir, name string, row *agent.Agent) error {
	rel, err := within(dir, name)
	if err != nil {
		return err
	}
	if slices.Contains(imageTypes, strings.ToLower(filepath.Ext(rel))) {
		if err := checkImage(root, rel); err != nil {
			return err
		}
		a.images = append(a.images, rel)
		return nil
	}
	text, err := change.ReadText(root, rel)
	switch {
	case err != nil:
		return err
	case len(a.text)+len(text) > maxFilesText:
		return fmt.Errorf("the files together exceed %d bytes", maxFilesText)
	case ambiguous(row, text):
		a.text += fmt.Sprintf("\n\nThe file %s is not included: read it with your tools.", filepath.ToSlash(rel))
	default:
		a.text += frame(filepath.ToSlash(rel), text)
	}
	return nil
}

// ambiguous reports whether escaping makes a text ambiguous, because parts of it
// already look escaped.
func ambiguous(row *agent.Agent, text string) bool {
	return row.Escaped(text) && row.Unescape(text) != text
}

// within returns the real path of a file relative to dir, which must be a real
// path. A file outside dir is an error.
func within(dir, name string) (string, error) {
	if !filepath.IsAbs(name) {
		name = filepath.Join(dir, name)
	}
	outside := fmt.Errorf("it is outside %s", dir)
	if paths.OnOtherServer([]string{dir}, name) {
		return "", outside
	}
	path, err := paths.Existing(name)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return "", errors.New("there is no such file")
		}
		return "", errors.New("it cannot be read")
	}
	rel, ok := paths.Rel(dir, path)
	if !ok {
		return "", outside
	}
	return rel, nil
}

func checkImage(root *os.Root, rel string) error {
	if strings.ContainsAny(rel, "\r\n\"") {
		return errors.New("its name contains a line break or a quote")
	}
	f, err := change.Open(root, rel, maxImage)
	if err == nil {
		f.Close()
	}
	return err
}

// frame returns a file for a prompt. The fence around it is longer than any in the file.
func frame(name, text string) string {
	fence := "```"
	for strings.Contains(text, fence) {
		fence += "`"
	}
	if text != "" && !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	return fmt.Sprintf("\n\nThe file %s:\n%s\n%s%s", name, fence, text, fence)
}
