package ide

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"pollux/internal/companion"
	"pollux/internal/editor"
	"pollux/internal/sys"
	"pollux/internal/sys/systest"
)

func TestMain(m *testing.M) { systest.VerifyTestMain(m) }

// A fake is the server of another protocol. One of its methods may fail.
type fake struct {
	name  string
	fails string // the method that fails
	got   Config // what Listen received

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
		Name: f.name, EnvNames: []string{f.name + "_PORT"},
		Listen: func(_ *companion.Companion, cfg Config, _ func()) (Server, error) {
			f.got = cfg
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

// When a server cannot start, nothing of the others stays.
func TestStartFailsHalfWay(t *testing.T) {
	for method, calls := range map[string][2]string{
		"Listen":  {"Listen", ""},
		"Publish": {"Listen Serve Publish Unpublish Close", "Listen Serve Unpublish Close"},
	} {
		t.Run(method, func(t *testing.T) {
			cfg := newConfig(t)
			second, third := &fake{name: "SECOND", fails: method}, &fake{name: "THIRD"}
			rows := table(second, third)
			var port int
			listen := rows[0].Listen
			rows[0].Listen = func(c *companion.Companion, cfg Config, onPanic func()) (Server, error) {
				s, err := listen(c, cfg, onPanic)
				port = s.(PageServer).Port()
				return s, err
			}
			if h, err := start(cfg, rows); !errors.Is(err, errFake) {
				t.Errorf("start returns %v, %v", h, err)
			}
			if got := [2]string{second.called(), third.called()}; got != calls {
				t.Errorf("the fakes were called %q, want %q", got, calls)
			}
			if conn, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port)); err == nil {
				conn.Close()
				t.Error("the first server still listens")
			}
			if files := published(t, cfg.Roots[0]); len(files) > 0 {
				t.Errorf("these files stay: %v", files)
			}
		})
	}
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
// those of the first server.
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
	if s := second.got.Settings; s.Port != 0 || s.Token != "" {
		t.Errorf("the second server received the first one's settings %+v", s)
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
		conn, err := sys.DialSocket(t.Context(), h.Env()[editor.EnvSocket])
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
