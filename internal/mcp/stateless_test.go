package mcp

import (
	"context"
	"log/slog"
	"strings"
	"testing"
)

// stateless serves an agent with all versions of MCP. Its only tool returns the agent's roots.
func stateless(t *testing.T, f *fixture) *agent {
	t.Helper()
	f.Server = New(Config{Title: "Test", Version: "1", Instructions: "Do.", Log: slog.New(slog.DiscardHandler), MaxSessions: 3, Versions: AllVersions})
	s, err := f.NewSession(Dialect{Tools: []Tool{{
		Name: "roots", Schema: "{}", Concurrent: true,
		Run: func(ctx context.Context, c *Call) (*Result, error) {
			uris, err := c.Roots(ctx)
			return &Result{Texts: uris, Meta: map[string]any{"m": 1}}, err
		},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	return serve(t, &testSession{s})
}

const (
	introduction = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"agent","version":"1"},` +
		`"io.modelcontextprotocol/clientCapabilities":{"roots":{}}}`
	server = `"io.modelcontextprotocol/serverInfo":{"name":"pollux","title":"Test","version":"1"}`
)

// A request of this version says who the agent is. Its result says who the server is.
func TestStateless(t *testing.T) {
	run(t, func(t *testing.T, f *fixture) {
		a := stateless(t, f)
		a.want(a.request("server/discover", "{"+introduction+"}"), `"result":{"_meta":{`+server+`},"resultType":"complete","ttlMs":0,"cacheScope":"public",`+
			`"supportedVersions":["2026-07-28","2025-11-25","2025-06-18","2025-03-26","2024-11-05"],"capabilities":{"tools":{}},"instructions":"Do."}`)
		if name, version := a.session.ClientInfo(); name != "agent" || version != "1" {
			t.Errorf("the agent is %s %s", name, version)
		}
		a.want(a.request("tools/list", "{"+introduction+"}"), `"result":{"_meta":{`+server+`},"resultType":"complete","ttlMs":0,"cacheScope":"public","tools":[{"name":"roots"`)
		a.want(a.request("tools/call", `{"name":"roots",`+introduction+`}`),
			`"result":{"_meta":{`+server+`},"resultType":"input_required","inputRequests":{"roots":{"method":"roots/list","params":{}}}}`)
		a.want(a.request("tools/call", `{"name":"roots","inputResponses":{"roots":{"roots":[{"uri":"file:///a"}]}},`+introduction+`}`),
			`"result":{"_meta":{`+server+`,"m":1},"resultType":"complete","content":[{"type":"text","text":"file:///a"}]}`)
		for _, method := range []string{"initialize", "ping"} {
			a.want(a.request(method, "{"+introduction+"}"), "-32601")
		}
	})
}

func TestStatelessErrors(t *testing.T) {
	run(t, func(t *testing.T, f *fixture) {
		a := stateless(t, f)
		a.want(a.request("server/discover", "{}"), "-32601")
		a.want(a.request("tools/list", "{}"), "send initialize first")
		a.want(a.request("tools/list", "{"+strings.Replace(introduction, "2026-07-28", "2030-01-01", 1)+"}"),
			`"error":{"code":-32022,"message":"unsupported protocol version","data":{"requested":"2030-01-01","supported":["2026-07-28",`)
		for _, odd := range []string{`{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}`, strings.Replace(introduction[8:], `{"name":"agent","version":"1"}`, "5", 1)} {
			a.want(a.request("tools/list", `{"_meta":`+odd+`}`), "-32602")
		}
		for _, odd := range []string{`5`, `{"io.modelcontextprotocol/protocolVersion":5}`} {
			a.want(a.request("tools/list", `{"_meta":`+odd+`}`), "send initialize first")
		}
	})
}

// The same server serves agents of all other versions. It asks them for their roots.
func TestOtherVersions(t *testing.T) {
	for _, version := range AllVersions[1:] {
		run(t, func(t *testing.T, f *fixture) {
			a := stateless(t, f)
			a.want(a.request("initialize", strings.Replace(hello, "2025-06-18", version, 1)),
				`"result":{"protocolVersion":"`+version+`","capabilities":{"tools":{}},"instructions":"Do.","serverInfo":{"name":"pollux","title":"Test","version":"1"}}`)
			id := a.call("roots", "{}")
			a.receives(`{"jsonrpc":"2.0","id":1,"method":"roots/list"}`)
			a.in <- `{"jsonrpc":"2.0","id":1,"result":{"roots":[{"uri":"file:///a"}]}}`
			a.want(id, `{"_meta":{"m":1},"content":[{"type":"text","text":"file:///a"}]}`)
		})
	}
	run(t, func(t *testing.T, f *fixture) {
		a := stateless(t, f)
		a.want(a.request("initialize", strings.Replace(hello, "2025-06-18", Stateless, 1)), `"protocolVersion":"2025-11-25"`)
	})
}
