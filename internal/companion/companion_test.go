package companion_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"pollux/internal/companion"
	"pollux/internal/companion/journal"
	"pollux/internal/editor"
	"pollux/internal/ide"
	"pollux/internal/ide/geminiide"
	"pollux/internal/ide/geminiide/client"
	"pollux/internal/sys/systest"
)

// TestMain gives all tests one user's directories, so that they can run in parallel.
func TestMain(m *testing.M) {
	companion.SetClosing(50 * time.Millisecond)
	dir, err := os.MkdirTemp("", "companion")
	if err == nil {
		dir, err = filepath.EvalSymlinks(dir)
	}
	if err != nil {
		panic(err)
	}
	for name, keys := range map[string][]string{
		"tmp": {"TMPDIR", "TMP", "TEMP"}, "home": {"HOME", "USERPROFILE"}, "run": {"POLLUX_RUNTIME_DIR"},
	} {
		path := filepath.Join(dir, name)
		if err := os.Mkdir(path, 0o700); err != nil {
			panic(err)
		}
		for _, key := range keys {
			os.Setenv(key, path)
		}
	}
	systest.VerifyTestMain(m, goleak.IgnoreTopFunction("net/http.(*persistConn).readLoop"), goleak.IgnoreTopFunction("net/http.(*persistConn).writeLoop"),
		goleak.Cleanup(func(code int) { os.RemoveAll(dir); os.Exit(code) }))
}

// A world is a companion with its own project and everything around it. The
// tests drive it as Gemini CLI and an editor do.
type world struct {
	*companion.Companion
	host    *ide.Host
	t       *testing.T
	project string
	journal companion.Journal
}

func newWorld(t *testing.T) *world {
	t.Helper()
	root := systest.Dir(t)
	w := &world{t: t, project: filepath.Join(root, "p"), journal: companion.Journal{Journal: journal.New(filepath.Join(root, "journal")), T: t}}
	systest.MakeDir(t, w.project)
	host, err := ide.Start(ide.Config{
		Version: "test", Editor: editor.Info{Name: "test", DisplayName: "Test"},
		Roots: []string{w.project}, Journal: w.journal.Journal,
	})
	if err != nil {
		t.Fatal(err)
	}
	w.host, w.Companion = host, host.Companion
	t.Cleanup(w.Close)
	return w
}

func (w *world) Close() { w.host.Close() }

func (w *world) file(name, text string) string {
	w.t.Helper()
	path := filepath.Join(w.project, name)
	systest.WriteFile(w.t, path, text)
	return path
}

// A cli is a connected Gemini CLI that records the outcomes it receives.
type cli struct {
	*client.CLI
	w        *world
	outcomes chan string
}

func (w *world) connect() *cli {
	w.t.Helper()
	c := &cli{w: w, outcomes: make(chan string, 10000)}
	var err error
	if c.CLI, err = client.Dial(w.t.Context(), w.host.Port(), w.host.Token()); err != nil {
		w.t.Fatal(err)
	}
	go func() {
		for n := range c.Notifications {
			if n.Method != geminiide.MethodContextUpdate {
				c.outcomes <- n.Method + " " + string(n.Params)
			}
		}
	}()
	w.t.Cleanup(c.leave)
	return c
}

// leave ends the session.
func (c *cli) leave() { c.Leave(context.Background()) }

func (c *cli) openDiff(path, content string) error {
	return c.OpenDiff(context.Background(), path, content)
}

func (c *cli) closeDiff(path string) (string, error) {
	return c.CloseDiff(context.Background(), path)
}

// closes closes a diff, and checks the text that closeDiff returns.
func (c *cli) closes(path, want string) {
	c.w.t.Helper()
	if got, err := c.closeDiff(path); err != nil || got != (geminiide.ClosedContent{Content: want}).Text() {
		c.w.t.Errorf("closeDiff of %s = %s, %v; want %q", path, got, err, want)
	}
}

func (c *cli) outcome() string {
	c.w.t.Helper()
	return systest.Receive(c.w.t, c.outcomes)
}

func (c *cli) receives(want string) {
	c.w.t.Helper()
	if got := c.outcome(); got != want {
		c.w.t.Errorf("the CLI received %s, want %s", got, want)
	}
}

