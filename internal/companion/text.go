package companion

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"unicode/utf8"
)

// maxFile bounds the files that can be reviewed, in bytes.
const maxFile = 64 << 20

const bom = "\uFEFF"

// A file is what the disk holds when a diff is made or decided on.
type file struct {
	text    string
	exists  bool
	version string // of its bytes; "absent" where there is none
}

// readFile reads a file for review. What is no text, or no regular file, is an
// error that the CLI's user can read.
func readFile(path string) (file, error) {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return file{version: "absent"}, nil
	case err != nil:
		return file{}, fmt.Errorf("the file cannot be read: %w", err)
	case info.IsDir():
		return file{}, fmt.Errorf("%s is a directory: a diff is of one file", path)
	case !info.Mode().IsRegular():
		return file{}, fmt.Errorf("%s is not a regular file", path)
	case info.Size() > maxFile:
		return file{}, fmt.Errorf("%s is over %d MiB and too large to review", path, maxFile>>20)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return file{}, fmt.Errorf("the file cannot be read: %w", err)
	}
	if bytes.IndexByte(data, 0) >= 0 || !utf8.Valid(data) {
		return file{}, fmt.Errorf("%s is not UTF-8 text and cannot be reviewed as such", path)
	}
	sum := sha256.Sum256(data)
	return file{string(data), true, hex.EncodeToString(sum[:])}, nil
}

// eol says how a text ends its lines: lf, crlf, mixed, or "" for a text of one
// line.
func eol(text string) string {
	lf := strings.Count(text, "\n")
	switch crlf := strings.Count(text, "\r\n"); {
	case lf == 0:
		return ""
	case crlf == 0:
		return "lf"
	case crlf == lf:
		return "crlf"
	}
	return "mixed"
}

// comparableTo returns the text as it has to stand beside a proposal. The CLI
// mostly proposes LF whatever the file has and restores CRLF when it writes,
// and a model seldom writes a byte order mark: neither is a change.
func comparableTo(text, proposal string) string {
	if eol(text) == "crlf" && !strings.Contains(proposal, "\r") {
		text = strings.ReplaceAll(text, "\r\n", "\n")
	}
	if !strings.HasPrefix(proposal, bom) {
		text = strings.TrimPrefix(text, bom)
	}
	return text
}

// withBOM gives a reviewed text back the byte order mark that the file or the
// proposal has: editors take it off, and the CLI writes what it is given.
func withBOM(text string, others ...string) string {
	for _, o := range others {
		if strings.HasPrefix(o, bom) && !strings.HasPrefix(text, bom) {
			return bom + text
		}
	}
	return text
}

// restored gives a reviewed text the line ends of the file it goes to: what
// the CLI does, for when the CLI is gone.
func restored(text string, onDisk string) string {
	if eol(onDisk) == "crlf" && !strings.Contains(text, "\r") {
		text = strings.ReplaceAll(text, "\n", "\r\n")
	}
	return text
}
