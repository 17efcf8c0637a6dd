package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/storage"
	"github.com/chromedp/chromedp"

	"pollux/internal/editor"
	"pollux/internal/ide/geminiide/client"
)

// dial connects a client without a real CLI to an editor's companion.
func (e *plugin) dial() *client.CLI {
	e.t.Helper()
	cli, err := client.Dial(e.t.Context(), e.info.Port, e.info.Token)
	if err != nil {
		e.t.Fatal(err)
	}
	e.t.Cleanup(cli.Close)
	return cli
}

// onlyPage makes the editor leave diffs to the review page.
func onlyPage(p *editor.InitializeParams) { p.Diff, p.Settings.ReviewPage = false, true }

// eve is another user's server on the same machine. It records every request
// from a browser.
type eve struct {
	*httptest.Server
	mu       sync.Mutex
	requests []*http.Request
	bodies   []string
	report   chan map[string]string // the results of the attempts of its page
}

// evePage tries, from another port of 127.0.0.1, what a page of another site
// can. Its button provides the click that opening a window needs.
const evePage = `<!doctype html><button id=go>go</button><iframe name=sink></iframe><script>
const target = TARGET;
const result = {};
const attempt = async (name, f) => { try { result[name] = "got " + await f(); } catch (e) { result[name] = "failed: " + e.name; } };
const read = async (url, init) => { const r = await fetch(url, {credentials: "include", ...init}); return r.status + " " + (await r.text()).slice(0, 100); };
document.getElementById("go").onclick = async () => {
  const w = open(target + "/review/");
  const f = document.createElement("iframe");
  f.src = target + "/review/";
  const loaded = new Promise(done => { f.onload = done; });
  document.body.append(f);
  await loaded;
  // The page's policy takes the window from its opener once it is loaded.
  for (let i = 0; i < 200 && !w.closed; i++) await new Promise(done => setTimeout(done, 50));
  await fetch("/review/x");
  await fetch("/review/events");
  for (const path of ["", "app.js", "events", "login", "rpc"]) {
    await attempt("read " + path, () => read(target + "/review/" + path));
    await attempt("send " + path, () => read(target + "/review/" + path, {method: "POST", headers: {"Content-Type": "application/json", Authorization: "Bearer x"}, body: "{}"}));
    await fetch(target + "/review/" + path, {method: "POST", mode: "no-cors", credentials: "include", headers: {"Content-Type": "text/plain"}, body: "{}"}).catch(() => {});
    const form = document.createElement("form");
    form.method = "post"; form.enctype = "text/plain"; form.target = "sink"; form.action = target + "/review/" + path;
    form.append(Object.assign(document.createElement("input"), {name: '{"link":"x', value: '"}'}));
    document.body.append(form);
    form.submit();
  }
  for (const [name, other] of [["window", w], ["frame", f.contentWindow]]) {
    await attempt(name + " document", () => other.document.body.innerText);
    await attempt(name + " location", () => other.location.href);
    await attempt(name + " history", () => other.history.length);
    await attempt(name + " storage", () => JSON.stringify(other.sessionStorage));
    await attempt(name + " opener", () => other.opener.location.href);
  }
  await fetch("/report", {method: "POST", body: JSON.stringify(result)});
};
</script>`

func newEve(t *testing.T, target string) *eve {
	e := &eve{report: make(chan map[string]string, 1)}
	e.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		e.mu.Lock()
		e.requests, e.bodies = append(e.requests, r), append(e.bodies, string(body))
		e.mu.Unlock()
		switch {
		case strings.HasPrefix(r.Host, "localhost:"):
			http.Redirect(w, r, e.URL+"/", http.StatusFound)
		case r.URL.Path == "/":
			w.Header().Set("Content-Type", "text/html")
			io.WriteString(w, strings.ReplaceAll(evePage, "TARGET", quote(target)))
		case r.URL.Path == "/report":
			var result map[string]string
			if err := json.Unmarshal(body, &result); err != nil {
				t.Errorf("the report of the page: %v", err)
			}
			e.report <- result
		}
	}))
	t.Cleanup(e.Close)
	return e
}

// lists opens the event stream of a review page with the given headers and
// reports whether it lists a change.
func lists(t *testing.T, base string, header http.Header) bool {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), stepTimeout)
	defer cancel()
	send := func(method, path, body string) *http.Response {
		req, err := http.NewRequestWithContext(ctx, method, base+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		for k, v := range header {
			if k != "Content-Length" && k != "Connection" {
				req.Header[k] = v
			}
		}
		// A client that is not a browser can send any header.
		req.Header.Set("Origin", base)
		req.Header.Set("Sec-Fetch-Site", "same-origin")
		req.Header.Set("Content-Type", "application/json")
		res, err := (&http.Transport{}).RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		return res
	}
	res := send("GET", "/review/events", "")
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return false
	}
	in := bufio.NewScanner(res.Body)
	for in.Scan() {
		data, ok := strings.CutPrefix(in.Text(), "data: ")
		switch {
		case ok && !strings.HasPrefix(data, "{"): // the name of the stream
			send("POST", "/review/rpc?stream="+data, `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocol":1,"diff":true}}`).Body.Close()
		case strings.Contains(data, `"diff/open"`):
			return true
		}
	}
	return false
}