func accepted(path, text string) string {
	return fmt.Sprintf(`ide/diffAccepted {"filePath":%q,"content":%q}`, path, text)
}

func rejected(path string) string {
	return fmt.Sprintf(`ide/diffRejected {"filePath":%q}`, path)
}

// view attaches a view.
func (w *world) view() *companion.View {
	w.t.Helper()
	return companion.NewView(w.t, w.Attach)
}

// own attaches the editor that the companion was started for.
func (w *world) own() *companion.View {
	w.t.Helper()
	return companion.NewView(w.t, func(conn io.ReadWriteCloser) {
		companion.Serve(conn, func(editor.InitializeParams) (*companion.Companion, error) { return w.Companion, nil })
	})
}

// propose opens a diff and returns it as the editor sees it.
func (w *world) propose(c *cli, e *companion.View, path, text string) editor.Diff {
	w.t.Helper()
	if err := c.openDiff(path, text); err != nil {
		w.t.Fatal(err)
	}
	return systest.Receive(w.t, e.Opened)
}

// newReview returns a world with a CLI, an editor and a file that can be changed.
func newReview(t *testing.T) (w *world, c *cli, e *companion.View, path string) {
	t.Helper()
	w = newWorld(t)
	return w, w.connect(), w.view(), w.file("f", "old\n")
}

func TestOpenDiffRefusals(t *testing.T) {
	w := newWorld(t)
	c := w.connect()
	good := w.file("f", "x\n")
	systest.WantError(t, c.openDiff(good, "y"), "pollux run") // no client shows diffs
	e := w.view()
	for _, tt := range []struct{ path, says string }{
		{"f", "absolute"},
		{w.project + "/../outside", "without .."},
		{w.project + "/link/../f", "without .."},
		{w.project + "//link/..//f", "without .."},
		{w.project + "/f/..", "without .."},
	} {
		systest.WantError(t, c.openDiff(tt.path, "y"), tt.says)
	}
	e.Mu.Lock()
	e.Fail = errors.New("the window is too small")
	e.Mu.Unlock()
	systest.WantError(t, c.openDiff(good, "y"), "too small")
	if st := w.Status(); len(st.Diffs) != 0 {
		t.Errorf("refused diffs are open: %+v", st.Diffs)
	}
	entries, err := w.journal.List()
	if err != nil || len(entries) != 2 || entries[0].State != journal.Failed {
		t.Errorf("journal = %+v, %v", entries, err)
	}
}

func TestAcceptAndClose(t *testing.T) {
	w, c, e, path := newReview(t)

	d := w.propose(c, e, path, "new\n")
	e.Edits(d, "edited\n")
	e.Accepts(d, "edited more\n")
	c.receives(accepted(path, "edited more\n"))
	w.journal.Keeps(d.ID, "edited more\n")
	if text, err := w.journal.Proposal(d.ID); err != nil || text != "new\n" {
		t.Errorf("the journal has the proposal %q, %v", text, err)
	}
	if text, err := w.journal.Original(d.ID); err != nil || text != "old\n" {
		t.Errorf("the journal has the original %q, %v", text, err)
	}

	d = w.propose(c, e, path, "new\n")
	late := `typed {"content": "late"}` + "\n"
	e.Types(d, late)
	c.closes(path, late)
	_, err := c.closeDiff(path)
	systest.WantError(t, err, "no diff is open")
}

