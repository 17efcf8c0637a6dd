package bridge

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"pollux/internal/agent"
	"pollux/internal/bridge/change"
	"pollux/internal/lazy"
	"pollux/internal/mcp"
	"pollux/internal/termtext"
)

// A pageSize is the amount of text that a client accepts in one result: bytes,
// including notes, and lines.
type pageSize struct{ bytes, lines int }

// defaultPage fits the client with the lowest limit.
var defaultPage = pageSize{8 << 10, math.MaxInt}

// pages holds the page sizes of known clients, by a prefix of their name.
var pages = map[string]pageSize{
	"claude-code": {24 << 10, math.MaxInt}, // it warns at 10,000 tokens
	"gemini-cli":  {30 << 10, math.MaxInt}, // it cuts at 40,000 characters
	"codex":       {8 << 10, 240},          // it cuts at 10 KiB, and at 256 lines
}

// pageOf returns the page size of a client.
func pageOf(client string) pageSize {
	for name, own := range pages {
		if strings.HasPrefix(client, name) {
			return own
		}
	}
	return defaultPage
}

// notesRoom is the number of bytes in a page that are reserved for notes.
const notesRoom = 1 << 10

// several stands for the agent in texts of a bridge that can ask more than one.
var several = agent.Agent{DisplayName: "the agent", Model: "the agent"}

// spoken returns the row with the names for texts to clients, if all these agents can be asked.
func (b *Bridge) spoken(all []*asked) *agent.Agent {
	switch len(all) {
	case 0:
		return b.cfg.Agent
	case 1:
		return all[0].Agent
	}
	return &several
}

// title returns the server's name for people.
func title(row *agent.Agent) string {
	if row == &several {
		return "Pollux"
	}
	return "Pollux: " + row.DisplayName
}

// instructions returns the server's instructions. Clients show them to models.
func instructions(row *agent.Agent, search bool) string {
	intro, panel, working := introOfOne, "", "whether {{agent}} works"
	if row == &several {
		intro, panel, working = introOfSeveral, " agents asks several at the same time.", "which agents work"
	}
	text := fill(row, intro+strings.NewReplacer("{{panel}}", panel, "{{working}}", working).Replace(tasks))
	if !search {
		text = strings.NewReplacer(" or the web", "", " and searches the web", "", searchLine, "").Replace(text)
	}
	return text
}

const introOfOne = `Ask {{model}}, through {{agent}}, about this code base or the web. {{model}} has a
large context window. It reads files and searches the web on its own, but
cannot write files or run commands.
`

const introOfSeveral = `Ask other coding agents about this code base or the web, for a second opinion or for work
that you want to hand over. Name the agent as agent, or let Pollux choose. An agent reads
files on its own, but cannot write them.
`

// searchLine is the line about the web search in tasks.
const searchLine = "- search: ask a question that needs current facts from the web.\n"

const tasks = `
- query: ask a question, optionally with files. {{model}} explores workingDirectory on its own:
  naming a directory is better than sending many files.{{panel}}
- change: ask for changes to files. Returns edits and a unified diff; nothing is written.
` + searchLine + `- structured: get an answer as JSON that is valid under your JSON Schema.
- fetch-chunk: get the next part of a long answer.
- ping: check {{working}} and how many calls are running.
- list-sessions, close-session: manage the conversations that query can continue.
- start-job, wait-job, cancel-job, list-jobs: for calls that take longer than you can wait.

A call takes from seconds to minutes. Include everything {{model}} needs to know: each call
starts without memory of earlier ones, except a query with a sessionId.`

// sentence matches the display name of several at the start of a text or a sentence.
var sentence = lazy.Regexp(`(^|[.:] )the agent\b`)

// fill replaces the placeholders for the names of the agent and its model.
func fill(row *agent.Agent, text string) string {
	if row == &several {
		text = strings.NewReplacer(", for example {{example}}", "", "{{model}} Query", "Ask an Agent", "The {{model}} model", "The model").Replace(text)
	}
	text = strings.NewReplacer(
		"{{agent}}", row.DisplayName, "{{model}}", row.Model, "{{example}}", row.ExampleModel,
	).Replace(text)
	return sentence().ReplaceAllString(text, "${1}The agent")
}

