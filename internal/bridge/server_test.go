package bridge

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"pollux/internal/agent"
	"pollux/internal/agent/agents"
	"pollux/internal/bridge/change/changetest"
	"pollux/internal/sys/systest"
)

// connect connects a client with the given name to a new server of the bridge.
func connect(t *testing.T, b *Bridge, name string, roots ...string) *mcp.ClientSession {
	t.Helper()
	return connectAs(t, b, name, "", roots...)
}

// connectAs is [connect] with a revision of the protocol. Empty means the
// newest.
func connectAs(t *testing.T, b *Bridge, name, revision string, roots ...string) *mcp.ClientSession {
	t.Helper()
	return serve(t, NewServer(b), name, revision, roots...)
}

// run runs a server, and returns a client's transport to it.
func run(ctx context.Context, s *Server) (to mcp.Transport, ended chan error) {
	conn, client := systest.Pipes()
	ended = make(chan error, 1)
	go func() { ended <- s.Run(ctx, conn) }()
	return &mcp.IOTransport{Reader: client, Writer: client}, ended
}

// serve is [connectAs] for an existing server.
func serve(t *testing.T, s *Server, name, revision string, roots ...string) *mcp.ClientSession {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	transport, ended := run(ctx, s)
	client := mcp.NewClient(&mcp.Implementation{Name: name, Version: "1"}, nil)
	for _, r := range roots {
		//lint:ignore SA1019 the protocol has deprecated roots and given clients nothing in their place
		client.AddRoots(&mcp.Root{URI: r})
	}
	session, err := client.Connect(ctx, transport, &mcp.ClientSessionOptions{ProtocolVersion: revision})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		session.Close()
		cancel()
		<-ended
	})
	return session
}

func callTool(t *testing.T, s *mcp.ClientSession, tool, args string) (*mcp.CallToolResult, string) {
	t.Helper()
	r, err := s.CallTool(t.Context(), &mcp.CallToolParams{Name: tool, Arguments: json.RawMessage(args)})
	if err != nil {
		t.Fatal(err)
	}
	var texts []string
	for _, c := range r.Content {
		texts = append(texts, c.(*mcp.TextContent).Text)
	}
	return r, strings.Join(texts, "\n")
}

