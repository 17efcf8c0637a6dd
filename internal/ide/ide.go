// Package ide makes a companion reachable. It starts the companion, a server for
// each of the agents' protocols, the review page and the socket for other
// clients, and publishes them.
//
// To serve another kind of agent, write a package below this one and add its row
// to protocols.
package ide

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"pollux/internal/companion"
	"pollux/internal/companion/journal"
	"pollux/internal/crash"
	"pollux/internal/editor"
	"pollux/internal/ide/attach"
	"pollux/internal/ide/claudeide"
	"pollux/internal/ide/codexide"
	"pollux/internal/ide/copilotide"
	"pollux/internal/ide/geminiide"
	"pollux/internal/ide/opencode"
)

// A Protocol defines how one kind of agent finds a companion and talks to it.
// Only Listen must be set. The first row of the table has the default agent.
type Protocol struct {
	Name string
	// CheckEditor returns an error unless agents accept a companion with this
	// editor's name.
	CheckEditor func(editor.Info) error
	// IgnoreFiles names files that hide others from agents, as .gitignore does.
	IgnoreFiles []string
	// MaxFiles is how many open files an agent receives at most; 0 for no limit.
	MaxFiles int
	// EnvNames are the variables that the server's AddEnv may add.
	EnvNames []string
	// Launches are the agents of this kind that Pollux can start.
	Launches []Launch
	// Listen starts to listen for agents of the companion.
	Listen func(c *companion.Companion, cfg Config) (Server, error)
}

// A Server serves the agents of one protocol. It calls Connect and Disconnect
// of the companion for each of them. A server may also be a [SocketServer].
type Server interface {
	// Serve starts to answer requests. It does not block.
	Serve()
	// Publish writes the files that lead agents to the server. stdio is the
	// command that carries an agent's standard streams to the socket; it may be
	// empty. After it, SetRoots and AddEnv may be called at any time, from many
	// goroutines, and Unpublish even if it fails.
	Publish(roots, stdio []string) error
	// SetRoots publishes other workspace roots. After an error the old ones stay.
	SetRoots(roots []string) error
	// AddEnv adds the variables that lead agents to the server.
	AddEnv(env map[string]string)
	// Unpublish removes the files.
	Unpublish()
	// ViewsChanged announces that [companion.Companion.Shows] may have changed. It
	// returns immediately.
	ViewsChanged()
	// Kept returns the port and the token that an editor keeps to start the companion
	// again after a crash, for [companion.Host], or 0 and "" if the server's agents
	// need neither.
	Kept() (port int, token string)
	// Note returns a problem and what to do about it, or "".
	Note() string
	// Close sends what is queued for the agents, for as long as ctx allows, and
	// ends their sessions. It also ends a server that does not serve yet.
	Close(ctx context.Context) error
}

// A Page is the review page's server.
type Page interface {
	// Link returns a link that opens the page once.
	Link() string
	// Serve starts to answer requests. It does not block.
	Serve()
	// Close ends the server. It also ends one that does not serve yet.
	Close(ctx context.Context) error
}

// A SocketServer is a server whose agents can also connect to the companion's
// socket.
type SocketServer interface {
	// Preamble returns the line that an agent's connection starts with. No other
	// server has the same one.
	Preamble() string
	// ServeConn serves an agent on a connection until the connection ends. The
	// preamble has been read.
	ServeConn(conn io.ReadWriteCloser) error
}