// A Server serves the tools of a bridge to one MCP client.
type Server struct {
	b       *Bridge
	mcp     *mcp.Server
	tools   []mcp.Tool
	session *mcp.Session // set by Run
	roots   roots
	jobs    *jobs
	called  atomic.Bool // a tool was called: see ahead
	known   sync.Once   // the client has said who it is: see received
}

const (
	// maxMessage limits a message, in bytes.
	maxMessage = 32 << 20
	// answerTimeout limits the wait for the last answers after the end of the input, and
	// lastAnswersTimeout after the end of Run's context.
	answerTimeout      = 10 * time.Second
	lastAnswersTimeout = 5 * time.Second
)

// NewServer returns an MCP server for the bridge.
func NewServer(b *Bridge) *Server {
	s := &Server{b: b, jobs: newJobs(b.life)}
	all := b.usable()
	row := b.spoken(all)
	s.mcp = mcp.New(mcp.Config{
		Title: title(row), Version: b.cfg.Version, Instructions: instructions(row, searching(all)),
		Log: b.cfg.Log, Versions: mcp.AllVersions, MaxSessions: 1, Grace: answerTimeout,
	})
	for _, t := range s.table(row, all) {
		t.Schema, t.Run, t.Concurrent = encode(t.schema), s.ahead(t), true
		s.tools = append(s.tools, t.Tool)
	}
	slices.SortFunc(s.tools, func(a, b mcp.Tool) int { return strings.Compare(a.Name, b.Name) })
	return s
}

// Run serves one client on a connection until it disconnects or the context ends. Then Run
// closes the bridge, which cancels the calls, and waits for the answers, unless the client
// does not read them in time. It also waits for the client's jobs.
func (s *Server) Run(ctx context.Context, conn io.ReadWriteCloser) error {
	defer s.jobs.close()
	end := func() { go s.b.Close() }
	session, err := s.mcp.NewSession(mcp.Dialect{Tools: s.tools, Received: s.received, InputEnded: end})
	if err != nil {
		return err
	}
	s.session = session
	closed := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(closed)
		end()
		last, cancel := context.WithTimeout(context.Background(), lastAnswersTimeout)
		defer cancel()
		s.mcp.Close(last)
	})
	session.Serve(mcp.Lines(conn, maxMessage))
	if !stop() {
		<-closed
	}
	return nil
}

// A handler is a [mcp.Tool.Run].
type handler = func(context.Context, *mcp.Call) (*mcp.Result, error)

type tool struct {
	mcp.Tool
	schema map[string]any // of the arguments
}

// withLargeResult asks a client not to move a large result to a file, because
// edits are not paged.
func (t tool) withLargeResult() tool {
	t.Meta = map[string]any{"anthropic/maxResultSizeChars": 200_000}
	return t
}

// withOutput adds the JSON Schema of the structured content. Clients then require
// structured content in each result that is not an error, and may hide the text of one
// that has any: a tool whose answer is text must have no schema.
func (t tool) withOutput(schema map[string]any) tool {
	t.Output = encode(schema)
	return t
}

// encode returns JSON of a value that consists of texts, numbers and lists.
func encode(v any) string {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(data)
}

