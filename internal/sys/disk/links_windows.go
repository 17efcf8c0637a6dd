package disk

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/windows"
)

func evalSymlinks(path string) (string, error) {
	actual, err := filepath.EvalSymlinks(path)
	if err == nil {
		// Only its last name can be a junction.
		if info, err := os.Lstat(actual); err != nil || info.Mode()&fs.ModeIrregular == 0 {
			return actual, err
		}
	} else if !errors.Is(err, syscall.ENOTDIR) { // which a junction is
		return "", err
	}
	if !filepath.IsAbs(path) {
		return actual, err
	}
	w := linkWalk{target: linkTo, name: diskName}
	actual, err = w.real(path)
	if volume := filepath.VolumeName(actual); len(volume) == len("C:") {
		actual = strings.ToUpper(volume) + actual[len(volume):]
	}
	return actual, err
}

// linkTo returns where a symbolic link or a junction leads. A volume that is mounted in a
// directory has no other path.
func linkTo(path string) (string, error) {
	info, err := os.Lstat(path)
	if err != nil || info.Mode()&(fs.ModeSymlink|fs.ModeIrregular) == 0 {
		return "", err
	}
	to, err := os.Readlink(path)
	switch {
	case info.Mode()&fs.ModeSymlink != 0:
		return to, err
	case err != nil, strings.HasPrefix(to, `\\?\`): // another kind of file, or a volume
		return "", nil
	}
	return to, nil
}

func diskName(path string) (string, error) {
	pattern, err := windows.UTF16PtrFromString(path)
	if err != nil {
		return "", &fs.PathError{Op: "find", Path: path, Err: err}
	}
	var found windows.Win32finddata
	h, err := windows.FindFirstFile(pattern, &found)
	if err != nil {
		return "", &fs.PathError{Op: "find", Path: path, Err: err}
	}
	windows.FindClose(h)
	return windows.UTF16ToString(found.FileName[:]), nil
}
