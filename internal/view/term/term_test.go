package term

import (
	"context"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"
	"go.uber.org/goleak"

	"pollux/internal/editor"
	"pollux/internal/jsonrpc"
	"pollux/internal/sys/systest"
)

func TestMain(m *testing.M) {
	systest.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/dlclark/regexp2/v2.runClock")) // it ends automatically
}

// show writes rows as a person would.
func show(rows []row) string {
	var b strings.Builder
	for _, r := range rows {
		if r.kind == fold {
			b.WriteString("...\n")
			continue
		}
		b.WriteString(r.sign().text + r.text + "\n")
	}
	return b.String()
}

func TestLayOut(t *testing.T) {
	ten := "a\nb\nc\nd\ne\nf\ng\nh\ni\nj\nk\nl\n"
	for _, test := range []struct{ name, original, proposed, text, want string }{
		{"a change", "a\nb\nc\n", "a\nB\nc\n", "a\nB\nc\n", " a\n-b\n+B\n c\n"},
		{"undone", "a\nb\nc\n", "a\nB\nc\n", "a\nb\nc\n", " a\n b\n~B\n c\n"},
		{"an undone addition", "a\n", "a\nb\n", "a\n", " a\n~b\n"},
		{"an undone removal", "a\nb\nc\n", "a\nc\n", "a\nb\nc\n", " a\n b\n~(to be removed)\n c\n"},
		{"edited by the user", "a\nb\n", "a\nB\n", "a\nmine\n", " a\n-b\n*mine\n"},
		{"partly edited by the user", "a\nb\n", "a\nB\nC\n", "a\nB\nCc\nd\n", " a\n-b\n+B\n*Cc\n*d\n"},
		{"a new file", "", "a\nb\n", "a\nb\n", "+a\n+b\n"},
		{"emptied", "a\n", "", "", "-a\n"},
		{"far away is left out", ten, strings.Replace(ten, "a", "A", 1), strings.Replace(ten, "a", "A", 1), "-a\n+A\n b\n c\n d\n e\n...\n"},
		{"one undone, one not", ten, "A\n" + ten[2:] + "m\n", ten + "m\n", " a\n~A\n b\n c\n d\n e\n...\n i\n j\n k\n l\n+m\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			rows, _ := layOut(test.original, test.proposed, test.text)
			if got := show(rows); got != test.want {
				t.Errorf("it shows\n%swant\n%s", got, test.want)
			}
		})
	}
}

// On Windows, each line of a change of Copilot CLI ended in a sign for the carriage return.
func TestLineEnds(t *testing.T) {
	for _, test := range []struct{ name, original, proposed, want string }{
		{"CRLF", "a\r\nb\r\n", "a\r\nB\r\n", " a\n-b\n+B\n"},
		{"CRLF, without a last one", "a\r\nb", "a\r\nB", " a\n-b\n+B\n"},
		{"CRLF in a new file", "", "a\r\nb\r\n", "+a\n+b\n"},
		{"other ones than on disk", "a\n", "a\r\n", "-a\n+a␍\n"},
		{"mixed", "a\r\nb\n", "a\r\nB\n", " a␍\n-b\n+B\n"},
		{"a carriage return inside a line", "a\r\n", "A\rB\r\n", "-a␍\n+A␍B␍\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			rows, _ := layOut(test.original, test.proposed, test.proposed)
			var got strings.Builder
			for _, r := range rows {
				got.WriteString(r.sign().text + r.shown + "\n")
			}
			if got.String() != test.want {
				t.Errorf("it shows\n%swant\n%s", got.String(), test.want)
			}
		})
	}
}

// Undoing every change gives the file.
func FuzzUndo(f *testing.F) {
	f.Add("a\nb\nc\n", "A\nb\nC\nd\n")
	f.Add("", "x")
	f.Add("x\n\ny", "\n")
	f.Fuzz(func(t *testing.T, original, proposed string) {
		it := &item{Diff: editor.Diff{Original: original, Proposed: proposed}, text: proposed}
		it.layOut()
		for range 1000 { // each undo compares the rest again
			i := 0
			for i < len(it.changes) && it.changes[i].undone {
				i++
			}
			if i == len(it.changes) {
				break
			}
			it.text = it.changes[i].Replace(original, it.text)
			it.layOut()
		}
		if it.text != original {
			t.Fatalf("undoing all of %q to %q gives %q", original, proposed, it.text)
		}
	})
}

// A difference far to the right is in sight.
func TestLongLines(t *testing.T) {
	far := strings.Repeat("x", 300)
	it := &item{Diff: editor.Diff{Original: far + "safe" + far + "\n", Proposed: far + "evil" + far + "\n"}}
	it.text = it.Proposed
	it.layOut()
	for i, want := range []string{"-…", "+…"} {
		got := ansi.Strip((&model{}).cell(it, &it.rows[i], 1, 60, 0))
		if !strings.Contains(got, want) || !strings.Contains(got, []string{"safe", "evil"}[i]) || ansi.StringWidth(got) != 60 {
			t.Errorf("shown as %q", got)
		}
	}
	it.left = -it.rows[0].from // the user looks at the start
	if got := ansi.Strip((&model{}).cell(it, &it.rows[0], 1, 60, 0)); !strings.Contains(got, "-xxx") {
		t.Errorf("its start is shown as %q", got)
	}
}

