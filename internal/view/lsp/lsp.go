// Package lsp presents a companion as a language server, for editors that have a
// language client but no Pollux plugin. It is a client of the editor protocol on one
// side and speaks the Language Server Protocol on the other.
//
// It infers the context from the editor's requests: which files are open; the cursor,
// from any request about a position; the selection, from a request for code actions. It
// offers diffs in a message with actions, and as code actions. It never sends
// workspace/applyEdit, because editors apply that without asking. docs/EDITORS.md lists
// what each editor supports.
package lsp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf16"

	"github.com/charmbracelet/x/ansi"

	"pollux/internal/editor"
	"pollux/internal/jsonrpc"
	"pollux/internal/lazy"
	"pollux/internal/paths"
	"pollux/internal/termtext"
)

// A Config says how to serve.
type Config struct {
	// Dial connects to a companion that the client's initialize starts.
	Dial    func(editor.Handler) *editor.Client
	Version string
	// OpenBrowser opens a page if the editor cannot. It reports whether there is a
	// browser.
	OpenBrowser func(url string) bool
}

// Serve serves an editor until it sends exit, closes the connection, or the context
// ends. Then one context ends everything: Serve cancels it, closes both connections, and
// waits for every goroutine.
func Serve(ctx context.Context, conn io.ReadWriteCloser, cfg Config) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s := &server{cfg: cfg, ctx: ctx, end: cancel, docs: make(map[string]*document), diffs: make(map[string]editor.Diff)}
	s.out = editor.NewOutbox(cancel)
	ready := make(chan struct{})
	s.conn = jsonrpc.NewConn(ctx, editor.Drained(editor.NewStream(conn), s.out), func(_ *jsonrpc.Conn, req *jsonrpc.Request) {
		<-ready
		s.handle(req)
	})
	s.client = cfg.Dial(editor.Handler{
		DiffOpen:    s.diffOpen,
		DiffClose:   s.diffClose,
		DiffChanged: s.diffChanged,
		Message:     func(m editor.Message) { s.show(m.Level, m.Text) },
	})
	close(ready)
	select {
	case <-s.conn.DisconnectNotify():
	case <-s.client.Done():
	case <-ctx.Done():
	}
	cancel()
	s.client.Close()
	s.conn.Close()
	s.asking.Wait()
	s.out.Close()
}

// A server serves one editor. One goroutine handles the editor's messages in order,
// another writes messages to the editor in order, and each question to the user has its
// own goroutine.
type server struct {
	cfg    Config
	ctx    context.Context
	end    func()
	conn   *jsonrpc.Conn
	client *editor.Client
	out    *editor.Outbox
	asking sync.WaitGroup

	// These belong to the goroutine that handles messages:
	initialized  bool
	down         bool // the editor has sent shutdown
	blockCursor  bool // a selection of one character is the cursor
	showDocument bool
	roots        []string
	docs         map[string]*document // by path
	active       string

	mu    sync.Mutex
	diffs map[string]editor.Diff // pending, by ID
}

// A document is an open file.
type document struct {
	text      string
	focused   int64
	cursor    *editor.Cursor
	selection string
	where     *editor.Range // of the selection; nil without one
	selected  textRange     // the same as the editor sent it
}

// The parts of the protocol that this package uses.
type (
	position struct {
		Line      int `json:"line"`
		Character int `json:"character"`
	}
	textRange struct {
		Start position `json:"start"`
		End   position `json:"end"`
	}
	folder struct {
		URI string `json:"uri"`
	}
	initializeParams struct {
		ProcessID        int      `json:"processId"`
		RootURI          string   `json:"rootUri"`
		RootPath         string   `json:"rootPath"`
		WorkspaceFolders []folder `json:"workspaceFolders"`
		ClientInfo       struct {
			Name string `json:"name"`
		} `json:"clientInfo"`
		Capabilities struct {
			Window struct {
				ShowDocument struct {
					Support bool `json:"support"`
				} `json:"showDocument"`
			} `json:"window"`
		} `json:"capabilities"`
	}
	// documentParams are the parameters of any message that names a document.
	documentParams struct {
		TextDocument struct {
			URI  string `json:"uri"`
			Text string `json:"text"`
		} `json:"textDocument"`
		Position *position  `json:"position"`
		Range    *textRange `json:"range"`
		Context  struct {
			Only []string `json:"only"`
		} `json:"context"`
		ContentChanges []textChange `json:"contentChanges"`
	}
	textChange struct {
		Range *textRange `json:"range"`
		Text  string     `json:"text"`
	}
	foldersParams struct {
		Event struct {
			Added   []folder `json:"added"`
			Removed []folder `json:"removed"`
		} `json:"event"`
	}
	commandParams struct {
		Command   string   `json:"command"`
		Arguments []string `json:"arguments"`
	}
	action struct {
		Title string `json:"title"`
	}
)

