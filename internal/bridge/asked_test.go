package bridge

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"pollux/internal/agent"
	"pollux/internal/agent/agents"
	"pollux/internal/sys/systest"
)

// threeAgents configures a bridge with two more agents: beta cannot search the web, and
// gamma is usable only if it is in usable.
func threeAgents(runners map[string]agent.Runner, usable ...string) func(*Config) {
	return func(cfg *Config) {
		for name, title := range map[string]string{"beta": "Beta Code", "gamma": "Gamma"} {
			cfg.Others = append(cfg.Others, Asked{Agent: &agent.Agent{
				Name: name, DisplayName: title, Model: title, Clients: []string{name + "-"}, ExampleModel: name + "-1", Provider: name + ".ai",
				Driver: agent.Driver{MaxPrompt: 1 << 20, SearchTool: map[string]string{"gamma": "web"}[name]},
			}})
		}
		slices.SortFunc(cfg.Others, func(a, b Asked) int { return strings.Compare(a.Agent.Name, b.Agent.Name) })
		cfg.Open = func(a Asked) (agent.Runner, error) {
			if r := runners[a.Agent.Name]; r != nil {
				return r, nil
			}
			return nil, errors.New("there is no runner")
		}
		cfg.Usable = func(a Asked) bool { return slices.Contains(usable, a.Agent.Name) }
	}
}

// A login or a connection fails. If the client may have withheld a key or the proxy, the error
// says what to do.
func TestWithheld(t *testing.T) {
	const fault = "Beta Code failed: do something"
	for _, tt := range []struct {
		client string
		kind   agent.Kind
		want   string
	}{
		{"a client", agent.Auth, fault},
		{"claude-code", agent.Auth, fault},
		{"gemini-cli-mcp-client-pollux", agent.Auth, "`pollux install bridge gemini`"},
		{"gemini-cli-mcp-client-pollux", agent.Network, "`pollux install bridge gemini`"},
		{"gemini-cli-mcp-client-pollux", agent.Capacity, fault},
		{"codex-mcp-client", agent.Auth, "`pollux install bridge codex`"},
		{"codex-mcp-client", agent.Network, "`pollux install bridge codex`"},
		{"github-copilot-developer", agent.Auth, "Copilot CLI never passes ANTHROPIC_API_KEY"},
		{"github-copilot-developer", agent.Network, fault},
	} {
		fails := script(func(context.Context, agent.Request, func(agent.Event)) (agent.Result, error) {
			return agent.Result{}, &agent.Error{Kind: tt.kind, Remedy: agent.Remedy{What: "Beta Code failed", Next: "do something"}}
		})
		b := newTestBridge(t, answering("x"), func(cfg *Config) {
			threeAgents(map[string]agent.Runner{"beta": fails}, "gemini", "beta")(cfg)
			for _, row := range agents.Others() {
				cfg.Others = append(cfg.Others, Asked{Agent: row})
			}
		})
		result, text := callTool(t, connect(t, b, tt.client), "query", `{"prompt":"x","agent":"beta"}`)
		if !result.IsError || !strings.HasPrefix(text, fault) || !strings.Contains(text, tt.want) || (text != fault) != (tt.want != fault) {
			t.Errorf("%s is told %q after kind %v, want %q", tt.client, text, tt.kind, tt.want)
		}
	}
}

// Without any installed agent, the error of the first one is not the whole choice.
func TestNoneInstalled(t *testing.T) {
	const missing = "Gemini CLI is missing: install it"
	fails := script(func(context.Context, agent.Request, func(agent.Event)) (agent.Result, error) {
		return agent.Result{}, &agent.Error{Kind: agent.NotInstalled, Remedy: agent.Remedy{What: "Gemini CLI is missing", Next: "install it"}}
	})
	for _, tt := range []struct {
		usable []string
		want   string
	}{
		{nil, missing + ". Instead, Pollux can ask Beta Code, Gamma, once one is installed"},
		{[]string{"beta"}, missing},
	} {
		b := newTestBridge(t, fails, threeAgents(nil, tt.usable...))
		if _, err := b.Ask(t.Context(), QueryInput{Prompt: "x", Common: Common{Agent: "gemini"}}, nil); err == nil || err.Error() != tt.want {
			t.Errorf("with %q the error is %v, want %s", tt.usable, err, tt.want)
		}
	}
}

