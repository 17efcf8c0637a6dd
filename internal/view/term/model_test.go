package term

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"pollux/internal/editor"
	"pollux/internal/jsonrpc"
	"pollux/internal/sys/systest"
)

// A bench runs a model as Bubble Tea does, in a synctest bubble, with a companion that
// accepts everything.
type bench struct {
	*model
	loop sync.Mutex // held while the model runs
	msgs chan tea.Msg
	quit atomic.Bool

	mu    sync.Mutex
	calls []string // requests to the companion, as "method id"
	reply editor.DiffAcceptResult
}

func newBench(t *testing.T, cfg Config) *bench {
	b := &bench{msgs: make(chan tea.Msg), reply: editor.DiffAcceptResult{Status: editor.StatusAccepted}}
	local, remote := net.Pipe()
	companion := jsonrpc.NewConn(t.Context(), editor.NewStream(remote), jsonrpc.HandlerWithError(
		func(_ *jsonrpc.Conn, req *jsonrpc.Request) (any, error) {
			d, err := editor.Params[editor.DiffID](req)
			b.mu.Lock()
			defer b.mu.Unlock()
			if !req.Notif {
				b.calls = append(b.calls, req.Method+" "+d.ID)
			}
			return b.reply, err
		}))
	client := editor.NewClient(local, editor.Handler{})
	texts := newTexts()
	texts.client = client
	ctx, cancel := context.WithCancel(t.Context())
	b.model = &model{ctx: ctx, cfg: cfg, client: client, texts: texts, width: 80, height: 24}
	var commands sync.WaitGroup
	run := func(cmd tea.Cmd) {
		commands.Go(func() {
			msg := cmd()
			select {
			case b.msgs <- msg:
			case <-ctx.Done():
			}
		})
	}
	commands.Go(func() {
		for {
			select {
			case msg := <-b.msgs:
				switch msg := msg.(type) {
				case tea.QuitMsg:
					b.quit.Store(true)
				case tea.BatchMsg:
					for _, cmd := range msg {
						run(cmd)
					}
				default:
					b.loop.Lock()
					_, cmd := b.Update(msg)
					b.loop.Unlock()
					if cmd != nil {
						run(cmd)
					}
				}
			case <-ctx.Done():
				return
			}
		}
	})
	t.Cleanup(func() {
		cancel()
		commands.Wait()
		client.Close()
		texts.close()
		<-companion.DisconnectNotify()
	})
	return b
}

// onBench runs a test on a bench.
func onBench(t *testing.T, cfg Config, test func(t *testing.T, b *bench)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t, newBench(t, cfg)) })
}

func (b *bench) send(msg tea.Msg) {
	b.msgs <- msg
	synctest.Wait()
}

func (b *bench) press(keys string) {
	for _, k := range keys {
		b.send(tea.KeyPressMsg{Text: string(k), Code: k})
	}
}

func (b *bench) open(id, text string) {
	b.texts.set(id, text)
	b.send(opened{ID: id, Path: "/p/" + id + ".txt", Original: "old\n", Proposed: text, State: editor.StateOpen})
}

// close sends that a diff is closed.
func (b *bench) close(id, reason string) { b.send(closed{ID: id, Reason: reason}) }

func (b *bench) asked() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]string(nil), b.calls...)
}

func (b *bench) wants(t *testing.T, what string, calls ...string) {
	t.Helper()
	if got := b.asked(); fmt.Sprint(got) != fmt.Sprint(calls) {
		t.Errorf("%s: the companion was asked %q, want %q", what, got, calls)
	}
}

func (b *bench) shows() string {
	b.loop.Lock()
	defer b.loop.Unlock()
	return ansi.Strip(b.View().Content)
}

// ended reports whether the program has ended, and whether the user left while a change
// was pending.
func (b *bench) ended() (quit, left bool) {
	b.loop.Lock()
	defer b.loop.Unlock()
	return b.quit.Load(), b.left
}

func (b *bench) sees(t *testing.T, text string) {
	t.Helper()
	if got := b.shows(); !strings.Contains(got, text) {
		t.Errorf("it shows no %q but\n%s", text, got)
	}
}

