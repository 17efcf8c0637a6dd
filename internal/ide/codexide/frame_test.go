package codexide

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"testing"
)

func FuzzReadFrame(f *testing.F) {
	f.Add([]byte("\x02\x00\x00\x00{}"))
	f.Add([]byte("\x02\x00\x00\x00{"))
	f.Add([]byte("\xff\xff\xff\xff"))
	f.Add([]byte("\x01\x00"))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, data []byte) {
		const limit = 64
		r := bytes.NewReader(data)
		got, err := readFrame(r, limit)
		read := data[:len(data)-r.Len()]
		switch {
		case errors.Is(err, io.EOF):
			if len(data) > 0 {
				t.Errorf("%q: %v", data, err)
			}
		case errors.Is(err, io.ErrUnexpectedEOF):
			if len(read) != len(data) {
				t.Errorf("%q: %v after %q", data, err, read)
			}
		case errors.Is(err, errFrameTooLong):
			if binary.LittleEndian.Uint32(data) <= limit || len(read) != 4 {
				t.Errorf("%q: %v after %q", data, err, read)
			}
		case err != nil:
			t.Errorf("%q: %v", data, err)
		default:
			if want := data[4:][:binary.LittleEndian.Uint32(data)]; !bytes.Equal(got, want) {
				t.Errorf("%q: the frame is %q, want %q", data, got, want)
			}
		}
	})
}

func TestWriteFrame(t *testing.T) {
	var b bytes.Buffer
	if err := writeFrame(&b, map[string]int{"a": 1}); err != nil || b.String() != "\x07\x00\x00\x00"+`{"a":1}` {
		t.Errorf("%q, %v", b.String(), err)
	}
	if got, err := readFrame(&b, maxRequest); err != nil || string(got) != `{"a":1}` {
		t.Errorf("%q, %v", got, err)
	}
}