func TestToolsAreAsDesigned(t *testing.T) {
	s := connect(t, newTestBridge(t, answering("ok"), nil), "test")
	list, err := s.ListTools(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	got := make(map[string]string)
	for _, tool := range list.Tools {
		a := tool.Annotations
		flags := ""
		for _, f := range []bool{a.ReadOnlyHint, *a.DestructiveHint, a.IdempotentHint, *a.OpenWorldHint} {
			flags += map[bool]string{true: "T", false: "F"}[f]
		}
		schema := tool.InputSchema.(map[string]any)
		var names []string
		for name := range schema["properties"].(map[string]any) {
			names = append(names, name)
		}
		slices.Sort(names)
		required, _ := json.Marshal(schema["required"])
		got[tool.Name] = tool.Title + " " + flags + " " + strings.Join(names, ",") + " " + string(required)
		if len(tool.Description) > 2000 || tool.Description == "" || (tool.OutputSchema != nil) != (tool.Name == "change") {
			t.Errorf("%s: a description of %d bytes, output schema %v", tool.Name, len(tool.Description), tool.OutputSchema)
		}
	}
	for name, want := range map[string]string{
		"query":       `Gemini Query FFFT changeMode,files,maxResponseLength,model,prompt,sessionId,timeout,workingDirectory ["prompt"]`,
		"change":      `Propose Changes FFFT files,maxResponseLength,model,prompt,sessionId,timeout,workingDirectory ["prompt"]`,
		"search":      `Web Search TFTT maxResponseLength,model,query,timeout,workingDirectory ["query"]`,
		"structured":  `Structured Output TFFT files,model,prompt,schema,timeout,workingDirectory ["prompt","schema"]`,
		"fetch-chunk": `Fetch Cached Chunk TFTF cacheKey,chunkIndex ["cacheKey","chunkIndex"]`,
		"ping":        `Health Check TFTF  []`,

		"list-sessions": `List Sessions TFTF  []`,
		"close-session": `Close Session FFTF sessionId ["sessionId"]`,
		"start-job":     `Start Job FFFT arguments,tool ["tool","arguments"]`,
		"wait-job":      `Wait for Job TFTF jobId,timeout ["jobId"]`,
		"cancel-job":    `Cancel Job FFTF jobId ["jobId"]`,
		"list-jobs":     `List Jobs TFTF  []`,
	} {
		if got[name] != want {
			t.Errorf("%s is %s\nwant %s", name, got[name], want)
		}
	}
	if len(got) != 12 {
		t.Errorf("%d tools", len(got))
	}
	if text := s.InitializeResult().Instructions; text == "" || len(text) > 2000 {
		t.Errorf("instructions of %d bytes", len(text))
	}
}

func TestWrongArgumentsAreExplained(t *testing.T) {
	s := connect(t, newTestBridge(t, answering("ok"), nil), "test")
	for _, test := range [][3]string{
		{"query", `{}`, "prompt is empty"},
		{"query", `{"prompt":1}`, "prompt must be a string"},
		{"query", `{"prompt":"x","timeout":"soon"}`, "timeout must be a whole number"},
		{"query", `{"prompt":"x","timeout":1.5}`, "timeout must be a whole number"},
		{"query", `{"prompt":"x","files":"a"}`, "files must be a list"},
		{"query", `{"prompt":"x","changeMode":"yes"}`, "changeMode must be true or false"},
		{"query", `{"prompt":"x","yolo":true}`, `unknown argument "yolo"`},
		{"structured", `{"prompt":"x"}`, "schema"},
		{"change", `{"prompt":" "}`, "prompt is empty"},
		{"fetch-chunk", `{}`, "cacheKey is missing"},
		{"fetch-chunk", `{"cacheKey":"x","chunkIndex":0}`, "starting from 1"},
		{"fetch-chunk", `{"cacheKey":"x","chunkIndex":1}`, "ask again"},
	} {
		r, text := callTool(t, s, test[0], test[1])
		if !r.IsError || !strings.Contains(text, test[2]) {
			t.Errorf("%s %s: isError %v, %q", test[0], test[1], r.IsError, text)
		}
	}
	if r, text := callTool(t, s, "query", `{"prompt":"x","timeout":1e4,"maxResponseLength":5.0}`); r.IsError {
		t.Errorf("a whole number in another form: %s", text)
	}
}

// fileURI returns the URI of a file.
func fileURI(path string) string {
	return "file:///" + strings.TrimPrefix(filepath.ToSlash(path), "/")
}

// A call without a directory works in the client's root.
func TestRoots(t *testing.T) {
	root, other := changetest.Project(t, false, map[string]string{"sub/x": ""}), changetest.Project(t, false, nil)
	var dir string
	b := newTestBridge(t, script(func(_ context.Context, r agent.Request, _ func(agent.Event)) (agent.Result, error) {
		dir = r.Dir
		return say("ok")
	}), nil)
	for _, revision := range []string{"2024-11-05", "2025-06-18", "2026-07-28"} {
		s := connectAs(t, b, "test", revision, "https://example.org", "file:///no/such/directory", fileURI(root))
		for args, want := range map[string]string{
			`{"prompt":"x"}`: root,
			`{"prompt":"x","workingDirectory":"sub"}`:                             filepath.Join(root, "sub"),
			`{"prompt":"x","workingDirectory":"` + filepath.ToSlash(other) + `"}`: other,
		} {
			if r, text := callTool(t, s, "query", args); r.IsError || dir != want {
				t.Errorf("%s, %s: in %s, want %s; %s", revision, args, dir, want, text)
			}
		}
	}
}

// A client that does not answer is asked for its roots only once.
func TestSilentRoots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newTestBridge(t, answering("ok"), nil)
		transport, ended := run(t.Context(), NewServer(b))
		client := mcp.NewClient(&mcp.Implementation{Name: "silent"}, nil)
		client.AddReceivingMiddleware(func(next mcp.MethodHandler) mcp.MethodHandler {
			return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
				if method == "roots/list" {
					<-ctx.Done()
				}
				return next(ctx, method, req)
			}
		})
		session, err := client.Connect(t.Context(), transport, &mcp.ClientSessionOptions{ProtocolVersion: "2025-06-18"})
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []time.Duration{rootsTimeout, 0} {
			begin := time.Now()
			if _, text := callTool(t, session, "query", `{"prompt":"x"}`); !strings.HasPrefix(text, "ok\n") || time.Since(begin) != want {
				t.Errorf("%q after %s, want %s", text, time.Since(begin), want)
			}
		}
		session.Close()
		<-ended
	})
}