func (s *server) handle(req *jsonrpc.Request) {
	result, err := s.dispatch(req)
	if req.Notif {
		return
	}
	s.put(result, func(_ context.Context, result json.RawMessage) {
		s.conn.AnswerOr(-32803, req.ID, result, err) // RequestFailed
	})
}

// put queues a message with that content, which write gets encoded.
func (s *server) put(content any, write func(context.Context, json.RawMessage)) {
	data, _ := jsonrpc.Encode(content)
	s.out.Put(len(data), func(ctx context.Context) { write(ctx, data) })
}

// call sends a request to the editor and waits for the answer.
func (s *server) call(method string, params, result any) error {
	type answer struct {
		result json.RawMessage
		err    error
	}
	answered := make(chan answer, 1)
	s.put(params, func(ctx context.Context, params json.RawMessage) {
		wait, err := s.conn.Start(method, params)
		if err != nil {
			answered <- answer{err: err}
			return
		}
		go func() {
			var a answer
			a.err = wait.Wait(ctx, &a.result)
			answered <- a
		}()
	})
	select {
	case a := <-answered:
		if a.err != nil {
			return a.err
		}
		return json.Unmarshal(a.result, result)
	case <-s.ctx.Done():
		return s.ctx.Err()
	}
}

func (s *server) dispatch(req *jsonrpc.Request) (any, error) {
	switch req.Method {
	case "initialize":
		p, err := editor.Params[initializeParams](req)
		if err != nil {
			return nil, err
		}
		return s.initialize(p)
	case "exit":
		s.out.Drain()
		s.end()
		return nil, nil
	}
	if !s.initialized {
		return nil, &jsonrpc.Error{Code: -32002, Message: "send initialize first"}
	}
	if s.down && !req.Notif {
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidRequest, Message: "the server is shutting down"}
	}
	switch req.Method {
	case "shutdown":
		s.down = true
		return nil, nil
	case "initialized", "textDocument/hover", "textDocument/documentHighlight",
		"textDocument/didOpen", "textDocument/didChange", "textDocument/didSave",
		"textDocument/didClose", "textDocument/codeAction":
		p, err := editor.Params[documentParams](req)
		if err != nil {
			return nil, err
		}
		if req.Method != "textDocument/codeAction" {
			s.document(req.Method, p)
			return nil, nil
		}
		// An editor asks for actions of a kind when it saves or formats a file, and
		// runs those it gets without asking the user.
		if len(p.Context.Only) > 0 && !slices.Contains(p.Context.Only, actionKind) {
			return []any{}, nil
		}
		s.document(req.Method, p)
		return s.actions(), nil
	case "workspace/didChangeWorkspaceFolders":
		p, err := editor.Params[foldersParams](req)
		if err != nil {
			return nil, err
		}
		s.changeRoots(p.Event.Added, p.Event.Removed)
		return nil, nil
	case "workspace/executeCommand":
		p, err := editor.Params[commandParams](req)
		if err != nil {
			return nil, err
		}
		return nil, s.command(p.Command, p.Arguments)
	}
	if req.Notif {
		return nil, nil
	}
	return nil, &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound, Message: "unknown method " + req.Method}
}

// The kind of the code actions, and their commands.
const (
	actionKind    = "pollux"
	commandReview = "pollux.review"
	commandAccept = "pollux.accept"
	commandReject = "pollux.reject"
)

