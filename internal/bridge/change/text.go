package change

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"unicode/utf8"

	"pollux/internal/sys/disk"
)

// MaxFile is the size limit of a text file, in bytes.
const MaxFile = 1_000_000

// Open opens a regular file of at most limit bytes. Its errors are for users and
// models. They call the file "it".
func Open(root *os.Root, rel string, limit int64) (*os.File, error) {
	f, err := root.OpenFile(rel, os.O_RDONLY|disk.NonBlock, 0) // do not block on a FIFO
	if err != nil {
		return nil, errors.New("it cannot be read")
	}
	info, err := f.Stat()
	switch {
	case err != nil:
		err = errors.New("it cannot be read")
	case !info.Mode().IsRegular():
		err = errors.New("it is not a regular file")
	case info.Size() > limit:
		err = fmt.Errorf("it has %d bytes, over the limit of %d", info.Size(), limit)
	default:
		return f, nil
	}
	f.Close()
	return nil, err
}

// ReadText returns the text of a file of at most [MaxFile] bytes. Like [Open], it returns
// errors for users and models.
func ReadText(root *os.Root, rel string) (string, error) {
	f, err := Open(root, rel, MaxFile)
	if err != nil {
		return "", err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, MaxFile))
	switch {
	case err != nil:
		return "", errors.New("it cannot be read")
	case bytes.IndexByte(data, 0) >= 0 || !utf8.Valid(data):
		return "", errors.New("it is not UTF-8 text")
	}
	return string(data), nil
}