// Which agent answers a call.
func TestChoice(t *testing.T) {
	for _, tt := range []struct {
		name, agent, prefer, client string
		search                      bool
		usable                      []string
		want, err                   string
	}{
		{name: "the first usable one", usable: []string{"gemini", "beta"}, want: "gemini"},
		{name: "not the client's own kind", client: "gemini-cli-mcp-client", usable: []string{"gemini", "beta"}, want: "beta"},
		{name: "the client's own kind, without another", client: "beta-code", usable: []string{"beta"}, want: "beta"},
		{name: "none is usable", want: "gemini"},
		{name: "named", agent: "gamma", usable: []string{"gemini"}, want: "gamma"},
		{name: "an unknown name", agent: "delta", err: `agent is "delta": it must be one of gemini, beta, gamma`},
		{name: "of the settings", prefer: "beta", usable: []string{"gemini"}, want: "beta"},
		{name: "named, and of the settings", agent: "gemini", prefer: "beta", want: "gemini"},
		{name: "one that can search", search: true, usable: []string{"beta", "gamma"}, want: "gamma"},
		{name: "named, and cannot search", agent: "beta", search: true, usable: []string{"beta", "gamma"}, err: "Beta Code cannot search the web: name one of gamma"},
		{name: "none of those can search", search: true, usable: []string{"beta"}, err: "no agent here can search the web"},
		{name: "none can search", agent: "beta", search: true, usable: []string{"beta"}, err: "no agent here can search the web"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newTestBridge(t, answering("x"), func(cfg *Config) {
				threeAgents(nil, tt.usable...)(cfg)
				cfg.Prefer = tt.prefer
			})
			row, err := b.Chosen(Common{Agent: tt.agent, client: tt.client}, tt.search)
			switch {
			case tt.err != "":
				systest.WantError(t, err, tt.err)
			case err != nil || row.Name != tt.want:
				t.Errorf("got %v, %v; want %s", row, err, tt.want)
			}
		})
	}
}