// table returns the tools for asking all of these agents. row is [Bridge.spoken].
func (s *Server) table(row *agent.Agent, all []*asked) []tool {
	no, yes := new(false), new(true)
	var (
		asks      = mcp.Hints{OpenWorld: yes}
		asksData  = mcp.Hints{OpenWorld: yes, ReadOnly: true}
		asksAgain = mcp.Hints{OpenWorld: yes, ReadOnly: true, Idempotent: true}
		reads     = mcp.Hints{OpenWorld: no, ReadOnly: true, Idempotent: true}
		ends      = mcp.Hints{OpenWorld: no, Idempotent: true}
	)
	text := func(description string) map[string]any { return schemaOf("string", fill(row, description)) }
	integer := func(description string, least, most int) map[string]any {
		return map[string]any{"type": "integer", "minimum": least, "maximum": most, "description": description}
	}
	// shared holds the inputs that several tools have.
	shared := map[string]any{
		"files": map[string]any{
			"type": "array", "items": map[string]any{"type": "string"}, "maxItems": maxFiles,
			"description": fmt.Sprintf("Paths of text files (up to %d bytes each) and images (up to %d bytes each) "+
				"inside workingDirectory.", change.MaxFile, maxImage),
		},
		"model":            text("The {{model}} model, for example {{example}}. Omit it for the default."),
		"workingDirectory": text("The directory that {{model}} may read. Omit it to use the client's root."),
		"timeout": integer("Time limit in milliseconds, including time in the queue. At the limit the call returns "+
			"what has arrived so far. Default: 120000.", 1, int(MaxTimeout.Milliseconds())),
		"sessionId": text("The sessionId from an earlier answer. It continues that conversation in the same directory. " +
			"Omit it to start a new conversation."),
		"maxResponseLength": integer("Maximum length of the answer, in words.", 1, MaxWords),
		"jobId":             text("The jobId from start-job."),
	}
	// own holds the inputs of the tool alone; others are those in shared.
	define := func(
		name, title, description string, own map[string]any, others, required []string,
		hints mcp.Hints, run handler,
	) tool {
		properties := make(map[string]any)
		maps.Copy(properties, own)
		for _, other := range others {
			properties[other] = shared[other]
		}
		hints.Title, hints.Destructive = fill(row, title), no
		return tool{
			mcp.Tool{Name: name, Description: fill(row, description), Hints: &hints, Run: run},
			map[string]any{"type": "object", "properties": properties, "required": required, "additionalProperties": false},
		}
	}
	none := []string{}
	inJobs := slices.Clone(jobTools)
	if !searching(all) {
		inJobs = slices.DeleteFunc(inJobs, func(name string) bool { return name == searchTool })
	}
	last := len(inJobs) - 1
	tools := []tool{
		define(queryTool, "{{model}} Query",
			"Ask {{model}} a question about code, a document, an image or a design, or for a second opinion. "+
				"{{model}} reads the files it needs in workingDirectory on its own. It cannot change files. "+
				"A long answer comes in parts: see fetch-chunk.",
			map[string]any{
				"prompt": text("The question, with everything that {{model}} needs to know."),
				"changeMode": schemaOf("boolean", "Return edits to files as {edits, diff, response}, as the tool change does. "+
					"Nothing is written."),
			},
			[]string{"files", "model", "workingDirectory", "timeout", "maxResponseLength", "sessionId"},
			[]string{"prompt"}, asks, s.asking(queryTool)).withLargeResult(),
		define(changeTool, "Propose Changes",
			"Ask {{model}} to change files. Returns the edits and a unified diff for you to apply. Nothing is written.",
			map[string]any{"prompt": text("What to change, with everything that {{model}} needs to know.")},
			[]string{"files", "model", "workingDirectory", "timeout", "maxResponseLength", "sessionId"},
			[]string{"prompt"}, asks, s.asking(changeTool)).withLargeResult().withOutput(changesSchema),
		define(searchTool, "Web Search",
			"Ask {{model}} to search the web and to answer with sources: current versions, documentation, news, "+
				"error messages.",
			map[string]any{"query": text("What to find out.")},
			[]string{"model", "workingDirectory", "timeout", "maxResponseLength"},
			[]string{"query"}, asksAgain, s.asking(searchTool)),
		define(structuredTool, "Structured Output",
			"Ask {{model}} for JSON that is valid under your JSON Schema: extraction, classification, data with "+
				"a fixed shape. {{model}} may correct an invalid answer once. If it is still invalid, the call "+
				"fails and lists the errors.",
			map[string]any{
				"prompt": text("The question."),
				"schema": map[string]any{
					"anyOf": []any{map[string]any{"type": "object"}, map[string]any{"type": "string"}},
					"description": fmt.Sprintf("The JSON Schema, as an object or a string. At most %d bytes, "+
						"any draft, no references to other documents.", maxSchema),
				},
			},
			[]string{"files", "model", "workingDirectory", "timeout"},
			[]string{"prompt", "schema"}, asksData, s.asking(structuredTool)),
		define("fetch-chunk", "Fetch Cached Chunk",
			fmt.Sprintf("Get another part of a long answer from query or search. Parts are kept for %d minutes.",
				int(cached.after.Minutes())),
			map[string]any{
				"cacheKey":   text("The cacheKey from the first part."),
				"chunkIndex": map[string]any{"type": "integer", "minimum": 1, "description": "The number of the part, from 1."},
			},
			none, []string{"cacheKey", "chunkIndex"}, reads, local(s, s.fetchChunk)),
		define("list-sessions", "List Sessions",
			fmt.Sprintf("List the conversations that query can continue. A conversation ends %d minutes after "+
				"its last query.", int(continued.after.Minutes())),
			nil, none, none, reads, local(s, s.listSessions)),
		define("close-session", "Close Session", "End a conversation that is no longer needed.",
			map[string]any{"sessionId": text("The sessionId from an answer in the conversation.")},
			none, []string{"sessionId"}, ends, local(s, s.closeSession)),
		define(startJob, "Start Job",
			"Start a call of "+strings.Join(inJobs[:last], ", ")+" or "+inJobs[last]+" that may take longer than you can wait. Returns a jobId immediately.",
			map[string]any{
				"tool": map[string]any{"type": "string", "enum": inJobs, "description": "The tool to call."},
				"arguments": schemaOf("object", fmt.Sprintf("The arguments of the tool. timeout may be up to %d.",
					MaxTimeout.Milliseconds())),
			},
			none, []string{"tool", "arguments"}, asks, local(s, s.startJob)),
		define("wait-job", "Wait for Job",
			fmt.Sprintf("Wait for the result of a job. Results are kept for %d minutes.", int(endedJobs.after.Minutes())),
			map[string]any{"timeout": integer(fmt.Sprintf("How long to wait, in milliseconds. Default: %d.",
				jobWaitTimeout.Milliseconds()), 0, int(maxJobWaitTimeout.Milliseconds()))},
			[]string{"jobId"}, []string{"jobId"}, reads, local(s, s.waitJob)).withLargeResult(),
		define("cancel-job", "Cancel Job", "Cancel a job that is no longer needed.",
			nil, []string{"jobId"}, []string{"jobId"}, ends, local(s, s.cancelJob)),
		define("list-jobs", "List Jobs", "List running jobs and recently ended jobs.",
			nil, none, none, reads, local(s, s.listJobs)),
		define("ping", "Health Check",
			"Report whether {{agent}} is installed, its version, what it may do, and how many calls are running "+
				"and waiting. Answers immediately, without asking a model.",
			nil, none, none, reads, local(s, s.ping)),
	}
	if len(all) > 1 {
		offerAgents(tools, all)
	}
	if !searching(all) {
		tools = slices.DeleteFunc(tools, func(t tool) bool { return t.Name == searchTool })
	}
	return tools
}