// The pages of a long answer fit the client. Joined, they form the answer.
func TestPages(t *testing.T) {
	answer := strings.TrimSpace(strings.Repeat("Ein längerer Absatz über 世界.\nMit zwei Zeilen.\n\n", 2000))
	for name, most := range map[string]int{"somebody": 8 << 10, "claude-code": 24 << 10, "gemini-cli-mcp-client-pollux": 30 << 10} {
		t.Run(name, func(t *testing.T) {
			s := connect(t, newTestBridge(t, answering(answer), nil), name)
			r, all := callTool(t, s, "query", `{"prompt":"x","files":["none"]}`)
			joined := ""
			for {
				if len(all) > most {
					t.Errorf("a page of %d bytes", len(all))
				}
				joined += r.Content[0].(*mcp.TextContent).Text
				chunk := r.Meta["chunk"].(map[string]any)
				if chunk["index"] == chunk["total"] {
					break
				}
				args, _ := json.Marshal(map[string]any{"cacheKey": chunk["cacheKey"], "chunkIndex": chunk["index"].(float64) + 1})
				if !strings.Contains(all, "fetch-chunk "+string(args)) {
					t.Errorf("the page does not say how to go on: %q", all[len(all)-200:])
				}
				r, all = callTool(t, s, "fetch-chunk", string(args))
			}
			if joined != answer {
				t.Error("the pages are not the answer")
			}
		})
	}
}

// The structured content contains the edits and the diff. The result itself
// contains the _meta.
func TestResults(t *testing.T) {
	dir := changetest.Project(t, false, map[string]string{"a.txt": "one\n"})
	s := connect(t, newTestBridge(t, answering("Words.\n"+changetest.Block("a.txt:1-1", "one", "1")), nil), "test", fileURI(dir))
	r, text := callTool(t, s, "query", `{"prompt":"x","changeMode":true}`)
	content, _ := json.Marshal(r.StructuredContent)
	for _, want := range []string{`"edits":[{"endLine":1,"new":"1","old":"one","path":"a.txt","startLine":1}]`, `"diff":"diff --git a/a.txt b/a.txt\n`, `"response":"Words."`, `"appliedWrites":false`} {
		if !strings.Contains(string(content), want) {
			t.Errorf("no %s in %s", want, content)
		}
	}
	if !strings.HasPrefix(text, "Words.") || !strings.Contains(text, "+1") || r.Meta["model"] != "gemini-test" || r.Meta["partial"] != false || r.Meta["durationMs"] == nil {
		t.Errorf("text %q, _meta %v", text, r.Meta)
	}
	if c := r.Content[0].(*mcp.TextContent); c.Meta != nil {
		t.Errorf("the content has a _meta %v", c.Meta)
	}
	if r, _ := callTool(t, s, "query", `{"prompt":"x"}`); r.StructuredContent != nil {
		t.Error("a plain answer has structured content, which hides its text from models")
	}
}

// An answer cannot control the terminal of a client that prints it, nor carry text that only a
// model sees. A diff stays exact.
func TestResultsAreSafeInTerminals(t *testing.T) {
	const unsafe = "a\x1b]0;title\a\u202eb\U000e0041\r\n\tc"
	dir := changetest.Project(t, false, map[string]string{"a.txt": "one\n"})
	for name, tt := range map[string]struct {
		answer, arguments, want string
		err                     error
	}{
		"an answer": {unsafe, `{"prompt":"x"}`, "a]0;titleb\n\tc", nil},
		"a failure": {unsafe, `{"prompt":"x"}`, "a]0;titleb\n\tc", &agent.Error{Kind: agent.Network}},
		"a diff":    {changetest.Block("a.txt:1-1", "one", "1\x1b"), `{"prompt":"x","changeMode":true}`, "+1\x1b\n", nil},
	} {
		t.Run(name, func(t *testing.T) {
			b := newTestBridge(t, script(func(context.Context, agent.Request, func(agent.Event)) (agent.Result, error) {
				return agent.Result{Answer: tt.answer}, tt.err
			}), nil)
			if _, text := callTool(t, connect(t, b, "test", fileURI(dir)), "query", tt.arguments); !strings.Contains(text, tt.want) {
				t.Errorf("got %q", text)
			}
		})
	}
}

