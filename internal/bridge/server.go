package bridge

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"path/filepath"
	"reflect"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"pollux/internal/bridge/change"
)

// A pageSize is how much text a client takes at once: bytes, notes included,
// and lines.
type pageSize struct{ bytes, lines int }

// defaultPage is what the client with the least room takes.
var defaultPage = pageSize{8 << 10, math.MaxInt}

// pages are those of other clients, by the start of their name.
var pages = map[string]pageSize{
	"claude-code": {24 << 10, math.MaxInt}, // it warns at 10,000 tokens
	"gemini-cli":  {30 << 10, math.MaxInt}, // it cuts at 40,000 characters
	"codex":       {8 << 10, 240},          // it cuts at 10 KiB, and at 256 lines
}

// notesRoom is the part of a page, in bytes, that is kept free for notes.
const notesRoom = 1 << 10

const instructions = `Ask Google's Gemini, through Gemini CLI, about this code base or the web. It has a
large context window and reads files and searches the web by itself; it cannot
write files or run commands.

- query: a question, with files if need be. Gemini explores workingDirectory on its own: rather name a directory than send many files. With changeMode it returns edits and a unified diff, and writes nothing.
- search: a question that needs current facts from the web.
- structured: an answer as JSON of a schema that you give.
- fetch-chunk: the next part of an answer that says it has more parts.
- ping: is Gemini CLI there, and how busy are we.
- list-sessions, close-session: the conversations that query can go on with.
- start-job, wait-job, cancel-job, list-jobs: for calls that take longer than you may wait.

A call takes from seconds to minutes. Give it all that it needs to know: it remembers nothing of earlier calls, except for a query with the sessionId that an earlier one came with.`

// A Server is the bridge as an MCP server.
type Server struct {
	b        *Bridge
	mcp      *mcp.Server
	roots    roots
	jobs     jobs
	handlers map[string]mcp.ToolHandler
}

// NewServer makes an MCP server of the bridge.
func NewServer(b *Bridge) *Server {
	s := &Server{b: b, jobs: jobs{byID: make(map[string]*job)}, handlers: make(map[string]mcp.ToolHandler)}
	options := &mcp.ServerOptions{
		Instructions: instructions,
		Logger:       sdkLog(b.log),
		Capabilities: &mcp.ServerCapabilities{Tools: &mcp.ToolCapabilities{}},
	}
	s.roots.watch(options)
	s.mcp = mcp.NewServer(&mcp.Implementation{Name: "pollux", Title: "Pollux: Gemini CLI", Version: b.cfg.Version}, options)
	for _, t := range s.tools() {
		s.mcp.AddTool(t.tool, t.handle)
		s.handlers[t.tool.Name] = t.handle
	}
	return s
}

// sdkLog is where the SDK logs, which takes an ordinary end for an error.
func sdkLog(log *slog.Logger) *slog.Logger {
	if log.Enabled(context.Background(), slog.LevelInfo) {
		return log
	}
	return slog.New(slog.DiscardHandler)
}

// Run serves one client until it goes or the context ends. Its jobs end with
// the bridge.
func (s *Server) Run(ctx context.Context, t mcp.Transport) error {
	defer s.jobs.close()
	return s.mcp.Run(ctx, t)
}

type tool struct {
	tool   *mcp.Tool
	handle mcp.ToolHandler
}

// withRoom lets a client that would put a large result into a file show it:
// edits are not paged.
func (t tool) withRoom() tool {
	t.tool.Meta = mcp.Meta{"anthropic/maxResultSizeChars": 200_000}
	return t
}

