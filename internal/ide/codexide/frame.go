package codexide

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

const (
	// maxRequest bounds a frame from an agent, in bytes. A request has one path.
	maxRequest = 64 << 10
	// maxAnswer bounds a frame from another companion, in bytes: a selection, which
	// JSON may make six times as long, and paths.
	maxAnswer = 4 << 20
)

var errFrameTooLong = errors.New("the frame is too long")

// readFrame reads one frame: the length as 32 bits, the lowest byte first, and that many
// bytes of JSON. The error is [io.EOF] only before the first byte.
func readFrame(r io.Reader, limit uint32) ([]byte, error) {
	var header [4]byte
	if _, err := io.ReadFull(r, header[:]); err != nil {
		return nil, err
	}
	size := binary.LittleEndian.Uint32(header[:])
	if size > limit {
		return nil, fmt.Errorf("%w: %d bytes", errFrameTooLong, size)
	}
	data := make([]byte, size)
	if _, err := io.ReadFull(r, data); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return nil, err
	}
	return data, nil
}

// writeFrame writes a message as one frame.
func writeFrame(w io.Writer, message any) error {
	data, err := json.Marshal(message)
	if err != nil {
		return err
	}
	frame := binary.LittleEndian.AppendUint32(make([]byte, 0, 4+len(data)), uint32(len(data)))
	_, err = w.Write(append(frame, data...))
	return err
}
