//go:build unix

package disk

import (
	"io/fs"
	"os"
	"syscall"
)

func own(_ string, info fs.FileInfo) bool { return OwnedBy(info, os.Getuid()) }

// OwnedBy reports whether a file belongs to the user with that number.
func OwnedBy(info fs.FileInfo, uid int) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(st.Uid) == uid
}

func sameOwner(_ string, a fs.FileInfo, _ string, b fs.FileInfo) bool {
	x, ok := a.Sys().(*syscall.Stat_t)
	y, ok2 := b.Sys().(*syscall.Stat_t)
	return ok && ok2 && x.Uid == y.Uid
}

func administered(_ string, info fs.FileInfo) bool {
	return OwnedBy(info, 0) && !othersWrite("", info)
}

func private(_ string, info fs.FileInfo) bool { return info.Mode().Perm()&0o077 == 0 }

func othersWrite(_ string, info fs.FileInfo) bool { return info.Mode().Perm()&0o022 != 0 }

func denyWrites(path string, info fs.FileInfo) error {
	return os.Chmod(path, info.Mode().Perm()&^0o022)
}

func narrow(path string) error {
	fd, err := syscall.Open(path, syscall.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK|syscall.O_CLOEXEC, 0)
	if err != nil {
		return &fs.PathError{Op: "open", Path: path, Err: err}
	}
	f := os.NewFile(uintptr(fd), path)
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if !own(path, info) || !info.IsDir() && !info.Mode().IsRegular() {
		return &fs.PathError{Op: "chmod", Path: path, Err: fs.ErrPermission}
	}
	return f.Chmod(info.Mode().Perm() &^ 0o077)
}

func mkdirAllPrivate(dir string) error { return os.MkdirAll(dir, 0o700) }

// makePrivate gives a directory mode 0700.
func makePrivate(dir string, info fs.FileInfo) error {
	if info.Mode().Perm() == 0o700 {
		return nil
	}
	return os.Chmod(dir, 0o700)
}

func mkdirTemp(dir, pattern string) (string, error) { return os.MkdirTemp(dir, pattern) }

func createPrivate(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
}

// privateTemp does nothing: a new file has its mode already.
func privateTemp(string) error { return nil }

// keepOwner gives f the owner and group of the file that f will replace.
func keepOwner(f *os.File, _, _ string, info fs.FileInfo) error {
	now, err := f.Stat()
	if err != nil {
		return err
	}
	was, ok := info.Sys().(*syscall.Stat_t)
	is, ok2 := now.Sys().(*syscall.Stat_t)
	if !ok || !ok2 || was.Uid == is.Uid && was.Gid == is.Gid {
		return nil
	}
	return f.Chown(int(was.Uid), int(was.Gid))
}