func (s *Server) tools() []tool {
	no, yes := new(bool), new(bool)
	*yes = true
	define := func(name, title, description string, input map[string]any, required []string, a mcp.ToolAnnotations, h mcp.ToolHandler) tool {
		a.Title, a.DestructiveHint = title, no
		if required == nil {
			required = []string{}
		}
		return tool{&mcp.Tool{
			Name: name, Title: title, Description: description, Annotations: &a,
			InputSchema: map[string]any{"type": "object", "properties": input, "required": required, "additionalProperties": false},
		}, h}
	}
	text := func(description string) map[string]any {
		return map[string]any{"type": "string", "description": description}
	}
	whole := func(description string, most int) map[string]any {
		return map[string]any{"type": "integer", "minimum": 1, "maximum": most, "description": description}
	}
	files := map[string]any{
		"type": "array", "items": map[string]any{"type": "string"}, "maxItems": maxFiles,
		"description": fmt.Sprintf("Paths of text files (up to %d bytes each) and images (up to %d), inside workingDirectory.", change.MaxFile, maxImage),
	}
	model := text("The Gemini model, for example gemini-2.5-pro. Leave it out for the default.")
	dir := text("The directory that Gemini works in and may read. Leave it out for the client's root.")
	timeout := whole("Milliseconds until the call ends with what there is, queueing included. 120000 unless given.", int(MaxTimeout.Milliseconds()))
	length := whole("The most words that the answer may have.", maxWords)
	return []tool{
		define("query", "Gemini Query",
			"Ask Gemini a question: about code, a document, an image, a design, or for a second opinion. Gemini reads the files it needs in workingDirectory by itself; it cannot write or run anything. A long answer comes in parts, see fetch-chunk. With changeMode the answer holds edits and a unified diff for you to apply.",
			map[string]any{
				"prompt": text("What to ask, with all that Gemini needs to know."), "files": files, "model": model,
				"workingDirectory": dir, "timeout": timeout, "maxResponseLength": length,
				"changeMode": map[string]any{"type": "boolean", "description": "Return edits of files, as {edits, diff, response}. Nothing is written."},
				"sessionId":  text("The sessionId that an earlier answer came with, to go on with that conversation in its directory. Leave it out for a new one."),
			},
			[]string{"prompt"}, mcp.ToolAnnotations{OpenWorldHint: yes}, s.query).withRoom(),
		define("search", "Web Search",
			"Ask Gemini to search the web and answer with its sources: current versions, documentation, news, error messages.",
			map[string]any{
				"query": text("What to find out."), "model": model,
				"workingDirectory": dir, "timeout": timeout, "maxResponseLength": length,
			},
			[]string{"query"}, mcp.ToolAnnotations{ReadOnlyHint: true, IdempotentHint: true, OpenWorldHint: yes}, s.search),
		define("structured", "Structured Output",
			"Ask Gemini for JSON that is valid under a JSON Schema of yours: extraction, classification, data of a fixed shape. An answer that is not valid is corrected once, else the call fails with what is wrong.",
			map[string]any{
				"prompt": text("What to ask."),
				"schema": map[string]any{
					"anyOf":       []any{map[string]any{"type": "object"}, map[string]any{"type": "string"}},
					"description": fmt.Sprintf("The JSON Schema, as an object or as a string: up to %d bytes, any draft, no references to other documents.", maxSchema),
				},
				"files": files, "model": model, "workingDirectory": dir, "timeout": timeout,
			},
			[]string{"prompt", "schema"}, mcp.ToolAnnotations{ReadOnlyHint: true, OpenWorldHint: yes}, s.structured),
		define("fetch-chunk", "Fetch Cached Chunk",
			"Get another part of a long answer of query or search, with the cacheKey that came with its first part. Parts are kept for 10 minutes.",
			map[string]any{
				"cacheKey":   text("The key that came with the first part."),
				"chunkIndex": map[string]any{"type": "integer", "minimum": 1, "description": "Which part, from 1."},
			},
			[]string{"cacheKey", "chunkIndex"}, mcp.ToolAnnotations{ReadOnlyHint: true, IdempotentHint: true, OpenWorldHint: no}, s.fetchChunk),
		define("list-sessions", "List Sessions",
			fmt.Sprintf("List the conversations that query can go on with. One ends %d minutes after its last query.", int(conversationTime.Minutes())),
			map[string]any{}, nil,
			mcp.ToolAnnotations{ReadOnlyHint: true, IdempotentHint: true, OpenWorldHint: no}, s.listSessions),
		define("close-session", "Close Session",
			"End a conversation of query that is not needed any more.",
			map[string]any{"sessionId": text("The sessionId that its answers came with.")}, []string{"sessionId"},
			mcp.ToolAnnotations{IdempotentHint: true, OpenWorldHint: no}, s.closeSession),
		define("start-job", "Start Job",
			"Start a call of query, search or structured that may take longer than you can wait, and return at once with a jobId.",
			map[string]any{
				"tool":      map[string]any{"type": "string", "enum": jobTools, "description": "The tool to call."},
				"arguments": map[string]any{"type": "object", "description": "Its arguments. A timeout of up to " + fmt.Sprint(MaxTimeout.Milliseconds()) + " ms is possible."},
			},
			[]string{"tool", "arguments"}, mcp.ToolAnnotations{OpenWorldHint: yes}, s.startJob),
		define("wait-job", "Wait for Job",
			fmt.Sprintf("Wait for a job's result, which is kept for %d minutes.", int(jobTime.Minutes())),
			map[string]any{
				"jobId":   text("The jobId that start-job returned."),
				"timeout": map[string]any{"type": "integer", "minimum": 0, "maximum": maxJobWait.Milliseconds(), "description": fmt.Sprintf("Milliseconds to wait, %d unless given.", jobWait.Milliseconds())},
			},
			[]string{"jobId"}, mcp.ToolAnnotations{ReadOnlyHint: true, IdempotentHint: true, OpenWorldHint: no}, s.waitJob).withRoom(),
		define("cancel-job", "Cancel Job", "End a job that is not needed any more.",
			map[string]any{"jobId": text("The jobId that start-job returned.")}, []string{"jobId"},
			mcp.ToolAnnotations{IdempotentHint: true, OpenWorldHint: no}, s.cancelJob),
		define("list-jobs", "List Jobs", "List the jobs that run and those that have ended lately.",
			map[string]any{}, nil, mcp.ToolAnnotations{ReadOnlyHint: true, IdempotentHint: true, OpenWorldHint: no}, s.listJobs),
		define("ping", "Health Check",
			"Is Gemini CLI there, which version, what is it allowed to do, how many calls run and wait. Answers at once and asks no model.",
			map[string]any{}, nil,
			mcp.ToolAnnotations{ReadOnlyHint: true, IdempotentHint: true, OpenWorldHint: no}, s.ping),
	}
}