// protocols is the table of protocols.
var protocols = []Protocol{
	{
		Name:        "Gemini CLI, Qwen Code and LLxprt Code",
		CheckEditor: geminiide.CheckEditor,
		IgnoreFiles: []string{geminiide.IgnoreFile},
		MaxFiles:    geminiide.MaxOpenFiles,
		EnvNames:    geminiide.EnvNames,
		Launches: []Launch{
			{
				Name: geminiide.GeminiCommand, Title: "Gemini CLI", Package: geminiide.GeminiPackage,
				Env: geminiide.LaunchEnv, IDEMode: true, RestartCode: geminiide.GeminiRestartCode, Remote: true,
				Asking: geminiide.GeminiAsking, Manual: geminiide.GeminiManual,
				Connect: geminiide.EnableHint("it")(nil), Prompt: geminiide.Prompt, InputLine: geminiide.InputLine,
			},
			{
				Name: geminiide.QwenCommand, Title: "Qwen Code", Package: geminiide.QwenPackage,
				Env: geminiide.LaunchEnv, Hint: geminiide.EnableHint("Qwen Code"), Remote: true,
				Asking: geminiide.QwenAsking, Manual: geminiide.QwenManual,
				Connect: geminiide.EnableHint("it")(nil), Prompt: geminiide.Prompt, InputLine: geminiide.InputLine,
			},
			{
				Name: geminiide.LLxprtCommand, Title: "LLxprt Code", Package: "@vybestack/llxprt-code",
				Hint:    geminiide.EnableHint("LLxprt Code"),
				Connect: geminiide.EnableHint("it")(nil), Prompt: geminiide.Prompt, InputLine: geminiide.InputLine,
			},
		},
		Listen: func(c *companion.Companion, cfg Config) (Server, error) {
			pids := geminiide.TerminalPIDs(os.Getpid(), os.Getenv)
			if cfg.EditorPID > 0 {
				pids = geminiide.EditorPIDs(cfg.EditorPID, os.Getenv)
			}
			return geminiide.New(geminiide.Config{
				Companion: cfg.companion(c), Roots: c.Roots, PIDs: pids,
				Token: cfg.Settings.Token, Port: cfg.Settings.Port,
				ExtraHost: cfg.ExtraHost, ExtraNames: cfg.ExtraNames,
			})
		},
	},
	{
		Name:     "Claude Code and opencode",
		MaxFiles: 1,
		EnvNames: claudeide.EnvNames,
		Launches: []Launch{
			{
				Name: claudeide.ClaudeCommand, Title: "Claude Code", Package: "@anthropic-ai/claude-code",
				Unset: claudeide.LaunchUnset, Env: claudeide.ClaudeEnv, Asking: claudeide.ClaudeAsking, Manual: claudeide.ClaudeManual, Hides: true,
				Connect: "if it does not connect, type /ide in it",
				Prompt:  claudeide.ClaudePrompt, InputLine: claudeide.ClaudeInputLine,
			},
			{
				Name: opencode.Command, Title: "opencode", Package: "opencode-ai",
				Unset: claudeide.LaunchUnset, Hint: opencode.Hint, Asking: opencode.Asking, Hides: true,
				NoReview: true,
				Prompt:   opencode.Prompt, InputLine: opencode.InputLine,
			},
		},
		Listen: func(c *companion.Companion, cfg Config) (Server, error) {
			return claudeide.New(claudeide.Config{Companion: cfg.companion(c), Roots: c.Roots()})
		},
	},
	{
		Name:     "Copilot CLI",
		MaxFiles: 1,
		Launches: []Launch{{
			Name: copilotide.Command, Title: "Copilot CLI", Package: "@github/copilot", Asking: copilotide.Asking,
			Manual: copilotide.Manual, Hides: true, Connect: "if it does not connect, type /ide in it",
			Prompt: copilotide.Prompt, InputLine: copilotide.InputLine,
		}},
		Listen: func(c *companion.Companion, cfg Config) (Server, error) {
			return copilotide.New(copilotide.Config{Companion: cfg.companion(c)}), nil
		},
	},
	{
		Name:     "Codex CLI",
		MaxFiles: codexide.MaxTabs,
		Launches: []Launch{{
			Name: codexide.Command, Title: "Codex CLI", Package: "@openai/codex", Hint: codexide.Hint, Asking: codexide.Asking,
			Hides: true, NoReview: true, Prompt: codexide.Prompt, InputLine: codexide.InputLine,
		}},
		Listen: func(c *companion.Companion, cfg Config) (Server, error) {
			return codexide.New(codexide.Config{Backend: c, Log: cfg.Log}), nil
		},
	},
}

// EnvNames returns the names of all variables that a companion may set for agents.
func EnvNames() []string {
	names := []string{editor.EnvSocket}
	for _, p := range protocols {
		names = append(names, p.EnvNames...)
	}
	return names
}

// A Config configures a companion and its servers.
type Config struct {
	Version string
	Log     *slog.Logger // none if nil
	// Editor names the companion to the agents' users.
	Editor editor.Info
	// EditorPID is the process of the editor in whose terminals the agents run;
	// 0 if Pollux runs in the agents' terminal itself.
	EditorPID int
	// Roots are the workspace's directories; the working directory if empty.
	Roots []string
	// Settings has the port and the token that an editor has kept.
	Settings editor.Settings
	// ExtraHost and ExtraNames are for [geminiide.Config].
	ExtraHost  string
	ExtraNames []string
	Journal    *journal.Journal
	// FindPane, Outside, Unconnected, Preferred and Waiting are for [companion.Config].
	FindPane    companion.PaneFinder
	Outside     bool
	Unconnected string
	Preferred   func() string
	Waiting     func(ctx context.Context, agent, path string)
	// Page returns the review page, which listens on that port of this machine, or on
	// another one if the port is taken or 0; no page if nil. The page attaches its clients
	// with attach.
	Page func(attach func(io.ReadWriteCloser), port int) (Page, error)
	// Connect is the command, with arguments, that carries an agent's standard
	// streams to the socket; none if empty.
	Connect []string
}

