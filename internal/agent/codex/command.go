package codex

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"pollux/internal/agent"
	"pollux/internal/git"
	"pollux/internal/jsontoml"
	"pollux/internal/paths"
)

// profile names the permissions that Pollux defines.
const profile = "pollux"

// features are parts of the CLI that run programs outside of its sandbox, write files, start
// more work than was asked for, or wait for the network without an end.
var features = []string{
	"hooks", "plugins", "apps", "multi_agent", "goals", "memories", "image_generation", "skill_mcp_dependency_install",
	"unbounded_connection_retries",
	"shell_snapshot", // runs the user's shell for each conversation
}

// serverCommand returns the command for a read-only app server.
//
// The sandbox mode "read-only" is not enough: a command that a rule of the user allows runs
// outside of the sandbox, and writes. Rules have no effect where the permissions deny reading
// something. So if there are rules, Pollux denies the login file, which the model has no
// reason to read. It does not do so otherwise, because new conversations then start slowly. A
// thread that names a sandbox mode loses these permissions: see [Conn.NewSession].
func serverCommand(l agent.Launch) (agent.Command, error) {
	own := home(l.Env)
	denied := ""
	if slices.ContainsFunc(ruleDirs(l.Env), mayHold) {
		denied = `,filesystem={` + jsontoml.Literal(filepath.Join(own, "auth.json")) + `="deny"}`
	}
	set := []string{
		`permissions.` + profile + `={extends=":read-only"` + denied + `}`,
		`default_permissions="` + profile + `"`,
		`approval_policy="never"`,
		"notify=[]", // a program that the CLI runs after each answer
		// The model's commands do not receive keys.
		"shell_environment_policy.ignore_default_excludes=false",
		"project_doc_fallback_filenames=[]", // other names of instructions, which may be links: see below
	}
	// The CLI follows a link to instructions, wherever it leads.
	for _, d := range above(l.Dir) {
		if paths.LeadsOut(d, instructions(d)...) != "" {
			set = append(set, "project_doc_max_bytes=0")
			break
		}
	}
	for _, feature := range features {
		set = append(set, "features."+feature+"=false")
	}
	var untrusted []string
	for _, dir := range configured(l.Dir, own) {
		untrusted = append(untrusted, jsontoml.Literal(dir)+`={trust_level="untrusted"}`)
	}
	if len(untrusted) > 0 {
		set = append(set, "projects={"+strings.Join(untrusted, ",")+"}")
	}
	var args []string
	for _, s := range set {
		args = append(args, "-c", s)
	}
	env := append(childEnv(l.Env, l.Tmp()), git.WithoutFilters(l.Dir))
	return agent.Command{Args: append(args, "app-server"), Env: env, Writable: Writable(l.Env)}, nil
}

// instructions returns the paths of a directory's instructions for agents.
func instructions(dir string) []string {
	return []string{filepath.Join(dir, "AGENTS.md"), filepath.Join(dir, "AGENTS.override.md")}
}

// ruleDirs returns the directories with rules of the user and of the system. Those of a
// project are turned off with its other settings.
func ruleDirs(env agent.Env) []string {
	system := "/etc/codex"
	if runtime.GOOS == "windows" {
		system = filepath.Join(env.Get("PROGRAMDATA"), "OpenAI", "Codex")
	}
	return []string{filepath.Join(home(env), "rules"), filepath.Join(system, "rules")}
}

// mayHold reports whether a directory holds files, as far as can be known.
func mayHold(dir string) bool {
	entries, err := os.ReadDir(dir)
	return len(entries) > 0 || err != nil && !errors.Is(err, os.ErrNotExist)
}

// configured returns the directories from dir upwards that have settings, which may start
// programs. The CLI ignores them if it does not trust the directory, and then does not read
// its AGENTS.md either. own is the CLI's home.
func configured(dir, own string) (dirs []string) {
	for _, d := range above(dir) {
		settings := filepath.Join(d, ".codex")
		if _, err := os.Lstat(settings); err == nil && paths.Real(settings) != paths.Real(own) {
			dirs = append(dirs, d)
		}
	}
	return dirs
}

// above returns a directory and those above it, also by its real path.
func above(dir string) (dirs []string) {
	for _, d := range []string{dir, paths.Real(dir)} {
		for ; !slices.Contains(dirs, d); d = filepath.Dir(d) {
			dirs = append(dirs, d)
		}
	}
	return dirs
}

// inputs returns the files that the CLI reads when it starts.
func inputs(from agent.Source, p agent.Program, dir string) []string {
	own := home(from.Env)
	files := []string{p.Path}
	for _, name := range []string{"config.toml", "auth.json"} {
		files = append(files, filepath.Join(own, name))
	}
	files = append(files, instructions(own)...)
	for _, rules := range ruleDirs(from.Env) {
		files = append(files, rules)
		in, _ := filepath.Glob(filepath.Join(rules, "*"))
		files = append(files, in...)
	}
	for _, d := range above(dir) {
		files = append(files, instructions(d)...)
		if settings := filepath.Join(d, ".codex"); settings != own {
			files = append(files, settings, filepath.Join(settings, "config.toml"))
		}
	}
	return files
}
