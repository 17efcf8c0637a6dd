package opencode

import (
	"bytes"
	"cmp"
	"encoding/json"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"pollux/internal/ide/asking"
)

// askPermission makes opencode ask before it changes a file, and before it runs a command,
// which may change one. The last permission that matches counts: a name with a star comes
// after the names in settings.
const askPermission = `{"edit*":"ask","bash*":"ask"}`

// Variables with which opencode adds permissions, and other settings, to its files.
const (
	envPermission = "OPENCODE_PERMISSION"
	envContent    = "OPENCODE_CONFIG_CONTENT"
)

// Asking returns whether opencode asks before it changes a file. Unless its
// settings say so, it does not.
func Asking(s asking.Start) asking.Mode {
	if s.Command("run", "serve", "web", "acp") {
		return asking.Mode{} // it has no terminal to ask in
	}
	home := filepath.Join(s.Home("XDG_CONFIG_HOME", ".config"), "opencode")
	all, agents := readPermissions(s, home)
	var m asking.Mode
	if from, silent := all.silent(); silent {
		m.Silent = "its settings (" + cmp.Or(from, "opencode's default") + ")"
		m.Ask = `set "permission": {"edit": "ask", "bash": "ask"} in ` + filepath.Join(home, "opencode.json")
		if from != "" && !s.FromProject(from) {
			return m
		}
		m.Env = append(m.Env, envPermission+"="+askPermission)
	}
	// The permissions of an agent in the settings count more than those for all agents.
	overruled := map[string]any{}
	for _, name := range slices.Sorted(maps.Keys(agents)) {
		from, silent := agents[name].silent()
		if from == "" || !silent {
			continue
		}
		m.Silent = "the permissions of its agent " + name + " (" + from + ")"
		m.Ask = "remove them, and start opencode again"
		if !s.FromProject(from) || s.Getenv(envContent) != "" {
			return asking.Mode{Silent: m.Silent, Ask: m.Ask}
		}
		overruled[name] = map[string]json.RawMessage{"permission": json.RawMessage(askPermission)}
	}
	if len(overruled) > 0 {
		content, _ := json.Marshal(map[string]any{"agent": overruled})
		m.Env = append(m.Env, envContent+"="+string(content))
	}
	return m
}

// permissions are opencode's, from the first to the last.
type permissions []permission

type permission struct {
	name  string // of a tool, maybe with stars
	value json.RawMessage
	from  string // a file or a variable
}

// readPermissions returns opencode's permissions for all agents, and those of each agent.
func readPermissions(s asking.Start, home string) (all permissions, agents map[string]permissions) {
	agents = map[string]permissions{}
	add := func(from string, read func(settings any) error) {
		type agent struct{ Permission json.RawMessage }
		var settings struct {
			Permission  json.RawMessage
			Agent, Mode map[string]agent
		}
		if read(&settings) != nil {
			return // opencode reports it
		}
		all = all.with(settings.Permission, from)
		for _, table := range []map[string]agent{settings.Mode, settings.Agent} {
			for name, a := range table {
				agents[name] = agents[name].with(a.Permission, from)
			}
		}
	}
	files := []string{filepath.Join(home, "config.json"), filepath.Join(home, "opencode.json"), filepath.Join(home, "opencode.jsonc"), s.Getenv("OPENCODE_CONFIG")}
	dirs := s.Dirs()
	for _, dir := range dirs {
		files = append(files, filepath.Join(dir, "opencode.json"), filepath.Join(dir, "opencode.jsonc"))
	}
	for _, dir := range dirs {
		files = append(files, filepath.Join(dir, ".opencode", "opencode.json"), filepath.Join(dir, ".opencode", "opencode.jsonc"))
	}
	for _, file := range files {
		if file != "" {
			add(file, func(settings any) error { return asking.Read(file, settings) })
		}
	}
	for _, dir := range dirs {
		for _, rule := range s.AllowedByHeaders(filepath.Join(dir, ".opencode"), []string{"permission"}, "allow") {
			name := strings.TrimSuffix(filepath.Base(rule.From), ".md")
			agents[name] = agents[name].with(json.RawMessage(`{"edit":"allow"}`), rule.From) // maybe
		}
	}
	add(envContent, func(settings any) error { return json.Unmarshal([]byte(s.Getenv(envContent)), settings) })
	return all.with(json.RawMessage(s.Getenv(envPermission)), envPermission), agents
}

// with returns p with permissions from one more place, which keep the order of the names:
// a word, or an object of words or of objects with patterns.
func (p permissions) with(added json.RawMessage, from string) permissions {
	var word string
	if json.Unmarshal(added, &word) == nil {
		return p.set(permission{"*", added, from})
	}
	d := json.NewDecoder(bytes.NewReader(added))
	if start, err := d.Token(); err != nil || start != json.Delim('{') {
		return p
	}
	for d.More() {
		name, _ := d.Token()
		var value json.RawMessage
		if d.Decode(&value) != nil {
			break
		}
		p = p.set(permission{name.(string), value, from})
	}
	return p
}

func (p permissions) set(e permission) permissions {
	if i := slices.IndexFunc(p, func(old permission) bool { return old.name == e.name }); i >= 0 {
		p[i] = e
		return p
	}
	return append(p, e)
}

// silent reports whether opencode changes a file without asking, and where that was
// decided; "" if nowhere. A pattern that allows any file counts.
func (p permissions) silent() (from string, silent bool) {
	for _, e := range slices.Backward(p) {
		if match, _ := path.Match(e.name, "edit"); !match {
			continue
		}
		var word string
		if json.Unmarshal(e.value, &word) == nil {
			return e.from, word == "allow"
		}
		var patterns map[string]string
		if json.Unmarshal(e.value, &patterns) != nil || len(patterns) == 0 {
			return e.from, true
		}
		return e.from, slices.Contains(slices.Collect(maps.Values(patterns)), "allow")
	}
	return "", true
}
