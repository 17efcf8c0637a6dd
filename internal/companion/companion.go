// Package companion is the heart of Pollux: it joins the CLIs, which it serves
// through package ideserver, with the editors, which come in through the door
// (package adapter), and keeps all state in between: what is open, and the
// diffs that wait.
package companion

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"sync"
	"time"

	"pollux/internal/companion/journal"
	"pollux/internal/editor"
	"pollux/internal/ide/geminiide"
)

// A Config is what a [Companion] is started with.
type Config struct {
	Version string
	Log     *slog.Logger
	// Editor names the companion to the CLI's user.
	Editor editor.Info
	// PIDs are the processes by which CLIs look for the companion.
	PIDs []int
	// Roots are the workspace's directories; the working directory if empty.
	Roots    []string
	Settings editor.Settings
	// ExtraHost and ExtraNames are those of [geminiide.Config].
	ExtraHost  string
	ExtraNames []string
	Journal    *journal.Journal
	// Pages makes the review page's handler and the function that makes links
	// to it. It attaches its clients with attach.
	Pages func(attach func(io.ReadWriteCloser), base string) (http.Handler, func() string)
	// Connect is the command, with arguments, that carries a CLI's stdio
	// transport to a socket; none if empty.
	Connect []string
	// GoneAfter is that of [geminiide.Config].
	GoneAfter time.Duration
}

// A Companion serves the CLIs of one workspace.
//
// Everything about diffs and surfaces changes under mu, and what follows from
// a change is queued to the sessions and doors under it too: so each of them
// receives changes in the order in which they happened. Nothing waits for a
// client while mu is held. A door's handling and rooting are taken before mu;
// a door's mu, the store's and the sessions' after it.
//
// It is published last and unpublished first: listen, serve, open the door,
// then the discovery file; on Close the reverse, with every diff answered in
// between.
type Companion struct {
	cfg     Config
	log     *slog.Logger
	server  *geminiide.Server
	store   *store
	watch   *watcher
	journal *journal.Journal
	exclude excluder
	started time.Time
	link    func() string
	socket  *socket
	pub     *geminiide.Publication

	rooting sync.Mutex // one change of the roots at a time; taken before mu
	refused []string   // roots that could not be published; guarded by rooting
	given   []string   // the roots as they were last set; guarded by rooting

	mu       sync.Mutex
	roots    []string
	diffs    map[string]*diff // open and orphaned, by ID
	doors    []*door          // attached clients, in the order they came
	closing  bool
	attached sync.WaitGroup

	tasks    group         // what background started
	settling group         // of accepted diffs
	ending   chan struct{} // closed when settling must end soon
}

// Start starts a companion and publishes it.
func Start(cfg Config) (*Companion, error) {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	roots, err := cleanRoots(cfg.Roots)
	if err != nil {
		return nil, err
	}
	if !editorName.MatchString(cfg.Editor.Name) || cfg.Editor.DisplayName == "" {
		return nil, errors.New(`the editor has no name: send editor {"name", "displayName"} in initialize, such as {"neovim", "Neovim"}`)
	}
	if reserved[cfg.Editor.Name] {
		return nil, fmt.Errorf("the editor cannot be named %q: Gemini CLI would try to install its own companion for it", cfg.Editor.Name)
	}
	c := &Companion{
		cfg: cfg, log: cfg.Log, journal: cfg.Journal, started: time.Now(),
		roots: roots, diffs: make(map[string]*diff), ending: make(chan struct{}),
	}
	c.store = newStore(c.excluded, func() { c.server.ContextChanged() })
	c.server, err = geminiide.New(geminiide.Config{
		Backend: c, Log: cfg.Log, Version: cfg.Version, Title: cfg.Editor.DisplayName, Roots: c.Roots,
		Token: cfg.Settings.Token, Port: cfg.Settings.Port,
		ExtraHost: cfg.ExtraHost, ExtraNames: cfg.ExtraNames, GoneAfter: cfg.GoneAfter, OnPanic: c.Unpublish,
	})
	if err != nil {
		return nil, err
	}
	c.watch = newWatcher(c.store.paths, stateOf, c.fileChanged)
	if cfg.Pages != nil {
		var pages http.Handler
		pages, c.link = cfg.Pages(c.AttachPage, fmt.Sprintf("http://127.0.0.1:%d", c.server.Port()))
		c.server.HandlePages(pages)
	}
	c.server.Serve()
	if c.socket, err = c.listenSocket(); err != nil {
		// The CLI does not need it.
		c.log.Warn("pollux status, notify and connect will not find this companion: set POLLUX_RUNTIME_DIR to a short path of your own", "err", err)
	}
	c.pub, err = geminiide.Publish(geminiide.Endpoint{
		Port: c.server.Port(), Token: c.server.Token(), Info: cfg.Editor, Roots: roots, PIDs: cfg.PIDs,
		Stdio: c.stdio(),
	})
	if err != nil {
		c.Close()
		return nil, err
	}
	if c.socket != nil {
		c.socket.serve(c)
	}
	c.log.Info("the companion is up", "port", c.server.Port(), "roots", len(roots))
	return c, nil
}

