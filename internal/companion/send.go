package companion

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"pollux/internal/companion/journal"
	"pollux/internal/editor"
	"pollux/internal/inputline"
	"pollux/internal/paths"
	"pollux/internal/sys/proc"
)

// A Mentioner is a [Session] whose agent can show a file in its input line, without
// text from the companion.
type Mentioner interface {
	// Mention brings the file, or its lines from line to endLine, into the agent's
	// input line. Lines count from 1; line is 0 for the whole file. Mention returns
	// when the message was sent. The error is [ErrNoMention] if this agent cannot
	// mention that. The companion holds no lock.
	Mention(ctx context.Context, path string, line, endLine int) error
}

// ErrNoMention reports that an agent cannot show a file in its input line.
var ErrNoMention = errors.New("the agent takes no mention")

// An AgentKind is an agent that the user can start and name.
type AgentKind struct {
	editor.AgentKind
	// Prompt returns what to type into the agent's terminal to ask about a file in one of the given
	// roots.
	Prompt func(p editor.PromptParams, roots []string) editor.Prompt
	// Silent says that such an agent changes files without asking, and how to change
	// that, given its process; "" if it asks, or if that is not known. It may be nil.
	Silent func(p Process) string
	// Manual is how the user makes a running agent ask again; "" if it always asks. See
	// [editor.Outside.Manual].
	Manual string
	// InputLine finds the agent's input line on its screen. If it is nil, or does not find
	// it, Pollux types nothing.
	InputLine inputline.Finder
}

// A Pane is a tmux pane with an agent in the foreground.
type Pane interface {
	// Name returns what tmux calls the pane, such as "%3".
	Name() string
	// PID returns the agent's process.
	PID() int
	// Command returns the agent's command.
	Command() string
	// Paste pastes the prompt, and presses Enter if the prompt asks for it. It pastes nothing
	// unless the agent shows its input line, which must be empty or hold left. It returns
	// the line's new content.
	Paste(ctx context.Context, p editor.Prompt, find inputline.Finder, left string) (string, error)
	// Mention calls send if the agent shows its input line, and waits until the line shows
	// what it receives in that way. It returns what the line then holds, or "" if that is
	// not only left and what was sent.
	Mention(ctx context.Context, send func() error, find inputline.Finder, left string) (string, error)
}

// A PaneFinder returns the pane of a process or, if pid is 0, a pane that runs one
// of these commands in a folder inside one of these roots. The error is [ErrNoPane] if no
// pane matches.
type PaneFinder func(ctx context.Context, pid int, commands, roots []string) (Pane, error)

// ErrNoPane reports that an agent runs in no tmux pane.
var ErrNoPane = errors.New("it runs in no tmux pane")

// A recipient is the agent that receives what the user sends.
type recipient struct {
	session  Session // nil if the agent is not connected
	name     string
	kind     AgentKind        // without a command if the agent is not in the table
	pid      int              // 0 if it is not known
	terminal *editor.Terminal // the client's own; nil if the agent runs elsewhere
}

// send brings a file, or a question about it, to an agent.
func (c *Companion) send(p editor.SendParams) (editor.SendResult, error) {
	ctx, cancel := context.WithTimeout(c.sending, editor.SendTimeout)
	defer cancel()
	question := strings.TrimSpace(p.Question) != "" || len(p.Problems) > 0
	if p.Path == "" && !question {
		return editor.SendResult{}, errors.New("there is nothing to send: name a file, or ask a question")
	}
	if err := c.sendable(p.Path); err != nil {
		return editor.SendResult{}, err
	}
	to, err := c.recipient(p)
	if err != nil {
		return editor.SendResult{}, err
	}
	if to == nil {
		return c.sendUnconnected(ctx, p)
	}
	if mentioner, ok := to.session.(Mentioner); ok && !question {
		err := c.mention(ctx, p, to, mentioner)
		if err == nil {
			c.Acted(to.session)
			return editor.SendResult{Status: editor.SentMention, Agent: to.name}, nil
		}
		if !errors.Is(err, ErrNoMention) {
			return editor.SendResult{}, fmt.Errorf("%s did not receive the file: %w", to.name, err)
		}
	}
	return c.paste(ctx, p, to)
}

// sendable returns why a file is not sent to agents, and what to do.
func (c *Companion) sendable(path string) error {
	if path == "" {
		return nil
	}
	if !filepath.IsAbs(path) {
		return fmt.Errorf("the path %q is relative: pass an absolute path", path)
	}
	why, err := within(diskTimeout, func() (string, error) {
		switch {
		case !regular(path):
			return "", fmt.Errorf("%s is not a file on disk: save it first", path)
		case c.cfg.IncludeIgnored:
			return "", nil
		case secret(path), secret(paths.Real(path)):
			return "its name says that it holds secrets", nil
		case c.excluded(path):
			return "an ignore file excludes it", nil
		}
		return "", nil
	})
	if err != nil || why == "" {
		return err
	}
	return fmt.Errorf("%s is not shared with agents, since %s: to share such files, turn on include_ignored in the "+
		"plugin's options, or start Pollux with --include-ignored", path, why)
}