// companion returns what the servers that speak MCP are made of.
func (cfg Config) companion(c *companion.Companion) attach.Companion {
	return attach.Companion{Backend: c, Log: cfg.Log, Version: cfg.Version, Editor: cfg.Editor}
}

// A Host is a running companion with its servers and its socket. It implements
// [companion.Host].
//
// It is published last and unpublished first: Start listens, serves and then
// publishes. Close unpublishes, answers every proposal, closes the servers and
// then the socket.
type Host struct {
	Companion *companion.Companion

	// Set before anything is served:
	log       *slog.Logger
	protocols []Protocol
	servers   []Server // that listen
	page      Page     // nil if there is none
	socket    *socket  // nil if the system refused it

	// Set before a client can attach:
	published []Server // agents can find these
	failures  []failure

	closed  atomic.Bool
	uncrash func() // a panic does not unpublish any more
}

// Start starts a companion and publishes it.
func Start(cfg Config) (*Host, error) { return start(cfg, protocols) }

func start(cfg Config, protocols []Protocol) (*Host, error) {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	core := companion.Config{
		Version: cfg.Version, Log: cfg.Log, Editor: cfg.Editor, Roots: cfg.Roots, Journal: cfg.Journal,
		IncludeIgnored: cfg.Settings.IncludeIgnored, Page: cfg.Page != nil && cfg.Settings.ReviewPage,
		MaxFiles: maxFiles(protocols), FindPane: cfg.FindPane, Preferred: cfg.Preferred, Waiting: cfg.Waiting,
		Outside: cfg.Outside, Unconnected: cfg.Unconnected,
	}
	for _, p := range protocols {
		core.IgnoreFiles = append(core.IgnoreFiles, p.IgnoreFiles...)
		if p.CheckEditor == nil {
			continue
		}
		if err := p.CheckEditor(cfg.Editor); err != nil {
			return nil, err
		}
	}
	h := &Host{log: cfg.Log, protocols: protocols}
	h.uncrash = crash.Before(h.unpublish)
	core.Host = h
	var err error
	if h.Companion, err = companion.New(core); err != nil {
		h.uncrash()
		return nil, err
	}
	if err := h.open(cfg); err != nil {
		h.Close()
		return nil, err
	}
	cfg.Log.Info("the companion is up", "port", h.Port(), "roots", len(h.Companion.Roots()))
	return h, nil
}

// maxFiles returns the largest limit of all protocols, or 0 if one has none.
func maxFiles(protocols []Protocol) (limit int) {
	for _, p := range protocols {
		if p.MaxFiles == 0 {
			return 0
		}
		limit = max(limit, p.MaxFiles)
	}
	return limit
}

// A failure says why the agents of a protocol cannot connect.
type failure struct {
	protocol Protocol
	err      error
}

// Error returns the reason and what to do about it.
func (f failure) Error() string {
	return fmt.Sprintf("%s cannot connect to this companion: %v; after solving that, restart the editor or `pollux run`",
		f.protocol.Name, f.err)
}

func (f failure) Unwrap() error { return f.err }

// fail notes that a server has failed. The other servers keep running.
func (h *Host) fail(p Protocol, err error) {
	h.failures = append(h.failures, failure{p, err})
	h.log.Warn("agents cannot connect", "agents", p.Name, "err", err)
}

// Failure returns why the agent with that command cannot connect, and what to do about it;
// nil if it can.
func (h *Host) Failure(command string) error {
	for _, f := range h.failures {
		if slices.ContainsFunc(f.protocol.Launches, func(l Launch) bool { return l.Name == command }) {
			return f
		}
	}
	return nil
}