var notInName = lazy.Regexp(`[^a-z0-9._-]+`)

// editorInfo returns what to call the editor. The prefix avoids the names of editors for
// which an agent would install its own extension.
func editorInfo(client string) editor.Info {
	display := strings.TrimSpace(client)
	if display == "" {
		display = "Editor"
	}
	name := strings.Trim(notInName().ReplaceAllString(strings.ToLower(display), "-"), "-.")
	if name == "" {
		name = "editor"
	}
	return editor.Info{Name: "lsp-" + name[:min(len(name), 30)], DisplayName: display}
}

func (s *server) initialize(p initializeParams) (any, error) {
	for _, f := range p.WorkspaceFolders {
		s.addRoot(f.URI)
	}
	if len(s.roots) == 0 {
		s.addRoot(p.RootURI)
	}
	if len(s.roots) == 0 && filepath.IsAbs(p.RootPath) {
		s.roots = []string{p.RootPath}
	}
	s.blockCursor = slices.Contains([]string{"helix", "kak-lsp", "kakoune-lsp"}, strings.ToLower(p.ClientInfo.Name))
	s.showDocument = p.Capabilities.Window.ShowDocument.Support
	_, err := s.client.Initialize(s.ctx, editor.InitializeParams{
		Client: editor.Implementation{Name: "pollux lsp", Version: s.cfg.Version},
		Editor: editorInfo(p.ClientInfo.Name), PID: p.ProcessID, Roots: s.roots, Diff: true,
		Settings: editor.Settings{ReviewPage: true},
	})
	if err != nil {
		return nil, err
	}
	s.initialized = true
	return map[string]any{
		"serverInfo": map[string]any{"name": "pollux", "version": s.cfg.Version},
		"capabilities": map[string]any{
			"textDocumentSync":          map[string]any{"openClose": true, "change": 2, "save": true},
			"hoverProvider":             true,
			"documentHighlightProvider": true,
			"codeActionProvider":        map[string]any{"codeActionKinds": []string{actionKind}},
			"executeCommandProvider": map[string]any{"commands": []string{
				commandReview, commandAccept, commandReject,
			}},
			"workspace": map[string]any{"workspaceFolders": map[string]any{
				"supported": true, "changeNotifications": true,
			}},
		},
	}, nil
}

func (s *server) addRoot(uri string) {
	if path, ok := pathOf(uri); ok && !slices.Contains(s.roots, path) {
		s.roots = append(s.roots, path)
	}
}

func (s *server) changeRoots(added, removed []folder) {
	for _, f := range removed {
		path, _ := pathOf(f.URI)
		s.roots = slices.DeleteFunc(s.roots, func(r string) bool { return r == path })
	}
	for _, f := range added {
		s.addRoot(f.URI)
	}
	s.update()
}

// pathOf returns the path in a file's URI.
func pathOf(uri string) (string, bool) {
	path, ok := paths.FromURL(uri)
	if !ok {
		return "", false
	}
	return filepath.Clean(path), true
}

// document updates a document with what a message says about it.
func (s *server) document(method string, p documentParams) {
	path, ok := pathOf(p.TextDocument.URI)
	if !ok {
		return
	}
	d := s.docs[path]
	switch {
	case method == "textDocument/didOpen":
		d = &document{text: p.TextDocument.Text}
		s.docs[path] = d
	case d == nil:
		return
	case method == "textDocument/didSave":
		s.client.FileSaved(path)
	case method == "textDocument/didClose":
		delete(s.docs, path)
		s.update()
		return
	}
	for _, c := range p.ContentChanges {
		if at := d.apply(c); at != nil {
			d.cursor = at
			d.deselect()
		}
	}
	if at := p.Position; at != nil {
		d.cursor = cursorAt(*at)
		if at.before(d.selected.Start) || d.selected.End.before(*at) {
			d.deselect()
		}
	}
	if r := p.Range; r != nil {
		d.choose(*r, s.blockCursor)
	}
	s.active, d.focused = path, time.Now().UnixMilli()
	s.update()
}