func (s *Server) query(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	var in QueryInput
	if r := s.input(ctx, req, &in, &in.Common); r != nil {
		return r, nil
	}
	a, err := s.b.Query(ctx, in, reporter(ctx, req))
	return s.result(req, a, err), nil
}

func (s *Server) search(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	var in SearchInput
	if r := s.input(ctx, req, &in, &in.Common); r != nil {
		return r, nil
	}
	a, err := s.b.Search(ctx, in, reporter(ctx, req))
	return s.result(req, a, err), nil
}

func (s *Server) structured(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	var in StructuredInput
	if r := s.input(ctx, req, &in, &in.Common); r != nil {
		return r, nil
	}
	out, err := s.b.Structured(ctx, in, reporter(ctx, req))
	if err != nil {
		return failed(err, out.Meta), nil
	}
	r := &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: string(out.JSON)}}, Meta: meta(out.Meta)}
	if len(out.Notes) > 0 {
		r.Meta["notes"] = out.Notes
	}
	// The protocol's structured content is an object.
	if bytes.HasPrefix(out.JSON, []byte("{")) {
		r.StructuredContent = out.JSON
	}
	return r, nil
}

func (s *Server) fetchChunk(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	start := time.Now()
	var in struct {
		CacheKey   string `json:"cacheKey"`
		ChunkIndex *Whole `json:"chunkIndex"`
	}
	if r := s.input(ctx, req, &in, nil); r != nil {
		return r, nil
	}
	m := func() Meta { return Meta{DurationMs: time.Since(start).Milliseconds(), Model: "none"} }
	switch {
	case in.CacheKey == "":
		return failed(errors.New("cacheKey is missing: give the one that came with the first part"), m()), nil
	case in.ChunkIndex == nil || *in.ChunkIndex < 1:
		return failed(errors.New("chunkIndex must be a whole number from 1: the parts are counted from 1"), m()), nil
	}
	text, total, err := s.b.chunks.get(in.CacheKey, int(*in.ChunkIndex))
	if err != nil {
		return failed(err, m()), nil
	}
	return page(text, in.CacheKey, int(*in.ChunkIndex), total, nil, meta(m())), nil
}

func (s *Server) listSessions(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	if r := s.input(ctx, req, &struct{}{}, nil); r != nil {
		return r, nil
	}
	return listed("sessions", s.b.talks.list()), nil
}

