package geminiide

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"sync"

	"pollux/internal/ide/geminiide/client"
)

// Remote translates this protocol for package remote.
type Remote struct{}

// Greet introduces this program on a connection to a companion, and returns the title
// of its editor and the roots of its workspace. Only Pollux companions report their
// roots.
func (Remote) Greet(ctx context.Context, conn io.ReadWriter) (title string, roots []string, err error) {
	stream := struct {
		io.ReadWriter
		io.Closer
	}{conn, io.NopCloser(nil)}
	there, err := client.GreetStream(ctx, stream, "pollux-connect")
	if err != nil {
		return "", nil, err
	}
	var capability struct {
		Roots []string `json:"roots"`
	}
	json.Unmarshal(there.Experimental[RootsCapability], &capability)
	return there.Title, capability.Roots, nil
}

// Translate returns functions that translate the paths in the messages of one
// connection. toThere and toHere translate one path.
func (Remote) Translate(
	toThere, toHere func(path string) (string, bool),
) (outgoing, incoming func(line []byte) []byte) {
	t := &translator{toThere: toThere, toHere: toHere, open: make(map[string]string)}
	return t.outgoing, t.incoming
}

// A translator translates the paths on one connection.
type translator struct {
	toThere, toHere func(path string) (string, bool)

	mu sync.Mutex
	// open holds the paths of the diffs that the CLI has opened, by their names on
	// the companion's side: the CLI must get back the same bytes.
	open map[string]string
}

// outgoing translates the paths in the tool calls on a line from the CLI. A path
// without a name there stays, so that the user can still see the change.
func (t *translator) outgoing(line []byte) []byte {
	if !bytes.Contains(line, []byte("filePath")) {
		return line
	}
	return rewrite(line, func(method string, params object) bool {
		args, ok := params.object("arguments")
		path, isPath := args.text("filePath")
		if method != "tools/call" || !ok || !isPath {
			return false
		}
		there, ok := t.toThere(path)
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

// incoming translates the paths in the notifications on a line from the companion. It
// removes files without a name here from the context.
func (t *translator) incoming(line []byte) []byte {
	if !bytes.Contains(line, []byte(`"ide/`)) {
		return line
	}
	return rewrite(line, func(method string, params object) bool {
		switch method {
		case MethodDiffAccepted, MethodDiffRejected:
			return t.translateAnswer(params)
		case MethodContextUpdate:
			return t.translateContext(params)
		}
		return false
	})
}

func (t *translator) translateAnswer(params object) bool {
	path, ok := params.text("filePath")
	if !ok {
		return false
	}
	t.mu.Lock()
	here, known := t.open[path]
	t.mu.Unlock()
	if !known {
		if here, known = t.toHere(path); !known {
			return false
		}
	}
	params.set("filePath", here)
	return true
}

func (t *translator) translateContext(params object) bool {
	state, ok := params.object("workspaceState")
	var files []object
	if !ok || json.Unmarshal(state["openFiles"], &files) != nil {
		return false
	}
	kept := []object{}
	for _, f := range files {
		path, _ := f.text("path")
		if here, ok := t.toHere(path); ok {
			f.set("path", here)
			kept = append(kept, f)
		}
	}
	state.set("openFiles", kept)
	params.set("workspaceState", state)
	return true
}

// An object is a JSON object. Fields that are not set keep their bytes.
type object map[string]json.RawMessage

func (o object) text(key string) (s string, ok bool) {
	return s, json.Unmarshal(o[key], &s) == nil && o[key] != nil
}

func (o object) object(key string) (v object, ok bool) {
	return v, json.Unmarshal(o[key], &v) == nil && v != nil
}

func (o object) set(key string, v any) { o[key] = encode(v) }

// rewrite returns a message with its params as modified by change, or the message as
// it is if change reports false.
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