// choose makes a range the selection, and its end the cursor.
func (d *document) choose(r textRange, blockCursor bool) {
	from := d.offset(r.Start)
	to := max(from, d.offset(r.End))
	text := d.text[from:to]
	if first, _ := ansi.FirstGraphemeCluster(text, ansi.GraphemeWidth); blockCursor && first == text {
		r.End, text = r.Start, ""
	}
	d.deselect()
	d.cursor, d.selected = cursorAt(r.End), r
	if text != "" {
		d.selection, d.where = text, &editor.Range{Start: *d.cursorOf(from), End: *d.cursorOf(to)}
	}
}

func (d *document) deselect() { d.selection, d.where = "", nil }

func (p position) before(other position) bool {
	return p.Line < other.Line || p.Line == other.Line && p.Character < other.Character
}

func cursorAt(p position) *editor.Cursor {
	return &editor.Cursor{Line: p.Line + 1, Character: p.Character + 1}
}

// apply applies a change, and returns the cursor after it, or nil if the change has no
// position.
func (d *document) apply(c textChange) *editor.Cursor {
	if c.Range == nil {
		d.text = c.Text
		return nil
	}
	from := d.offset(c.Range.Start)
	to := max(from, d.offset(c.Range.End))
	d.text = d.text[:from] + c.Text + d.text[to:]
	return d.cursorOf(from + len(c.Text))
}

// offset returns the byte offset of a position in UTF-16 code units.
func (d *document) offset(p position) int {
	at := 0
	for range p.Line {
		i := strings.IndexByte(d.text[at:], '\n')
		if i < 0 {
			return len(d.text)
		}
		at += i + 1
	}
	units := p.Character
	for i, r := range d.text[at:] {
		if units <= 0 || r == '\n' {
			return at + i
		}
		units -= utf16.RuneLen(r)
	}
	return len(d.text)
}

func (d *document) cursorOf(offset int) *editor.Cursor {
	before := d.text[:offset]
	line := before[strings.LastIndexByte(before, '\n')+1:]
	units := 1
	for _, r := range line {
		units += utf16.RuneLen(r)
	}
	return &editor.Cursor{Line: strings.Count(before, "\n") + 1, Character: units}
}

func (s *server) update() {
	snap := editor.Snapshot{Roots: s.roots, Files: []editor.File{}}
	for path, d := range s.docs {
		f := editor.File{Path: path, Focused: d.focused}
		if path == s.active {
			f.Active, f.Cursor, f.Selection, f.Range = true, d.cursor, d.selection, d.where
		}
		snap.Files = append(snap.Files, f)
	}
	s.client.Update(snap)
}

// The functions for diffs run on the companion's connection, which must not wait for the
// editor.

func (s *server) diffOpen(d editor.Diff) error {
	s.mu.Lock()
	s.diffs[d.ID] = d
	s.mu.Unlock()
	s.asking.Go(func() { s.offer(d) })
	return nil
}

func (s *server) diffClose(c editor.DiffClose) *string {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.diffs, c.ID)
	return nil // this client does not edit
}

func (s *server) diffChanged(c editor.DiffChange) {
	s.mu.Lock()
	defer s.mu.Unlock()
	d, ok := s.diffs[c.ID]
	if !ok {
		return
	}
	if c.Content != nil {
		d.Content = c.Content
	}
	if c.State != "" {
		d.State = c.State
	}
	s.diffs[c.ID] = d
}

func (s *server) diff(id string) (editor.Diff, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	d, ok := s.diffs[id]
	if !ok {
		return d, errors.New("this change is not pending any more")
	}
	return d, nil
}

// agentName returns what to call the agent that proposed a diff.
func agentName(d editor.Diff) string { return termtext.Line(d.AgentName(), maxName) }

// maxName limits the name of an agent, in bytes.
const maxName = 80

// offer asks the user about a diff, if the editor can.
func (s *server) offer(d editor.Diff) {
	text := fmt.Sprintf("%s proposes a change to %s", agentName(d), filepath.Base(d.Path))
	commands := map[string]string{"Review": commandReview, "Accept": commandAccept, "Reject": commandReject}
	if command := commands[s.ask(text, action{"Review"}, action{"Accept"}, action{"Reject"})]; command != "" {
		s.say(s.command(command, []string{d.ID}))
	}
}