// searching reports whether one of the agents can search the web. Without agents, any may be
// installed later.
func searching(all []*asked) bool {
	return len(all) == 0 || slices.ContainsFunc(all, (*asked).searches)
}

// offerAgents adds the choice of an agent to the tools that ask one.
func offerAgents(tools []tool, all []*asked) {
	for _, t := range tools {
		able := all
		if t.Name == searchTool {
			able = only(all, (*asked).searches)
		}
		if !slices.Contains(jobTools, t.Name) || len(able) == 0 {
			continue
		}
		var described []string
		for _, a := range able {
			described = append(described, a.Agent.Name+" is "+a.Agent.DisplayName)
		}
		one := map[string]any{
			"type": "string", "enum": names(able),
			"description": "The agent to ask: " + strings.Join(described, ", ") + ". Omit it to let Pollux choose an agent other than you.",
		}
		properties := t.schema["properties"].(map[string]any)
		properties["agent"] = one
		if t.Name == queryTool {
			properties["agents"] = map[string]any{
				"type": "array", "items": map[string]any{"type": "string", "enum": names(able)}, "minItems": 2,
				"description": "Several agents to ask the same question at the same time, instead of agent. Each answers on its own.",
			}
		}
	}
}

// client returns the name of the MCP client, or "" before it has introduced itself.
func (s *Server) client() string {
	name, _ := s.session.ClientInfo()
	return name
}

