package bridge

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"pollux/internal/agent"
	"pollux/internal/sys/systest"
)

// A starter is a runner that reports for which workspaces it starts processes.
type starter struct {
	script
	dirs chan string
}

func newStarter() *starter { return &starter{answering("ok"), make(chan string, 10)} }

func (s *starter) Ahead(_ agent.Source, dir string) { s.dirs <- dir }

// installed makes a bridge take its agent for installed.
func installed(c *Config) { c.Usable = func(Asked) bool { return true } }

// started waits for n starts, closes the bridge, and returns all starts.
func (s *starter) started(t *testing.T, b *Bridge, n int) (dirs []string) {
	t.Helper()
	for range n {
		dirs = append(dirs, systest.Receive(t, s.dirs))
	}
	b.Close()
	for len(s.dirs) > 0 {
		dirs = append(dirs, <-s.dirs)
	}
	return dirs
}

// The agent starts with the first call of a tool, for the client's own directory, once. A
// tool that asks starts it for itself.
func TestFirstCallStartsTheAgent(t *testing.T) {
	own, err := workingDirectory("")
	if err != nil {
		t.Fatal(err)
	}
	root, err := workingDirectory(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	type call struct{ tool, args string }
	ping, sessions := call{"ping", `{}`}, call{"list-sessions", `{}`}
	query := call{"query", `{"prompt":"x"}`}
	for _, tt := range []struct {
		name  string
		roots []string
		kind  string
		calls []call
		want  []string
	}{
		{name: "only tools/list"},
		{name: "a ping", calls: []call{ping}, want: []string{own}},
		{name: "a ping of a client with a root", roots: []string{fileURI(root)}, calls: []call{ping}, want: []string{root}},
		{name: "a root elsewhere", roots: []string{"https://example.com/"}, calls: []call{ping}, want: []string{own}},
		{name: "several calls", roots: []string{fileURI(root)}, calls: []call{sessions, ping, query, ping}, want: []string{root}},
		{name: "a query first", calls: []call{query, ping}},
		{name: "a job first", calls: []call{{"start-job", `{"tool":"query","arguments":{"prompt":"x"}}`}, {"list-jobs", `{}`}}},
		{name: "a process per question", kind: agent.Spawned, calls: []call{ping}},
	} {
		for _, revision := range []string{"", "2025-06-18"} {
			t.Run(tt.name+" "+revision, func(t *testing.T) {
				runner := newStarter()
				b := newTestBridge(t, runner, func(c *Config) { installed(c); c.Kind = tt.kind })
				s := connectAs(t, b, "test", revision, tt.roots...)
				if _, err := s.ListTools(t.Context(), nil); err != nil {
					t.Fatal(err)
				}
				for _, c := range tt.calls {
					r, err := s.CallTool(t.Context(), &mcp.CallToolParams{Name: c.tool, Arguments: json.RawMessage(c.args)})
					if err != nil || r.IsError || len(r.Content) == 0 {
						t.Errorf("%s: %+v, %v", c.tool, r, err)
					}
				}
				if got := runner.started(t, b, len(tt.want)); !slices.Equal(got, tt.want) {
					t.Errorf("it starts for %q, want %q", got, tt.want)
				}
			})
		}
	}
}

// A bridge whose questions get a process each starts none ahead, regardless of its
// settings.
func TestSpawnedStartsNothing(t *testing.T) {
	for kind, want := range map[string]int{agent.Spawned: 0, agent.Warmed: 1} {
		runner := newStarter()
		b := newTestBridge(t, runner, func(c *Config) { installed(c); c.Kind, c.AheadDir = kind, "/dir" })
		connect(t, b, "a client").Ping(t.Context(), nil)
		if got := runner.started(t, b, want); len(got) != want {
			t.Errorf("%s: it starts for %q", kind, got)
		}
	}
}

// An agent that is not installed does not start, and nor does a pool for it.
func TestMissingStartsNothing(t *testing.T) {
	runner := newStarter()
	b := newTestBridge(t, runner, func(c *Config) {
		c.AheadDir = "/dir"
		c.Usable = func(Asked) bool { return false }
	})
	connect(t, b, "a client").Ping(t.Context(), nil)
	if got := runner.started(t, b, 0); len(got) > 0 {
		t.Errorf("it starts for %q", got)
	}
}

// The agent that starts when a client connects is the one that the client will ask.
func TestAheadOfAClient(t *testing.T) {
	for _, revision := range []string{"", "2025-06-18"} {
		for client, want := range map[string]string{"gemini-cli-mcp-client": "beta", "beta-code": "gemini"} {
			runners := map[string]*starter{"gemini": newStarter(), "beta": newStarter()}
			b := newTestBridge(t, runners["gemini"], func(c *Config) {
				threeAgents(map[string]agent.Runner{"beta": runners["beta"]}, "gemini", "beta")(c)
				c.AheadDir = "/dir"
			})
			if _, err := connectAs(t, b, client, revision).ListTools(t.Context(), nil); err != nil {
				t.Fatal(err)
			}
			other := map[string]string{"beta": "gemini", "gemini": "beta"}[want]
			if got := runners[want].started(t, b, 1); len(got) != 1 || len(runners[other].dirs) > 0 {
				t.Errorf("%s: %s starts for %q, and %s %d times", client, want, got, other, len(runners[other].dirs))
			}
		}
	}
}
