//go:build unix

package disk

import "golang.org/x/sys/unix"

func (d Dir) lstat(name string) (FileState, error) {
	var st unix.Stat_t
	err := error(unix.EINTR)
	for err == unix.EINTR {
		err = unix.Fstatat(int(d.file.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW)
	}
	if err != nil {
		return FileState{}, err
	}
	return FileState{
		IsDir: st.Mode&unix.S_IFMT == unix.S_IFDIR, Mode: uint32(st.Mode), Size: st.Size,
		Modified: st.Mtim.Nano(), Changed: st.Ctim.Nano(), ID: st.Ino,
	}, nil
}
