// Package remote brings a CLI together with a companion that it cannot dial: in
// a container and on its host, on two machines, in WSL and Windows.
//
// The CLI's stdio transport (companion-spec I.1; the real CLI takes a command
// from the discovery file) is carried to the companion's door, over a unix
// socket or by a command such as ssh, and the paths in it are put from one
// side's names into the other's. Everything else goes through as it is.
package remote

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"sync"
	"sync/atomic"

	"pollux/internal/editor"
	"pollux/internal/ide/geminiide"
)

// ErrTooLong is the end of a relay in which a line had no end.
var ErrTooLong = errors.New("a message is too long")

// ErrSilent is the end of a relay in which the companion's side said nothing.
var ErrSilent = errors.New("no companion has answered there")

// Relay carries messages of MCP, one on each line, between a CLI and the door
// of a companion until either side ends, and closes both. The error is that of
// the side that ended first; nil at its end of file, or [ErrSilent].
func Relay(cli, door io.ReadWriteCloser, paths Paths) error {
	answered := &answers{ReadWriteCloser: door}
	door = answered
	t := &translator{paths: paths, open: make(map[string]string)}
	type end struct {
		ofDoor bool
		err    error
	}
	ended := make(chan end, 2)
	go func() { ended <- end{false, carry(door, cli, t.toThere)} }()
	go func() { ended <- end{true, carry(cli, door, t.toHere)} }()
	first := <-ended
	door.Close()
	cli.Close()
	<-ended
	if first.ofDoor && first.err == nil && !answered.any.Load() {
		return ErrSilent
	}
	return first.err
}

// answers are a connection on which is noticed whether anything came.
type answers struct {
	io.ReadWriteCloser
	any atomic.Bool
}

func (a *answers) Read(b []byte) (int, error) {
	n, err := a.ReadWriteCloser.Read(b)
	if n > 0 {
		a.any.Store(true)
	}
	return n, err
}

func carry(to io.Writer, from io.Reader, translate func([]byte) []byte) error {
	r := bufio.NewReaderSize(from, 64<<10)
	for {
		line, err := readLine(r)
		if len(line) > 0 {
			if _, err := to.Write(translate(line)); err != nil {
				return err
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func readLine(r *bufio.Reader) (line []byte, err error) {
	for {
		part, err := r.ReadSlice('\n')
		line = append(line, part...)
		if len(line) > editor.MaxMessage {
			return nil, ErrTooLong
		}
		if err != bufio.ErrBufferFull {
			return line, err
		}
	}
}

// A translator knows both sides' names.
type translator struct {
	paths Paths

	mu sync.Mutex
	// open are the paths of the diffs that were opened, by their names there:
	// a path must come back to the CLI byte for byte.
	open map[string]string
}

// toThere translates what the CLI sends: the paths of its tools' calls. A path
// that no pair holds is left as it is: the user can still see the change.
func (t *translator) toThere(line []byte) []byte {
	if len(t.paths) == 0 || !bytes.Contains(line, []byte("filePath")) {
		return line
	}
	return rewrite(line, func(method string, params object) bool {
		args, ok := params.object("arguments")
		path, isPath := args.text("filePath")
		if method != "tools/call" || !ok || !isPath {
			return false
		}
		there, ok := t.paths.ToThere(path)
		if !ok {
			there = path
		}
		t.mu.Lock()
		t.open[there] = path
		t.mu.Unlock()
		args.set("filePath", there)
		params.set("arguments", args)
		return true
	})
}

// toHere translates what the companion sends: the paths of its notifications.
// A file that is not here is left out of the context.
func (t *translator) toHere(line []byte) []byte {
	if len(t.paths) == 0 || !bytes.Contains(line, []byte(`"ide/`)) {
		return line
	}
	return rewrite(line, func(method string, params object) bool {
		switch method {
		case geminiide.MethodDiffAccepted, geminiide.MethodDiffRejected:
			path, ok := params.text("filePath")
			if !ok {
				return false
			}
			t.mu.Lock()
			here, known := t.open[path]
			t.mu.Unlock()
			if !known {
				if here, known = t.paths.ToHere(path); !known {
					return false
				}
			}
			params.set("filePath", here)
		case geminiide.MethodContextUpdate:
			state, ok := params.object("workspaceState")
			var files []object
			if !ok || json.Unmarshal(state["openFiles"], &files) != nil {
				return false
			}
			kept := []object{}
			for _, f := range files {
				path, _ := f.text("path")
				if here, ok := t.paths.ToHere(path); ok {
					f.set("path", here)
					kept = append(kept, f)
				}
			}
			state.set("openFiles", kept)
			params.set("workspaceState", state)
		default:
			return false
		}
		return true
	})
}

// An object is JSON of which only some fields are looked at; the others stay
// byte for byte.
type object map[string]json.RawMessage

func (o object) text(key string) (s string, ok bool) {
	return s, json.Unmarshal(o[key], &s) == nil && o[key] != nil
}

func (o object) object(key string) (v object, ok bool) {
	return v, json.Unmarshal(o[key], &v) == nil && v != nil
}

func (o object) set(key string, v any) { o[key] = encode(v) }

func encode(v any) []byte {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		panic(err) // strings and what was JSON
	}
	return bytes.TrimRight(b.Bytes(), "\n")
}

// rewrite changes the params of a message where change says that it did.
func rewrite(line []byte, change func(method string, params object) bool) []byte {
	var message object
	if json.Unmarshal(line, &message) != nil {
		return line
	}
	method, _ := message.text("method")
	params, ok := message.object("params")
	if !ok || !change(method, params) {
		return line
	}
	message.set("params", params)
	return append(encode(message), '\n')
}
