package gemini

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sourcegraph/jsonrpc2"

	"pollux/internal/agent"
	"pollux/internal/agent/acp"
	"pollux/internal/agent/gemini/settings"
	"pollux/internal/sys"
)

const (
	// cancelWait is how long the CLI may take to stop when it is told to; it
	// needs about 50 ms.
	cancelWait = 3 * time.Second
	// errorsWait is how long the rest of standard error is waited for after the
	// end of the process.
	errorsWait = 200 * time.Millisecond
	// silence is how long a question must have had no news since the CLI said
	// that it asks a model again, to be the one that it said so of.
	silence = time.Second
)

// A worker is a process of the CLI's that serves the Agent Client Protocol in
// one workspace.
type worker struct {
	log      func(msg string, args ...any)
	dir      string   // the workspace
	change   bool     // its tools may write, to what we serve
	identity string   // of what it was started with
	key      string   // by which a failure to start another is remembered
	tmp      string   // its own directory
	unlinked []string // secrets that its private home lacks
	child    *sys.Child
	stream   *acp.AcpStream
	errors   *os.File // its standard error
	conn     *jsonrpc2.Conn
	patience time.Duration // for what takes no model
	started  time.Time
	making   chan struct{} // holds one when no session is being made: several at once take seconds
	readers  sync.WaitGroup

	mu       sync.Mutex
	turns    map[string]*turn // the questions it works on, by session
	spares   []spare
	sessions int
	running  int // questions, and those who are about to ask
	used     time.Time
	retired  bool // it ends when nothing runs
	stderr   []byte
	ignoring bool // it does not follow its policy
	retries  retryReader
}

// A spare is a session that was prepared. It knows the workspace as it was then.
type spare struct {
	*warmSession
	made time.Time
}

// spareTime is how long a spare is good for.
const spareTime = 30 * time.Second

// A warmSession is a conversation of the CLI's.
type warmSession struct {
	w         *worker
	id, model string
}

// A turn is a question that a worker works on.
type turn struct {
	files      agent.Files // what its tools write to
	mu         sync.Mutex
	served     int  // what they have written to it
	quota      bool // a search repeats itself
	over       bool // it was answered
	transcript transcript
	events     []agent.Event
	wake       chan struct{}
	news       time.Time
}

func newTurn() *turn {
	t := &turn{wake: make(chan struct{}, 1), news: time.Now()}
	t.transcript.emit = func(ev agent.Event) { t.events = append(t.events, ev) }
	return t
}

