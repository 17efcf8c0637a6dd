package editor

import (
	"io"

	"pollux/internal/jsonrpc"
)

// MaxMessage limits the size of a message in bytes. It has room for the largest
// proposal that an agent may send, the original text, and JSON escapes.
const MaxMessage = 256 << 20

// NewStream returns a stream of the editor protocol that learns the framing from its peer.
func NewStream(conn io.ReadWriteCloser) *jsonrpc.Framed { return jsonrpc.NewFramed(conn, MaxMessage) }