// recipient returns the connected agent, or the agent in the client's own terminal, that
// receives what the user sends: the one that the user names, then the one in the
// client's terminal, then the one that acted last. It returns nil if no agent qualifies.
func (c *Companion) recipient(p editor.SendParams) (*recipient, error) {
	kinds := c.host.Agents()
	c.mu.Lock()
	all := make([]*recipient, 0, len(c.sessions))
	for _, s := range slices.Backward(c.sessions) {
		r := &recipient{session: s}
		r.name, _ = s.Client()
		r.pid = s.Process().PID
		all = append(all, r)
	}
	c.mu.Unlock()
	for _, r := range all {
		r.kind = c.kindNamed(r.name)
	}
	named := func(command, name string) bool {
		return p.Agent == "" || strings.EqualFold(command, p.Agent) || strings.EqualFold(name, p.Agent)
	}
	known := slices.ContainsFunc(kinds, func(k AgentKind) bool { return named(k.Command, k.Name) })
	all = slices.DeleteFunc(all, func(r *recipient) bool { return !named(r.kind.Command, r.name) })
	if !known && len(all) == 0 {
		return nil, fmt.Errorf("no agent is called %q: name one of %s", p.Agent, commandsOf(kinds))
	}
	for _, t := range p.Terminals {
		if r := inTerminal(t, all); r != nil {
			r.terminal = &t
			return r, nil
		}
		k := c.kindOf(t.Agent)
		if named(k.Command, k.Name) && (t.Agent != "" || p.Agent == "") {
			return &recipient{name: k.Name, kind: k, terminal: &t}, nil
		}
	}
	if len(all) == 0 {
		return nil, nil
	}
	return all[0], nil
}

// inTerminal returns the agent in a terminal, or nil. If an agent's process is not known, its
// name decides.
func inTerminal(t editor.Terminal, all []*recipient) *recipient {
	for _, r := range all {
		if r.pid > 0 && proc.Within(r.pid, t.PID, proc.AllAncestors) || r.pid == 0 && t.Agent != "" && r.kind.Command == proc.CommandName(t.Agent) {
			return r
		}
	}
	return nil
}

// kindNamed returns the kind of a connected agent, given its name.
func (c *Companion) kindNamed(name string) AgentKind {
	for _, k := range c.host.Agents() {
		if k.Name == name {
			return k
		}
	}
	return AgentKind{Prompt: c.host.Prompt}
}

// kindOf returns the agent with a command, which may have an extension of Windows. For an
// empty one, it is the agent that `pollux run` starts.
func (c *Companion) kindOf(command string) AgentKind {
	if command == "" && c.cfg.Preferred != nil {
		command = c.cfg.Preferred()
	}
	if command != "" {
		command = proc.CommandName(command)
	}
	kinds := c.host.Agents()
	for _, k := range kinds {
		if strings.EqualFold(k.Command, command) || strings.EqualFold(k.Name, command) {
			return k
		}
	}
	if command == "" && len(kinds) > 0 {
		return kinds[0]
	}
	return AgentKind{AgentKind: editor.AgentKind{Command: command, Name: command}, Prompt: c.host.Prompt}
}

// commandsOf returns the commands of agents, as a list for people.
func commandsOf(kinds []AgentKind) string {
	var list []string
	for _, k := range kinds {
		list = append(list, k.Command)
	}
	return strings.Join(list, ", ")
}

// paste brings a prompt to an agent's terminal: the client pastes it into its own, and
// the companion into a tmux pane.
func (c *Companion) paste(ctx context.Context, p editor.SendParams, to *recipient) (editor.SendResult, error) {
	if name := c.undecided(to.session); name != "" { // a paste in the terminal could be taken for the answer
		return editor.SendResult{}, fmt.Errorf("%s waits for your answer about %s: accept or reject that change first",
			to.name, name)
	}
	prompt := to.kind.Prompt(p.PromptParams, c.Roots())
	if to.terminal != nil {
		c.Acted(to.session)
		return editor.SendResult{
			Status: editor.SendTerminal, Agent: to.name, PID: to.terminal.PID, Prompt: &prompt,
		}, nil
	}
	pane, err := c.paneOf(ctx, to)
	if errors.Is(err, ErrNoPane) {
		where := "the editor's terminal"
		if c.cfg.FindPane != nil {
			where += ", or in tmux"
		}
		return editor.SendResult{}, fmt.Errorf("%s runs in a terminal in which Pollux cannot type: start it in %s", to.name, where)
	}
	if err == nil {
		err = c.pasteInto(ctx, pane, prompt, to.kind.InputLine)
	}
	if err != nil {
		return editor.SendResult{}, fmt.Errorf("%s: %w", to.name, err)
	}
	c.Acted(to.session)
	return editor.SendResult{Status: editor.SentPane, Agent: to.name, Pane: pane.Name()}, nil
}