// An error is a result that quotes the incomplete answer.
func TestErrorsAreResults(t *testing.T) {
	b := newTestBridge(t, script(func(context.Context, agent.Request, func(agent.Event)) (agent.Result, error) {
		return agent.Result{Answer: "half of it"}, &agent.Error{Kind: agent.Network, Message: "fetch failed"}
	}), nil)
	r, text := callTool(t, connect(t, b, "test"), "query", `{"prompt":"x"}`)
	if !r.IsError || !strings.Contains(text, "check the network") || !strings.Contains(text, "half of it") || r.Meta["durationMs"] == nil {
		t.Errorf("isError %v, %q, %v", r.IsError, text, r.Meta)
	}
	broken := newTestBridge(t, uninstalled{answering("")}, nil)
	r, text = callTool(t, connect(t, broken, "test"), "ping", `{}`)
	if !r.IsError || !strings.Contains(text, "npm install") || !strings.Contains(text, "calls are refused") {
		t.Errorf("ping says %q", text)
	}
}

// An answer that ends early says so before its text.
func TestPartialAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newTestBridge(t, script(func(ctx context.Context, _ agent.Request, _ func(agent.Event)) (agent.Result, error) {
			<-ctx.Done()
			return agent.Result{Answer: "half of it"}, context.Cause(ctx)
		}), nil)
		r, text := callTool(t, connect(t, b, "test"), "query", `{"prompt":"x","timeout":2000}`)
		if r.IsError || !strings.HasPrefix(text, "[Partial response, timed out after 2s]\n\nhalf of it") || r.Meta["partial"] != true {
			t.Errorf("got %q, %v, %v", text, r.IsError, r.Meta)
		}
	})
}

type uninstalled struct{ script }

func (uninstalled) Check(context.Context, agent.Source) (agent.Program, error) {
	return agent.Program{}, agents.Default().Error(agent.NotInstalled, "")
}

func TestMetaIsNotLost(t *testing.T) {
	m := meta(Meta{DurationMs: 1, Model: "m", Tokens: &agent.Tokens{Total: 3}, Fallback: &agent.Fallback{From: "a", To: "b", Why: "c"}})
	data, err := json.Marshal(m)
	if err != nil || string(data) != `{"durationMs":1,"fallback":{"from":"a","to":"b","why":"c"},"model":"m","partial":false,"queuedMs":0,"tokens":{"cached":0,"input":0,"output":0,"total":3}}` {
		t.Errorf("%s, %v", data, errors.Join(err))
	}
}

// The structured content of change is valid under the tool's output schema, which names
// each of its properties.
func TestChangesMatchTheirSchema(t *testing.T) {
	dir := changetest.Project(t, false, map[string]string{"a.txt": "one\n"})
	answers := map[string]string{
		"edit":   "Words.\n" + changetest.Block("a.txt:1-1", "one", "1"),
		"delete": changetest.Block("a.txt:1-1", "one", ""),
		"create": "**NEW FILE: b.txt**\n===NEW===\nnew\n===END===\n",
		"none":   "Nothing needs to change.",
	}
	b := newTestBridge(t, script(func(_ context.Context, req agent.Request, _ func(agent.Event)) (agent.Result, error) {
		for prompt, answer := range answers {
			if strings.Contains(req.Prompt, "fake-"+prompt) {
				return say(answer)
			}
		}
		if err := os.WriteFile(filepath.Join(dir, "a.txt"), []byte("written"), 0o600); err != nil {
			return agent.Result{}, err
		}
		return say("done")
	}), nil)
	s := connect(t, b, "test", fileURI(dir))
	data, err := json.Marshal(changesSchema)
	if err != nil {
		t.Fatal(err)
	}
	schema, err := compile(data)
	if err != nil {
		t.Fatal(err)
	}
	check := func(r *mcp.CallToolResult) {
		t.Helper()
		content, err := json.Marshal(r.StructuredContent)
		if err != nil {
			t.Fatal(err)
		}
		if _, wrong := validate(schema, string(content)); wrong != nil {
			t.Errorf("%s: %q", content, wrong)
		}
		var properties map[string]any
		if err := json.Unmarshal(content, &properties); err != nil {
			t.Fatal(err)
		}
		for name := range properties {
			if changesSchema["properties"].(map[string]any)[name] == nil {
				t.Errorf("%s is not in the schema", name)
			}
		}
	}
	for prompt := range answers {
		r, text := callTool(t, s, "change", fmt.Sprintf(`{"prompt":"fake-%s","files":["missing"]}`, prompt))
		if r.IsError {
			t.Errorf("%s: %s", prompt, text)
		}
		check(r)
	}
	r, text := callTool(t, s, "change", `{"prompt":"write it"}`)
	if !r.IsError || !strings.Contains(text, "files changed while") {
		t.Errorf("isError %v, %s", r.IsError, text)
	}
	check(r)
}