func TestConflictAndEmpty(t *testing.T) {
	w, c, e, path := newReview(t)
	d := w.propose(c, e, path, "new\n")
	accept := func(content, overwrite string) editor.DiffAcceptResult {
		t.Helper()
		res, err := e.Accept(t.Context(), editor.DiffAccept{ID: d.ID, Content: content, Overwrite: overwrite})
		if err != nil {
			t.Fatal(err)
		}
		return res
	}
	if res := accept("", ""); res.Status != editor.StatusRefused {
		t.Errorf("empty: %+v", res)
	}
	w.file("f", "theirs\n")
	first := accept("new\n", "")
	if first.Status != editor.StatusConflict || first.Disk != "theirs\n" {
		t.Errorf("changed: %+v", first)
	}
	w.file("f", "theirs again\n")
	second := accept("new\n", first.Version)
	if second.Status != editor.StatusConflict || second.Disk != "theirs again\n" {
		t.Errorf("changed after the user looked: %+v", second)
	}
	os.Remove(path)
	third := accept("new\n", second.Version)
	if third.Status != editor.StatusConflict || !third.Deleted || third.Disk != "" || third.Message != "f was deleted since the change was proposed." {
		t.Errorf("deleted: %+v", third)
	}
	if res := accept("new\n", third.Version); res.Status != editor.StatusAccepted {
		t.Errorf("overwritten: %+v", res)
	}
	c.outcome()
}

func TestTwoEditorsSeeEachOther(t *testing.T) {
	w, c, one, path := newReview(t)
	d := w.propose(c, one, path, "new\n")
	one.Edits(d, "mine\n")
	two := w.view()
	if got := systest.Receive(t, two.Opened); got.ID != d.ID || got.Text() != "mine\n" || got.Proposed != "new\n" {
		t.Errorf("the second editor was shown %+v", got)
	}
	two.Edits(d, "ours\n")
	if ch := systest.Receive(t, one.Changed); ch.Content == nil || *ch.Content != "ours\n" {
		t.Errorf("the first editor received %+v", ch)
	}
	// The CLI gets an answer when the last surface leaves, but not while one
	// stays.
	one.Client.Close()
	if diffs, err := two.Diffs(t.Context()); err != nil || len(diffs) != 1 {
		t.Errorf("diffs = %v, %v", diffs, err)
	}
	two.Client.Close()
	c.receives(rejected(path))
	w.journal.Keeps(d.ID, "ours\n")
}

func TestCLIGone(t *testing.T) {
	w := newWorld(t)
	c, e := w.connect(), w.view()
	path := w.file("f", "old\r\n")
	d := w.propose(c, e, path, "new\n")
	c.leave()
	if ch := systest.Receive(t, e.Changed); ch.ID != d.ID || ch.State != editor.StateOrphaned {
		t.Errorf("the editor received %+v", ch)
	}
	e.Reads("kept")
	_, err := e.Accept(t.Context(), editor.DiffAccept{ID: d.ID, Content: "new\n"})
	systest.WantError(t, err, "diff/save")
}

func TestRootsChange(t *testing.T) {
	w := newWorld(t)
	guest, e := w.view(), w.own()
	other := t.TempDir()
	if err := guest.Update(editor.Snapshot{Roots: []string{t.TempDir()}}); err != nil {
		t.Fatal(err)
	}
	if st, err := guest.Status(t.Context()); err != nil || len(st.Roots) != 1 || st.Roots[0] != w.project {
		t.Errorf("a guest changed the roots: %v, %v", st.Roots, err)
	}
	if err := e.Update(editor.Snapshot{Roots: []string{other}}); err != nil {
		t.Fatal(err)
	}
	actual, _ := filepath.EvalSymlinks(other)
	if env := systest.Receive(t, e.Envs); env.Env["GEMINI_CLI_IDE_WORKSPACE_PATH"] != actual {
		t.Errorf("the editor received %v", env.Env)
	}
	if err := e.Update(editor.Snapshot{Roots: []string{"relative"}}); err != nil {
		t.Fatal(err)
	}
	e.Reads("absolute")
}

// The browser page receives no token, also when the workspace's directories change.
func TestPageGetsNoToken(t *testing.T) {
	w := newWorld(t)
	page, e := companion.NewView(t, w.AttachPage), w.own()
	if page.Info.Token != "" || page.Info.Env != nil {
		t.Errorf("it receives %+v", page.Info)
	}
	if err := e.Update(editor.Snapshot{Roots: []string{t.TempDir()}}); err != nil {
		t.Fatal(err)
	}
	systest.Receive(t, e.Envs)
	page.Settle() // it has received what came before
	if len(page.Envs) > 0 {
		t.Errorf("it receives %v", <-page.Envs)
	}
}

