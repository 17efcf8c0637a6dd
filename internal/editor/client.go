package editor

import (
	"context"
	"io"

	"pollux/internal/jsonrpc"
)

// A Handler handles the messages of a companion. The client ignores messages
// whose function is nil. The functions run one at a time in the order of
// arrival, so none may wait for a later message.
type Handler struct {
	// DiffOpen shows a diff, or returns an error if it cannot.
	DiffOpen func(Diff) error
	// DiffClose closes a view and returns its text, or nil if it has none.
	DiffClose   func(DiffClose) *string
	DiffChanged func(DiffChange)
	Clients     func(Clients)
	Env         func(Env)
	Message     func(Message)
	FileChanged func(FileChanged)
	Outside     func(Outside)
	// Diagnostics returns what the client knows; see InitializeParams.Diagnostics.
	Diagnostics func(DiagnosticsParams) DiagnosticsResult
}

// A Client is the client side of the protocol.
type Client struct {
	conn *jsonrpc.Conn
}

// NewClient returns a client that talks to a companion over conn until
// [Client.Close].
func NewClient(conn io.ReadWriteCloser, h Handler) *Client {
	return &Client{jsonrpc.NewConn(context.Background(), jsonrpc.NewLines(conn, MaxMessage), jsonrpc.HandlerWithError(h.handle))}
}

func (h Handler) handle(_ *jsonrpc.Conn, req *jsonrpc.Request) (any, error) {
	switch req.Method {
	case MethodDiffOpen:
		return struct{}{}, received(req, h.DiffOpen)
	case MethodDiffClose:
		var res DiffCloseResult
		err := received(req, func(d DiffClose) error {
			if h.DiffClose != nil {
				res.Content = h.DiffClose(d)
			}
			return nil
		})
		return res, err
	case MethodDiffChanged:
		return nil, received(req, always(h.DiffChanged))
	case MethodClients:
		return nil, received(req, always(h.Clients))
	case MethodEnv:
		return nil, received(req, always(h.Env))
	case MethodMessage:
		return nil, received(req, always(h.Message))
	case MethodFileChanged:
		return nil, received(req, always(h.FileChanged))
	case MethodOutside:
		return nil, received(req, always(h.Outside))
	case MethodDiagnostics:
		res := DiagnosticsResult{Files: []FileDiagnostics{}}
		err := received(req, func(p DiagnosticsParams) error {
			if h.Diagnostics != nil {
				res = h.Diagnostics(p)
			}
			return nil
		})
		return res, err
	}
	return nil, &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound, Message: "unknown method " + req.Method}
}

func always[T any](f func(T)) func(T) error {
	if f == nil {
		return nil
	}
	return func(v T) error { f(v); return nil }
}

func received[T any](req *jsonrpc.Request, f func(T) error) error {
	v, err := Params[T](req)
	if err != nil || f == nil {
		return err
	}
	return f(v)
}

// Params decodes a request's parameters.
func Params[T any](req *jsonrpc.Request) (T, error) {
	var v T
	if req.Params == nil {
		return v, nil
	}
	if err := jsonrpc.Decode(req.Params, &v); err != nil {
		return v, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: req.Method + ": " + err.Error()}
	}
	return v, nil
}

// Call calls a method; result may be nil.
func (c *Client) Call(ctx context.Context, method string, params, result any) error {
	return c.conn.Call(ctx, method, params, result)
}

// Notify sends a notification.
func (c *Client) Notify(method string, params any) error {
	return c.conn.Notify(method, params)
}

// Initialize introduces the client.
func (c *Client) Initialize(ctx context.Context, p InitializeParams) (res InitializeResult, err error) {
	p.Protocol = ProtocolVersion
	return res, c.Call(ctx, MethodInitialize, p, &res)
}

// Update sends what the editor has open.
func (c *Client) Update(s Snapshot) error {
	return c.Notify(MethodContextUpdate, s)
}

// DiagnosticsChanged announces that the diagnostics of files may have changed.
func (c *Client) DiagnosticsChanged(paths ...string) error {
	return c.Notify(MethodDiagnosticsChanged, DiagnosticsChanged{paths})
}

// FileSaved announces that the user saved a file in the editor.
func (c *Client) FileSaved(path string) error {
	return c.Notify(MethodFileSaved, FilePath{path})
}

// Edit sends the text of a diff that the user is editing.
func (c *Client) Edit(id, content string) error {
	return c.Notify(MethodDiffEdit, DiffChange{ID: id, Content: &content})
}

// Accept accepts a diff. The status of the result says whether the agent was
// notified.
func (c *Client) Accept(ctx context.Context, a DiffAccept) (res DiffAcceptResult, err error) {
	return res, c.Call(ctx, MethodDiffAccept, a, &res)
}

// Reject rejects a diff, or discards an orphaned one.
func (c *Client) Reject(ctx context.Context, id string) error {
	return c.Call(ctx, MethodDiffReject, DiffID{id}, nil)
}

// Diffs returns the open diffs.
func (c *Client) Diffs(ctx context.Context) ([]Diff, error) {
	var res DiffList
	return res.Diffs, c.Call(ctx, MethodDiffList, nil, &res)
}

// Save writes the text of an orphaned diff to its file. The result is as for
// Accept.
func (c *Client) Save(ctx context.Context, a DiffAccept) (res DiffAcceptResult, err error) {
	return res, c.Call(ctx, MethodDiffSave, a, &res)
}

// OpenOutside asks for a change outside Pollux, which arrives as a [Diff].
func (c *Client) OpenOutside(ctx context.Context, path string) error {
	return c.Call(ctx, MethodOutsideOpen, FilePath{path}, nil)
}

// Status returns the state of the companion.
func (c *Client) Status(ctx context.Context) (res Status, err error) {
	return res, c.Call(ctx, MethodStatus, nil, &res)
}

// Done returns a channel that is closed when the connection has ended.
func (c *Client) Done() <-chan struct{} { return c.conn.DisconnectNotify() }

// Close ends the connection.
func (c *Client) Close() error { return c.conn.Close() }
