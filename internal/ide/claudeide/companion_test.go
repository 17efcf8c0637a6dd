package claudeide

import (
	"net"
	"os"
	"path/filepath"
	"testing"

	"pollux/internal/companion"
	"pollux/internal/companion/journal"
	"pollux/internal/editor"
	"pollux/internal/sys/systest"
)

// A host publishes a companion's server.
type host struct{ server *Server }

func (host) Port() int                                              { return 1 }
func (host) Token() string                                          { return "" }
func (host) Env() map[string]string                                 { return nil }
func (host) SetRoots([]string) error                                { return nil }
func (host) Link() (string, error)                                  { return "", os.ErrNotExist }
func (host) Prompt(editor.PromptParams, []string) (p editor.Prompt) { return p }
func (host) Agents() []companion.AgentKind                          { return nil }
func (h *host) ViewsChanged()                                       { h.server.ViewsChanged() }
func (h *host) Notes() []string                                     { return nil }

// With a real companion: an edited accept, a review that ends in the terminal, and a
// view that leaves. The agent receives the rejection before its session ends.
func TestWithCompanion(t *testing.T) {
	root := systest.Dir(t)
	path := filepath.Join(root, "a.txt")
	systest.WriteFile(t, path, "old\r\n")
	h := &host{}
	c, err := companion.New(companion.Config{
		Host: h, Editor: editor.Info{Name: "test", DisplayName: "Test"}, Roots: []string{root},
		Journal: journal.New(filepath.Join(t.TempDir(), "journal")),
	})
	if err != nil {
		t.Fatal(err)
	}
	cfg := config(t, newBackend())
	cfg.Backend = c
	if h.server, err = New(cfg); err != nil {
		t.Fatal(err)
	}
	h.server.HTTP.Listeners[0].Close()
	f := &fixture{Server: h.server, t: t, network: systest.NewNetwork()}
	h.server.HTTP.Listeners[0] = f.network
	h.server.Serve()
	t.Cleanup(func() { c.Stop(); f.close(); c.Wait() })

	mine, theirs := net.Pipe()
	go c.Attach(theirs)
	opened, closed := make(chan editor.Diff, 10), make(chan editor.DiffClose, 10)
	view := editor.NewClient(mine, editor.Handler{
		DiffOpen:  func(d editor.Diff) error { opened <- d; return nil },
		DiffClose: func(d editor.DiffClose) *string { closed <- d; return nil },
	})
	t.Cleanup(func() { view.Close() })
	if _, err := view.Initialize(t.Context(), editor.InitializeParams{Diff: true}); err != nil {
		t.Fatal(err)
	}
	if _, err := view.Status(t.Context()); err != nil { // now it is attached
		t.Fatal(err)
	}

	a := f.dial(true)
	a.initialize("claude-code")
	id := a.openDiff(path, "new\n", "tab")
	d := systest.Receive(t, opened)
	if d.Original != "old\n" || d.Proposed != "new\n" || d.Agent != "Claude Code" {
		t.Errorf("the diff is %+v", d)
	}
	if res, err := view.Accept(t.Context(), editor.DiffAccept{ID: d.ID, Content: "old\n"}); err != nil ||
		res.Status == editor.StatusAccepted {
		t.Errorf("the old text was accepted: %+v, %v", res, err)
	}
	if _, err := view.Accept(t.Context(), editor.DiffAccept{ID: d.ID, Content: "mine\n"}); err != nil {
		t.Fatal(err)
	}
	a.want(id, "FILE_SAVED|mine\r\n")
	systest.WriteFile(t, path, "mine\r\n")
	if got := systest.Receive(t, closed); got.Reason != editor.ReasonAccepted {
		t.Errorf("closed: %+v", got)
	}

	id = a.openDiff(path, "new\n", "tab")
	systest.Receive(t, opened)
	a.want(a.call(toolCloseTab, `{"tab_name":"tab"}`), "TAB_CLOSED")
	a.want(id, "DIFF_REJECTED|tab")
	if got := systest.Receive(t, closed); got.Reason != editor.ReasonClosed {
		t.Errorf("closed: %+v", got)
	}

	id = a.openDiff(path, "new\n", "tab")
	systest.Receive(t, opened)
	// When a call after it has taken effect, the companion knows that the view shows it.
	a.want(a.call(toolCloseTab, `{"tab_name":"none"}`), "TAB_CLOSED")
	view.Close()
	a.want(id, "DIFF_REJECTED|tab")
	systest.Receive(t, a.ended)
	if _, res, err := f.handshake(f.auth()); res == nil || res.StatusCode != 503 {
		t.Errorf("without views: %v", err)
	}
}
