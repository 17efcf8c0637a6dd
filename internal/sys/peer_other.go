//go:build !linux

package sys

import (
	"io/fs"
	"net"
)

func trustedPeer(net.Conn, fs.FileInfo) bool { return true }