// open listens, serves and publishes. It returns an error if no agent can connect, or if
// the system refuses the user's address or a port for the review page. Then the caller closes
// h.
func (h *Host) open(cfg Config) (err error) {
	var listening []Protocol
	for _, p := range h.protocols {
		s, err := p.Listen(h.Companion, cfg)
		switch {
		case err == nil:
			h.servers, listening = append(h.servers, s), append(listening, p)
		case cfg.ExtraHost != "":
			return err
		default:
			h.fail(p, err)
		}
	}
	if cfg.Page != nil {
		port := h.Port()
		if port > 0 {
			port++ // open tabs find the page again after a crash
		}
		page, err := cfg.Page(h.Companion.AttachPage, port)
		if err != nil {
			return err
		}
		h.page = page
	}
	if h.socket, err = listenSocket(h.Port()); err != nil {
		// No agent needs it.
		h.log.Warn("pollux status, notify and connect will not find this companion: "+
			"set POLLUX_RUNTIME_DIR to a short path that you own", "err", err)
	}
	for _, s := range h.servers {
		s.Serve()
	}
	if h.page != nil {
		h.page.Serve()
	}
	// An agent may run the command with few variables, so it names the socket.
	var stdio []string
	if len(cfg.Connect) > 0 && h.socket != nil {
		stdio = append(slices.Clone(cfg.Connect), "--socket", h.socket.path)
	}
	roots := h.Companion.Roots()
	for i, s := range h.servers {
		if err := s.Publish(roots, stdio); err != nil {
			h.fail(listening[i], err)
			continue
		}
		h.published = append(h.published, s)
	}
	if len(h.published) == 0 {
		var all []error
		for _, f := range h.failures {
			all = append(all, f)
		}
		return errors.Join(all...)
	}
	if h.socket != nil {
		h.socket.serve(h.serveConn)
	}
	return nil
}

// closeTimeout is how long the agents may take to receive their last outcomes.
const closeTimeout = 2 * time.Second

// Close unpublishes the companion, answers every agent that waits, and stops.
// Calls after the first have no effect.
func (h *Host) Close() {
	if h.closed.Swap(true) {
		return
	}
	for _, s := range h.servers {
		s.Unpublish()
	}
	h.Companion.Stop()
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	var servers sync.WaitGroup
	end := func(s interface{ Close(context.Context) error }) {
		if err := s.Close(ctx); err != nil {
			h.log.Warn("a server did not stop cleanly", "err", err)
		}
	}
	for _, s := range h.servers {
		servers.Go(func() { end(s) })
	}
	if h.page != nil {
		servers.Go(func() { end(h.page) })
	}
	servers.Wait()
	if h.socket != nil {
		h.socket.close()
	}
	h.Companion.Wait()
	h.uncrash()
}

// unpublish removes everything that leads to the companion.
func (h *Host) unpublish() {
	for _, s := range h.servers {
		s.Unpublish()
	}
	if h.socket != nil {
		h.socket.remove()
	}
}

// ViewsChanged implements [companion.Host].
func (h *Host) ViewsChanged() {
	for _, s := range h.servers {
		s.ViewsChanged()
	}
}

// Notes implements [companion.Host].
func (h *Host) Notes() (notes []string) {
	for _, f := range h.failures {
		notes = append(notes, f.Error())
	}
	for _, s := range h.servers {
		if note := s.Note(); note != "" {
			notes = append(notes, note)
		}
	}
	return notes
}

// Port implements [companion.Host].
func (h *Host) Port() int {
	port, _ := h.kept()
	return port
}

// Token implements [companion.Host].
func (h *Host) Token() string {
	_, token := h.kept()
	return token
}

func (h *Host) kept() (port int, token string) {
	for _, s := range h.servers {
		if port, token = s.Kept(); port > 0 {
			break
		}
	}
	return port, token
}

// Env implements [companion.Host].
func (h *Host) Env() map[string]string {
	env := make(map[string]string)
	for _, s := range h.published {
		s.AddEnv(env)
	}
	if h.socket != nil {
		env[editor.EnvSocket] = h.socket.path
	}
	return env
}

// SetRoots implements [companion.Host].
func (h *Host) SetRoots(roots []string) error {
	old := h.Companion.Roots()
	for i, s := range h.published {
		if err := s.SetRoots(roots); err != nil {
			for _, changed := range h.published[:i] {
				err = errors.Join(err, changed.SetRoots(old))
			}
			return err
		}
	}
	return nil
}

// Link implements [companion.Host].
func (h *Host) Link() (string, error) {
	if h.page == nil {
		return "", errors.New("this companion has no review page")
	}
	return h.page.Link(), nil
}

// Agents implements [companion.Host].
func (h *Host) Agents() (kinds []companion.AgentKind) {
	for _, p := range h.protocols {
		for _, l := range p.launches() {
			kinds = append(kinds, companion.AgentKind{
				AgentKind: editor.AgentKind{Command: l.Name, Name: l.Title},
				Prompt:    l.Prompt, InputLine: l.InputLine, Silent: l.silent, Manual: l.Manual,
			})
		}
	}
	return kinds
}

// Prompt implements [companion.Host].
func (h *Host) Prompt(p editor.PromptParams, roots []string) editor.Prompt {
	return h.protocols[0].Launches[0].Prompt(p, roots)
}