// ask shows a message with actions and returns the title of the chosen one. If the
// editor cannot do that, it shows the message alone.
func (s *server) ask(text string, actions ...action) string {
	var chosen *action
	err := s.call("window/showMessageRequest", map[string]any{"type": 3, "message": text, "actions": actions}, &chosen)
	if err != nil && s.ctx.Err() == nil {
		s.show("info", text+": see the code actions, or `pollux review` in a terminal")
	}
	if chosen == nil {
		return ""
	}
	return chosen.Title
}

func (s *server) say(err error) {
	if err != nil {
		s.show("error", err.Error())
	}
}

func (s *server) show(level, text string) {
	types := map[string]int{"error": 1, "warning": 2, "info": 3}
	params := map[string]any{"type": types[level], "message": "pollux: " + text}
	s.put(params, func(_ context.Context, params json.RawMessage) {
		s.conn.Notify("window/showMessage", params)
	})
}

// actions returns the code actions for the pending diffs, the oldest first.
func (s *server) actions() []map[string]any {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := []map[string]any{}
	ids := make([]string, 0, len(s.diffs))
	for id, d := range s.diffs {
		if d.State != editor.StateAccepted {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	for _, id := range ids {
		name := filepath.Base(s.diffs[id].Path)
		for _, a := range [][2]string{{"review", commandReview}, {"accept", commandAccept}, {"reject", commandReject}} {
			title := fmt.Sprintf("%s: %s the change to %s", agentName(s.diffs[id]), a[0], name)
			all = append(all, map[string]any{"title": title, "kind": actionKind, "command": map[string]any{
				"title": title, "command": a[1], "arguments": []string{id},
			}})
		}
	}
	return all
}

// command starts one of the commands. It does not return the outcome but shows it: the
// command may ask the user, and editors wait for the result.
func (s *server) command(name string, args []string) error {
	if len(args) != 1 {
		return errors.New("the command needs the ID of one change")
	}
	d, err := s.diff(args[0])
	if err != nil {
		return err
	}
	switch name {
	case commandReview:
		s.asking.Go(func() { s.say(s.review()) })
	case commandAccept:
		s.asking.Go(func() { s.say(s.accept(d, "")) })
	case commandReject:
		s.asking.Go(func() { s.say(s.client.Reject(s.ctx, d.ID)) })
	default:
		return fmt.Errorf("unknown command %q", name)
	}
	return nil
}

func (s *server) accept(d editor.Diff, overwrite string) error {
	a := editor.DiffAccept{ID: d.ID, Content: d.Text(), Overwrite: overwrite}
	accept := s.client.Accept
	if d.NoAgent() {
		accept = s.client.Save
	}
	res, err := accept(s.ctx, a)
	switch {
	case err != nil:
		return err
	case res.Status == editor.StatusConflict:
		if s.ask(res.Message, action{"Overwrite"}, action{"Not now"}) != "Overwrite" {
			return nil
		}
		now, err := s.diff(d.ID)
		if err != nil {
			return err
		}
		if now.Text() != d.Text() {
			return fmt.Errorf("the text of %s was edited meanwhile: look at it, then accept it again", filepath.Base(d.Path))
		}
		return s.accept(now, res.Version)
	case res.Status == editor.StatusRefused:
		return errors.New(res.Message)
	}
	return nil
}

// review opens the page through the editor or, if the editor cannot, directly.
func (s *server) review() error {
	var link editor.Link
	if err := s.client.Call(s.ctx, editor.MethodReviewLink, nil, &link); err != nil {
		return err
	}
	if s.showDocument {
		var shown struct{ Success bool }
		show := map[string]any{"uri": link.URL, "external": true, "takeFocus": true}
		err := s.call("window/showDocument", show, &shown)
		if err == nil && shown.Success {
			return nil
		}
	}
	if s.cfg.OpenBrowser != nil && s.cfg.OpenBrowser(link.URL) {
		return nil
	}
	return errors.New("no browser is available: run `pollux review` in a terminal")
}