func TestEditorNames(t *testing.T) {
	for name, says := range map[string]string{"vscode": "vscode", "": "no name", "Neo Vim": "no name"} {
		_, err := ide.Start(ide.Config{Editor: editor.Info{Name: name, DisplayName: "X"}, Journal: journal.New(t.TempDir())})
		systest.WantError(t, err, says)
	}
}

// Of two surfaces, the one that edited last has the text. The other did not
// follow and still shows the proposal.
func TestCloseAsksTheOneWhoEdited(t *testing.T) {
	w := newWorld(t)
	c, stale, mine := w.connect(), w.view(), w.view()
	path := w.file("f", "old\n")
	d := w.propose(c, mine, path, "new\n")
	stale.Types(d, "new\n")
	mine.Edits(d, "edited\n")
	c.closes(path, "edited\n")
}

// Text typed just before a diff ends in another way is also kept.
func TestLateEditsAreKept(t *testing.T) {
	w, c, e, path := newReview(t)
	for i := range 2 {
		d := w.propose(c, e, path, "new\n")
		typed := fmt.Sprintf("typed %d\n", i)
		e.Types(d, typed)
	}
	w.Close() // the first was superseded, the second is rejected
	entries, err := w.journal.List()
	if err != nil || len(entries) != 2 {
		t.Fatalf("journal = %v, %v", entries, err)
	}
	for i, entry := range entries {
		w.journal.Keeps(entry.ID, fmt.Sprintf("typed %d\n", 1-i))
	}
}

// An editor that was suspended answers when it goes on: its text is in the journal then, and the
// user sees how to write it.
func TestEditsOfASuspendedEditorAreKept(t *testing.T) {
	t.Parallel()
	w, c, e, path := newReview(t)
	d := w.propose(c, e, path, "new\n")
	e.Types(d, "typed\n")
	e.Mu.Lock()
	c.closes(path, "new\n")
	e.Mu.Unlock()
	e.Reads("journal restore " + d.ID)
	w.journal.Keeps(d.ID, "typed\n")
}

// The user accepts while the CLI ends: both finish, and the text is kept.
func TestAcceptAsTheCLIEnds(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	e := w.view()
	path := w.file("f", "old\n")
	for range 20 {
		c := w.connect()
		d := w.propose(c, e, path, "new\n")
		closed := make(chan bool, 1)
		go func() { c.leave(); closed <- true }()
		e.Accept(t.Context(), editor.DiffAccept{ID: d.ID, Content: "mine\n"})
		systest.Receive(t, closed)
		w.journal.Keeps(d.ID, "mine\n")
	}
}

// While CLIs connect and leave, the status lists each connected one once and
// completely.
func TestStatusWhileConnecting(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.connect() // and stays
	first := w.Status().Clients
	if len(first) != 1 {
		t.Fatalf("one CLI is connected, the status lists %+v", first)
	}
	done := make(chan bool)
	go func() {
		defer close(done)
		for range 30 {
			c := w.connect()
			if n := len(w.Status().Clients); n != 2 {
				t.Errorf("two CLIs are connected, the status lists %d", n)
			}
			c.leave()
			if n := len(w.Status().Clients); n != 1 {
				t.Errorf("one CLI has left, the status lists %d", n)
			}
		}
	}()
	for {
		clients := w.Status().Clients
		stays := slices.ContainsFunc(clients, func(a editor.Agent) bool { return a.Since == first[0].Since })
		if !stays || len(clients) > 2 {
			t.Errorf("the CLI that stays is listed in %+v", clients)
		}
		for _, c := range clients {
			if c.Name != "Gemini CLI" || c.Version != "0" || c.Transport != "http" || c.Since < first[0].Since {
				t.Errorf("the status lists %+v", c)
			}
		}
		select {
		case <-done:
			return
		default:
		}
	}
}

// An editor fails to show a diff after openDiff has succeeded. The CLI must not
// wait for it.
func TestLateFailureAnswersTheCLI(t *testing.T) {
	t.Parallel()
	_, c, e, path := newReview(t)
	e.Mu.Lock()
	e.Fail = errors.New("no window")
	if err := c.openDiff(path, "new\n"); err != nil { // after openAck
		t.Error(err)
	}
	e.Mu.Unlock()
	c.receives(rejected(path))
}

