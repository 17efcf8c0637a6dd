// Package companion holds the state between agents and editors: which files are
// open, and which proposed changes wait for the user. Agents are connected
// through [Session], editors through the protocol of package editor.
//
// The package knows no agent and no agent's wire format. [Session] hides what
// depends on the agent, and [Host] hides how agents find the companion.
package companion

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"pollux/internal/companion/journal"
	"pollux/internal/editor"
	"pollux/internal/lazy"
	"pollux/internal/paths"
)

// A Config configures a [Companion].
type Config struct {
	Version string
	Log     *slog.Logger // none if nil
	Host    Host
	// Editor names the companion to the agents' users.
	Editor editor.Info
	// Roots are the workspace's directories; the working directory if empty.
	Roots []string
	// IncludeIgnored also shares files that are ignored or look like secrets.
	IncludeIgnored bool
	// IgnoreFiles names files that hide others from agents, as .gitignore does.
	IgnoreFiles []string
	// MaxFiles is how many files a [Context] lists at most; 0 for no limit.
	MaxFiles int
	// Page is set if the user may open the review page at any time, so that a
	// change can wait for it.
	Page    bool
	Journal *journal.Journal
	// FindPane finds agents in tmux; nil without tmux.
	FindPane PaneFinder
	// Waiting is called when a change waits for the user and no client shows it, with the
	// agent's name and the path. It may be nil. It must return when ctx ends.
	Waiting func(ctx context.Context, agent, path string)
	// Outside lists changes outside Pollux: see [outside].
	Outside bool
	// Unconnected says that the running agent has not connected, and what to do about it.
	// Views show it while no agent is connected. It is empty if no agent may run.
	Unconnected string
	// Preferred returns the command of the agent that `pollux run` starts, or "" if it
	// is not known; may be nil.
	Preferred func() string
}

// A Companion holds the state of one workspace.
//
// Diffs, sessions and attached clients change only under mu. The resulting messages
// are queued under mu, too, so each session and each client receives changes in the
// order in which they happened. Nothing waits for an agent, an editor or a disk
// while mu is held.
//
// Lock order: conn.handling, rootsMu and the locks of a [journal.Record] come before mu; conn.mu,
// store.mu, watcher.mu, outside.mu and the locks of sessions come after it.
type Companion struct {
	cfg     Config
	log     *slog.Logger
	host    Host
	store   *store
	watch   *watcher
	journal *journal.Journal
	exclude excluder
	started time.Time

	maxAccepted int // see the constant

	rootsMu sync.Mutex // held while the roots change
	refused []string   // roots that could not be published; guarded by rootsMu
	given   []string   // the roots as they were last set; guarded by rootsMu

	mu       sync.Mutex
	roots    []string
	env      map[string]string // nil until the roots change
	sessions []Session         // the one that acted last is the last
	diffs    map[string]*diff  // open, accepted and orphaned, by ID
	expected []*expected       // what agents may write now, the oldest first
	conns    []*conn           // attached clients, in the order they came
	writes   []*write          // announced by agents, the oldest first
	asking   map[Session]asking
	left     map[int]string // what Pollux left in the input line of an agent, by its process
	closing  bool           // Stop was called
	ending   bool           // Wait was called: nothing more is expected
	attached sync.WaitGroup

	sending  context.Context // ends with Stop
	stopSend context.CancelFunc
	tasks    group // what background started
	loops    group // the goroutines of sweep and the watcher

	outside *outside
}

// New returns a companion. The caller connects it to agents and editors, and
// ends it with [Companion.Stop] and then [Companion.Wait].
func New(cfg Config) (*Companion, error) {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	roots, err := cleanRoots(cfg.Roots)
	if err != nil {
		return nil, err
	}
	if !editorName().MatchString(cfg.Editor.Name) || cfg.Editor.DisplayName == "" {
		return nil, errors.New("the editor has no name: " +
			`send editor {"name", "displayName"} in initialize, such as {"neovim", "Neovim"}`)
	}
	c := &Companion{
		cfg: cfg, log: cfg.Log, host: cfg.Host, journal: cfg.Journal, started: time.Now(),
		roots: roots, diffs: make(map[string]*diff), left: make(map[int]string),
		asking: make(map[Session]asking), exclude: excluder{names: cfg.IgnoreFiles},
		maxAccepted: maxAccepted,
	}
	c.sending, c.stopSend = context.WithCancel(context.Background())
	c.store = newStore(c.excluded, cfg.MaxFiles, c.contextChanged)
	c.outside = newOutside(c)
	c.watch = newWatcher(c)
	c.loops.start(c.watch.run)
	c.loops.start(c.sweep)
	c.watch.wake.Set() // an agent may run already
	return c, nil
}