// asking returns the handler of a tool that asks an agent.
func (s *Server) asking(tool string) handler {
	return func(ctx context.Context, c *mcp.Call) (*mcp.Result, error) {
		in, err := s.question(ctx, c, tool, c.Args)
		if err != nil {
			return unread(err)
		}
		return s.answer(ctx, c, in), nil
	}
}

// question reads the arguments of a tool that asks an agent. The error is for unread.
func (s *Server) question(ctx context.Context, c *mcp.Call, tool string, args json.RawMessage) (Input, error) {
	switch tool {
	case searchTool:
		in := new(SearchInput)
		return in, s.input(ctx, c, args, in, &in.Common)
	case structuredTool:
		in := new(StructuredInput)
		return in, s.input(ctx, c, args, in, &in.Common)
	}
	in := new(QueryInput)
	err := s.input(ctx, c, args, in, &in.Common)
	in.ChangeMode = in.ChangeMode || tool == changeTool
	return in, err
}

// answer asks an agent, or several.
func (s *Server) answer(ctx context.Context, c *mcp.Call, in Input) *mcp.Result {
	report := reporter(ctx, c)
	q, ok := in.(*QueryInput)
	if !ok || len(q.Agents) == 0 {
		a, err := s.b.Ask(ctx, in, report)
		return s.result(a, err)
	}
	answers, err := s.b.Panel(ctx, *q, report, nil)
	if err != nil {
		return failed(err, Meta{})
	}
	return s.panelResult(answers, ctx.Err() != nil)
}

// local returns the handler of a tool that asks no agent. It reads the arguments for f, and
// makes a result of its error.
func local[In any](s *Server, f func(context.Context, *mcp.Call, In) (*mcp.Result, error)) handler {
	return func(ctx context.Context, c *mcp.Call) (*mcp.Result, error) {
		var in In
		if err := s.input(ctx, c, c.Args, &in, nil); err != nil {
			return unread(err)
		}
		r, err := f(ctx, c, in)
		if err != nil && !errors.Is(err, mcp.ErrInput) {
			return refused(err), nil
		}
		return r, err
	}
}

type chunkInput struct {
	CacheKey   string   `json:"cacheKey"`
	ChunkIndex *Integer `json:"chunkIndex"`
}

func (s *Server) fetchChunk(_ context.Context, _ *mcp.Call, in chunkInput) (*mcp.Result, error) {
	switch {
	case in.CacheKey == "":
		return nil, errors.New("cacheKey is missing: pass the one from the first part")
	case in.ChunkIndex == nil || *in.ChunkIndex < 1:
		return nil, errors.New("chunkIndex must be a whole number, starting from 1")
	}
	text, total, err := s.b.chunks.get(in.CacheKey, int(*in.ChunkIndex))
	if err != nil {
		return nil, err
	}
	return page(text, in.CacheKey, int(*in.ChunkIndex), total, nil, meta(Meta{Model: "none"})), nil
}

func (s *Server) listSessions(context.Context, *mcp.Call, struct{}) (*mcp.Result, error) {
	return listed("sessions", s.b.conversations.list())
}

type sessionInput struct {
	SessionID string `json:"sessionId"`
}

func (s *Server) closeSession(_ context.Context, _ *mcp.Call, in sessionInput) (*mcp.Result, error) {
	if !s.b.conversations.close(in.SessionID) {
		return nil, errors.New("there is no such session: list-sessions returns the existing ones")
	}
	return notice("closed"), nil
}

