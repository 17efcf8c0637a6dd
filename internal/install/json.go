package install

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tailscale/hujson"

	"pollux/internal/jsontoml"
)

// changeJSON sets or removes one server. It keeps everything else, including
// comments.
func changeJSON(text, key string, entry serverEntry, remove bool) (string, error) {
	if strings.TrimSpace(text) == "" {
		if remove {
			return text, nil
		}
		text = "{}\n"
	}
	root, err := jsontoml.Parse([]byte(text))
	if err != nil {
		return "", fmt.Errorf("it is not valid JSON (%w): correct it first", err)
	}
	top := jsontoml.Object(&root)
	if top == nil {
		return "", errors.New("it is not a JSON object: correct it first")
	}
	indent := jsontoml.Indent(text)
	servers := jsontoml.Member(top, key)
	if servers == nil {
		if remove {
			return text, nil
		}
		jsontoml.SetMember(top, key, struct{}{}, indent, 0)
		servers = jsontoml.Member(top, key)
	}
	list := jsontoml.Object(servers)
	if list == nil {
		return "", fmt.Errorf("its %s is not an object: correct it first", key)
	}
	old := jsontoml.Member(list, serverName)
	switch {
	case remove && old == nil:
		return text, nil
	case remove:
		for jsontoml.Member(list, serverName) != nil { // a hand-edited file may have several
			jsontoml.RemoveMember(list, serverName)
		}
	case old != nil && hasURL(old):
		return "", fmt.Errorf("its %s has an entry %s with a url, which is a different server: rename or remove it first",
			key, serverName)
	case jsontoml.Object(old) == nil:
		jsontoml.SetMember(list, serverName, entry, indent, 1)
	case merge(old, entry, indent):
		return text, nil
	}
	after := string(root.Pack())
	if json.Valid([]byte(text)) && !json.Valid([]byte(after)) {
		return "", fmt.Errorf("its %s has a form that Pollux cannot change: change it by hand", key)
	}
	return after, nil
}

// merge updates the user's entry, an object, and keeps its other members. It reports
// whether nothing changed.
func merge(old *hujson.Value, entry serverEntry, indent string) (same bool) {
	o := jsontoml.Object(old)
	same = true
	set := func(name string, v any) {
		jsontoml.SetMember(o, name, v, indent, 2)
		same = false
	}
	var has struct {
		Command any
		Args    []string
		Tools   []string
		Env     map[string]any
		Type    string
	}
	jsontoml.Decode(old.Pack(), &has)
	if has.Type != entry.Type && entry.Type != "" {
		set("type", entry.Type)
	}
	if !sameCommand(has.Command, entry.Command) {
		set("command", entry.Command)
	}
	if len(entry.Args) > 0 && !slices.Contains(has.Args, "bridge") {
		set("args", entry.Args)
	}
	if len(entry.Tools) > 0 && has.Tools == nil {
		set("tools", entry.Tools)
	}
	env := jsontoml.Member(o, "env")
	list := jsontoml.Object(env)
	switch {
	case env == nil && len(entry.Env) > 0:
		set("env", entry.Env)
	case list != nil:
		for _, name := range slices.Sorted(maps.Keys(entry.Env)) {
			if has.Env[name] == nil {
				jsontoml.SetMember(list, name, entry.Env[name], indent, 3)
				same = false
			}
		}
	}
	return same
}

// sameCommand reports whether a command starts the bridge. A list may have more arguments.
func sameCommand(has, want any) bool {
	words, isList := want.([]string)
	if !isList {
		return has == want
	}
	list, _ := has.([]any)
	return len(list) >= len(words) && list[0] == words[0] && slices.Contains(list, any(words[1]))
}

func hasURL(v *hujson.Value) bool {
	o := jsontoml.Object(v)
	return o != nil && jsontoml.Member(o, "url") != nil
}
