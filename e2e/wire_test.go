package e2e

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"pollux/internal/editor"
	"pollux/internal/fakemodel"
)

func silent(fakemodel.Request) fakemodel.Reply { return fakemodel.Say("ok") }

// The scenarios of the official conformance suite that apply to our server. The
// suite cannot send a header, so a proxy adds the token. server-sse-polling is
// left out: it needs an event store, which makes the real CLI disconnect.
func TestConformanceSuite(t *testing.T) {
	node := installed(t, "node", "node_modules", "node-linux-"+nodeArch(), "bin", "node")
	suite := installed(t, "conformance", "node_modules", "@modelcontextprotocol", "conformance", "dist", "index.js")
	w := newWorld(t, silent)
	e := w.edit(nil)
	target, err := url.Parse(fmt.Sprintf("http://127.0.0.1:%d", e.info.Port))
	if err != nil {
		t.Fatal(err)
	}
	proxy := httptest.NewServer(&httputil.ReverseProxy{
		FlushInterval: -1,
		// The companion closes a connection on which no request has come in 10 seconds. The
		// proxy opens such connections in advance, and would lose a request that it writes then.
		Transport: &http.Transport{DisableKeepAlives: true},
		Rewrite: func(r *httputil.ProxyRequest) {
			own := r.In.Context().Value(http.LocalAddrContextKey).(fmt.Stringer).String()
			r.SetURL(target)
			r.Out.Header.Set("Authorization", "Bearer "+e.info.Token)
			// The proxy's own Host becomes the companion's; a forged one stays.
			r.Out.Host = strings.Replace(r.In.Host, own, target.Host, 1)
			r.Out.Host = strings.Replace(r.Out.Host, "localhost:"+port(own), "localhost:"+target.Port(), 1)
			if o := r.In.Header.Get("Origin"); o != "" {
				r.Out.Header.Set("Origin", strings.Replace(o, port(own), target.Port(), 1))
			}
			// Read the body first: the proxy may lose an answer that arrives before it has read
			// the end of the body.
			body, err := io.ReadAll(r.In.Body)
			if err != nil {
				t.Error(err)
			}
			r.Out.Body = io.NopCloser(bytes.NewReader(body))
		},
	})
	defer proxy.Close()
	for _, scenario := range []string{"server-initialize", "ping", "tools-list", "server-sse-multiple-streams", "dns-rebinding-protection"} {
		t.Run(scenario, func(t *testing.T) {
			out, err := exec.CommandContext(w.context(), node, suite, "server", "--url", proxy.URL+"/mcp", "--scenario", scenario, "-o", t.TempDir()).CombinedOutput()
			if err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

func port(address string) string { return address[strings.LastIndex(address, ":")+1:] }

// The npm MCP client SDK, on which the CLI is built, in its strictest use:
// every notification is checked against the CLI's schema, and an invalid one is
// an error.
func TestNpmSDK(t *testing.T) {
	installed(t, "mcp-sdk", "node_modules", "@modelcontextprotocol", "sdk")
	w := newWorld(t, silent)
	path := w.file("f.txt", "old\n")
	e := w.edit(nil)
	cmd := exec.CommandContext(w.context(), "node", filepath.Join(repo, "e2e", "testdata", "sdk.mjs"),
		filepath.Join(repo, ".cache", "npm", "mcp-sdk"), fmt.Sprint(e.info.Port), e.info.Token, path)
	stderr := &strings.Builder{}
	cmd.Stderr = stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	expect := func(want string) {
		t.Helper()
		if !lines.Scan() {
			t.Fatalf("the client exited before %q: %s", want, stderr)
		}
		if got := lines.Text(); got != want {
			t.Errorf("the client says %q, want %q", got, want)
		}
	}
	expect("tools closeDiff,openDiff")
	expect("context 0")
	e.Update(editor.Snapshot{Files: []editor.File{{Path: path, Active: true, Selection: "old"}}})
	expect("context 1")
	d := next(t, "diff", e.opened)
	expect("openDiff []")
	e.accept(d, "new, edited 😀\r\n")
	expect(`accepted "new, edited 😀\r\n"`)
	expect(`closeDiff isError`)
	d = next(t, "second diff", e.opened)
	e.leave(d.ID, "late")
	expect(`closeDiff "late"`)
	// After a reconnect the context comes first again, then the outcome.
	d = next(t, "third diff", e.opened)
	expect("context 1 on stream 2")
	e.reject(d)
	expect("rejected")
	if err := cmd.Wait(); err != nil {
		t.Errorf("%v: %s", err, stderr)
	}
}
