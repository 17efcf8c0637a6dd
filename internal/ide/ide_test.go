package ide

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"pollux/internal/companion"
	"pollux/internal/crash"
	"pollux/internal/editor"
	"pollux/internal/ide/geminiide"
	"pollux/internal/sys/sock"
	"pollux/internal/sys/systest"
)

func TestMain(m *testing.M) { systest.VerifyTestMain(m) }

// A fake is the server of another protocol. One of its methods may fail.
type fake struct {
	name  string
	fails string // the method that fails

	mu    sync.Mutex
	calls []string
}

var errFake = errors.New("the fake fails")

func (f *fake) call(method string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls = append(f.calls, method)
	if method == f.fails {
		return errFake
	}
	return nil
}

func (f *fake) called() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return strings.Join(f.calls, " ")
}

func (f *fake) row() Protocol {
	return Protocol{
		Name: f.name, EnvNames: []string{f.name + "_PORT"}, Launches: []Launch{{Name: strings.ToLower(f.name)}},
		Listen: func(*companion.Companion, Config) (Server, error) {
			if err := f.call("Listen"); err != nil {
				return nil, err
			}
			return f, nil
		},
	}
}

func (f *fake) Serve()                        { f.call("Serve") }
func (f *fake) Publish(_, _ []string) error   { return f.call("Publish") }
func (f *fake) SetRoots(roots []string) error { return f.call("SetRoots") }
func (f *fake) AddEnv(env map[string]string)  { env[f.name+"_PORT"] = "1" }
func (f *fake) Unpublish()                    { f.call("Unpublish") }
func (f *fake) Close(context.Context) error   { return f.call("Close") }
func (f *fake) ViewsChanged()                 {}
func (f *fake) Kept() (int, string)           { return 0, "" }
func (f *fake) Note() string                  { return "" }

func (f *fake) Preamble() string { return f.name + "\n" }

// ServeConn repeats the first line.
func (f *fake) ServeConn(conn io.ReadWriteCloser) error {
	line, _ := bufio.NewReader(conn).ReadString('\n')
	_, err := fmt.Fprintf(conn, "%s %s", f.name, line)
	return err
}

// table returns the real first row and the fakes' rows.
func table(fakes ...*fake) []Protocol {
	rows := slices.Clone(protocols[:1])
	for _, f := range fakes {
		rows = append(rows, f.row())
	}
	return rows
}