// editorName matches the names that agents accept.
var editorName = lazy.Regexp(`^[a-z0-9][a-z0-9._-]{0,39}$`)

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
		if r = paths.Real(r); !slices.Contains(out, r) {
			out = append(out, r)
		}
	}
	return out, nil
}

// Stop answers every waiting agent and detaches every client. The caller then
// closes the sessions, which deliver their queues, and calls [Companion.Wait].
func (c *Companion) Stop() {
	c.mu.Lock()
	c.closing = true
	ended := c.rejectAllLocked()
	for _, d := range c.diffsLocked(func(d *diff) bool { return d.notice != "" }) {
		c.endLocked(d, evFail, Outcome{Failed: true})
		ended = append(ended, d)
	}
	c.mu.Unlock()
	for _, d := range ended {
		c.end(d)
	}
	c.store.close()
	c.stopSend()
	c.tasks.wait() // for the texts that editors still answer with
	c.mu.Lock()
	conns := slices.Clone(c.conns)
	c.mu.Unlock()
	for _, d := range conns {
		d.rpc.Close() // the event stream of a page would hold up its server
	}
}

// Wait waits for everything that the companion has started. Call it after
// [Companion.Stop], when no session and no client is left.
func (c *Companion) Wait() {
	c.attached.Wait()
	c.endExpected()
	c.loops.wait()
	c.tasks.wait()
	c.journal.Wait()
}

// background runs f on a goroutine that ends soon after its diff does, or after Stop. Stop and
// Wait wait for it.
func (c *Companion) background(f func()) { c.tasks.start(f) }

// Roots returns the workspace's directories as absolute real paths.
func (c *Companion) Roots() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.roots
}

// SetRoots replaces the workspace's directories: the host publishes them, and the
// editors receive the matching environment. If the host fails, the directories stay
// as they are, and the next call tries again. SetRoots returns the same error for
// the same directories only once.
func (c *Companion) SetRoots(roots []string) error {
	c.rootsMu.Lock()
	defer c.rootsMu.Unlock()
	if slices.Equal(roots, c.given) {
		return nil
	}
	given := slices.Clone(roots)
	roots, err := within(diskTimeout, func() ([]string, error) { return cleanRoots(given) })
	if err != nil {
		return err
	}
	if err := c.host.SetRoots(roots); err != nil {
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
	c.store.change(func() {}) // other ignore files apply
	env := c.host.Env()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.env = env
	for _, d := range c.conns {
		d.envLocked()
	}
	return nil
}

func (c *Companion) excluded(path string) bool {
	return !c.cfg.IncludeIgnored && c.exclude.excluded(path, c.Roots())
}

// Context returns what the user has open now. The caller must not change it.
func (c *Companion) Context() Context { return c.store.context() }

// SetContext replaces the open files that do not come from a client. The demo uses it
// instead of an editor.
func (c *Companion) SetContext(s editor.Snapshot) { c.store.update(c, s) }

// contextChanged announces a new context to every agent.
func (c *Companion) contextChanged() {
	c.watch.wake.Set() // the next change of a newly opened file may be an agent's
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.sessions {
		s.ContextChanged()
	}
}

// Connect adds the session of an agent that has connected. It announces the
// context, which may have changed since the agent received it.
func (c *Companion) Connect(s Session) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sessions = append(c.sessions, s)
	s.ContextChanged()
	c.clientsChangedLocked()
	c.background(c.checkAsking)
}

// activeLocked reports whether an agent may change files now.
func (c *Companion) activeLocked() bool {
	return (c.cfg.Unconnected != "" || len(c.sessions) > 0) && !c.closing
}

func (c *Companion) clientsChangedLocked() {
	c.watch.wake.Set()
	c.notifyLocked(editor.MethodClients, editor.Clients{Clients: c.clientsLocked()})
}

// notifyLocked sends a notification to every attached client.
func (c *Companion) notifyLocked(method string, params any) {
	for _, d := range c.conns {
		d.notify(method, params)
	}
}