// tell lets f change the turn.
func (t *turn) tell(f func()) {
	t.mu.Lock()
	f()
	t.mu.Unlock()
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

// take is what has happened since the last time.
func (t *turn) take() []agent.Event {
	t.mu.Lock()
	defer t.mu.Unlock()
	events := t.events
	t.events = nil
	return events
}

// startWorker starts the CLI in dir and says hello to it, in handshake at most.
// root is where it may have a directory; change makes it one whose tools write.
func startWorker(ctx context.Context, cli agent.Program, dir string, change bool, root string, handshake time.Duration, log func(string, ...any)) (_ *worker, err error) {
	if err := sys.PrivateDir(root); err != nil {
		return nil, err
	}
	w := &worker{log: log, dir: dir, change: change, patience: handshake, making: make(chan struct{}, 1), turns: make(map[string]*turn), started: time.Now(), used: time.Now()}
	w.making <- struct{}{}
	if w.tmp, err = os.MkdirTemp(root, "worker-"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			w.end()
			w.mu.Lock()
			said := tidy(telling(toolNoise.ReplaceAllString(string(w.stderr), "")))
			w.mu.Unlock()
			if said != "" {
				err = fmt.Errorf("%w: %s", err, said)
			}
		}
	}()
	tmp := filepath.Join(w.tmp, "tmp")
	if err := os.Mkdir(tmp, 0o700); err != nil {
		return nil, err
	}
	rules := filepath.Join(w.tmp, "policy.toml")
	if err := os.WriteFile(rules, policy(dir, change), 0o600); err != nil {
		return nil, err
	}
	args := append([]string{"--acp"}, enforce(rules)...)
	cmd := exec.Command(cli.Argv[0], append(slices.Clone(cli.Argv[1:]), args...)...)
	cmd.Dir = dir
	cmd.Env = childEnv(os.Environ(), tmp)
	if change {
		// The CLI writes to files of its own home by itself, its memory for one,
		// whatever the client serves.
		home := filepath.Join(w.tmp, "home")
		if w.unlinked, err = privateHome(home); err != nil {
			return nil, err
		}
		if len(w.unlinked) > 0 {
			w.log("change mode runs without these files of Gemini CLI, which cannot be linked", "files", w.unlinked)
		}
		cmd.Env = append(cmd.Env, "GEMINI_CLI_HOME="+home)
	}
	if runtime.GOOS != "windows" {
		// Without it the CLI holds back what it would say on standard error.
		cmd.Env = append(cmd.Env, "GEMINI_DEBUG_LOG_FILE=/dev/stderr")
	}
	var ours, theirs []*os.File
	pipe := func() (r, w *os.File) {
		if err != nil {
			return nil, nil
		}
		if r, w, err = os.Pipe(); err == nil {
			ours = append(ours, r, w)
		}
		return r, w
	}
	inR, inW := pipe()
	outR, outW := pipe()
	errR, errW := pipe()
	if err == nil {
		theirs = []*os.File{inR, outW, errW}
		cmd.Stdin, cmd.Stdout, cmd.Stderr = inR, outW, errW
		w.child, err = sys.StartChild(cmd)
	}
	if err != nil {
		for _, f := range ours {
			f.Close()
		}
		return nil, err
	}
	for _, f := range theirs {
		f.Close()
	}
	w.errors = errR
	w.readers.Go(w.readErrors)
	w.stream = acp.NewACPStream(outR, inW)
	w.conn = acp.NewACPConn(w.stream, w.handle)
	ctx, cancel := context.WithTimeout(ctx, handshake)
	defer cancel()
	hello := acp.AcpInitialize{ProtocolVersion: acp.AcpVersion, ClientInfo: acp.AcpInfo{Name: "pollux", Version: "1"}}
	hello.ClientCapabilities.FS.ReadTextFile, hello.ClientCapabilities.FS.WriteTextFile = change, change
	if err = w.call(ctx, "initialize", hello, nil); err != nil {
		return nil, fmt.Errorf("no answer to initialize (%w)", err)
	}
	return w, nil
}

// privateHome makes a home for a CLI that is like the user's, but that nothing
// is written back from: settings and memory are copies. Secrets are not copied,
// they stay the user's own files: the CLI renews its credentials there, and its
// tools may not write there. It returns the names of the secrets that it left out
// because they cannot be linked.
func privateHome(home string) (unlinked []string, err error) {
	theirs, ours := geminiHome(), filepath.Join(home, ".gemini")
	if err := os.MkdirAll(ours, 0o700); err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(theirs)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	for _, e := range entries {
		from, to := filepath.Join(theirs, e.Name()), filepath.Join(ours, e.Name())
		info, err := os.Stat(from)
		if err != nil || !info.Mode().IsRegular() || info.Size() > maxHomeFile {
			continue
		}
		if secretFile.MatchString(e.Name()) {
			if os.Symlink(from, to) != nil {
				unlinked = append(unlinked, e.Name())
			}
			continue
		}
		data, err := sys.ReadFile(from, maxHomeFile)
		if err != nil {
			return nil, err
		}
		if err := os.WriteFile(to, data, 0o600); err != nil {
			return nil, err
		}
	}
	return unlinked, nil
}

// maxHomeFile bounds the files of the CLI's home that are copied, in bytes.
const maxHomeFile = 1 << 20

// secretFile matches the names of files in the CLI's home that hold secrets.
var secretFile = regexp.MustCompile(`(?i)^\.env|cred|oauth|account|token|secret|key`)

// geminiHome is the CLI's own directory.
func geminiHome() string {
	home, _ := settings.Home()
	return home
}

// nearHome reports whether a workspace holds one of the CLI's own directories,
// or lies in one: there the CLI writes by itself.
func nearHome(dir string) bool {
	dirs := []string{geminiHome()}
	if home, err := os.UserHomeDir(); err == nil {
		dirs = append(dirs, filepath.Join(home, ".gemini"))
	}
	for _, own := range dirs {
		if real, err := filepath.EvalSymlinks(own); err == nil {
			own = real
		}
		for _, pair := range [][2]string{{dir, own}, {own, dir}} {
			if rel, err := filepath.Rel(pair[0], pair[1]); err != nil || filepath.IsLocal(rel) {
				return true
			}
		}
	}
	return false
}