// text returns a result with one text.
func text(s string, m Meta) *mcp.Result {
	return &mcp.Result{Texts: []string{s}, Meta: meta(m)}
}

// notice returns a result that no model wrote.
func notice(s string) *mcp.Result { return text(s, Meta{Model: "none"}) }

// refused returns the error of a call that asked no model.
func refused(err error) *mcp.Result { return failed(err, Meta{Model: "none"}) }

// listed returns a list as text and as structured content.
func listed(name string, list any) (*mcp.Result, error) {
	data, err := json.Marshal(map[string]any{name: list})
	if err != nil {
		return nil, err
	}
	r := notice(string(data))
	r.Structured = json.RawMessage(data)
	return r, nil
}

func (s *Server) ping(ctx context.Context, _ *mcp.Call, _ struct{}) (*mcp.Result, error) {
	start := time.Now()
	state, err := s.b.Ping(ctx)
	r := text(state, Meta{DurationMs: time.Since(start).Milliseconds(), Model: "none"})
	r.IsError = err != nil
	return r, nil
}

// Ping describes the state of the bridge and the agent. It does not ask a model.
// The error explains why calls would fail.
func (b *Bridge) Ping(ctx context.Context) (string, error) {
	var out strings.Builder
	line := func(name, format string, args ...any) {
		fmt.Fprintf(&out, "%s: %s\n", name, fmt.Sprintf(format, args...))
	}
	line("Pollux", "%s", b.cfg.Version)
	all := b.usable()
	if len(all) == 0 {
		all = b.agents[:1]
	}
	var errs []error
	for _, a := range all {
		row := a.Agent
		runner, err := a.run()
		var program agent.Program
		if err == nil {
			program, err = runner.Check(ctx, a.Source)
		}
		if program.Path != "" {
			line(row.DisplayName, "%s at %s", cmp.Or(program.Version, "unknown version"), program.Path)
		}
		if err != nil {
			errs = append(errs, err)
			line("problem", "%v", err)
			line("read-only", "calls are refused until the problem is solved")
		} else {
			line("read-only", "enforced: %s %s", row.Model, row.Restriction())
		}
		line("model", "%s", cmp.Or(a.DefaultModel, "the default of "+row.DisplayName))
		line("fallback", "%s", cmp.Or(a.FallbackModel, "none"))
	}
	var err error
	if len(errs) == len(all) {
		err = errors.Join(errs...)
	}
	line("queue", "%d running, %d waiting, at most %d of each account, at least %s between starts",
		b.running.Load(), b.waiting.Load(), b.cfg.MaxConcurrent, b.cfg.StartInterval)
	line("runner", "%s", b.cfg.Kind)
	for _, w := range b.workers() {
		line("warm", "%s", w)
	}
	line("sessions", "%d", len(b.conversations.list()))
	line("stored answers", "%d", b.chunks.len())
	return strings.TrimSuffix(out.String(), "\n"), err
}

// input reads a tool's arguments into in. The error is for unread.
func (s *Server) input(ctx context.Context, c *mcp.Call, args json.RawMessage, in any, common *Common) (err error) {
	if len(args) == 0 {
		args = json.RawMessage("{}")
	}
	dec := json.NewDecoder(bytes.NewReader(args))
	dec.DisallowUnknownFields()
	if err := dec.Decode(in); err != nil {
		return fmt.Errorf("%s: see the tool's input schema", explain(err))
	}
	if common == nil {
		return nil
	}
	common.client = s.client()
	if filepath.IsAbs(common.WorkingDirectory) {
		return nil
	}
	root, err := s.roots.first(ctx, c)
	common.WorkingDirectory = filepath.Join(root, common.WorkingDirectory)
	return err
}

// unread returns the result of a call whose arguments could not be read, or the error if the
// client repeats the call.
func unread(err error) (*mcp.Result, error) {
	if errors.Is(err, mcp.ErrInput) {
		return nil, err
	}
	return failed(err, Meta{}), nil
}