// undecided returns the name of a file whose change waits for the user's decision; "" if the
// agent waits for none.
func (c *Companion) undecided(s Session) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	d := c.anyLocked(func(d *diff) bool { return s != nil && d.session == s && d.state == journal.Open })
	if d == nil {
		return ""
	}
	return filepath.Base(d.path())
}

// sendUnconnected pastes a prompt into the tmux pane of an agent that is not connected,
// or asks the client to start an agent.
func (c *Companion) sendUnconnected(ctx context.Context, p editor.SendParams) (editor.SendResult, error) {
	var commands []string
	for _, k := range c.host.Agents() {
		if p.Agent == "" || k.Command == c.kindOf(p.Agent).Command {
			commands = append(commands, k.Command)
		}
	}
	pane, err := c.findPane(ctx, 0, commands)
	if err == nil {
		k := c.kindOf(pane.Command())
		if err := c.pasteInto(ctx, pane, k.Prompt(p.PromptParams, c.Roots()), k.InputLine); err != nil {
			return editor.SendResult{}, fmt.Errorf("%s: %w", k.Name, err)
		}
		return editor.SendResult{Status: editor.SentPane, Agent: k.Name, Pane: pane.Name()}, nil
	}
	if !errors.Is(err, ErrNoPane) {
		return editor.SendResult{}, err
	}
	command, who := "", "agent"
	if p.Agent != "" {
		k := c.kindOf(p.Agent)
		command, who = k.Command, k.Name
	}
	if p.Start == nil {
		is := "is connected"
		if c.cfg.FindPane != nil {
			is = "is connected, or runs in a tmux pane"
		}
		return editor.SendResult{}, fmt.Errorf("no %s %s in %s: start it with `pollux run --attach -- %s`",
			who, is, strings.Join(c.Roots(), ", "), c.kindOf(command).Command)
	}
	prompt := c.kindOf(cmp.Or(command, *p.Start)).Prompt(p.PromptParams, c.Roots())
	return editor.SendResult{Status: editor.SendStart, Agent: command, Prompt: &prompt}, nil
}

// mention brings a file into the input line of an agent that takes mentions. One whose
// tmux pane does not show the line would lose it.
func (c *Companion) mention(ctx context.Context, p editor.SendParams, to *recipient, m Mentioner) error {
	send := func() error { return m.Mention(ctx, p.Path, p.Line, max(p.Line, p.EndLine)) }
	pane, err := c.paneOf(ctx, to)
	if errors.Is(err, ErrNoPane) {
		return send() // it runs elsewhere
	}
	if err != nil {
		return err
	}
	return c.inPane(pane, func(left string) (string, error) { return pane.Mention(ctx, send, to.kind.InputLine, left) })
}

// inPane calls a function that writes to the input line of the agent in a pane, with what
// Pollux has left there, and keeps what it leaves.
func (c *Companion) inPane(pane Pane, write func(left string) (string, error)) error {
	c.mu.Lock()
	left := c.left[pane.PID()]
	c.mu.Unlock()
	left, err := write(left)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if delete(c.left, pane.PID()); left != "" {
		c.left[pane.PID()] = left
	}
	return nil
}

func (c *Companion) pasteInto(ctx context.Context, pane Pane, prompt editor.Prompt, find inputline.Finder) error {
	return c.inPane(pane, func(left string) (string, error) { return pane.Paste(ctx, prompt, find, left) })
}

func (c *Companion) paneOf(ctx context.Context, to *recipient) (Pane, error) {
	var commands []string
	if to.pid == 0 && to.kind.Command != "" {
		commands = []string{to.kind.Command}
	}
	return c.findPane(ctx, to.pid, commands)
}

func (c *Companion) findPane(ctx context.Context, pid int, commands []string) (Pane, error) {
	if c.cfg.FindPane == nil || pid == 0 && len(commands) == 0 {
		return nil, ErrNoPane
	}
	return c.cfg.FindPane(ctx, pid, commands, c.Roots())
}

// Acted notes that an agent did something, or that the user sent it something. The
// agent that acted last receives what the user sends next. A nil session has no
// effect.
func (c *Companion) Acted(s Session) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.actedLocked(s)
}

func (c *Companion) actedLocked(s Session) {
	if i := slices.Index(c.sessions, s); i >= 0 {
		c.sessions = append(slices.Delete(c.sessions, i, i+1), s)
	}
}

// Changed announces that [Session.Client] or [Session.Process] of a connected agent has
// a new result.
func (c *Companion) Changed(s Session) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if slices.Contains(c.sessions, s) {
		c.clientsChangedLocked()
		c.background(c.checkAsking)
	}
}
