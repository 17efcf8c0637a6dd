package editortest

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// A Kind is an editor that tests can drive.
type Kind struct {
	// Name is the editor's name for `pollux install`.
	Name   string
	Binary string
	start  func(e *Editor, dir string) (argv []string, err error)
	ask    func(e *Editor, expression string) (string, error)
	// Command returns the keys that run one of the plugin's commands.
	Command func(name string) []string
	// State holds expressions in the editor's language.
	State State
}

// State holds the expressions that tests evaluate. Each returns a part of the
// state of the editor or the plugin.
type State struct {
	// Started is "1" once the companion has started.
	Started string
	// Port and Token are the companion's.
	Port, Token string
	// Shown is the path of the diff on the screen, or "".
	Shown string
	// Ready is the same path once the user can decide on the diff, and ""
	// before.
	Ready string
	// Settle is the time in milliseconds until the user can decide. SetSettle
	// sets it.
	Settle    string
	SetSettle func(ms int) string
	// SetMaxWaits sets how often the plugin checks whether an agent that it has started is
	// ready.
	SetMaxWaits func(times int) string
	// Inside is "1" while the cursor is in the diff.
	Inside string
	// Proposal is the text of the diff's buffer, as JSON.
	Proposal string
	// Waiting is the number of diffs that wait.
	Waiting string
	// Terminal is "1" while a terminal receives the keys.
	Terminal string
	// Width is the width of the current window.
	Width string
	// Changed passes the plugin a diff/changed message with one field, for the
	// oldest diff.
	Changed func(field, value string) string
	// Line is the line of the cursor.
	Line string
	// Lines is the height of the screen.
	Lines string
	// Buffer is the text of a file's buffer, by name, as JSON.
	Buffer func(name string) string
}

func exCommand(name string) []string { return []string{":Pollux " + name, "Enter"} }

// vimState is the state of the plugin in Vim and Neovim.
var vimState = State{
	Started:     `pollux#client#Ready() ? 1 : 0`,
	Port:        `pollux#client#Info().port`,
	Token:       `pollux#client#Info().token`,
	Shown:       `pollux#diff#Shown()`,
	Ready:       `pollux#diff#Ready()`,
	Settle:      `pollux#diff#Settle()`,
	SetSettle:   func(ms int) string { return fmt.Sprintf("pollux#diff#Settle(%d)", ms) },
	SetMaxWaits: func(times int) string { return fmt.Sprintf("pollux#terminal#MaxWaits(%d)", times) },
	Inside:      `bufname() =~# '^pollux://.*/proposed/' ? 1 : 0`,
	Proposal:    `json_encode({'text': join(getbufline(pollux#diff#Buffer(), 1, '$'), "\n")})`,
	Waiting:     `len(pollux#diff#Waiting())`,
	Width:       `winwidth(0)`,
	Lines:       `&lines`,
	Line:        `line(".")`,
	Changed: func(field, value string) string {
		return fmt.Sprintf(
			`execute('call pollux#diff#Changed({"id": pollux#diff#Waiting()[0].diff.id, "%s": "%s"})')`, field, value)
	},
	Terminal: `mode() ==# 't'`,
	Buffer: func(name string) string {
		return `json_encode({'text': join(getbufline('` + name + `', 1, '$'), "\n")})`
	},
}

