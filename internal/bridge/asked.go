package bridge

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"

	"pollux/internal/agent"
)

// An Asked is an agent that a bridge can ask for a user.
type Asked struct {
	// Agent is a row of the table of agents. Source says for whom it runs.
	Agent  *agent.Agent
	Source agent.Source
	// DefaultModel is used for calls that name no model. If it is empty, the
	// agent chooses. FallbackModel is asked when that model is overloaded or
	// over its quota. It may be empty.
	DefaultModel, FallbackModel string
}

// An asked is an agent with its runner, which is opened when it is first needed.
type asked struct {
	Asked
	cfg *Config

	mu     sync.Mutex
	runner agent.Runner
	closed bool
}

// run returns the runner, and opens it if necessary.
func (a *asked) run() (agent.Runner, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.runner != nil:
		return a.runner, nil
	case a.closed:
		return nil, agent.ErrClosed
	}
	r, err := a.cfg.Open(a.Asked)
	if err == nil {
		a.runner = r
	}
	return r, err
}

// opened returns the runner if it is open, and nil otherwise.
func (a *asked) opened() agent.Runner {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.runner
}

func (a *asked) close() error {
	a.mu.Lock()
	a.closed = true
	r := a.runner
	a.mu.Unlock()
	if r == nil {
		return nil
	}
	return r.Close()
}

// searches reports whether the agent can search the web.
func (a *asked) searches() bool { return a.Agent.SearchTool != "" }

func (a *asked) usable() bool {
	if a.cfg.Usable != nil {
		return a.cfg.Usable(a.Asked)
	}
	return a.Agent.Usable(a.Source) && a.cfg.Runner.Wall.Check(a.Agent) == nil
}

// only returns the agents for which keep is true.
func only(all []*asked, keep func(*asked) bool) []*asked {
	return slices.DeleteFunc(slices.Clone(all), func(a *asked) bool { return !keep(a) })
}

// usable returns the agents that are installed and can be enforced read-only, as far as that
// is known without running them.
func (b *Bridge) usable() []*asked {
	if len(b.agents) == 1 {
		return b.agents
	}
	return only(b.agents, (*asked).usable)
}

// Names returns the names of all agents that can be asked here.
func (b *Bridge) Names() []string { return names(b.usable()) }

// OrOthers adds to the error of an agent that is not installed which others can be asked, if
// none of them is installed either.
func (b *Bridge) OrOthers(row *agent.Agent, err error) error {
	if len(b.usable()) > 0 {
		return err
	}
	var others []string
	for _, a := range b.agents {
		if a.Agent != row {
			others = append(others, a.Agent.DisplayName)
		}
	}
	return fmt.Errorf("%w. Instead, Pollux can ask %s, once one is installed", err, strings.Join(others, ", "))
}

func names(all []*asked) []string {
	names := []string{}
	for _, a := range all {
		names = append(names, a.Agent.Name)
	}
	return names
}

// pick returns the agent for a call: the named one, or the one in the settings, or the first
// usable one. It prefers an agent that is not the client itself.
func (b *Bridge) pick(c Common, search bool) (*asked, error) {
	fits := func(a *asked) bool { return !search || a.searches() }
	if name := strings.TrimSpace(c.Agent); name != "" {
		switch a := b.named(name); {
		case a == nil:
			return nil, fmt.Errorf("%s is %q: it must be one of %s", b.cfg.Names.Agent, agent.Shorten(name, 60), strings.Join(names(b.agents), ", "))
		case fits(a):
			return a, nil
		default:
			able := only(b.usable(), fits)
			if len(able) == 0 {
				return nil, errNoSearch
			}
			return nil, fmt.Errorf("%s cannot search the web: name one of %s", a.Agent.DisplayName, strings.Join(names(able), ", "))
		}
	}
	if prefer := b.named(b.cfg.Prefer); prefer != nil && fits(prefer) {
		return prefer, nil
	}
	usable := b.usable()
	able := only(usable, fits)
	if i := slices.IndexFunc(able, func(a *asked) bool { return !a.Agent.IsClient(c.client) }); i >= 0 {
		return able[i], nil
	}
	if len(usable) == 0 {
		able = only(b.agents[:1], fits)
	}
	if len(able) == 0 {
		return nil, errNoSearch
	}
	return able[0], nil
}

var errNoSearch = errors.New("no agent here can search the web: Gemini CLI and Codex CLI can, once they are installed")

// Chosen returns the agent that a call will ask, unless it continues a conversation.
func (b *Bridge) Chosen(c Common, search bool) (*agent.Agent, error) {
	a, err := b.pick(c, search)
	if err != nil {
		return nil, err
	}
	return a.Agent, nil
}

// named returns the agent with a name, or nil.
func (b *Bridge) named(name string) *asked {
	for _, a := range b.agents {
		if a.Agent.Name == name {
			return a
		}
	}
	return nil
}

// checkDepth returns an error in a process that an asked agent has started: agents that ask
// each other would not come to an end.
func checkDepth() error {
	if os.Getenv(agent.DepthVar) == "" {
		return nil
	}
	return errors.New("you are being asked through Pollux yourself, so you cannot ask another agent through it: answer with what you know and can read")
}

// workers returns the bridge's own processes of all agents, without the pool's.
func (b *Bridge) workers() []agent.Worker {
	all := []agent.Worker{}
	for _, a := range b.agents {
		if r := a.opened(); r != nil {
			all = append(all, r.Workers()...)
		}
	}
	return all
}