// Cookies are shared between ports. The browser sent the page's cookie to every
// other server on 127.0.0.1, which could then list and accept the changes.
func TestPageSecretStaysInThePage(t *testing.T) {
	w := newWorld(t, silent)
	path := w.file("greet.go", pageBefore)
	e := w.edit(onlyPage)
	cli := e.dial()
	if err := cli.OpenDiff(w.context(), path, pageAfter); err != nil {
		t.Fatal(err)
	}
	ctx := browser(t)
	link := e.link(ctx)
	base := link[:strings.Index(link, "/review/")]
	onPage(t, ctx, chromedp.Navigate(link), shows("#path", "greet.go"))

	// The link and the browser's stored data open the page.
	secrets := []string{link[strings.LastIndexAny(link, "#/")+1:]}
	kept, err := chromedp.Run(ctx, chromedp.Evaluate[[]string]("Object.values(sessionStorage)"))
	if err != nil {
		t.Fatal(err)
	}
	secrets = append(secrets, kept...)
	cookies, err := chromedp.Run(ctx, func(ctx context.Context, t *chromedp.Target) (storage.GetCookiesResult, error) {
		return cdp.Call(ctx, t, storage.GetCookies, storage.GetCookiesParams{})
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range cookies.Cookies {
		secrets = append(secrets, c.Value)
	}
	if len(secrets) < 2 || slices.Contains(secrets, "") {
		t.Fatalf("%d secrets: the page must have kept one", len(secrets))
	}

	// The address bar and the history do not contain a link.
	history, err := chromedp.Run(ctx, chromedp.NavigationEntries())
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range history.Entries {
		if strings.Contains(entry.URL, secrets[0]) {
			t.Error("the history has the link")
		}
	}

	// Another tab of the same browser goes to Eve's server, by way of another
	// site.
	her := newEve(t, base)
	at, err := url.Parse(her.URL)
	if err != nil {
		t.Fatal(err)
	}
	onPage(t, newTab(t, ctx), chromedp.Navigate("http://localhost:"+at.Port()+"/"), chromedp.Click(chromedp.CSS("#go")))
	for what, how := range next(t, "report of Eve's page", her.report) {
		if !strings.HasPrefix(how, "failed: ") {
			t.Errorf("Eve's page, %s: %s", what, how)
		}
	}

	her.mu.Lock()
	defer her.mu.Unlock()
	if len(her.requests) < 4 {
		t.Errorf("Eve had %d requests", len(her.requests))
	}
	for i, r := range her.requests {
		all := fmt.Sprint(r.Method, r.URL, r.Header, her.bodies[i])
		for n, secret := range secrets {
			if strings.Contains(all, secret) {
				t.Errorf("Eve has secret %d of the page, by her %s", n, r.URL.Path)
			}
		}
		if lists(t, base, r.Header) {
			t.Errorf("with the headers of her %s Eve can list the changes", r.URL.Path)
		}
	}
	// The page still works, and nothing was decided.
	if diffs, err := e.Diffs(w.context()); err != nil || len(diffs) != 1 || diffs[0].State != editor.StateOpen {
		t.Errorf("diffs = %v, %v", diffs, err)
	}
	onPage(t, ctx, shows("#path", "greet.go"), shows("#status", "1 connected"))
}

// Without the page secret, or from another origin, the server serves only the page's own
// files, which contain no user data.
func TestPageIsPrivate(t *testing.T) {
	w := newWorld(t, silent)
	e := w.edit(nil)
	base, link, ok := strings.Cut(e.link(w.context()), "/review/#")
	if !ok || len(link) < 20 {
		t.Fatal("the secret of the link is not in its fragment")
	}
	own := http.Header{"Origin": {base}, "Content-Type": {"application/json"}}
	with := func(h http.Header, key string, values ...string) http.Header {
		h = h.Clone()
		h[key] = values
		return h
	}
	send := func(method, path string, h http.Header, body string) (*http.Response, string) {
		t.Helper()
		req, err := http.NewRequestWithContext(w.context(), method, base+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header = h
		res, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		if res.StatusCode == 200 && strings.HasSuffix(path, "events") {
			return res, "" // the response does not end
		}
		text, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		return res, string(text)
	}

	for _, path := range []string{"/review/", "/review/app.js", "/review/app.css"} {
		res, _ := send("GET", path, http.Header{}, "")
		csp := res.Header.Get("Content-Security-Policy")
		if res.StatusCode != 200 || !strings.Contains(csp, "default-src 'none'") || !strings.Contains(csp, "frame-ancestors 'none'") ||
			res.Header.Get("X-Content-Type-Options") != "nosniff" || len(res.Cookies()) > 0 {
			t.Errorf("%s: %d, %v", path, res.StatusCode, res.Header)
		}
	}

	login := `{"link":"` + link + `"}`
	for name, h := range map[string]http.Header{
		"from another origin":  with(own, "Origin", "http://evil.example"),
		"from another port":    with(own, "Origin", "http://127.0.0.1:1"),
		"from localhost":       with(own, "Origin", strings.Replace(base, "127.0.0.1", "localhost", 1)),
		"from nowhere":         with(own, "Origin", "null"),
		"without an origin":    with(own, "Origin"),
		"from a site":          with(own, "Sec-Fetch-Site", "same-site"),
		"from the address bar": with(own, "Sec-Fetch-Site", "none"),
		"by a form":            with(own, "Content-Type", "text/plain"),
	} {
		if res, _ := send("POST", "/review/login", h, login); res.StatusCode != 403 {
			t.Errorf("login %s: %d", name, res.StatusCode)
		}
	}
	// None of these requests used up the link.
	res, text := send("POST", "/review/login", with(own, "Sec-Fetch-Site", "same-origin"), login)
	var answer struct{ Secret string }
	if err := json.Unmarshal([]byte(text), &answer); err != nil || res.StatusCode != 200 || len(answer.Secret) < 20 {
		t.Fatalf("login: %d, %v", res.StatusCode, err)
	}

	key := with(own, "Authorization", "Bearer "+answer.Secret)
	for name, c := range map[string]struct {
		header http.Header
		want   int
	}{
		"without the secret":  {own, 401},
		"with the CLI's":      {with(own, "Authorization", "Bearer "+e.info.Token), 401},
		"with a cookie":       {with(own, "Cookie", "pollux="+answer.Secret), 401},
		"from another origin": {with(key, "Origin", "http://evil.example"), 403},
		"from another port":   {with(key, "Origin", "http://127.0.0.1:1"), 403},
		"from a site":         {with(key, "Sec-Fetch-Site", "same-site"), 403},
		"twice":               {with(key, "Origin", base, base), 403},
	} {
		if res, _ := send("GET", "/review/events", c.header, ""); res.StatusCode != c.want {
			t.Errorf("events %s: %d", name, res.StatusCode)
		}
		if res, _ := send("POST", "/review/rpc?stream=x", c.header, "{}"); res.StatusCode != c.want {
			t.Errorf("rpc %s: %d", name, res.StatusCode)
		}
	}
	if res, _ := send("GET", "/review/events", with(key, "Origin"), ""); res.StatusCode != 200 {
		t.Errorf("events with the secret: %d", res.StatusCode)
	}
	if res, _ := send("POST", "/review/rpc?stream=x", with(key, "Origin"), "{}"); res.StatusCode != 403 {
		t.Errorf("rpc without an origin: %d", res.StatusCode)
	}
	if res, _ := send("POST", "/review/rpc?stream=x", with(key, "Content-Type", "text/plain"), "{}"); res.StatusCode != 403 {
		t.Errorf("rpc from a form: %d", res.StatusCode)
	}
	if res, text := send("GET", "/mcp", key, ""); res.StatusCode != 404 {
		t.Errorf("the page's port has the CLI's endpoint: %d, %s", res.StatusCode, text)
	}
	page := base
	base = fmt.Sprintf("http://127.0.0.1:%d", e.info.Port)
	if base == page {
		t.Error("the page has the port of the CLI's server")
	}
	for _, path := range []string{"/mcp", "/review/", "/review/app.js", "/review/events"} {
		for _, h := range []http.Header{key, with(key, "Origin", base)} {
			if res, text := send("GET", path, h, ""); res.StatusCode != 401 && res.StatusCode != 403 {
				t.Errorf("the page secret opens %s on the port of the CLI's server: %d, %s", path, res.StatusCode, text)
			}
		}
	}
}

// A tab without a link, with a used link, and after a reload.
func TestPageLinks(t *testing.T) {
	w := newWorld(t, silent)
	e := w.edit(onlyPage)
	ctx := browser(t)
	link := e.link(ctx)
	page, _, _ := strings.Cut(link, "#")
	onPage(t, ctx, chromedp.Navigate(page), shows("#none", "This page needs a link from Pollux. To open it: pollux open"))
	onPage(t, ctx, chromedp.Navigate(link), shows("#none", "No agent is connected"), chromedp.Reload(), shows("#none", "No agent is connected"))
	at, err := chromedp.Run(ctx, chromedp.Location())
	if err != nil || at != page {
		t.Errorf("the address bar shows %q, %v; want %q", at, err, page)
	}
	second := newTab(t, ctx)
	onPage(t, second, chromedp.Navigate(link), shows("#none", "This link was used, or is not one of this companion. To open the page again: pollux open"))
	// A new link works in the tab that refused the old one.
	onPage(t, second, chromedp.Evaluate[chromedp.Void]("location = "+quote(e.link(ctx))), shows("#none", "No agent is connected"))
}
