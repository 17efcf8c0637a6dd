package codex

import (
	"encoding/json"
	"maps"
	"path/filepath"
	"slices"

	"pollux/internal/agent"
	"pollux/internal/agent/program"
	"pollux/internal/jsontoml"
	"pollux/internal/paths"
	"pollux/internal/sys/disk"
)

// maxHomeFile limits a file in the CLI's home, in bytes.
const maxHomeFile = 1 << 20

// home returns the CLI's own directory, or "".
func home(env agent.Env) string {
	if dir := env.Get("CODEX_HOME"); dir != "" {
		return dir
	}
	dir, err := env.HomeDir()
	if err != nil {
		return ""
	}
	return filepath.Join(dir, ".codex")
}

// Writable returns the directories in which the CLI keeps its own state: its login, its
// settings, its logs. It must be able to write there.
func Writable(env agent.Env) []string {
	var dirs []string
	for _, dir := range []string{home(env), env.Get("CODEX_SQLITE_HOME")} {
		if dir != "" {
			dirs = append(dirs, dir)
		}
	}
	return dirs
}

// settings are the entries in config.toml that say which model service is used.
type settings struct {
	Provider  string              `toml:"model_provider"`
	BaseURL   string              `toml:"openai_base_url"`
	Providers map[string]provider `toml:"model_providers"`
}

type provider struct {
	BaseURL    string            `toml:"base_url"`
	Key        string            `toml:"env_key"`
	KeyHeaders map[string]string `toml:"env_http_headers"`
}

// variables returns the names of the variables that hold the provider's keys.
func (p provider) variables() []string {
	names := slices.Sorted(maps.Values(p.KeyHeaders))
	if p.Key != "" {
		names = append(names, p.Key)
	}
	return names
}

// load reads the user's config.toml. What cannot be read is empty: the CLI itself reports it.
func load(env agent.Env) (s settings) {
	jsontoml.DecodeTOML(string(read(env, "config.toml")), &s)
	return s
}

// read returns a file in the CLI's home, or nothing.
func read(env agent.Env, name string) []byte {
	dir := home(env)
	if dir == "" {
		return nil
	}
	text, _ := disk.ReadFile(filepath.Join(dir, name), maxHomeFile)
	return text
}

// names are the variables of the CLI itself. It sets others for the programs that it starts,
// one of which may be Pollux.
var names = []string{
	"CODEX_HOME", "CODEX_SQLITE_HOME", "CODEX_API_KEY", "CODEX_ACCESS_TOKEN", "CODEX_CA_CERTIFICATE", "CODEX_OSS_BASE_URL", "CODEX_OSS_PORT",
	"OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENAI_ORGANIZATION", "OPENAI_PROJECT",
}

func variables(env agent.Env) program.Variables {
	v := program.Variables{Names: slices.Clone(names), Prefixes: []string{"AWS_"}}
	for _, p := range load(env).Providers {
		v.Names = append(v.Names, p.variables()...)
	}
	return v
}

func environment(env agent.Env) []string { return variables(env).Of(env) }

func childEnv(env agent.Env, tmp string) []string { return variables(env).Env(env, tmp) }

// account identifies the account by its service and key, and by the login in the CLI's home.
func account(env agent.Env, _ string) string {
	s := load(env)
	selected := s.Providers[s.Provider]
	var login struct {
		Tokens struct {
			Account string `json:"account_id"`
		} `json:"tokens"`
	}
	json.Unmarshal(read(env, "auth.json"), &login)
	id := []string{s.Provider, s.BaseURL, selected.BaseURL, paths.Real(home(env)), login.Tokens.Account}
	id = append(id, program.Values(env.Get, slices.Concat(names, selected.variables())...)...)
	return program.Identity(id...)
}