// published returns the files that lead to a companion.
func published(t *testing.T, root string) (files []string) {
	t.Helper()
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			files = append(files, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// A panic ends the process, and agents must not find the companion any more.
func TestPanicUnpublishes(t *testing.T) {
	cfg := newConfig(t)
	second := &fake{name: "SECOND"}
	newHost(t, cfg, table(second))
	func() {
		defer func() { recover() }()
		defer crash.Report()
		panic("a mistake")
	}()
	if got, want := second.called(), "Listen Serve Publish Unpublish"; got != want {
		t.Errorf("the server was called %q, want %q", got, want)
	}
}

// One agent's server that cannot start stopped the companion, and all other agents.
func TestServerFails(t *testing.T) {
	for method, want := range map[string]string{
		"Listen":  "Listen",
		"Publish": "Listen Serve Publish Unpublish Close",
	} {
		t.Run(method, func(t *testing.T) {
			cfg := newConfig(t)
			second, third := &fake{name: "SECOND", fails: method}, &fake{name: "THIRD"}
			h := newHost(t, cfg, table(second, third))
			notes := h.Notes()
			if len(notes) != 1 || !strings.HasPrefix(notes[0], "SECOND cannot connect") ||
				!strings.Contains(notes[0], errFake.Error()) || !strings.Contains(notes[0], "restart") {
				t.Errorf("the notes are %q", notes)
			}
			if err := h.Failure("second"); !errors.Is(err, errFake) {
				t.Errorf("the failure is %v", err)
			}
			for _, name := range []string{"third", "gemini", "a-wrapper"} {
				if err := h.Failure(name); err != nil {
					t.Errorf("%s: %v", name, err)
				}
			}
			env := h.Env()
			if env["SECOND_PORT"] != "" || env["THIRD_PORT"] == "" || env["GEMINI_CLI_IDE_SERVER_PORT"] == "" {
				t.Errorf("the variables are %v", env)
			}
			if err := h.Companion.SetRoots([]string{filepath.Join(cfg.Roots[0], "HOME")}); err != nil {
				t.Error(err)
			}
			h.Close()
			if got := second.called(); got != want {
				t.Errorf("the second server was called %q, want %q", got, want)
			}
			if got, want := third.called(), "Listen Serve Publish SetRoots Unpublish Close"; got != want {
				t.Errorf("the third server was called %q, want %q", got, want)
			}
		})
	}
}

// An editor keeps the port of Gemini CLI's server, also if its agents cannot connect.
func TestFirstServerIsNotPublished(t *testing.T) {
	cfg := newConfig(t)
	blockDiscovery(t)
	second := &fake{name: "SECOND"}
	h := newHost(t, cfg, table(second))
	if err := h.Failure("gemini"); err == nil {
		t.Error("Gemini CLI's server has not failed")
	}
	env := h.Env()
	if env["GEMINI_CLI_IDE_SERVER_PORT"] != "" || env["SECOND_PORT"] == "" {
		t.Errorf("the variables are %v", env)
	}
	conn, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", h.Port()))
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
	if err := h.Companion.SetRoots([]string{filepath.Join(cfg.Roots[0], "HOME")}); err != nil {
		t.Error(err)
	}
}

// blockDiscovery puts a file where the directory of Gemini CLI's discovery files would be.
func blockDiscovery(t *testing.T) {
	t.Helper()
	dir := geminiide.NodeTempDir(runtime.GOOS, os.Getenv)
	systest.WriteFile(t, filepath.Join(dir, "gemini"), "")
}

// Without an agent that can connect, nothing stays.
func TestEveryServerFails(t *testing.T) {
	cfg := newConfig(t)
	blockDiscovery(t)
	second, third := &fake{name: "SECOND", fails: "Listen"}, &fake{name: "THIRD", fails: "Publish"}
	rows := table(second, third)
	var port int
	listen := rows[0].Listen
	rows[0].Listen = func(c *companion.Companion, cfg Config) (Server, error) {
		s, err := listen(c, cfg)
		port, _ = s.Kept()
		return s, err
	}
	h, err := start(cfg, rows)
	if !errors.Is(err, errFake) || !strings.Contains(err.Error(), "Gemini CLI") {
		t.Errorf("start returns %v, %v", h, err)
	}
	if got, want := third.called(), "Listen Serve Publish Unpublish Close"; got != want {
		t.Errorf("the third server was called %q, want %q", got, want)
	}
	if conn, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port)); err == nil {
		conn.Close()
		t.Error("the first server still listens")
	}
}

// A page is a review page that fails on demand.
type page struct {
	fake
	port int // that it was told to listen on
}

func (p *page) Link() string { return "link" }

func (p *page) listen(_ func(io.ReadWriteCloser), port int) (Page, error) {
	p.port = port
	if err := p.call("Listen"); err != nil {
		return nil, err
	}
	return p, nil
}

// The review page and the socket need no agent's server. After a crash, tabs find the page
// again: its port follows the one that an editor keeps.
func TestPage(t *testing.T) {
	cfg := newConfig(t)
	p := new(page)
	cfg.Page = p.listen
	h := newHost(t, cfg, table())
	if link, err := h.Link(); link != "link" || err != nil {
		t.Errorf("the link is %q, %v", link, err)
	}
	if p.port != h.Port()+1 {
		t.Errorf("the page's port is %d, after %d", p.port, h.Port())
	}
	h.Close()
	if got, want := p.called(), "Listen Serve Close"; got != want {
		t.Errorf("the page was called %q, want %q", got, want)
	}

	rows := table(&fake{name: "SECOND"})
	rows[0].Listen = func(*companion.Companion, Config) (Server, error) { return nil, errFake }
	h = newHost(t, cfg, rows)
	if link, err := h.Link(); link != "link" || err != nil || p.port != 0 {
		t.Errorf("the link is %q, %v; the port is %d", link, err, p.port)
	}
	if env := h.Env(); env[editor.EnvSocket] == "" || env["SECOND_PORT"] == "" || !errors.Is(h.Failure("gemini"), errFake) {
		t.Errorf("without the first server: %v, %v", env, h.Failure("gemini"))
	}
}

// The companion does not start without the page, or without the address that the user wants.
func TestUserGetsWhatTheyAskFor(t *testing.T) {
	cfg := newConfig(t)
	second := &fake{name: "SECOND"}
	cfg.Page = (&page{fake: fake{fails: "Listen"}}).listen
	if h, err := start(cfg, table(second)); !errors.Is(err, errFake) {
		t.Errorf("without a page, start returns %v, %v", h, err)
	}
	if got, want := second.called(), "Listen Unpublish Close"; got != want {
		t.Errorf("the second server was called %q, want %q", got, want)
	}
	cfg = newConfig(t)
	cfg.ExtraHost = "192.0.2.1" // of no machine
	_, err := start(cfg, table())
	systest.WantError(t, err, cfg.ExtraHost)
}