// A popup opens while the user types into the agent: the y of a word accepted a change
// that the user had not seen.
func TestKeysOfTheMomentDecideNothing(t *testing.T) {
	for _, key := range []string{"y", "c", "r", "x", "u", "a", "e", "q"} {
		t.Run(key, func(t *testing.T) {
			onBench(t, Config{Once: true, Editor: "false"}, func(t *testing.T, b *bench) {
				b.press(key) // before there is a change
				b.open("1", "new\n")
				for range 40 { // two seconds, four times settleDelay
					b.press(key)
					time.Sleep(50 * time.Millisecond)
					b.sees(t, appeared)
				}
				b.wants(t, "while keys come")
				if quit, _ := b.ended(); quit {
					t.Error("it has ended")
				}
				b.sees(t, "+new")
				time.Sleep(600 * time.Millisecond)
				synctest.Wait()
				b.sees(t, "y accept")
				b.press("y")
				b.wants(t, "after a rest", editor.MethodDiffAccept+" 1")
			})
		})
	}
}

// The half second starts again whenever the view changes.
func TestSettle(t *testing.T) {
	rest := func(d time.Duration) { time.Sleep(d); synctest.Wait() }
	for name, test := range map[string]struct {
		change func(b *bench)
		accept string
	}{
		"answered elsewhere": {func(b *bench) { b.close("1", editor.ReasonClosed) }, "2"},
		"superseded": {func(b *bench) {
			b.close("1", editor.ReasonSuperseded)
			b.close("2", editor.ReasonClosed)
			b.open("3", "newer\n")
		}, "3"},
		"edited in another client": {func(b *bench) {
			text := "edited\n"
			b.texts.set("1", text)
			b.send(changed{ID: "1", Content: &text})
		}, "1"},
		"the user goes to the next": {func(b *bench) { b.send(tea.KeyPressMsg{Code: tea.KeyTab}) }, "2"},
		"behind the help":           {func(b *bench) { b.press("? ") }, "1"},
	} {
		for _, late := range []time.Duration{0, 30, 150, 300, 490} {
			t.Run(fmt.Sprint(name, " ", int(late)), func(t *testing.T) {
				onBench(t, Config{}, func(t *testing.T, b *bench) {
					b.open("1", "new\n")
					b.open("2", "two\n")
					rest(time.Second)
					b.sees(t, "y accept")
					test.change(b)
					rest(late * time.Millisecond)
					b.press("y")
					b.wants(t, "a key meant for another")
					b.sees(t, appeared)
					rest(400 * time.Millisecond) // the key started the wait again
					b.sees(t, appeared)
					rest(200 * time.Millisecond)
					b.press("y")
					b.wants(t, "after a rest", editor.MethodDiffAccept+" "+test.accept)
				})
			})
		}
	}
}

// A change that the user edits stays settled, so accepting right after an edit works. A
// conflict is a new view: a key that was meant for the change before overwrites nothing.
func TestSettledStays(t *testing.T) {
	onBench(t, Config{}, func(t *testing.T, b *bench) {
		b.open("1", "new\n")
		time.Sleep(time.Second)
		b.reply = editor.DiffAcceptResult{
			Status: editor.StatusConflict, Message: "1.txt has changed on disk since the change was proposed.",
			Disk: "theirs\n", Version: "v",
		}
		b.press("nujkpay")
		b.sees(t, "1.txt has changed on disk since the change was proposed.")
		b.press("o")
		b.wants(t, "at once", editor.MethodDiffAccept+" 1")
		time.Sleep(time.Second)
		b.sees(t, "o overwrite the file")
		b.press("o")
		b.wants(t, "after a rest", editor.MethodDiffAccept+" 1", editor.MethodDiffAccept+" 1")
	})
}

// After "compare", the change of a deleted file is one of a new file.
func TestComparesWithADeletedFile(t *testing.T) {
	onBench(t, Config{}, func(t *testing.T, b *bench) {
		b.texts.set("1", "new\n")
		b.send(opened{ID: "1", Path: "/p/1.txt", Original: "old\n", Exists: true, Proposed: "new\n", State: editor.StateOpen})
		time.Sleep(time.Second)
		b.reply = editor.DiffAcceptResult{Status: editor.StatusConflict, Message: "1.txt was deleted.", Deleted: true, Version: "v"}
		b.press("y")
		b.sees(t, "1.txt was deleted.")
		b.press("d")
		b.sees(t, "(new file)")
	})
}