// explain describes an error in a tool's arguments.
func explain(err error) string {
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		want := map[reflect.Kind]string{
			reflect.String: "a string", reflect.Int: "a whole number", reflect.Bool: "true or false",
			reflect.Slice: "a list of strings",
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
		return fmt.Sprintf("unknown argument %s", field)
	}
	return "the arguments are not valid JSON"
}

// reporter returns a function that sends progress notifications, or nil if the
// client did not ask for any.
func reporter(ctx context.Context, c *mcp.Call) func(string) {
	if j, ok := ctx.Value(jobKey{}).(*job); ok {
		return j.report
	}
	return c.Reporter(ctx)
}

// result returns an answer as a tool result. It stores a long answer, and
// returns the first page.
func (s *Server) result(a Answer, err error) *mcp.Result {
	if err != nil {
		r := failed(err, a.Meta)
		if a.Changes != nil {
			r.Structured = a.Changes
		}
		return r
	}
	if a.IsJSON {
		r := text(a.Text, a.Meta)
		if len(a.Notes) > 0 {
			r.Meta["notes"] = a.Notes
		}
		if strings.HasPrefix(a.Text, "{") { // the protocol requires structured content to be an object
			r.Structured = json.RawMessage(a.Text)
		}
		return r
	}
	if a.Changes == nil { // a diff is exact
		a.Text = termtext.Text(a.Text) // some clients print it to their terminal as it is
	}
	size := pageOf(s.client())
	if id := a.Meta.SessionID; id != "" {
		a.Notes = append(a.Notes, fmt.Sprintf("to continue this conversation, pass sessionId %q", id))
	}
	if a.Cut != "" {
		a.Text = fmt.Sprintf("[Partial response, %s]\n\n%s", a.Cut, a.Text)
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
		r.Structured = a.Changes
	}
	return r
}

// bracket returns notes as lines in brackets, at most room bytes in total.
func bracket(notes []string, room int) (lines []string) {
	for i, n := range notes {
		line := "[" + agent.Shorten(n, 200) + "]"
		if room -= len(line) + 1; room < 40 {
			return append(lines, fmt.Sprintf("[and %d more notes]", len(notes)-i))
		}
		lines = append(lines, line)
	}
	return lines
}

// page returns one part of an answer. The first content is the part alone, so
// that a client can join the parts.
func page(text, key string, index, total int, notes []string, m map[string]any) *mcp.Result {
	if total > 1 {
		where := fmt.Sprintf("[Part %d of %d", index, total)
		if index < total {
			where += fmt.Sprintf(`; for the next part, call fetch-chunk {"cacheKey":"%s","chunkIndex":%d}`, key, index+1)
		}
		notes = append(notes, where+"]")
		m["chunk"] = map[string]any{"cacheKey": key, "index": index, "total": total}
	}
	r := &mcp.Result{Texts: []string{text}, Meta: m}
	if len(notes) > 0 {
		r.Texts = append(r.Texts, strings.Join(notes, "\n"))
	}
	return r
}

// maxPartial limits how much of an incomplete answer an error quotes, in bytes.
const maxPartial = 4 << 10

// failed returns an error as a tool result.
func failed(err error, m Meta) *mcp.Result {
	text := err.Error()
	if f, ok := errors.AsType[*Failure](err); ok && f.Partial != "" {
		part := f.Partial
		if len(part) > maxPartial {
			part = strings.ToValidUTF8(part[:maxPartial], "") + "…"
		}
		text += "\n\nThe incomplete answer:\n\n" + part
	}
	return &mcp.Result{Texts: []string{termtext.Text(text)}, Meta: meta(m), IsError: true}
}

// meta returns m as the _meta of a result.
func meta(m Meta) map[string]any {
	data, err := json.Marshal(m)
	if err != nil {
		panic(err)
	}
	out := make(map[string]any)
	if err := json.Unmarshal(data, &out); err != nil {
		panic(err)
	}
	return out
}
