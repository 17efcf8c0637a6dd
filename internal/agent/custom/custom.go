// Package custom describes an agent that only the user's settings define. Pollux knows that it
// speaks the Agent Client Protocol, and nothing else.
//
// Its tools cannot be taken away, so it runs only behind the wall in the kernel. The client
// refuses all permissions, and serves neither files nor terminals. Pollux does not run the
// program to learn its version: that would be outside of the wall.
package custom

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"strings"

	"pollux/internal/agent"
	"pollux/internal/agent/acp"
	"pollux/internal/agent/program"
	"pollux/internal/jsonrpc"
	"pollux/internal/paths"
)

// A custom is an agent that the user's settings define.
type custom struct {
	agent.Definition
	variables program.Variables
	release   program.Release
}

// Agent returns the row for an agent that the user's settings define.
func Agent(own agent.Definition) *agent.Agent {
	key := "agents." + own.Name
	c := &custom{
		Definition: own,
		variables: program.Variables{
			Names: own.Variables, Prefixes: []string{strings.ToUpper(strings.ReplaceAll(own.Name, "-", "_")) + "_"},
		},
	}
	login := fmt.Sprintf("run `%s` in a terminal and log in; a key in the environment of Pollux must be named in %s.variables", own.Command[0], key)
	again := fmt.Sprintf("run `%s` in a terminal to see more; name what it must be able to change in %s.writable", strings.Join(own.Command, " "), key)
	c.release = program.Release{Name: own.Name, Command: own.Command[0], Remedies: agent.Remedies{
		agent.NotInstalled:  {What: own.Name + " is not installed", Next: "install it, or correct " + key + ".acp in Pollux's settings"},
		agent.Unenforceable: {What: own.Name + " could change the files of this directory", Next: "ask in another directory, or correct " + key + ".writable in Pollux's settings"},
		agent.Auth:          {What: own.Name + " is not logged in", Next: login},
		agent.BadModel:      {What: own.Name + " has no such model", Next: "leave the model out, and choose it in the agent's own settings"},
		agent.Crashed:       {What: own.Name + " ended without a result", Next: again},
		agent.Failed:        {What: own.Name + " failed", Next: again},
	}}
	row := agent.Agent{
		Name: own.Name, DisplayName: own.Name, Model: own.Name, Provider: own.Name,
		Clients:      []string{own.Name},
		ExampleModel: "provider/model",
		Finder:       c.release.Finder(c.variables.Of),
		Driver:       agent.Driver{Custom: true, Warm: &agent.Process{Command: c.start, Inputs: inputs, Tool: tool, Failure: c.failure}},
		Explainer: agent.Explainer{
			Account: c.account, Remedies: c.release.AllRemedies(),
			ToolVerbs: map[string]string{"read": "reading", "search": "searching the files for", "execute": "running", "fetch": "fetching"},
		},
	}
	row.AskVersion = func(_ context.Context, _ agent.Source, p agent.Program) (agent.Program, error) { return p, nil }
	row.ReadOnly = func(agent.Source, agent.Program) error { return nil }
	return acp.Row(row)
}

func (c *custom) account(env agent.Env, _ string) string {
	names := c.variables.Names
	for _, kv := range c.variables.Of(env) {
		if name, _, _ := strings.Cut(kv, "="); strings.HasPrefix(name, c.variables.Prefixes[0]) {
			names = append(names[:len(names):len(names)], name)
		}
	}
	home, _ := env.HomeDir()
	return program.Account(env, home, names...)
}

// tool returns what a tool does, such as "read", and its title: Pollux does not know its name.
func tool(u agent.Update) (name, summary string) {
	return cmp.Or(u.ToolKind, "tool"), agent.Summary(cmp.Or(u.File, u.Title))
}

func (c *custom) failure(env agent.Env, code int, message string, _ []string) *agent.Error {
	// All requests but the choice of a model are a part of the protocol that every agent has.
	if code == jsonrpc.CodeMethodNotFound {
		return c.release.Error(agent.BadModel, "the agent does not let others choose one")
	}
	return c.release.Error(acp.Refusal(code, message, acp.KindOf), agent.Line(env, message))
}

// inputs returns a file that the agent reads when it starts. The others are not known.
func inputs(_ agent.Source, p agent.Program, dir string) []string {
	return []string{p.Path, filepath.Join(dir, "AGENTS.md")}
}

// writable returns the files and directories that the agent may change: its own, apart from
// its settings in ~/.config, and those that the user's settings name.
func (c *custom) writable(env agent.Env) (all []string) {
	home, _ := env.HomeDir()
	all = append(all, filepath.Join(home, "."+c.Name))
	for _, dir := range []string{
		program.Dir(env, "XDG_DATA_HOME", ".local", "share"), program.Dir(env, "XDG_STATE_HOME", ".local", "state"), program.Dir(env, "XDG_CACHE_HOME", ".cache"),
	} {
		all = append(all, filepath.Join(dir, c.Name))
	}
	return append(all, c.Writable...)
}

// start returns the command of a process. It refuses a directory that the agent may change: the
// wall is all that keeps it from that.
func (c *custom) start(l agent.Launch) (agent.Command, error) {
	var writable []string
	for _, path := range c.writable(l.Env) {
		if !filepath.IsAbs(path) {
			continue
		}
		if paths.Contains(paths.Real(path), paths.Real(l.Dir)) {
			return agent.Command{}, c.release.Error(agent.Unenforceable, "it may change "+path)
		}
		writable = append(writable, path)
	}
	return agent.Command{Args: c.Command[1:], Env: c.variables.Env(l.Env, l.Tmp()), Writable: writable}, nil
}