// call is the connection's, but ends with the context even while the CLI does
// not read.
func (w *worker) call(ctx context.Context, method string, params, result any) error {
	done := make(chan error, 1)
	go func() { done <- w.conn.Call(ctx, method, params, result) }()
	select {
	case err := <-done:
		if err != nil && ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// alive reports whether the process runs and listens.
func (w *worker) alive() bool {
	select {
	case <-w.child.Done():
		return false
	case <-w.conn.DisconnectNotify():
		return false
	default:
		return true
	}
}

// end ends the process and removes what it had.
func (w *worker) end() {
	if w.child != nil {
		w.child.Stop(grace)
		if w.conn != nil {
			w.conn.Close()
		}
		// A process that has left the group may hold it open.
		closing := time.AfterFunc(errorsWait, func() { w.errors.Close() })
		w.readers.Wait()
		closing.Stop()
		w.errors.Close()
	}
	if err := os.RemoveAll(w.tmp); err != nil {
		w.log("a worker's files stay", "error", err)
	}
}

// errMute is the end of the patience with a process that does not answer.
var errMute = errors.New("it does not answer")

// spare is a session that was prepared, if there is a fresh one.
func (w *worker) spare() *warmSession {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.spares = slices.DeleteFunc(w.spares, func(s spare) bool { return time.Since(s.made) > spareTime })
	n := len(w.spares)
	if n == 0 {
		return nil
	}
	s := w.spares[n-1]
	w.spares = w.spares[:n-1]
	return s.warmSession
}

// session is a new conversation, prepared or made now.
func (w *worker) session(ctx context.Context) (*warmSession, error) {
	if s := w.spare(); s != nil {
		return s, nil
	}
	select {
	case <-w.making:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	// It is made even if nobody waits for it any more: another call may.
	type made struct {
		s   *warmSession
		err error
	}
	done := make(chan made, 1)
	go func() {
		var res acp.AcpNewSessionResult
		ctx, cancel := context.WithTimeoutCause(context.Background(), w.patience, errMute)
		defer cancel()
		err := w.call(ctx, "session/new", acp.AcpNewSession{CWD: w.dir, MCPServers: []any{}}, &res)
		w.mu.Lock()
		w.sessions++
		w.mu.Unlock()
		w.making <- struct{}{}
		done <- made{&warmSession{w: w, id: res.SessionID, model: res.Models.Current}, err}
	}()
	select {
	case m := <-done:
		return m.s, m.err
	case <-ctx.Done():
		go func() {
			if m := <-done; m.err == nil {
				w.keep(m.s)
			}
		}()
		return nil, context.Cause(ctx)
	}
}

func (w *worker) keep(s *warmSession) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.spares = append(w.spares, spare{s, time.Now()})
}

// prepare makes a session for the next call.
func (w *worker) prepare(ctx context.Context) {
	if s := w.spare(); s != nil {
		w.keep(s)
		return
	}
	if s, err := w.session(ctx); err == nil {
		w.keep(s)
	}
}

// ask has the CLI answer in a session. emit is called in this goroutine. gone,
// which is not nil after the question was sent, is closed when the CLI works
// on it no more.
func (s *warmSession) ask(ctx context.Context, req agent.Request, prompt string, idle time.Duration, emit func(agent.Event)) (result agent.Result, gone <-chan struct{}, err error) {
	w := s.w
	content, err := contents(req, prompt)
	if err != nil {
		return agent.Result{}, nil, err
	}
	if req.Model != "" && req.Model != s.model {
		setting, cancel := context.WithTimeoutCause(ctx, w.patience, errMute)
		err := w.call(setting, "session/set_model", acp.AcpSetModel{SessionID: s.id, ModelID: req.Model}, nil)
		cancel()
		if err != nil {
			return agent.Result{}, nil, w.failure(ctx, err)
		}
		s.model = req.Model
	}
	if fault := w.unheld(); fault != nil {
		return agent.Result{}, nil, fault
	}
	t := newTurn()
	t.transcript.model = req.Model
	if w.change {
		t.files, t.transcript.allowed = req.Change.Files(), writeTools
	}
	w.mu.Lock()
	w.turns[s.id] = t
	w.mu.Unlock()
	var reply acp.AcpPromptResult
	answered := make(chan error, 1)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		answered <- w.conn.Call(context.Background(), "session/prompt", acp.AcpPrompt{SessionID: s.id, Prompt: content}, &reply)
		w.mu.Lock()
		delete(w.turns, s.id)
		w.mu.Unlock()
		t.mu.Lock()
		t.over = true
		t.mu.Unlock()
	}()
	emit(agent.Started{})
	look := time.NewTicker(time.Second)
	defer look.Stop()
	for {
		for _, ev := range t.take() {
			emit(ev)
		}
		select {
		case <-t.wake:
		case <-look.C:
		case err := <-answered:
			for _, ev := range t.take() {
				emit(ev)
			}
			result, err = w.conclude(t, reply, err)
			return result, ended, err
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
		if fault := s.fault(t, idle); err == nil && fault != nil {
			err = fault
		}
		if err != nil {
			go w.conn.Notify(context.Background(), "session/cancel", acp.AcpSessionRef{SessionID: s.id})
			t.mu.Lock()
			defer t.mu.Unlock()
			return t.transcript.result(), ended, err
		}
	}
}

// fault is what no question may go on after.
func (s *warmSession) fault(t *turn, idle time.Duration) *agent.Error {
	if fault := s.w.unheld(); fault != nil {
		return fault
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.transcript.strayed != "" {
		return &agent.Error{Kind: agent.Strayed, Message: t.transcript.strayed}
	}
	if t.quota {
		return &agent.Error{Kind: agent.SearchQuota}
	}
	if longest, _ := t.transcript.searched(time.Now()); longest > searchWait {
		return &agent.Error{Kind: agent.Stalled, Message: fmt.Sprintf("a web search had no answer for %s", searchWait)}
	}
	if time.Since(t.news) > idle {
		return &agent.Error{Kind: agent.Stalled, Message: fmt.Sprintf("no output for %s", idle)}
	}
	return nil
}

// unheld is the error of a process that does not follow its policy.
func (w *worker) unheld() *agent.Error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ignoring {
		return &agent.Error{Kind: agent.Unenforceable, Message: "it does not follow the policy that it is given"}
	}
	return nil
}

// conclude makes a result of the CLI's answer to session/prompt.
func (w *worker) conclude(t *turn, reply acp.AcpPromptResult, err error) (agent.Result, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	tr := &t.transcript
	quota := reply.Meta.Quota
	tr.tokens = agent.Tokens{Input: quota.Count.Input, Output: quota.Count.Output, Total: quota.Count.Input + quota.Count.Output}
	most := -1
	for _, m := range quota.Models {
		if m.Count.Output > most {
			tr.model, most = m.Model, m.Count.Output
		}
	}
	result := tr.result()
	switch {
	case err != nil:
		return result, w.failure(context.Background(), err)
	case tr.strayed != "":
		return result, &agent.Error{Kind: agent.Strayed, Message: tr.strayed}
	case reply.StopReason == "max_turn_requests":
		return result, &agent.Error{Kind: agent.TurnLimit}
	case reply.StopReason == "refusal":
		return result, &agent.Error{Kind: agent.Blocked}
	case reply.StopReason == "cancelled":
		return result, &agent.Error{Kind: agent.Failed, Message: "it gave up by itself"}
	case result.Answer == "" && result.Narration != "":
		return result, &agent.Error{Kind: agent.Empty, Message: "it ended after a tool use"}
	case result.Answer == "":
		return result, &agent.Error{Kind: agent.Empty}
	}
	return result, nil
}

// failure makes an error of one of the connection's.
func (w *worker) failure(ctx context.Context, err error) error {
	var rpc *jsonrpc2.Error
	if !errors.As(err, &rpc) {
		if errors.Is(err, errMute) {
			return err
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		return &agent.Error{Kind: agent.Crashed, Message: tidy(telling(toolNoise.ReplaceAllString(string(w.stderr), "")))}
	}
	message := rpc.Message
	if rpc.Data != nil {
		var data struct{ Details string }
		if json.Unmarshal(*rpc.Data, &data) == nil && data.Details != "" {
			message += ": " + data.Details
		}
	}
	kind := kindOf(message)
	if kind == "" {
		kind = rpcKinds[int(rpc.Code)]
	}
	if kind == "" {
		kind = agent.Failed
	}
	message = tidy(message)
	if kind == agent.Auth && len(w.unlinked) > 0 {
		kind = agent.Unlinked
		message += "; left out: " + shorten(strings.Join(w.unlinked, ", "), 200)
	}
	return &agent.Error{Kind: kind, Message: message}
}

// rpcKinds are the codes that have a meaning of their own: an HTTP status, or
// the protocol's.
var rpcKinds = map[int]agent.Kind{
	-32000: agent.Auth, 400: agent.BadRequest, 401: agent.Auth, 403: agent.Auth, 404: agent.BadModel, 429: agent.QuotaMinute,
	500: agent.Capacity, 502: agent.Capacity, 503: agent.Capacity, 504: agent.Capacity,
}

// contents is a question with its images.
func contents(req agent.Request, prompt string) ([]acp.AcpContent, error) {
	content := []acp.AcpContent{{Type: "text", Text: plainStart(prompt)}}
	if len(req.Images) == 0 {
		return content, nil
	}
	root, err := os.OpenRoot(req.Dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	for _, name := range req.Images {
		data, err := root.ReadFile(name)
		if err != nil {
			return nil, fmt.Errorf("%s cannot be read: name another image", name)
		}
		content = append(content, acp.AcpContent{Type: "image", Data: data, MIMEType: mime.TypeByExtension(strings.ToLower(filepath.Ext(name)))})
	}
	return content, nil
}

// handle takes what the CLI says and asks.
func (w *worker) handle(method string, params json.RawMessage) (any, error) {
	switch method {
	case "session/update":
		var u acp.AcpUpdate
		if json.Unmarshal(params, &u) == nil {
			w.update(u)
		}
		return nil, nil
	case "session/request_permission":
		// The policy lets what may be done be done unasked.
		var p acp.AcpPermission
		if err := json.Unmarshal(params, &p); err != nil {
			return nil, err
		}
		for _, o := range p.Options {
			if o.Kind == "reject_once" {
				return map[string]any{"outcome": map[string]any{"outcome": "selected", "optionId": o.ID}}, nil
			}
		}
		return map[string]any{"outcome": map[string]any{"outcome": "cancelled"}}, nil
	}
	if w.change && (method == "fs/read_text_file" || method == "fs/write_text_file") {
		return w.file(method, params)
	}
	return nil, &jsonrpc2.Error{Code: jsonrpc2.CodeMethodNotFound, Message: "not offered: " + method}
}

// file reads or writes a file of a turn's.
func (w *worker) file(method string, params json.RawMessage) (any, error) {
	var p acp.AcpFile
	if err := json.Unmarshal(params, &p); err != nil {
		return nil, err
	}
	w.mu.Lock()
	t := w.turns[p.SessionID]
	w.mu.Unlock()
	if t == nil {
		return nil, errors.New("nothing is asked in this session")
	}
	if method == "fs/write_text_file" {
		t.tell(func() { t.served++ })
		return struct{}{}, t.files.Write(p.Path, p.Content)
	}
	text, err := t.files.Read(p.Path)
	if err != nil {
		return nil, err
	}
	if p.Line != nil || p.Limit != nil {
		lines := slices.Collect(strings.Lines(text))
		from := 0
		if p.Line != nil {
			from = min(max(*p.Line-1, 0), len(lines))
		}
		to := len(lines)
		if p.Limit != nil {
			to = min(to, from+max(*p.Limit, 0))
		}
		text = strings.Join(lines[from:to], "")
	}
	return map[string]any{"content": text}, nil
}

// modeNotice is what the CLI says in the model's place when a mode changes.
const modeNotice = "[MODE_UPDATE] "

func (w *worker) update(u acp.AcpUpdate) {
	w.mu.Lock()
	t := w.turns[u.SessionID]
	w.mu.Unlock()
	if t == nil {
		return
	}
	t.tell(func() {
		t.news = time.Now()
		switch u.Update.Kind {
		case "agent_message_chunk":
			var c acp.AcpContent
			if json.Unmarshal(u.Update.Content, &c) == nil && c.Text != "" && !strings.HasPrefix(c.Text, modeNotice) {
				t.transcript.hear(c.Text, t.news)
			}
		case "tool_call", "tool_call_update":
			w.tool(&t.transcript, u)
			if w.change && t.transcript.wrote > t.served && t.transcript.strayed == "" {
				t.transcript.strayed = "write_file, to the disk"
			}
		}
	})
}

// toolArgument is what a tool's title says that it works on.
func toolArgument(title string) string {
	title = strings.Join(strings.Fields(title), " ")
	title = strings.TrimPrefix(title, "Searching the web for: ")
	return shorten(title, 60)
}

// tool takes the state of a tool use. A refused one may have no beginning.
func (w *worker) tool(t *transcript, u acp.AcpUpdate) {
	id := u.Update.ToolCallID
	if _, open := t.open[id]; !open {
		name, _, _ := strings.Cut(id, "__")
		t.use(id, name, toolArgument(u.Update.Title))
	}
	switch u.Update.Status {
	case "completed":
		t.used(id, true, "")
	case "failed":
		var parts []struct{ Content acp.AcpContent }
		message := ""
		if json.Unmarshal(u.Update.Content, &parts) == nil && len(parts) > 0 {
			message = parts[0].Content.Text
		}
		t.used(id, false, message)
	}
}

// searchFlood is what the CLI says over and over while it repeats a web search
// whose quota is used up.
var searchFlood = []byte("Model fallback activated")

// mostFloods is how often that may be in a second.
const mostFloods = 10

// readErrors keeps the end of standard error and finds signs in it.
func (w *worker) readErrors() {
	buf := make([]byte, 32<<10)
	floods, since := 0, time.Now()
	for {
		n, err := w.errors.Read(buf)
		w.mu.Lock()
		w.stderr = append(w.stderr, buf[:n]...)
		if over := len(w.stderr) - maxStderr; over > 0 {
			w.stderr = append(w.stderr[:0], w.stderr[over:]...)
		}
		w.ignoring = w.ignoring || policyIgnored.Match(w.stderr)
		var retries []agent.Retry
		w.retries.read(buf[:n], func(ev agent.Event) { retries = append(retries, ev.(agent.Retry)) })
		turns := make([]*turn, 0, len(w.turns))
		for _, t := range w.turns {
			turns = append(turns, t)
		}
		w.mu.Unlock()
		for _, r := range retries {
			w.retry(r, turns)
		}
		if time.Since(since) > time.Second {
			floods, since = 0, time.Now()
		}
		if floods += bytes.Count(buf[:n], searchFlood); floods > mostFloods {
			endSearch(turns)
		}
		if w.ignoring {
			for _, t := range turns {
				t.tell(func() {}) // it looks
			}
		}
		if err != nil {
			return
		}
	}
}

// endSearch ends the question whose web search has run the longest.
func endSearch(turns []*turn) {
	var oldest *turn
	var most time.Duration
	for _, t := range turns {
		t.mu.Lock()
		if longest, any := t.transcript.searched(time.Now()); any && longest >= most {
			oldest, most = t, longest
		}
		t.mu.Unlock()
	}
	if oldest != nil {
		oldest.tell(func() { oldest.quota = true })
	}
}

// retry tells a question that the CLI asks its model again. The CLI does not
// say which question that is: where there are several it may be any that has
// no news for a while, and where it is but one it is that.
func (w *worker) retry(r agent.Retry, turns []*turn) {
	now := time.Now()
	if len(turns) == 1 {
		turns[0].tell(func() { turns[0].transcript.emit(r) })
		return
	}
	time.AfterFunc(silence, func() {
		var silent []*turn
		for _, t := range turns {
			t.mu.Lock()
			if t.news.Before(now) && !t.over {
				silent = append(silent, t)
			}
			t.mu.Unlock()
		}
		r.Unsure = len(silent) > 1
		for _, t := range silent {
			t.tell(func() { t.transcript.emit(r) })
		}
	})
}
