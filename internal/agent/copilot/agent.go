// Package copilot describes Copilot CLI as an agent: how to find and start it, keep it
// read-only, and classify its errors.
//
// It serves the Agent Client Protocol. No setting stops the hooks and servers of a project, so
// this package refuses a project that has some. Notices and errors arrive as if the model said them.
package copilot

import (
	"path/filepath"
	"strings"

	"pollux/internal/agent"
	"pollux/internal/agent/acp"
	"pollux/internal/agent/program"
)

// release is the first one known to be read-only with the settings of this package.
var release = program.Release{
	Name: "Copilot CLI", Command: "copilot", Variable: "COPILOT_PATH", Packages: []string{pkg, pkg + "-" + program.Platform()},
	Oldest: "1.0.92", Update: "copilot update", Try: "copilot -p hello", Env: childEnv,
	Remedies: agent.Remedies{
		agent.Unenforceable: {What: "Copilot CLI would run code of this project", Next: "remove that file, or ask another agent"},
		agent.Auth:          {What: "Copilot CLI is not logged in", Next: "run `copilot login` in a terminal, or set COPILOT_GITHUB_TOKEN in the environment of Pollux"},
		agent.BadModel:      {What: "Copilot CLI has no such model", Next: "run `copilot` and use /model to see the names, or leave the model out"},
		agent.QuotaDay:      {What: "the account's Copilot requests are used up", Next: "ask another agent, or wait until they are renewed"},
	},
}

const pkg = "@github/copilot"

var readTools = []string{"view", "grep", "glob"}

// Agent returns Copilot CLI's row in the table of agents.
func Agent() *agent.Agent { return row }

var row = acp.Row(agent.Agent{
	Name: "copilot", DisplayName: release.Name, Model: "Copilot",
	Clients: []string{"github-copilot", "copilot"},
	Withholds: map[agent.Kind]string{agent.Auth: "Copilot CLI never passes ANTHROPIC_API_KEY, OPENAI_API_KEY and keys of its own " +
		"provider on to Pollux: log in to the agent instead"},
	ExampleModel: "claude-sonnet-4.5",
	Provider:     "github.copilot",
	Finder:       release.Finder(variables.Of),
	Driver: agent.Driver{
		ReadTools: readTools, WriteTools: []string{"edit", "delete", "move", "execute"},
		Warm: &agent.Process{Command: start, Connect: connect, Inputs: inputs, Tool: tool, Failure: failure, Notice: isNotice, Monitor: newMonitor},
	},
	Explainer: agent.Explainer{
		VarPrefix: "COPILOT_", Account: account, Remedies: release.AllRemedies(), KindOf: kindOf,
		ToolVerbs: map[string]string{"view": "reading", "glob": "looking for files", "grep": "searching the files for"},
	},
})

// fault returns an error with this agent's remedy.
var fault = release.Error

// variables are those that Copilot CLI needs to find its settings, its login and another
// provider of models. Of its many others, some allow all tools.
var variables = program.Variables{
	Names: []string{
		"COPILOT_HOME", "COPILOT_CACHE_HOME", "COPILOT_PKG_CACHE_HOME", "COPILOT_MODEL", "COPILOT_OFFLINE", "COPILOT_GITHUB_TOKEN", "COPILOT_GH_HOST",
		"COPILOT_API_URL", "GH_TOKEN", "GITHUB_TOKEN", "GH_HOST",
	},
	Prefixes: []string{"COPILOT_PROVIDER_"},
}

func childEnv(env agent.Env, tmp string) []string {
	return variables.Env(env, tmp, "COPILOT_AUTO_UPDATE=false")
}

func account(env agent.Env, _ string) string {
	return program.Account(env, home(env), "COPILOT_GITHUB_TOKEN", "GH_TOKEN", "GITHUB_TOKEN", "COPILOT_GH_HOST", "GH_HOST",
		"COPILOT_PROVIDER_BASE_URL", "COPILOT_PROVIDER_API_KEY", "COPILOT_PROVIDER_BEARER_TOKEN")
}

// verbs begin the titles of calls to tools that read.
var verbs = []struct{ title, tool string }{{"Viewing ", "view"}, {"Searching for ", "grep"}, {"Finding files matching ", "glob"}}

// tool returns the name of a tool, from what it does and a title such as "Viewing main.go". The
// model may write the title of a command.
func tool(u agent.Update) (name, summary string) {
	name, title := u.ToolKind, u.Title
	for _, v := range verbs {
		if rest, ok := strings.CutPrefix(title, v.title); ok && (name == "read" || name == "search") {
			name, title = v.tool, rest
			break
		}
	}
	return name, agent.Summary(title)
}

func kindOf(message string) agent.Kind {
	if strings.Contains(strings.ToLower(message), "premium request") {
		return agent.QuotaDay
	}
	return acp.KindOf(message)
}

func failure(env agent.Env, code int, message string, _ []string) *agent.Error {
	switch code {
	case codeProject:
		return fault(agent.Unenforceable, message)
	case codeLink:
		return outside(message)
	}
	return fault(acp.Refusal(code, message, kindOf), agent.Line(env, message))
}

// outside returns the error for a project with a link to instructions outside of it.
func outside(path string) *agent.Error {
	err := fault(agent.Unenforceable, path)
	err.Remedy = agent.Remedy{What: "Copilot CLI would read a file outside of this directory", Next: "remove that link, or ask another agent"}
	return err
}

// home returns Copilot CLI's own directory.
func home(env agent.Env) string { return program.Dir(env, "COPILOT_HOME", ".copilot") }

// inputs returns the files that Copilot CLI reads when it starts.
func inputs(from agent.Source, p agent.Program, dir string) []string {
	files := []string{p.Path, filepath.Join(dir, "AGENTS.md"), filepath.Join(dir, ".github", "copilot-instructions.md")}
	for _, name := range []string{"config.json", "settings.json", "mcp-config.json"} {
		files = append(files, filepath.Join(home(from.Env), name))
	}
	for _, name := range settingsFiles {
		files = append(files, filepath.Join(dir, filepath.FromSlash(name)))
	}
	return append(files, filepath.Join(dir, ".github", "hooks"))
}

// Writable returns the directories that Copilot CLI writes to. It unpacks itself into the
// second one.
func Writable(env agent.Env) []string {
	cache := program.Dir(env, "XDG_CACHE_HOME", ".cache")
	return []string{home(env), filepath.Join(cache, "copilot"), env.Get("COPILOT_CACHE_HOME"), env.Get("COPILOT_PKG_CACHE_HOME")}
}

// start returns the command of a process.
func start(l agent.Launch) (agent.Command, error) {
	if path := runsCode(l.Env, l.Dir); path != "" {
		return agent.Command{}, fault(agent.Unenforceable, path)
	}
	if path := leadsOut(l.Env, l.Dir); path != "" {
		return agent.Command{}, outside(path)
	}
	logs := filepath.Join(l.TempDir, "logs")
	return agent.Command{
		Args: []string{
			"--acp", "--disable-builtin-mcps", "--no-ask-user", "--no-remote", "--available-tools", strings.Join(readTools, ","),
			"--log-dir", logs, "--log-level", "warning",
		},
		Env:      childEnv(l.Env, l.Tmp()),
		Writable: program.OwnDirs(Writable(l.Env)...), Logs: filepath.Join(logs, "*.log"),
	}, nil
}
