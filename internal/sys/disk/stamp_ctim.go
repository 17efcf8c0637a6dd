//go:build linux || dragonfly || openbsd

package disk

import (
	"io/fs"
	"syscall"
)

func stamp(info fs.FileInfo) (changed int64, id uint64) {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, 0
	}
	return st.Ctim.Nano(), uint64(st.Ino)
}