// The tools of a bridge with several usable agents offer the choice, and speak of no vendor.
func TestToolsOfSeveralAgents(t *testing.T) {
	b := newTestBridge(t, answering("from gemini"), threeAgents(map[string]agent.Runner{"beta": answering("from beta")}, "gemini", "beta"))
	s := connect(t, b, "gemini-cli-mcp-client")
	if text := s.InitializeResult().Instructions; strings.Contains(text, "Gemini") || !strings.Contains(text, "other coding agents") {
		t.Errorf("the instructions are %q", text)
	}
	tools, err := s.ListTools(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, tool := range tools.Tools {
		var schema struct {
			Properties map[string]struct {
				Enum        []string
				Description string
			}
		}
		data, err := json.Marshal(tool.InputSchema)
		if err != nil || json.Unmarshal(data, &schema) != nil {
			t.Fatal(err)
		}
		want := map[string][]string{"query": {"gemini", "beta"}, "change": {"gemini", "beta"}, "structured": {"gemini", "beta"}, "search": {"gemini"}}[tool.Name]
		if got := schema.Properties["agent"].Enum; !slices.Equal(got, want) {
			t.Errorf("%s offers %q, want %q", tool.Name, got, want)
		}
		schema.Properties["agent"] = struct {
			Enum        []string
			Description string
		}{}
		if text, _ := json.Marshal(schema); strings.Contains(tool.Title+tool.Description+string(text), "Gemini") {
			t.Errorf("%s speaks of Gemini: %s, %s, %s", tool.Name, tool.Title, tool.Description, text)
		}
	}
	result, text := callTool(t, s, "query", `{"prompt":"x"}`)
	if !strings.HasPrefix(text, "from beta\n") || result.Meta["agent"] != "beta" {
		t.Errorf("got %q, %v", text, result.Meta)
	}
	if _, text := callTool(t, s, "query", `{"prompt":"x","agent":"gemini"}`); !strings.HasPrefix(text, "from gemini\n") {
		t.Errorf("got %q", text)
	}
}

// An agent that Pollux does not know is offered only where there is a wall.
func TestUnknownAgentNeedsTheWall(t *testing.T) {
	for _, missing := range []error{nil, errors.New("no such kernel")} {
		b := newTestBridge(t, answering("x"), func(cfg *Config) {
			cfg.Others = []Asked{{Agent: &agent.Agent{
				Name: "kimi", Driver: agent.Driver{Custom: true},
				Finder: agent.Finder{Locate: func(agent.Source) (agent.Program, error) { return agent.Program{}, nil }},
			}}}
			cfg.Runner.Wall = agent.Wall{Mode: agent.WallOff, Launcher: "/pollux", Missing: missing}
		})
		if got := slices.Contains(b.Names(), "kimi"); got != (missing == nil) {
			t.Errorf("without a wall (%v): %v", missing, b.Names())
		}
	}
}

// Where no agent can search the web, the tools and the instructions do not speak of it.
func TestNoSearchIsOffered(t *testing.T) {
	b := newTestBridge(t, answering("x"), threeAgents(map[string]agent.Runner{"beta": answering("x")}, "beta"))
	s := connect(t, b, "a client")
	if text := s.InitializeResult().Instructions; strings.Contains(text, "web") || !strings.Contains(text, "- structured:") {
		t.Errorf("the instructions are %q", text)
	}
	tools, err := s.ListTools(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, tool := range tools.Tools {
		schema, _ := json.Marshal(tool.InputSchema)
		if tool.Name == "search" || strings.Contains(string(schema), `"search"`) || strings.Contains(tool.Description, "the web") {
			t.Errorf("%s: %s, %s", tool.Name, tool.Description, schema)
		}
	}
	if result, text := callTool(t, s, "start-job", `{"tool":"search","arguments":{"query":"x"}}`); !result.IsError || !strings.Contains(text, "Gemini CLI and Codex CLI can, once they are installed") {
		t.Errorf("got %q", text)
	}
}

// A conversation stays with its agent. Another agent that is named gets the transcript.
func TestConversationStaysWithItsAgent(t *testing.T) {
	gemini, beta := newParrot(), newParrot()
	b := newTestBridge(t, gemini, threeAgents(map[string]agent.Runner{"beta": beta}, "gemini", "beta"))
	ask := func(in QueryInput) Answer {
		t.Helper()
		a, err := b.Ask(t.Context(), in, nil)
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	first := ask(QueryInput{Prompt: "one", Common: Common{Agent: "beta", Model: "beta-2"}})
	second := ask(QueryInput{Prompt: "two", SessionID: first.Meta.SessionID})
	if last := beta.last(); len(beta.asked) != 2 || last.Conversation != first.Meta.SessionID || last.Model != "beta-2" || second.Meta.Agent != "beta" {
		t.Errorf("the second question was %+v, its answer %+v", last, second.Meta)
	}
	ask(QueryInput{Prompt: "three", SessionID: first.Meta.SessionID, Common: Common{Agent: "gemini"}})
	if last := gemini.last(); !strings.Contains(last.Replay, "one") || !strings.Contains(last.Replay, "two") || last.Model != "" {
		t.Errorf("the third question was %+v", last)
	}
	b.conversations.close(first.Meta.SessionID)
	if beta.known[first.Meta.SessionID] || gemini.known[first.Meta.SessionID] {
		t.Error("an agent still knows the closed conversation")
	}
}

// A panel asks all agents at the same time. One that fails does not affect the others.
func TestPanel(t *testing.T) {
	var running atomic.Int32
	both := make(chan struct{})
	meet := func(answer func() (agent.Result, error)) script {
		return func(ctx context.Context, _ agent.Request, _ func(agent.Event)) (agent.Result, error) {
			if running.Add(1) == 2 {
				close(both)
			}
			select {
			case <-both:
				return answer()
			case <-ctx.Done():
				return agent.Result{}, context.Cause(ctx)
			}
		}
	}
	works := meet(func() (agent.Result, error) { return say("forty-two") })
	fails := meet(func() (agent.Result, error) {
		return agent.Result{}, &agent.Error{Kind: agent.Auth, Remedy: agent.Remedy{What: "Beta Code is not signed in", Next: "run `beta login`"}}
	})
	b := newTestBridge(t, works, threeAgents(map[string]agent.Runner{"beta": fails}, "gemini", "beta"))
	s := connect(t, b, "a client")
	result, text := callTool(t, s, "query", `{"prompt":"x","agents":["gemini","beta","gemini"]}`)
	if result.IsError {
		t.Errorf("the call failed: %s", text)
	}
	for _, want := range []string{"## Gemini CLI (gemini-test, ", "forty-two", "## Beta Code (", "[Beta Code is not signed in: run `beta login`]"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
	var content struct{ Answers []PanelAnswer }
	data, err := json.Marshal(result.StructuredContent)
	if err != nil || json.Unmarshal(data, &content) != nil || len(content.Answers) != 2 ||
		content.Answers[0].Text != "forty-two" || content.Answers[1].Error == "" || content.Answers[1].Meta.Agent != "beta" {
		t.Errorf("the content is %s", data)
	}
	for args, want := range map[string]string{
		`{"prompt":"x","agents":["gemini","delta"]}`:                      "it must be one of",
		`{"prompt":"x","agents":["gemini","beta"],"agent":"beta"}`:        "cannot be combined",
		`{"prompt":"x","agents":["gemini","beta"],"changeMode":true}`:     "ask one",
		`{"prompt":"x","agents":["gemini","beta"],"sessionId":"ABCDEFG"}`: "leave out sessionId",
	} {
		if result, text := callTool(t, s, "query", args); !result.IsError || !strings.Contains(text, want) {
			t.Errorf("%s: %q, want %q", args, text, want)
		}
	}
}

// A long panel comes in parts. Its structured content, which some clients show instead, has the
// beginnings, and says how to get the rest. It is whole if the panel fits into one part.
func TestLongPanel(t *testing.T) {
	long := strings.Repeat("ä", 20_000)
	say := long
	b := newTestBridge(t, script(func(context.Context, agent.Request, func(agent.Event)) (agent.Result, error) {
		return agent.Result{Answer: say}, nil
	}), threeAgents(map[string]agent.Runner{"beta": answering("short")}, "gemini", "beta"))
	s := connect(t, b, "a client")
	result, text := callTool(t, s, "query", `{"prompt":"x","agents":["gemini","beta"]}`)
	data, err := json.Marshal(result.StructuredContent)
	var content struct{ Answers []PanelAnswer }
	if err != nil || json.Unmarshal(data, &content) != nil || len(data) > defaultPage.bytes || len(text) > defaultPage.bytes {
		t.Fatalf("%d bytes of text, and the content is %s, %v", len(text), data, err)
	}
	cut, whole := content.Answers[0], content.Answers[1]
	if !strings.HasPrefix(long, cut.Text) || cut.Text == "" || len(cut.Notes) != 1 || whole.Text != "short" || len(whole.Notes) != 0 {
		t.Errorf("the content is %s", data)
	}
	chunk, _ := result.Meta["chunk"].(map[string]any)
	if next := fmt.Sprintf(`fetch-chunk {"cacheKey":"%v","chunkIndex":1}`, chunk["cacheKey"]); !strings.Contains(cut.Notes[0], next) {
		t.Errorf("%s does not say how to get the rest: %v", cut.Notes[0], result.Meta)
	}

	say = long[:defaultPage.bytes*3/4]
	result, _ = callTool(t, s, "query", `{"prompt":"x","agents":["gemini","beta"]}`)
	data, err = json.Marshal(result.StructuredContent)
	content.Answers = nil
	if err != nil || json.Unmarshal(data, &content) != nil || content.Answers[0].Text != say || len(content.Answers[0].Notes) != 0 || result.Meta["chunk"] != nil {
		t.Errorf("%v, and the content is %s, %v", result.Meta, data, err)
	}
}

// The end of a call ends the questions to all agents of a panel.
func TestPanelIsCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	var asked atomic.Int32
	waits := script(func(ctx context.Context, _ agent.Request, _ func(agent.Event)) (agent.Result, error) {
		if asked.Add(1) == 2 {
			cancel()
		}
		return hang(ctx)
	})
	b := newTestBridge(t, waits, threeAgents(map[string]agent.Runner{"beta": waits}, "gemini", "beta"))
	answers, err := b.Panel(ctx, QueryInput{Prompt: "x", Agents: []string{"gemini", "beta"}}, nil, nil)
	if err != nil || len(answers) != 2 || answers[0].Error == "" || answers[1].Error == "" {
		t.Errorf("got %+v, %v", answers, err)
	}
}

// An agent that is being asked through Pollux cannot ask another one through it.
func TestNoCircles(t *testing.T) {
	b := newTestBridge(t, answering("x"), nil)
	t.Setenv(agent.DepthVar, "1")
	s := connect(t, b, "a client")
	for tool, args := range map[string]string{
		"query": `{"prompt":"x"}`, "search": `{"query":"x"}`, "structured": `{"prompt":"x","schema":{}}`,
		"change": `{"prompt":"x"}`, "start-job": `{"tool":"query","arguments":{"prompt":"x"}}`,
	} {
		if result, text := callTool(t, s, tool, args); !result.IsError || !strings.Contains(text, "being asked through Pollux yourself") {
			t.Errorf("%s: %q", tool, text)
		}
	}
}