// Both sides write large messages before they read.
func TestBothWriteAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c, e := w.connect(), w.view()
	big := strings.Repeat("x", 1<<18) + "\n"
	path := w.file("f", big)
	for range 5 {
		d := w.propose(c, e, path, big+"new\n")
		if err := e.Edit(d.ID, big+"edited\n"); err != nil {
			t.Fatal(err)
		}
		if _, err := e.Diffs(t.Context()); err != nil {
			t.Fatal(err)
		}
		e.Rejects(d)
	}
}

func TestDoorErrors(t *testing.T) {
	w := newWorld(t)
	mine, theirs := net.Pipe()
	go w.Attach(theirs)
	c := editor.NewClient(mine, editor.Handler{})
	defer func() { c.Close(); <-c.Done() }()
	systest.WantError(t, c.Call(t.Context(), editor.MethodStatus, nil, nil), "initialize first")
	systest.WantError(t, c.Call(t.Context(), editor.MethodInitialize, map[string]any{"protocol": 99}, nil), "update")
	if _, err := c.Initialize(t.Context(), editor.InitializeParams{}); err != nil {
		t.Fatal(err)
	}
	_, err := c.Initialize(t.Context(), editor.InitializeParams{})
	systest.WantError(t, err, "before")
	systest.WantError(t, c.Call(t.Context(), "no/such", nil, nil), "unknown method")
	systest.WantError(t, c.Call(t.Context(), editor.MethodDiffReject, map[string]any{"id": 7}, nil), "diff/reject")
	systest.WantError(t, c.Reject(t.Context(), "none"), "no such diff")
	systest.WantError(t, c.Call(t.Context(), editor.MethodContextEvent, editor.ContextEvent{Event: "jump"}, nil), "focus")
	systest.WantError(t, c.Call(t.Context(), editor.MethodReviewLink, nil, nil), "no review page")
	if err := c.Notify("future/notification", nil); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Status(t.Context()); err != nil {
		t.Errorf("after an unknown notification: %v", err)
	}
}

// The state machine against a model: after any actions of CLIs and editors, in any
// order, each diff has exactly one answer, a closed or superseded one has none, and
// every text is in the journal.
func TestModel(t *testing.T) {
	for seed := range uint64(8) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			rng := rand.New(rand.NewPCG(seed, 1))
			e := w.view()
			type cliState struct {
				*cli
				open     map[string]editor.Diff // by path
				expected []string
			}
			clis := make([]*cliState, 3)
			for i := range clis {
				clis[i] = &cliState{cli: w.connect(), open: make(map[string]editor.Diff)}
			}
			paths := []string{w.file("a", "a\n"), w.file("b", "b\n"), filepath.Join(w.project, "new")}
			texts := make(map[string]string) // what the journal must have, by ID
			states := make(map[string]journal.State)
			for step := range 120 {
				c := clis[rng.IntN(len(clis))]
				path := paths[rng.IntN(len(paths))]
				d, open := c.open[path]
				text := fmt.Sprintf("%d\n", step)
				e.Settle() // the editor's edits have been handled: the CLI uses another connection
				switch op := rng.IntN(6); {
				case op <= 1:
					if err := c.openDiff(path, text); err != nil {
						t.Fatal(err)
					}
					if open {
						states[d.ID] = journal.Superseded
					}
					d = systest.Receive(t, e.Opened)
					if d.Path != path || d.Proposed != text {
						t.Fatalf("step %d: shown %+v", step, d)
					}
					c.open[path] = d
					texts[d.ID], states[d.ID] = text, journal.Open
				case !open:
					if _, err := c.closeDiff(path); err == nil {
						t.Fatalf("step %d: closed what is not open", step)
					}
				case op == 2:
					if err := e.Edit(d.ID, text); err != nil {
						t.Fatal(err)
					}
					texts[d.ID] = text
				case op == 3:
					res, err := e.Accept(t.Context(), editor.DiffAccept{ID: d.ID, Content: text})
					if err != nil || res.Status != editor.StatusAccepted {
						t.Fatalf("step %d: accept = %+v, %v", step, res, err)
					}
					c.expected = append(c.expected, accepted(path, text))
					texts[d.ID], states[d.ID] = text, journal.Accepted
					delete(c.open, path)
				case op == 4:
					e.Rejects(d)
					c.expected = append(c.expected, rejected(path))
					states[d.ID] = journal.Rejected
					delete(c.open, path)
				case op == 5:
					got, err := c.closeDiff(path)
					if want := (geminiide.ClosedContent{Content: texts[d.ID]}).Text(); err != nil || got != want {
						t.Fatalf("step %d: closeDiff = %s, %v, want %s", step, got, err, want)
					}
					states[d.ID] = journal.Closed
					delete(c.open, path)
				}
			}
			// The editor leaves. The agents receive a rejection, in any order. The journal does
			// not say that the user rejected the changes.
			e.Client.Close()
			for _, c := range clis {
				for path, d := range c.open {
					states[d.ID] = journal.Orphaned
					c.expected = append(c.expected, rejected(path))
				}
				var got []string
				for range c.expected {
					got = append(got, c.outcome())
				}
				decided := len(c.expected) - len(c.open)
				slices.Sort(c.expected[decided:])
				slices.Sort(got[decided:])
				for i, want := range c.expected {
					if got[i] != want {
						t.Errorf("outcome %d is %s, want %s", i, got[i], want)
					}
				}
				if len(c.outcomes) > 0 {
					t.Errorf("and also %s", <-c.outcomes)
				}
			}
			w.Close() // all is written
			for id, want := range texts {
				w.journal.Keeps(id, want)
				if entry, err := w.journal.Get(id); err != nil || entry.State != states[id] {
					t.Errorf("the journal says %s, %v; want %s", entry.State, err, states[id])
				}
			}
		})
	}
}

