package config

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"

	"github.com/BurntSushi/toml"

	"pollux/internal/agent"
	"pollux/internal/lazy"
)

// ownAgents is the table of agents, which only the file has.
const ownAgents = "agents"

var (
	agentName = lazy.Regexp(`^[a-z][a-z0-9-]{0,30}$`)
	variable  = lazy.Regexp(`^[A-Za-z_][A-Za-z0-9_]*$`)
	// sharedNames are not the names of agents: other programs use the directories ~/.NAME.
	sharedNames = []string{"bash", "cache", "config", "git", "gnupg", "local", "pollux", "ssh"}
)

// agentKeys are the keys of an agent. All values are lists.
var agentKeys = []string{"acp", "writable", "variables"}

// agentSetting returns a key of an agent as a row of the table of settings. check is nil for
// a key that agents do not have.
func agentSetting(name, key string) Setting {
	s := Setting{Key: ownAgents + "." + name + "." + key, Kind: List}
	switch key {
	case "acp":
		s.Help, s.check = "the command line of an agent that speaks the Agent Client Protocol", checkCommand
	case "writable":
		s.Help, s.check = "what it may change, apart from its own directories", checkWritable
	case "variables":
		s.Help, s.check = "environment variables that it receives, apart from its own", checkVariables
	}
	return s
}

// Agents returns the agents of the file with a valid command, sorted by name.
func (v *Values) Agents() (all []agent.Definition) {
	list := func(name, key string) []string {
		value, _ := v.values[ownAgents+"."+name+"."+key].([]string)
		return value
	}
	for _, name := range v.agents {
		all = append(all, agent.Definition{Name: name, Command: list(name, "acp"), Writable: list(name, "writable"), Variables: list(name, "variables")})
	}
	return all
}

// agentSettings returns the agents' settings as rows of the table of settings.
func (v *Values) agentSettings() (all []Setting) {
	for _, name := range v.agents {
		for _, key := range agentKeys {
			if s := agentSetting(name, key); v.values[s.Key] != nil {
				all = append(all, s)
			}
		}
	}
	return all
}

// decodeAgents sets the agents that a file defines.
func (v *Values) decodeAgents(md *toml.MetaData, p toml.Primitive) {
	var tables map[string]toml.Primitive
	if md.PrimitiveDecode(p, &tables) != nil || tables == nil {
		v.problem(line(md, p), `agents is not a table: write [agents.NAME], and acp = ["COMMAND", "ARGUMENT"] below`)
		return
	}
	for _, name := range slices.Sorted(maps.Keys(tables)) {
		at := line(md, tables[name])
		var table map[string]toml.Primitive
		switch isTable := md.PrimitiveDecode(tables[name], &table) == nil && table != nil; {
		case !isTable:
			v.problem(at, `agents.%s is not a table: write [agents.%s], and acp = ["COMMAND", "ARGUMENT"] below`, name, name)
			continue
		case !agentName().MatchString(name) || slices.Contains(sharedNames, name):
			v.problem(at, "[agents.%s]: an agent cannot have this name: write a word in small letters that no other program uses", name)
			continue
		case slices.Contains(v.known, name):
			v.problem(at, "[agents.%s]: Pollux knows this agent: remove the table, or give yours another name", name)
			continue
		}
		for _, key := range slices.Sorted(maps.Keys(table)) {
			if s := agentSetting(name, key); s.check != nil {
				v.decodeValue(md, s, table[key])
			} else {
				v.problem(line(md, table[key]), "unknown key %s: %s", s.Key, advice(closest(key, agentKeys), "%s"))
			}
		}
		if _, ok := table["acp"]; !ok {
			v.problem(at, `[agents.%s] has no acp: write its command, as in acp = ["%s", "acp"]`, name, name)
		} else if v.values[agentSetting(name, "acp").Key] != nil {
			v.agents = append(v.agents, name)
		}
	}
}

// The checks of an agent's values. Their errors continue the sentence "KEY is VALUE".

func checkCommand(list []string) error {
	if len(list) == 0 || list[0] == "" || !filepath.IsAbs(list[0]) && filepath.Base(list[0]) != list[0] {
		return errors.New(`: start it with a program on the PATH or an absolute path, as in ["kimi", "acp"]`)
	}
	return nil
}

func checkWritable(list []string) error {
	home := expand("~/")
	for _, path := range list {
		if within, err := filepath.Rel(path, home); err != nil || !filepath.IsAbs(path) || filepath.IsLocal(within) {
			return fmt.Errorf(", with %q: write absolute paths, or ones that start with ~/, of what belongs to the agent alone", path)
		}
	}
	return nil
}

func checkVariables(list []string) error {
	for _, name := range list {
		if !variable().MatchString(name) {
			return fmt.Errorf(`, with %q: write the names of variables, as in ["OPENAI_API_KEY"]`, name)
		}
	}
	return nil
}
