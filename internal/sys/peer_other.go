//go:build !linux

package sys

import (
	"io/fs"
	"net"
	"net/netip"
)

const knowsPeers = false

func trustedPeer(net.Conn, fs.FileInfo) bool { return true }

func peerProcess(_, _ netip.AddrPort) int { return 0 }

func workingDir(int) string { return "" }
