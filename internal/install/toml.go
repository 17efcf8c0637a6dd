package install

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"pollux/internal/jsontoml"
	"pollux/internal/lazy"
)

var (
	ownTable   = lazy.Regexp(`^\s*\[\s*mcp_servers\s*\.\s*"?` + serverName + `"?\s*(\.[^\]]*)?\]`)
	otherTable = lazy.Regexp(`^\s*\[`)
)

// changeTOML sets or removes the bridge's table in Codex's settings. The table names the
// variables that the bridge is to receive.
func changeTOML(settings, command string, variables []string, remove bool) (string, error) {
	byHand := fmt.Errorf("its mcp_servers have a form that Pollux cannot change: change %s by hand", serverName)
	before, err := servers(settings)
	if err != nil {
		return "", fmt.Errorf("it is not valid TOML (%w): correct it first", err)
	}
	had := before.ours()
	missing := unnamed(had, variables)
	switch {
	case remove && had == nil, !remove && had != nil && had["command"] == command && startsBridge(had) && len(missing) == 0:
		return settings, nil
	case inlineServers().MatchString(settings):
		return "", byHand
	}
	var after string
	switch {
	case remove:
		after = withoutTables(settings)
	case had == nil:
		if after = strings.TrimRight(settings, "\n"); after != "" {
			after += "\n\n"
		}
		after += fmt.Sprintf("[mcp_servers.%s]\ncommand = %s\nargs = [\"bridge\"]\ntool_timeout_sec = 1800\n",
			serverName, jsontoml.Literal(command))
		if len(missing) > 0 {
			after += "env_vars = " + jsontoml.Literal(missing) + "\n"
		}
	default:
		after = withCommand(settings, command, missing, startsBridge(had))
	}
	// Only Pollux's table may differ, and it must be correct.
	now, err := servers(after)
	has := now.ours()
	if err != nil || (has == nil) != remove || !remove && (has["command"] != command || !startsBridge(has) || len(unnamed(has, variables)) > 0) ||
		!reflect.DeepEqual(withoutOurs(before), withoutOurs(now)) {
		return "", byHand
	}
	return after, nil
}

// inlineServers matches an inline table, which cannot be extended.
var inlineServers = lazy.Regexp(`(?m)^\s*mcp_servers\s*=`)

type tomlSettings map[string]any

func servers(settings string) (m tomlSettings, err error) {
	_, err = jsontoml.DecodeTOML(settings, &m)
	return m, err
}

// ours returns the bridge's table, or nil.
func (m tomlSettings) ours() map[string]any {
	all, _ := m["mcp_servers"].(map[string]any)
	table, _ := all[serverName].(map[string]any)
	return table
}

func startsBridge(table map[string]any) bool {
	args, _ := table["args"].([]any)
	return slices.Contains(args, any("bridge"))
}

// unnamed returns the variables that Codex would not pass on to the bridge: the table neither
// names nor sets them.
func unnamed(table map[string]any, variables []string) (names []string) {
	named, _ := table["env_vars"].([]any)
	set, _ := table["env"].(map[string]any)
	for _, name := range variables {
		if !slices.Contains(named, any(name)) && set[name] == nil {
			names = append(names, name)
		}
	}
	return names
}

// withoutTables removes Pollux's tables. It keeps comments between their last
// line and the next table.
func withoutTables(settings string) string {
	var kept, tail []string
	ours := false
	for line := range strings.Lines(settings) {
		if otherTable().MatchString(line) {
			if ours {
				kept = append(kept, tail...)
			}
			ours, tail = ownTable().MatchString(line), nil
		}
		blank := strings.TrimSpace(line) == "" || strings.HasPrefix(strings.TrimSpace(line), "#")
		switch {
		case !ours:
			kept = append(kept, line)
		case blank:
			tail = append(tail, line)
		default:
			tail = nil
		}
	}
	if ours {
		kept = append(kept, tail...)
	}
	after := strings.TrimRight(strings.Join(kept, ""), "\n")
	if after != "" {
		after += "\n"
	}
	return after
}

var (
	tomlCommand = lazy.Regexp(`^(\s*command\s*=\s*)(?:"(?:[^"\\]|\\.)*"|'[^']*')`)
	tomlArgs    = lazy.Regexp(`^(\s*args\s*=\s*)\[[^\]]*\]`)
	tomlVars    = lazy.Regexp(`^(\s*env_vars\s*=\s*\[[^\]]*?)[\s,]*\]`)
)

// withCommand sets the command in Pollux's table, and adds the names of variables. It also sets
// the arguments, unless hasArgs reports that they are correct.
func withCommand(settings, command string, variables []string, hasArgs bool) string {
	var out []string
	ours, at := false, 0 // at is the index of the first line of the table
	commandSet, argsSet, varsSet := false, hasArgs, len(variables) == 0
	for line := range strings.Lines(settings) {
		if otherTable().MatchString(line) {
			m := ownTable().FindStringSubmatch(line)
			if ours = m != nil && m[1] == ""; ours {
				at = len(out) + 1
			}
		} else if m := tomlCommand().FindStringSubmatch(line); ours && m != nil {
			line, commandSet = m[1]+jsontoml.Literal(command)+line[len(m[0]):], true
		} else if m := tomlArgs().FindStringSubmatch(line); ours && m != nil && !hasArgs {
			line, argsSet = m[1]+`["bridge"]`+line[len(m[0]):], true
		} else if m := tomlVars().FindStringSubmatch(line); ours && m != nil && !varsSet {
			more := strings.TrimPrefix(jsontoml.Literal(variables), "[")
			if !strings.HasSuffix(m[1], "[") {
				more = ", " + more
			}
			line, varsSet = m[1]+more+line[len(m[0]):], true
		}
		out = append(out, line)
	}
	var missing []string
	if !commandSet {
		missing = append(missing, "command = "+jsontoml.Literal(command)+"\n")
	}
	if !argsSet {
		missing = append(missing, "args = [\"bridge\"]\n")
	}
	if !varsSet {
		missing = append(missing, "env_vars = "+jsontoml.Literal(variables)+"\n")
	}
	return strings.Join(slices.Insert(out, at, missing...), "")
}

// withoutOurs removes the bridge's table from parsed settings.
func withoutOurs(m tomlSettings) tomlSettings {
	if all, ok := m["mcp_servers"].(map[string]any); ok {
		if delete(all, serverName); len(all) == 0 {
			delete(m, "mcp_servers")
		}
	}
	return m
}