// Ctrl-C right after a proposal: closeDiff comes while openDiff still waits for
// the editor.
func TestCloseBeforeOpenHasAnswered(t *testing.T) {
	t.Parallel()
	w, c, e, path := newReview(t)
	e.Mu.Lock() // the editor is busy
	opened := make(chan error, 1)
	go func() { opened <- c.openDiff(path, "new\n") }()
	systest.Until(t, func() bool { return len(w.Status().Diffs) > 0 })
	closed := make(chan error, 1)
	go func() { _, err := c.closeDiff(path); closed <- err }()
	if err := systest.Receive(t, opened); err != nil {
		t.Errorf("openDiff = %v", err)
	}
	e.Mu.Unlock()
	if err := systest.Receive(t, closed); err != nil {
		t.Errorf("closeDiff = %v", err)
	}
}

// If the roots cannot be published, they do not apply, the user gets one
// message, and the next snapshot with them tries again.
func TestSetRootsTriesAgain(t *testing.T) {
	w := newWorld(t)
	e := w.own()
	published, err := filepath.Glob(filepath.Join(os.TempDir(), "gemini", "ide", "*.json"))
	if err != nil || len(published) == 0 {
		t.Fatal(published, err)
	}
	for _, path := range published {
		if err := errors.Join(os.Remove(path), os.Mkdir(path, 0o700)); err != nil {
			t.Fatal(err)
		}
	}
	roots := []string{filepath.Dir(w.project)}
	update := func() {
		t.Helper()
		if err := e.Update(editor.Snapshot{Roots: roots}); err != nil {
			t.Fatal(err)
		}
		e.Settle() // it has been handled
	}
	update()
	update()
	e.Reads("discovery file")
	e.ReadsNoMore()
	if got := w.Roots(); !slices.Equal(got, []string{w.project}) {
		t.Errorf("the roots are %v, which no CLI finds", got)
	}
	for _, path := range published {
		systest.Remove(t, path)
	}
	update()
	if got := systest.Receive(t, e.Envs); got.Env["GEMINI_CLI_IDE_WORKSPACE_PATH"] != roots[0] {
		t.Errorf("the environment says %q", got.Env["GEMINI_CLI_IDE_WORKSPACE_PATH"])
	}
	if got := w.Roots(); !slices.Equal(got, roots) {
		t.Errorf("the roots are %v, want %v", got, roots)
	}
}
