package sys

import (
	"os"
	"path/filepath"
)

func (d Dir) lstat(name string) (FileState, error) {
	info, err := os.Lstat(filepath.Join(d.file.Name(), filepath.FromSlash(name)))
	if err != nil {
		return FileState{}, err
	}
	s := FileState{IsDir: info.IsDir(), Mode: uint32(info.Mode()), Size: info.Size(), Modified: info.ModTime().UnixNano()}
	s.Changed, s.ID = Stamp(info)
	return s, nil
}