func (c *Companion) clientsLocked() []editor.Agent {
	all := make([]editor.Agent, 0, len(c.sessions))
	for _, s := range c.sessions {
		name, version := s.Client()
		p := s.Process()
		agent := editor.Agent{
			Name: name, Version: version, Transport: s.Transport(), Since: s.Since().UnixMilli(),
			PID: p.PID, Dir: p.Dir, Terminal: p.Terminal, Silent: c.silentLocked(s),
		}
		agent.Label = agent.Describe()
		if s, ok := s.(LimitedSession); ok {
			agent.Limits = s.Limits()
		}
		all = append(all, agent)
	}
	slices.SortFunc(all, func(a, b editor.Agent) int { return cmp.Compare(a.Since, b.Since) })
	return all
}

// nameLocked returns what to call an agent in messages: its name and, if other agents of
// that name are connected, its terminal or another difference.
func (c *Companion) nameLocked(s Session) string {
	name, _ := s.Client()
	name = cmp.Or(name, "the agent")
	p, terminals, others := s.Process(), 0, false
	for _, other := range c.sessions {
		if n, _ := other.Client(); other == s || cmp.Or(n, "the agent") != name {
			continue
		}
		others = true
		if other.Process().Terminal == p.Terminal {
			terminals++
		}
	}
	switch {
	case !others:
		return name
	case p.Terminal != "" && terminals == 0:
		return fmt.Sprintf("%s (%s)", name, p.Terminal)
	case p.PID > 0:
		return fmt.Sprintf("%s (pid %d)", name, p.PID)
	}
	return fmt.Sprintf("%s (since %s)", name, s.Since().Format("15:04:05"))
}

// prompt returns what to type into the terminal of the agent that acted last.
func (c *Companion) prompt(p editor.PromptParams) editor.Prompt {
	c.mu.Lock()
	name, roots := "", c.roots
	if n := len(c.sessions); n > 0 {
		name, _ = c.sessions[n-1].Client()
	}
	c.mu.Unlock()
	return c.kindNamed(name).Prompt(p, roots)
}

// tell shows the user a message in every attached client.
func (c *Companion) tell(level, text string) { c.show(editor.Message{Level: level, Text: text}) }

// show shows the user a message in every attached client.
func (c *Companion) show(m editor.Message) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.showLocked(m)
}

func (c *Companion) showLocked(m editor.Message) { c.notifyLocked(editor.MethodMessage, m) }

// fileChanged notifies the editors of a file that another program wrote. now is its state.
func (c *Companion) fileChanged(path string, now fileState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, w := range c.writes {
		w.noticed = w.noticed || w.named(path) && now != w.before
	}
	c.notifyLocked(editor.MethodFileChanged, editor.FileChanged{Path: path})
	c.store.change(func() {}) // agents receive only files that exist
}

// surfacesLocked returns the attached clients that show diffs.
func (c *Companion) surfacesLocked() []*conn {
	return slices.DeleteFunc(slices.Clone(c.conns), func(d *conn) bool { return !d.params.Diff })
}

// Retire returns a channel that is closed when an attached client with this name leaves. Without
// such a client, it returns nil, and the companion accepts no more clients or changes.
func (c *Companion) Retire(name string) <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, d := range c.conns {
		if d.params.Client.Name == name {
			return d.left
		}
	}
	c.closing = true
	return nil
}

// Shows reports whether the user can review a change: a client that shows diffs is
// attached, or there is a review page to open.
func (c *Companion) Shows() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.closing && (c.cfg.Page || len(c.surfacesLocked()) > 0)
}

// Status describes the companion.
func (c *Companion) Status() editor.Status {
	files, notes := len(c.store.context().Files), c.host.Notes()
	c.checkAsking()
	c.mu.Lock()
	defer c.mu.Unlock()
	st := editor.Status{
		PID: os.Getpid(), Version: c.cfg.Version, Port: c.host.Port(), Editor: c.cfg.Editor, Roots: c.roots,
		Started: c.started.UnixMilli(), Clients: c.clientsLocked(), Diffs: []editor.DiffStatus{}, Surfaces: []string{},
		Page: c.cfg.Page, Files: files, Journal: c.journal.IsDefault(), Notes: notes, Outside: c.outsideLocked(),
		Unconnected: c.cfg.Unconnected,
	}
	for _, d := range c.diffsLocked(func(d *diff) bool { return d.visibleTo(nil) || d.notice != "" }) {
		st.Diffs = append(st.Diffs, d.statusLocked())
	}
	for _, d := range c.surfacesLocked() {
		st.Surfaces = append(st.Surfaces, d.params.Client.Name)
	}
	return st
}