// Messages wait while the user's editor runs, and one of them may be handled before what
// the editor wrote. The screen showed an older text, and y accepted that.
func TestMessagesWaitForTheEditor(t *testing.T) {
	other := func(b *bench, text string) changed {
		b.texts.set("1", text)
		return changed{ID: "1", Content: &text}
	}
	for name, test := range map[string]struct {
		happens func(b *bench) []tea.Msg // while the editor runs; the messages afterwards
		want    string
		settled bool
	}{
		"the user changed nothing": {func(b *bench) []tea.Msg {
			first := other(b, "theirs\n")
			return []tea.Msg{first, edited{id: "1"}}
		}, "theirs", false},
		"the user wrote last": {func(b *bench) []tea.Msg {
			first, second := other(b, "first\n"), other(b, "second\n")
			b.texts.edit("1", "mine\n")
			return []tea.Msg{first, edited{id: "1"}, second}
		}, "mine", true},
		"another client wrote last": {func(b *bench) []tea.Msg {
			b.texts.edit("1", "mine\n")
			return []tea.Msg{edited{id: "1"}, other(b, "theirs\n")}
		}, "theirs", false},
	} {
		t.Run(name, func(t *testing.T) {
			onBench(t, Config{}, func(t *testing.T, b *bench) {
				b.open("1", "new\n")
				time.Sleep(time.Second)
				for _, msg := range test.happens(b) {
					b.send(msg)
				}
				b.sees(t, "*"+test.want)
				if got := b.model.items[0].text; got != test.want+"\n" {
					t.Errorf("y accepts %q", got)
				}
				if b.model.settled != test.settled {
					t.Errorf("settled is %v", b.model.settled)
				}
			})
		})
	}
}

// If the terminal reports key repeats, a held key never decides, however late the first
// repeat comes.
func TestHeldKey(t *testing.T) {
	onBench(t, Config{}, func(t *testing.T, b *bench) {
		b.open("1", "new\n")
		time.Sleep(time.Second)
		for _, k := range "yrq" {
			b.send(tea.KeyPressMsg{Text: string(k), Code: k, IsRepeat: true})
		}
		b.wants(t, "a held key")
		if quit, _ := b.ended(); quit {
			t.Error("it has ended")
		}
		b.press("y")
		b.wants(t, "a key", editor.MethodDiffAccept+" 1")
	})
}

// Pasted text counts as key presses.
func TestPaste(t *testing.T) {
	onBench(t, Config{}, func(t *testing.T, b *bench) {
		b.open("1", "new\n")
		time.Sleep(400 * time.Millisecond)
		b.send(tea.PasteMsg{Content: "y"})
		time.Sleep(400 * time.Millisecond)
		b.sees(t, appeared)
		time.Sleep(200 * time.Millisecond)
		synctest.Wait()
		b.sees(t, "y accept")
		b.wants(t, "pasted")
	})
}

// Ctrl-C always leaves.
func TestCtrlC(t *testing.T) {
	onBench(t, Config{Once: true}, func(t *testing.T, b *bench) {
		b.open("1", "new\n")
		b.send(tea.KeyPressMsg{Code: 'c', Mod: tea.ModCtrl})
		if quit, left := b.ended(); !quit || !left {
			t.Errorf("ended %v, with a change left %v", quit, left)
		}
	})
}

// Between the answer and the write there is nothing to decide.
func TestAccepted(t *testing.T) {
	onBench(t, Config{Once: true, Editor: "false"}, func(t *testing.T, b *bench) {
		b.open("1", "new\n")
		time.Sleep(time.Second)
		b.press("y")
		b.send(changed{ID: "1", State: editor.StateAccepted})
		b.sees(t, "accepted: waiting for the agent to write it")
		time.Sleep(time.Second)
		b.press("yrcxuae")
		b.wants(t, "accepted already", editor.MethodDiffAccept+" 1")
		b.close("1", editor.ReasonAccepted)
		if quit, left := b.ended(); !quit || left {
			t.Errorf("ended %v, with a change left %v", quit, left)
		}
	})
}