func (s *Server) closeSession(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	var in struct {
		SessionID string `json:"sessionId"`
	}
	if r := s.input(ctx, req, &in, nil); r != nil {
		return r, nil
	}
	if !s.b.talks.close(in.SessionID) {
		return failed(errors.New("there is no such session: list-sessions has those that there are"), Meta{Model: "none"}), nil
	}
	return plain("closed"), nil
}

// plain is a result of the bridge's own.
func plain(text string) *mcp.CallToolResult {
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: text}}, Meta: meta(Meta{Model: "none"})}
}

// listed is a list of the bridge's own, for a client and as text.
func listed(name string, list any) *mcp.CallToolResult {
	data, err := json.Marshal(map[string]any{name: list})
	if err != nil {
		return failed(err, Meta{Model: "none"})
	}
	r := plain(string(data))
	r.StructuredContent = json.RawMessage(data)
	return r
}

func (s *Server) ping(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	start := time.Now()
	if r := s.input(ctx, req, &struct{}{}, nil); r != nil {
		return r, nil
	}
	text, err := s.b.Ping(ctx)
	m := meta(Meta{DurationMs: time.Since(start).Milliseconds(), Model: "none"})
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: text}}, Meta: m, IsError: err != nil}, nil
}

// Ping says how the bridge is. It asks no model and starts no CLI.
func (b *Bridge) Ping(ctx context.Context) (string, error) {
	var out strings.Builder
	line := func(name, format string, args ...any) {
		fmt.Fprintf(&out, "%s: %s\n", name, fmt.Sprintf(format, args...))
	}
	line("Pollux", "%s", b.cfg.Version)
	cli, err := b.runner.Check(ctx)
	if cli.Path != "" {
		version := cli.Version
		if version == "" {
			version = "of unknown version"
		}
		line("Gemini CLI", "%s at %s", version, cli.Path)
	}
	if err != nil {
		line("problem", "%v", err)
		line("read-only", "calls are refused until that is solved")
	} else {
		line("read-only", "enforced by an administrator's policy; Gemini may use %s and nothing else", strings.Join(b.cfg.Agent.ReadTools, ", "))
	}
	name := func(model, none string) string {
		if model == "" {
			return none
		}
		return model
	}
	line("model", "%s", name(b.cfg.DefaultModel, "the CLI's default"))
	line("fallback", "%s", name(b.cfg.FallbackModel, "none"))
	running, waiting := b.queue.load()
	line("queue", "%d of %d running, %d waiting, starts at least %s apart", running, b.queue.max, waiting, b.cfg.StartInterval)
	line("runner", "%s", b.cfg.Runner.Kind)
	for _, w := range b.runner.Workers() {
		line("warm", "%s", workerLine(w))
	}
	line("sessions", "%d", len(b.talks.list()))
	line("kept answers", "%d", b.chunks.len())
	return strings.TrimSuffix(out.String(), "\n"), err
}

// input reads a tool's arguments. What cannot be read is answered at once.
func (s *Server) input(ctx context.Context, req *mcp.CallToolRequest, in any, common *Common) *mcp.CallToolResult {
	args := req.Params.Arguments
	if len(args) == 0 {
		args = json.RawMessage("{}")
	}
	dec := json.NewDecoder(bytes.NewReader(args))
	dec.DisallowUnknownFields()
	if err := dec.Decode(in); err != nil {
		return failed(fmt.Errorf("%s: see the tool's input schema", explain(err, in)), Meta{})
	}
	if common == nil || filepath.IsAbs(common.WorkingDirectory) {
		return nil
	}
	root, ask := s.roots.first(ctx, req)
	common.WorkingDirectory = filepath.Join(root, common.WorkingDirectory)
	return ask
}

