package doctor

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"pollux/internal/sys/disk"
)

// Free space on a disk, in bytes. Below lowSpace, writing a large change to the
// journal may fail; below noSpace, everything fails.
const lowSpace, noSpace = 64 << 20, 1 << 20

// A Directory is a directory that must be writable, and what is kept there.
type Directory struct{ Holds, Path string }

// Disk checks for free space wherever Pollux writes, and in more directories, once.
func Disk(c *Checker, more ...Directory) {
	if c.Reported("disk") {
		return
	}
	state, err := disk.StateDir()
	if err != nil {
		c.Fail("disk", "set "+disk.DataVar+" or POLLUX_STATE_DIR", "there is no directory for the journal: %v", err)
		return
	}
	runtime, err := disk.RuntimeDir()
	if err != nil {
		c.Fail("disk", "set "+disk.TempVars+" to a directory you own",
			"there is no directory for the companions' sockets: %v", err)
		return
	}
	bad := false
	all := append([]Directory{{"the journal", state}, {"sockets", runtime}, {"temporary files", os.TempDir()}}, more...)
	for _, d := range all {
		dir := existing(d.Path)
		free, err := disk.FreeSpace(dir)
		writeErr := writable(dir)
		switch {
		case err == nil && free < noSpace:
			c.Fail("disk", "free some space there", "%s, which holds %s, is full", dir, d.Holds)
		case writeErr != nil:
			c.Fail("disk", "make it writable for you",
				"%s, which holds %s, is not writable: %v", dir, d.Holds, Reason(writeErr))
		case err == nil && free < lowSpace:
			c.Warn("disk", "free some space there", "%s, which holds %s, has only %d MiB left", dir, d.Holds, free>>20)
		default:
			continue
		}
		bad = true
	}
	if !bad {
		c.OK("disk", "there is enough space for the journal, sockets and temporary files")
	}
}

// existing returns the directory, or its nearest parent that exists.
func existing(dir string) string {
	for {
		if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) || dir == filepath.Dir(dir) {
			return dir
		}
		dir = filepath.Dir(dir)
	}
}

// writable returns an error if no file can be written in the directory.
func writable(dir string) error {
	f, err := os.OpenFile(filepath.Join(dir, disk.TempName()), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(make([]byte, 4096))
	return errors.Join(err, f.Close(), os.Remove(f.Name()))
}