// If the agent never writes the accepted text, a popup stays until the user has read
// that.
func TestUnwritten(t *testing.T) {
	onBench(t, Config{Once: true}, func(t *testing.T, b *bench) {
		b.open("1", "new\n")
		b.open("2", "new\n")
		time.Sleep(time.Second)
		b.press("y")
		b.send(changed{ID: "1", State: editor.StateAccepted})
		b.close("1", editor.ReasonUnwritten)
		b.sees(t, "1.txt: accepted, but not written")
		b.send(message{level: "warning", text: "The text is in the journal: pollux journal restore 7"})
		b.sees(t, "pollux journal restore 7")
		time.Sleep(time.Second)
		b.press("r")
		b.close("2", editor.ReasonRejected)
		for range 5 { // the user is typing
			b.press("q")
			time.Sleep(100 * time.Millisecond)
		}
		if quit, _ := b.ended(); quit {
			t.Fatal("it ended before it could be read")
		}
		b.sees(t, "1.txt: accepted, but not written")
		b.sees(t, "pollux journal restore 7")
		time.Sleep(time.Second)
		b.sees(t, "any key ends")
		b.open("3", "new\n") // one more, before the user has left
		time.Sleep(time.Second)
		b.press("r")
		b.wants(t, "one more", editor.MethodDiffAccept+" 1", editor.MethodDiffReject+" 2", editor.MethodDiffReject+" 3")
		b.close("3", editor.ReasonRejected)
		time.Sleep(time.Second)
		b.sees(t, "any key ends")
		b.press("q")
		if quit, _ := b.ended(); !quit {
			t.Error("it has not ended")
		}
	})
}