// explain says what is wrong with arguments.
func explain(err error, in any) string {
	var wrong *json.UnmarshalTypeError
	if errors.As(err, &wrong) {
		want := map[reflect.Kind]string{
			reflect.String: "a string", reflect.Int: "a whole number", reflect.Bool: "true or false", reflect.Slice: "a list of strings",
		}[wrong.Type.Kind()]
		if want == "" {
			want = wrong.Type.String()
		}
		field := wrong.Field
		if strings.HasPrefix(field, "files") {
			want = "a list of strings"
		}
		if i := strings.LastIndexByte(field, '.'); i >= 0 {
			field = field[i+1:]
		}
		if field == "" {
			return "the arguments are not an object"
		}
		return fmt.Sprintf("%s must be %s", field, want)
	}
	if field, ok := strings.CutPrefix(err.Error(), "json: unknown field "); ok {
		return fmt.Sprintf("there is no argument %s", field)
	}
	return "the arguments are not valid JSON"
}

// reporter sends progress notifications where the client asked for them.
func reporter(ctx context.Context, req *mcp.CallToolRequest) func(string) {
	if j, ok := ctx.Value(jobKey{}).(*job); ok {
		return j.report
	}
	token := req.Params.GetProgressToken()
	if token == nil {
		return nil
	}
	n := 0.0
	return func(message string) {
		n++
		req.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ProgressToken: token, Progress: n, Message: message})
	}
}

// result is an answer as a tool's result: its first page, if it is long.
func (s *Server) result(req *mcp.CallToolRequest, a Answer, err error) *mcp.CallToolResult {
	if err != nil {
		r := failed(err, a.Meta)
		if a.Changes != nil {
			r.StructuredContent = a.Changes
		}
		return r
	}
	size := defaultPage
	if init := req.Session.InitializeParams(); init != nil && init.ClientInfo != nil {
		for name, own := range pages {
			if strings.HasPrefix(init.ClientInfo.Name, name) {
				size = own
			}
		}
	}
	if id := a.Meta.SessionID; id != "" {
		a.Notes = append(a.Notes, "sessionId "+id+" goes on with this")
	}
	notes := bracket(a.Notes, notesRoom/2)
	key, pieces := "", []string{a.Text}
	if len(a.Text)+notesRoom/2 > size.bytes || strings.Count(a.Text, "\n") > size.lines {
		pieces = split(a.Text, size.bytes-notesRoom, size.lines)
	}
	if len(pieces) > 1 {
		key = s.b.chunks.put(pieces)
	}
	r := page(pieces[0], key, 1, len(pieces), notes, meta(a.Meta))
	if a.Changes != nil {
		r.StructuredContent = a.Changes
	}
	return r
}

// bracket writes notes, a line each, in at most room bytes.
func bracket(notes []string, room int) (lines []string) {
	for i, n := range notes {
		line := "[" + shorten(n, 200) + "]"
		if room -= len(line) + 1; room < 40 {
			return append(lines, fmt.Sprintf("[and %d more notes]", len(notes)-i))
		}
		lines = append(lines, line)
	}
	return lines
}

// page is one part of an answer. The part itself is a content of its own, so
// that the parts joined are the answer.
func page(text, key string, index, total int, notes []string, m mcp.Meta) *mcp.CallToolResult {
	if total > 1 {
		where := fmt.Sprintf("[Part %d of %d", index, total)
		if index < total {
			where += fmt.Sprintf(`; for the next: fetch-chunk {"cacheKey":"%s","chunkIndex":%d}`, key, index+1)
		}
		notes = append(notes, where+"]")
		m["chunk"] = map[string]any{"cacheKey": key, "index": index, "total": total}
	}
	r := &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: text}}, Meta: m}
	if len(notes) > 0 {
		r.Content = append(r.Content, &mcp.TextContent{Text: strings.Join(notes, "\n")})
	}
	return r
}

// maxPartial bounds what an error quotes of an unfinished answer.
const maxPartial = 4 << 10

func failed(err error, m Meta) *mcp.CallToolResult {
	text := err.Error()
	var f *Failure
	if errors.As(err, &f) && f.Partial != "" {
		part := f.Partial
		if len(part) > maxPartial {
			part = strings.ToValidUTF8(part[:maxPartial], "") + "…"
		}
		text += "\n\nWhat there was of the answer:\n\n" + part
	}
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: text}}, Meta: meta(m), IsError: true}
}

func meta(m Meta) mcp.Meta {
	data, err := json.Marshal(m)
	if err != nil {
		panic(err)
	}
	out := make(mcp.Meta)
	if err := json.Unmarshal(data, &out); err != nil {
		panic(err)
	}
	return out
}