// A review whose terminal was closed stayed in the background: the signal arrived while
// the context ended.
func TestRunEndsBySignal(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("Windows has no such signal")
	}
	self, err := os.FindProcess(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	received := make(chan os.Signal, 1)
	signal.Notify(received, syscall.SIGTERM)
	defer signal.Stop(received)
	for range 100 {
		local, remote := net.Pipe()
		companion := jsonrpc.NewConn(t.Context(), editor.NewStream(remote), jsonrpc.HandlerWithError(func(*jsonrpc.Conn, *jsonrpc.Request) (any, error) {
			return struct{}{}, nil
		}))
		ctx, cancel := context.WithCancel(t.Context())
		in, keys := io.Pipe()
		screen, out := io.Pipe()
		ended := make(chan error, 1)
		go func() {
			err := Run(ctx, Config{In: in, Out: out, Dial: func(h editor.Handler) (*editor.Client, error) {
				return editor.NewClient(local, h), nil
			}})
			out.Close()
			ended <- err
		}()
		if _, err := screen.Read(make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		go io.Copy(io.Discard, screen)
		if err := self.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		<-received
		keys.Close()
		<-companion.DisconnectNotify()
	}
}

// A returning program runs a command for each message, and shows how often it has returned.
type returning struct{ times rune }

func (r *returning) Init() tea.Cmd { return nil }

func (r *returning) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case command:
		return r, tea.Exec(msg, func(error) tea.Msg { return returned{} })
	case returned:
		r.times++
	}
	return r, nil
}

type returned struct{}

func (r *returning) View() tea.View {
	v := tea.NewView(r.shows())
	v.AltScreen = true
	return v
}

// shows returns the text on the screen. Each letter changes with each return.
func (r *returning) shows() string { return string([]rune{'a' + r.times, 'A' + r.times}) }

// A display keeps what a program writes. Its Write lets no other goroutine run, as with a
// terminal.
type display struct {
	mu      sync.Mutex
	text    strings.Builder
	changed chan struct{}
}

func (d *display) Write(b []byte) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	select {
	case d.changed <- struct{}{}:
	default:
	}
	return d.text.Write(b)
}

// wants waits until a text is written, and forgets what was written.
func (d *display) wants(t *testing.T, text string) {
	t.Helper()
	for timeout := time.After(30 * time.Second); ; {
		d.mu.Lock()
		got := d.text.String()
		if strings.Contains(got, text) {
			d.text.Reset()
		}
		d.mu.Unlock()
		if strings.Contains(got, text) {
			return
		}
		select {
		case <-d.changed:
		case <-timeout:
			t.Fatalf("the screen never showed %q, only %q", text, got)
		}
	}
}

// After an editor that ended quickly, the screen stayed blank.
func TestScreenAfterAQuickEditor(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("a read from a pipe cannot be cancelled there")
	}
	in, keys, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	defer keys.Close()
	d := &display{changed: make(chan struct{}, 1)}
	p := tea.NewProgram(new(returning), tea.WithContext(t.Context()), tea.WithInput(in), tea.WithOutput(d),
		tea.WithWindowSize(80, 24), tea.WithoutSignalHandler())
	ended := make(chan error, 1)
	go func() {
		_, err := p.Run()
		ended <- err
	}()
	d.wants(t, (&returning{}).shows())
	for i := range rune(20) {
		p.Send(command{exec.Command("/nowhere")}) // quicker than any other
		d.wants(t, (&returning{i + 1}).shows())
	}
	p.Quit()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// The user's edits reach the companion in order, and before any later request.
func TestEditsInOrder(t *testing.T) {
	local, remote := net.Pipe()
	var got []string
	companion := jsonrpc.NewConn(t.Context(), editor.NewStream(remote), jsonrpc.HandlerWithError(func(_ *jsonrpc.Conn, req *jsonrpc.Request) (any, error) {
		edit, err := editor.Params[editor.DiffChange](req)
		if err == nil && edit.Content != nil {
			got = append(got, *edit.Content)
		}
		return struct{}{}, err
	}))
	texts := newTexts()
	texts.client = editor.NewClient(local, editor.Handler{})
	defer func() { texts.client.Close(); texts.close(); <-companion.DisconnectNotify() }()
	texts.set("1", "")
	for i := range 1000 {
		if !texts.edit("1", strconv.Itoa(i)) {
			t.Fatal("the diff is not pending")
		}
	}
	texts.flush(t.Context())
	texts.client.Call(t.Context(), "after", struct{}{}, nil)
	if len(got) == 0 || got[len(got)-1] != "999" {
		t.Errorf("the companion ends with %v", got)
	}
	if !slices.IsSortedFunc(got, func(a, b string) int { return len(a) - len(b) }) {
		t.Errorf("out of order: %v", got)
	}
	texts.take("1")
	if texts.edit("1", "late") {
		t.Error("a diff that is closed accepts an edit")
	}
}

// Taking a hunk that the user has edited restores the proposed text, wherever in the
// hunk the difference is.
func TestTakeAgain(t *testing.T) {
	texts := newTexts()
	defer texts.close()
	m := &model{texts: texts, width: 80, height: 24}
	it := &item{Diff: editor.Diff{Original: "a\nb\nc\n", Proposed: "A\nB\nc\n"}, text: "A\nmine\nc\n"}
	it.layOut()
	m.items = []*item{it}
	m.take(it, false)
	if it.text != it.Proposed {
		t.Errorf("it is %q", it.text)
	}
}