// The title names the agent that proposed the change.
func TestTitleNamesTheAgent(t *testing.T) {
	for want, d := range map[string]editor.Diff{
		"x.go  /p  Gemini CLI": {Agent: "Gemini CLI", Client: "Gemini CLI 0.61.0"},
		"x.go  /p  client 1":   {Client: "client 1"},
		"x.go  /p  the agent":  {},
		"x.go  /p  evil␛[2J":   {Agent: "evil\x1b[2J"},
	} {
		d.Path, d.Exists = "/p/x.go", true
		if got := filepath.ToSlash(new(model).title(&item{Diff: d}, "", 80)); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// A narrow terminal cuts the folder, not what follows it.
func TestTitleFits(t *testing.T) {
	for _, test := range []struct {
		width int
		want  string
	}{
		{60, "x.go  /home/me/work/project  Gemini CLI   hunk 1 of 2"},
		{53, "x.go  /home/me/work/project  Gemini CLI   hunk 1 of 2"},
		{44, "x.go  …ork/project  Gemini CLI   hunk 1 of 2"},
		{10, "x.go  …t  Gemini CLI   hunk 1 of 2"},
	} {
		it := &item{Diff: editor.Diff{Path: "/home/me/work/project/x.go", Agent: "Gemini CLI", Exists: true}}
		if got := filepath.ToSlash(new(model).title(it, "   hunk 1 of 2", test.width)); got != test.want {
			t.Errorf("%d columns: %q, want %q", test.width, got, test.want)
		}
	}
}

// In a deep project, the list showed little more than the folders above it.
func TestPathsInTheProject(t *testing.T) {
	root := systest.Abs("/home/me/project")
	in := func(dir string) string { return filepath.Join(dir, "src", "x.go") }
	for _, tt := range []struct {
		roots []string
		path  string
		want  string
	}{
		{[]string{root}, in(root), in("")},
		{[]string{root}, in(root + "-2"), in(root + "-2")},
		{[]string{root, root + "-2"}, in(root + "-2"), in("project-2")},
		{nil, in(root), in(root)},
	} {
		m := &model{roots: tt.roots}
		if got := m.relative(tt.path); got != tt.want {
			t.Errorf("%s in %q: %s, want %s", tt.path, tt.roots, got, tt.want)
		}
	}
	it := &item{Diff: editor.Diff{Path: filepath.Join(root, "x.go"), Agent: "Gemini CLI", Exists: true}}
	if got, want := (&model{roots: []string{root}}).title(it, "", 80), "x.go  Gemini CLI"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// The view says of an agent that does not ask how to change that, as long as it does not ask.
func TestSilentAgent(t *testing.T) {
	onBench(t, Config{}, func(t *testing.T, b *bench) {
		text := "Claude Code changes files without asking: press Shift+Tab"
		b.send(agents{{Name: "Claude Code", Silent: text}})
		b.send(message{level: "warning", text: text})
		b.sees(t, "Changes that an agent proposes appear here.")
		if got := strings.Count(b.shows(), text); got != 1 {
			t.Errorf("the view says it %d times", got)
		}
		b.send(agents{{Name: "Claude Code"}})
		if strings.Contains(b.shows(), text) {
			t.Error("the view still says it")
		}
	})
}

// The view promised the changes of an agent that asks only in its own terminal.
func TestAgentWithoutReview(t *testing.T) {
	onBench(t, Config{}, func(t *testing.T, b *bench) {
		limited := editor.Agent{Name: "opencode", Limits: "no review: it asks about changes in its own terminal"}
		b.send(agents{limited, limited})
		b.sees(t, "opencode has no review: it asks about changes in its own terminal.")
		if shows := b.shows(); strings.Contains(shows, "appear here") || strings.Count(shows, "opencode") != 1 {
			t.Errorf("the view shows %s", shows)
		}
		b.send(agents{limited, {Name: "Gemini CLI"}})
		b.sees(t, "Changes that an agent proposes appear here.")
		b.sees(t, "opencode has no review")
	})
}

// The view lists the files that changed outside Pollux. A key shows the next one, to save
// without some hunks or to keep.
func TestOutside(t *testing.T) {
	onBench(t, Config{}, func(t *testing.T, b *bench) {
		b.send(outside{Files: []editor.OutsideFile{
			{Path: "/p/big", Change: editor.OutsideChanged, Notice: "it is larger than 1 MiB"},
			{Path: "/p/a.txt", Change: editor.OutsideChanged}, {Path: "/p/b.txt", Change: editor.OutsideCreated},
		}})
		b.sees(t, "3 files changed outside Pollux")
		b.sees(t, "   "+filepath.FromSlash("/p/")+"\n     a.txt  changed\n     b.txt  created\n     big  changed (it is larger than 1 MiB)")
		b.sees(t, "o changes outside Pollux")
		for _, name := range []string{"a", "b"} {
			time.Sleep(2 * settleDelay)
			b.press("o")
			b.texts.set(name, "new\n")
			b.send(opened{ID: name, Path: "/p/" + name + ".txt", Original: "old\n", Proposed: "new\n", State: editor.StateOutside})
		}
		b.sees(t, "> /p/b.txt")
		time.Sleep(2 * settleDelay)
		b.press("o")
		b.sees(t, "no more changes outside Pollux")
		b.wants(t, "to show them", "outside/open ", "outside/open ")
		b.sees(t, "y save  r keep")
		b.press("y")
		b.close("b", editor.ReasonSaved)
		time.Sleep(2 * settleDelay)
		b.press("r")
		b.close("a", editor.ReasonKept)
		b.wants(t, "to decide", "outside/open ", "outside/open ", "diff/save b", "diff/reject a")
		b.send(outside{})
		if strings.Contains(b.shows(), "outside Pollux") {
			t.Error("the view still says it")
		}
	})
}

// The view kept the message about a change that cannot be displayed after the user had answered
// in the agent's terminal.
func TestNoticeLeavesWithItsChange(t *testing.T) {
	onBench(t, Config{}, func(t *testing.T, b *bench) {
		b.send(message{level: "warning", text: "latin.txt cannot be displayed", diff: "7"})
		b.close("6", editor.ReasonRejected)
		b.sees(t, "latin.txt cannot be displayed")
		b.close("7", editor.ReasonRejected)
		if strings.Contains(b.shows(), "latin.txt") {
			t.Error("the view still says it")
		}
		b.send(message{level: "warning", text: "latin.txt cannot be displayed", diff: "8"})
		b.send(message{level: "info", text: "a later message"})
		b.close("8", editor.ReasonRejected)
		b.sees(t, "a later message")
	})
}

// In a small terminal, the help was cut, and did not scroll.
func TestHelpInASmallTerminal(t *testing.T) {
	onBench(t, Config{}, func(t *testing.T, b *bench) {
		b.send(tea.WindowSizeMsg{Width: 40, Height: 10})
		b.press("?")
		b.sees(t, " y     accept: the agent writes the\n       file with the text shown here\n")
		b.sees(t, " j/k scroll  any other key continues")
		b.press("j")
		b.sees(t, "\n n, p  next hunk, previous hunk\n")
		b.press("G")
		b.sees(t, " *     your edit\n j/k scroll")
		b.press(" ") // it scrolls no further
		b.sees(t, " *     your edit\n j/k scroll")
		b.press("q")
		b.sees(t, "No pending changes.")
		if quit, _ := b.ended(); quit {
			t.Error("the key that closes the help ends the review too")
		}
		b.press("?")
		b.sees(t, " y     accept") // from the start
	})
}