// stdio is the command by which a CLI reaches the companion where it cannot
// dial its port. The CLI gives it little of the environment, so it names the
// socket.
func (c *Companion) stdio() []string {
	if len(c.cfg.Connect) == 0 || c.socket == nil {
		return nil
	}
	return append(slices.Clone(c.cfg.Connect), "--socket", c.socket.path)
}

// editorName is what the contract asks of ideInfo.name.
var editorName = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,39}$`)

// reserved names make the CLI offer to install an extension.
var reserved = map[string]bool{"vscode": true, "antigravity": true, "positron": true, "firebasestudio": true}

// cleanRoots makes roots absolute real paths, each once.
func cleanRoots(roots []string) ([]string, error) {
	if len(roots) == 0 {
		wd, err := os.Getwd()
		if err != nil {
			return nil, err
		}
		roots = []string{wd}
	}
	var out []string
	for _, r := range roots {
		if !filepath.IsAbs(r) {
			return nil, fmt.Errorf("the workspace root %q is relative: pass an absolute path", r)
		}
		if r = geminiide.RealPath(r); !slices.Contains(out, r) {
			out = append(out, r)
		}
	}
	return out, nil
}

// closeWithin bounds how long outcomes may take to reach the CLIs at the end.
const closeWithin = 2 * time.Second

// Close unpublishes the companion, answers every CLI that waits, and stops. It
// may be called more than once.
func (c *Companion) Close() {
	c.mu.Lock()
	if c.closing {
		c.mu.Unlock()
		return
	}
	c.closing = true
	c.mu.Unlock()
	if c.pub != nil {
		c.pub.Remove()
	}
	c.mu.Lock()
	ended := c.rejectAllLocked()
	for _, d := range c.diffsLocked(func(d *diff) bool { return d.notice != "" }) {
		c.stepLocked(d, evFail)
		ended = append(ended, d)
	}
	c.mu.Unlock()
	for _, d := range ended {
		c.record(d)
	}
	c.store.close()
	c.watch.close()
	c.tasks.wait() // for the texts that editors still answer with
	c.mu.Lock()
	doors := slices.Clone(c.doors)
	c.mu.Unlock()
	for _, d := range doors {
		d.conn.Close() // a page's event stream would hold up the server
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeWithin)
	defer cancel()
	if err := c.server.Close(ctx); err != nil {
		c.log.Warn("the server did not stop cleanly", "err", err)
	}
	close(c.ending) // now the CLIs have the outcomes
	if c.socket != nil {
		c.socket.close()
	}
	c.attached.Wait()
	c.settling.wait()
	c.tasks.wait()
	c.journal.Wait()
}

// Unpublish removes the discovery files and the socket, for a process that
// ends in a panic.
func (c *Companion) Unpublish() {
	if c.pub != nil {
		c.pub.Remove()
	}
	if c.socket != nil {
		c.socket.remove()
	}
}

// background runs f on a goroutine of its own, which ends soon after its diff
// has, and for which Close waits.
func (c *Companion) background(f func()) {
	c.tasks.start(func() {
		defer c.onPanic()
		f()
	})
}

// onPanic, deferred, unpublishes the companion before a panic goes on.
func (c *Companion) onPanic() {
	if r := recover(); r != nil {
		c.Unpublish()
		panic(r)
	}
}

// Port is the port the companion listens on.
func (c *Companion) Port() int { return c.server.Port() }

// Env returns the variables that lead a CLI, and Pollux's own commands, to
// this companion.
func (c *Companion) Env() map[string]string {
	env := c.pub.Endpoint().Env()
	if c.socket != nil {
		env[editor.EnvSocket] = c.socket.path
	}
	return env
}

// Roots returns the workspace's directories as absolute real paths.
func (c *Companion) Roots() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.roots
}

// SetRoots replaces the workspace's directories: the discovery files change,
// and the editor gets the environment that goes with them. If the files cannot be
// written, the directories stay as they are; the next call tries again. An error
// that comes again for the same directories is returned only once.
func (c *Companion) SetRoots(roots []string) error {
	c.rooting.Lock()
	defer c.rooting.Unlock()
	if slices.Equal(roots, c.given) {
		return nil
	}
	given := slices.Clone(roots)
	roots, err := within(diskTimeout, func() ([]string, error) { return cleanRoots(given) })
	if err != nil {
		return err
	}
	if err := c.pub.SetRoots(roots); err != nil {
		if slices.Equal(roots, c.refused) {
			return nil
		}
		c.refused = roots
		return err
	}
	c.refused, c.given = nil, given
	c.mu.Lock()
	same := slices.Equal(roots, c.roots)
	c.roots = roots
	c.mu.Unlock()
	if same {
		return nil
	}
	env := editor.Env{Env: c.Env()}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, d := range c.doors {
		d.notify(editor.MethodEnv, env)
	}
	return nil
}

func (c *Companion) excluded(path string) bool {
	return !c.cfg.Settings.IncludeIgnored && c.exclude.excluded(path, c.Roots())
}

// Context implements [geminiide.Backend].
func (c *Companion) Context() geminiide.Context { return c.store.context() }

// SetContext tells what a source that is no client has open: a demo's stand-in
// for an editor.
func (c *Companion) SetContext(s editor.Snapshot) { c.store.update(c, s) }

// Connected implements [geminiide.Backend].
func (c *Companion) Connected(*geminiide.Session) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.clientsChangedLocked()
}

func (c *Companion) clientsChangedLocked() {
	clients := editor.Clients{Clients: c.clients()}
	c.watch.look(len(clients.Clients) > 0 && !c.closing)
	for _, d := range c.doors {
		d.notify(editor.MethodClients, clients)
	}
}

func (c *Companion) clients() []editor.CLI {
	all := []editor.CLI{}
	for _, s := range c.server.Sessions() {
		if name, version := s.Client(); name != "" {
			all = append(all, editor.CLI{Name: name, Version: version, Transport: s.Transport(), Since: s.Since().UnixMilli()})
		}
	}
	slices.SortFunc(all, func(a, b editor.CLI) int { return int(a.Since - b.Since) })
	return all
}

// tell shows the user a message, wherever somebody is attached.
func (c *Companion) tell(level, text string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, d := range c.doors {
		d.notify(editor.MethodMessage, editor.Message{Level: level, Text: text})
	}
}

// fileChanged tells the editors of a file that somebody else wrote.
func (c *Companion) fileChanged(path string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, d := range c.doors {
		d.notify(editor.MethodFileChanged, editor.FileChanged{Path: path})
	}
}

// page reports whether diffs may wait for somebody to open the review page.
func (c *Companion) page() bool { return c.link != nil && c.cfg.Settings.ReviewPage }

// Link returns a link that opens the review page once.
func (c *Companion) Link() (string, error) {
	if c.link == nil {
		return "", errors.New("this companion has no review page")
	}
	return c.link(), nil
}

// surfacesLocked are the attached clients that show diffs.
func (c *Companion) surfacesLocked() []*door {
	return slices.DeleteFunc(slices.Clone(c.doors), func(d *door) bool { return !d.params.Diff })
}

// Status describes the companion.
func (c *Companion) Status() editor.Status {
	clients := c.clients()
	files := len(c.store.context().WorkspaceState.OpenFiles)
	c.mu.Lock()
	defer c.mu.Unlock()
	st := editor.Status{
		PID: os.Getpid(), Version: c.cfg.Version, Port: c.server.Port(), Editor: c.cfg.Editor, Roots: c.roots,
		Started: c.started.UnixMilli(), Clients: clients, Diffs: []editor.DiffStatus{}, Surfaces: []string{},
		Page: c.page(), Files: files,
	}
	for _, d := range c.diffsLocked(func(d *diff) bool { return d.shown || d.notice != "" }) {
		st.Diffs = append(st.Diffs, d.statusLocked())
	}
	for _, d := range c.surfacesLocked() {
		st.Surfaces = append(st.Surfaces, d.params.Client.Name)
	}
	return st
}