// Kinds are the editors that have a plugin.
var Kinds = []Kind{
	{
		Name: "nvim", Binary: "nvim",
		start: func(e *Editor, dir string) (argv []string, err error) {
			e.channel, err = listen()
			if err != nil {
				return nil, err
			}
			answer := fmt.Sprintf(answerLua, e.channel.listener.Addr())
			return []string{"nvim", "--listen", filepath.Join(dir, "nvim.sock"), "--cmd", "lua " + answer}, nil
		},
		ask:     func(e *Editor, expression string) (string, error) { return e.channel.ask(expression) },
		Command: exCommand,
		State:   vimState,
	},
	{
		Name: "vim", Binary: "vim",
		start: func(e *Editor, dir string) (argv []string, err error) {
			e.channel, err = listen()
			if err != nil {
				return nil, err
			}
			return []string{"vim", "--cmd", fmt.Sprintf("let g:test_channel = ch_open('%s')", e.channel.listener.Addr())}, nil
		},
		ask:     func(e *Editor, expression string) (string, error) { return e.channel.ask(expression) },
		Command: exCommand,
		State:   vimState,
	},
	{
		Name: "emacs", Binary: "emacs",
		start: func(e *Editor, dir string) ([]string, error) {
			e.socket = filepath.Join(dir, "emacs.sock")
			if err := e.compileNothing(); err != nil {
				return nil, err
			}
			return []string{"emacs", "-nw", "--eval", fmt.Sprintf(`(progn (setq server-socket-dir %q server-name "emacs.sock"
				inhibit-startup-screen t suggest-key-bindings nil) (server-start))`, dir)}, nil
		},
		ask: func(e *Editor, expression string) (string, error) {
			ctx, cancel := context.WithTimeout(context.Background(), askTimeout)
			defer cancel()
			cmd := exec.CommandContext(ctx, "emacsclient", "-s", e.socket, "--eval",
				`(with-current-buffer (window-buffer) `+expression+`)`)
			cmd.Env = e.env
			out, err := cmd.CombinedOutput()
			text := strings.TrimSuffix(string(out), "\n")
			if err != nil {
				return "", fmt.Errorf("%w: %s", err, text)
			}
			if unquoted, ok := strings.CutPrefix(text, `"`); ok {
				text = strings.NewReplacer(`\"`, `"`, `\\`, `\`).Replace(strings.TrimSuffix(unquoted, `"`))
			}
			return text, nil
		},
		Command: func(name string) []string { return []string{"M-x", "pollux-" + name, "Enter"} },
		State: State{
			Started:     `(if (pollux-ready-p) 1 0)`,
			Port:        `(plist-get pollux--info :port)`,
			Token:       `(plist-get pollux--info :token)`,
			Shown:       `(let ((d (pollux--current))) (if (and d (buffer-live-p (pollux--diff-buffer d))) (pollux--diff-path d) ""))`,
			Ready:       `(let ((d (pollux--current))) (if (and d (pollux--diff-settled d)) (pollux--diff-path d) ""))`,
			Settle:      `pollux--settle`,
			SetSettle:   func(ms int) string { return fmt.Sprintf("(setq pollux--settle %d)", ms) },
			SetMaxWaits: func(times int) string { return fmt.Sprintf("(setq pollux--max-waits %d)", times) },
			Inside:      `(if pollux--this 1 0)`,
			Proposal:    `(with-current-buffer (pollux--diff-buffer (pollux--current)) (json-encode (list :text (buffer-substring-no-properties (point-min) (point-max)))))`,
			Waiting:     `(length (pollux-waiting))`,
			Width:       `(window-width)`,
			Lines:       `(display-pixel-height)`,
			Line:        `(line-number-at-pos nil t)`,
			Changed: func(field, value string) string {
				return fmt.Sprintf(`(progn (pollux--diff-changed (list :id (pollux--diff-id (car (pollux-waiting))) :%s "%s")) 1)`, field, value)
			},
			Terminal: `(if (with-current-buffer (window-buffer) (derived-mode-p 'term-mode 'vterm-mode 'eat-mode)) 1 0)`,
			Buffer: func(name string) string {
				return `(with-current-buffer "` + name + `" (json-encode (list :text (buffer-string))))`
			},
		},
	},
}

// An Editor is a running editor.
type Editor struct {
	*Screen
	Kind
	env     []string
	socket  string   // Emacs' server
	channel *channel // to Vim or Neovim
}

// Start starts an editor on files. dir holds its sockets and must be a short
// path; cwd is the editor's working directory.
func (k Kind) Start(ctx context.Context, dir, cwd string, env []string, files ...string) (*Editor, error) {
	e := &Editor{Kind: k, env: env}
	argv, err := k.start(e, dir)
	if err != nil {
		return nil, err
	}
	if e.Screen, err = NewScreen(dir, cwd, env, 180, 50, append(argv, files...)...); err != nil {
		return nil, err
	}
	return e, e.Until(ctx, "1", "1")
}

// compileNothing keeps Emacs from compiling the packages that it loads, and the plugin, to
// machine code. That takes more of the processor than a test. Emacs does it once, and a user's
// Emacs has done it.
func (e *Editor) compileNothing() error {
	home := ""
	for _, kv := range e.env {
		if value, ok := strings.CutPrefix(kv, "HOME="); ok {
			home = value
		}
	}
	dir := filepath.Join(home, ".emacs.d")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "early-init.el"), []byte(`(setq native-comp-deferred-compilation nil
	native-comp-jit-compilation nil comp-enable-subr-trampolines nil native-comp-enable-subr-trampolines nil)
`), 0o600)
}