// When a server refuses new roots, the others publish the old ones again.
func TestSetRootsFailsHalfWay(t *testing.T) {
	cfg := newConfig(t)
	second, third := &fake{name: "SECOND", fails: "SetRoots"}, &fake{name: "THIRD"}
	h := newHost(t, cfg, table(second, third))
	const key = "GEMINI_CLI_IDE_WORKSPACE_PATH"
	roots := []string{filepath.Join(cfg.Roots[0], "HOME")}
	if err := h.Companion.SetRoots(roots); !errors.Is(err, errFake) {
		t.Errorf("SetRoots returns %v", err)
	}
	if got := h.Env()[key]; got != cfg.Roots[0] || !slices.Equal(h.Companion.Roots(), cfg.Roots) {
		t.Errorf("the roots are %q and %q", got, h.Companion.Roots())
	}
	second.mu.Lock()
	second.fails = ""
	second.mu.Unlock()
	if err := h.Companion.SetRoots(roots); err != nil {
		t.Error(err)
	}
	if got := h.Env()[key]; got != roots[0] || !slices.Equal(h.Companion.Roots(), roots) {
		t.Errorf("the roots are %q and %q", got, h.Companion.Roots())
	}
	h.Close()
	if got, want := third.called(), "Listen Serve Publish SetRoots Unpublish Close"; got != want {
		t.Errorf("the third server was called %q, want %q", got, want)
	}
	if files := published(t, cfg.Roots[0]); len(files) > 0 {
		t.Errorf("these files stay: %v", files)
	}
}

// Agents of every protocol find the companion. The editor's port and token are
// the names that Gemini CLI's server sets.
func TestProtocolsShareOneCompanion(t *testing.T) {
	cfg := newConfig(t)
	cfg.Settings.Token = "kept"
	second := &fake{name: "SECOND"}
	h := newHost(t, cfg, table(second))
	env := h.Env()
	for _, name := range []string{"GEMINI_CLI_IDE_SERVER_PORT", "SECOND_PORT", editor.EnvSocket} {
		if env[name] == "" {
			t.Errorf("the variables have no %s: %v", name, env)
		}
	}
	if h.Token() != "kept" || env["GEMINI_CLI_IDE_SERVER_PORT"] != fmt.Sprint(h.Port()) {
		t.Errorf("port %d, token %q", h.Port(), h.Token())
	}
}

// A connection to the socket goes to the server whose whole preamble it starts
// with. Preambles may start like each other and like an editor's message.
func TestPreambles(t *testing.T) {
	h := newHost(t, newConfig(t), table(&fake{name: "MOCK"}, &fake{name: "Code"}))
	const request = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":`
	hello := fmt.Sprintf(request+`{"protocol":%d}}`, editor.ProtocolVersion)
	for _, tt := range []struct{ sent, want string }{
		{"MOCK\nhello\n", "MOCK hello\n"},
		{"Code\nhello\n", "Code hello\n"},
		{editor.MCPPreamble + request + `{"protocolVersion":"2025-03-26","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}` + "\n",
			"serverInfo"},
		{hello + "\n", `"result"`},
		{fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(hello), hello), "Content-Length"},
		{"MOCX\nhello\n", ""},
		{"Codx\n\n" + hello + "\n", ""},
		{"mock\nhello\n", ""},
	} {
		conn, err := sock.Dial(t.Context(), h.Env()[editor.EnvSocket])
		if err != nil {
			t.Fatal(err)
		}
		for i := range len(tt.sent) { // a preamble may arrive in pieces
			io.WriteString(conn, tt.sent[i:i+1])
		}
		got, _ := bufio.NewReader(conn).ReadString('\n')
		if !strings.Contains(got, tt.want) || tt.want == "" && got != "" {
			t.Errorf("the answer to %q is %q, want %q", tt.sent, got, tt.want)
		}
		conn.Close()
	}
}

// The rows of the table can work together.
func TestTable(t *testing.T) {
	preambles := make(map[string]bool)
	h := newHost(t, newConfig(t), protocols)
	for i, s := range h.servers {
		s, ok := s.(SocketServer)
		if !ok {
			continue
		}
		p := s.Preamble()
		if !strings.HasSuffix(p, "\n") || strings.Count(p, "\n") != 1 || preambles[p] {
			t.Errorf("%s has the preamble %q: make it one line that no other row has", protocols[i].Name, p)
		}
		preambles[p] = true
	}
}
