package editor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"

	"pollux/internal/sys"
)

// EnvSocket names a companion's socket to the commands that are to talk to it
// and no other.
const EnvSocket = "POLLUX_SOCKET"

// EnvNames are the variables that a companion sets for the CLIs it leads to
// itself. Others in the environment that one sends are ignored.
var EnvNames = []string{
	EnvSocket,
	"GEMINI_CLI_IDE_SERVER_PORT", "GEMINI_CLI_IDE_WORKSPACE_PATH", "GEMINI_CLI_IDE_AUTH_TOKEN", "GEMINI_CLI_IDE_PID",
	"GEMINI_CLI_IDE_SERVER_STDIO_COMMAND", "GEMINI_CLI_IDE_SERVER_STDIO_ARGS",
	"QWEN_CODE_IDE_SERVER_PORT", "QWEN_CODE_IDE_WORKSPACE_PATH",
	"QWEN_CODE_IDE_SERVER_STDIO_COMMAND", "QWEN_CODE_IDE_SERVER_STDIO_ARGS",
	"REMOTE_CONTAINERS",
}

// KnownEnv returns the variables of env that are among [EnvNames].
func KnownEnv(env map[string]string) map[string]string {
	known := make(map[string]string)
	for _, name := range EnvNames {
		if v, ok := env[name]; ok {
			known[name] = v
		}
	}
	return known
}

// ErrForeign means that a socket belongs to another user.
var ErrForeign = errors.New("belongs to another user: use a socket in a directory of your own")

// Dial connects to a companion's socket. It refuses with [ErrForeign] one that
// another user may have put there: the socket must be the user's own or root's,
// or in a directory in which only its owner can make one, as one is that was
// mounted into a container.
func Dial(ctx context.Context, path string) (net.Conn, error) {
	var info fs.FileInfo
	if target, err := filepath.EvalSymlinks(path); err == nil { // else it cannot be dialled either
		if info, err = os.Stat(target); err != nil {
			return nil, err
		}
		dir, err := os.Stat(filepath.Dir(target))
		if err != nil {
			return nil, err
		}
		if !sys.Own(info) && !sys.Administered(info) && (!sys.SameOwner(info, dir) || dir.Mode().Perm()&0o022 != 0) {
			return nil, fmt.Errorf("%s %w", path, ErrForeign)
		}
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", path)
	if err != nil {
		return nil, err
	}
	if info != nil && !sys.TrustedPeer(conn, info) {
		conn.Close()
		return nil, fmt.Errorf("%s %w", path, ErrForeign)
	}
	return conn, nil
}

// SocketPath returns the path of the socket of the companion with that process
// and port.
func SocketPath(pid, port int) (string, error) {
	dir, err := sys.RuntimeDir()
	return filepath.Join(dir, fmt.Sprintf("%d-%d.sock", pid, port)), err
}

// leftSockets are the sockets of killed companions.
var leftSockets = sys.Leftovers{Pattern: "[0-9]*-*.sock", Type: fs.ModeSocket, Abandoned: sys.RefusesConnections}

// Sockets lists the sockets of the user's running companions. It removes what
// killed companions left behind.
func Sockets() ([]string, error) {
	dir, err := sys.RuntimeDir()
	if err != nil {
		return nil, err
	}
	leftSockets.Remove(dir)
	entries, err := os.ReadDir(dir)
	var sockets []string
	for _, e := range entries {
		if ok, _ := filepath.Match(leftSockets.Pattern, e.Name()); ok && e.Type() == leftSockets.Type {
			sockets = append(sockets, filepath.Join(dir, e.Name()))
		}
	}
	return sockets, err
}

// MCPPreamble, sent first on a companion's socket, makes the rest of the
// connection an MCP session on newline-delimited JSON instead of the adapter
// protocol.
const MCPPreamble = "MCP\n"