// Ask evaluates an expression of the editor's language.
func (e *Editor) Ask(expression string) (string, error) { return e.ask(e, expression) }

// Until waits until an expression has the given value.
func (e *Editor) Until(ctx context.Context, expression, value string) error {
	var last string
	var err error
	for start := time.Now(); ; {
		if last, err = e.Ask(expression); err == nil && last == value {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s is %q (%v), never %q; the screen:\n%s", expression, last, err, value, e.Text())
		case <-time.After(PollInterval(start)):
		}
	}
}

// Press presses each key that tmux has a name for, and types everything else.
func (e *Editor) Press(keys ...string) error {
	for _, k := range keys {
		if err := e.press(k); err != nil {
			return err
		}
	}
	return nil
}

var named = map[string]bool{
	"Enter": true, "Escape": true, "Tab": true, "BSpace": true, "Space": true, "Up": true, "Down": true,
}

func (e *Editor) press(k string) error {
	if named[k] || len(k) >= 3 && len(k) <= 8 && (k[:2] == "C-" || k[:2] == "M-") {
		return e.Keys(k)
	}
	return e.Type(k)
}

// Close ends the editor with a hangup. Vim may wait forever in its own handler for
// that signal, which allocates memory, so it is killed, too.
func (e *Editor) Close() {
	e.Screen.Close()
	if e.Name == "vim" {
		if p, err := os.FindProcess(e.PID); err == nil {
			p.Kill()
		}
	}
	if e.channel != nil {
		e.channel.close()
	}
}

// askTimeout limits the wait for an answer. An editor that shows its user a
// question does not answer.
const askTimeout = time.Minute

// A channel is a connection on which an editor evaluates expressions for the test, as Vim
// does on a channel.
type channel struct {
	listener net.Listener
	answers  chan string

	mu   sync.Mutex
	conn net.Conn
	id   int
}

// failed begins an answer to an expression that has failed. Vim sends no more than this.
const failed = "ERROR"

// answerLua makes Neovim connect to an address and answer as Vim does. Starting a Neovim that
// sends the expression would use more of the processor than the rest of a test.
const answerLua = `local rest = ""
vim.fn.sockconnect("tcp", "%s", {on_data = function(id, lines)
	lines[1] = rest .. lines[1]
	rest = table.remove(lines)
	for _, line in ipairs(lines) do
		local request = vim.fn.json_decode(line)
		local ok, value = pcall(vim.fn.eval, request[2])
		if not ok then
			value = "` + failed + `: " .. value
		end
		vim.fn.chansend(id, vim.fn.json_encode({request[3], value}))
	end
end})`

// listen returns a channel to the first editor that connects.
func listen() (*channel, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	c := &channel{listener: l, answers: make(chan string)}
	go c.serve()
	return c, nil
}

func (c *channel) serve() {
	conn, err := c.listener.Accept()
	if err != nil {
		return
	}
	c.mu.Lock()
	c.conn = conn
	c.mu.Unlock()
	dec := json.NewDecoder(bufio.NewReader(conn))
	for {
		var answer []json.RawMessage
		if dec.Decode(&answer) != nil || len(answer) != 2 {
			close(c.answers)
			return
		}
		var text string
		if json.Unmarshal(answer[1], &text) != nil {
			text = string(answer[1])
		}
		c.answers <- text
	}
}

func (c *channel) ask(expression string) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.conn == nil {
		return "", fmt.Errorf("the editor has not connected yet")
	}
	c.id--
	data, err := json.Marshal([]any{"expr", expression, c.id})
	if err != nil {
		return "", err
	}
	if _, err := c.conn.Write(append(data, '\n')); err != nil {
		return "", err
	}
	select {
	case text, ok := <-c.answers:
		switch {
		case !ok:
			return "", fmt.Errorf("the editor has gone")
		case strings.HasPrefix(text, failed):
			return "", fmt.Errorf("%s: %s", expression, text)
		}
		return text, nil
	case <-time.After(askTimeout):
		return "", fmt.Errorf("the editor does not answer")
	}
}

func (c *channel) close() {
	c.listener.Close()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.conn != nil {
		c.conn.Close()
	}
}
