package adapter

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"pollux/internal/sys"
)

// EnvSocket names a companion's socket to the commands that are to talk to it
// and no other.
const EnvSocket = "POLLUX_SOCKET"

// SocketPath is where the companion of that process and port has its door.
func SocketPath(pid, port int) (string, error) {
	dir, err := sys.RuntimeDir()
	return filepath.Join(dir, fmt.Sprintf("%d-%d.sock", pid, port)), err
}

// Sockets lists the doors of the user's running companions. What a killed
// companion left is removed.
func Sockets() ([]string, error) {
	dir, err := sys.RuntimeDir()
	if err != nil {
		return nil, err
	}
	names, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var live []string
	for _, n := range names {
		first, _, ok := strings.Cut(n.Name(), "-")
		_, err := strconv.Atoi(first)
		if !ok || err != nil || filepath.Ext(n.Name()) != ".sock" {
			continue
		}
		path := filepath.Join(dir, n.Name())
		// Its process may be one of another container, which shares the directory.
		conn, err := net.Dial("unix", path)
		switch {
		case err == nil:
			conn.Close()
			live = append(live, path)
		case sys.Refused(err):
			os.Remove(path)
		}
	}
	return live, nil
}

// MCPPreamble, sent first on a companion's socket, makes the rest of the
// connection an MCP session on newline-delimited JSON instead of the adapter
// protocol.
const MCPPreamble = "MCP\n"
