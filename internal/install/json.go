package install

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/tailscale/hujson"

	"pollux/internal/agent/gemini/settings"
)

// changeJSON sets or removes one server. It keeps everything else, including
// comments.
func changeJSON(text, key string, entry serverEntry, remove bool) (string, error) {
	if strings.TrimSpace(text) == "" {
		text = "{}\n"
	}
	root, err := parseJSON([]byte(text))
	if err != nil {
		return "", fmt.Errorf("it is not valid JSON (%w): correct it first", err)
	}
	top := settings.Object(&root)
	if top == nil {
		return "", errors.New("it is not a JSON object: correct it first")
	}
	indent := settings.Indent(text)
	servers := settings.Member(top, key)
	if servers == nil {
		if remove {
			return text, nil
		}
		settings.SetMember(top, key, hujson.Value{Value: &hujson.Object{}}, indent, 0)
		servers = settings.Member(top, key)
	}
	list := settings.Object(servers)
	if list == nil {
		return "", fmt.Errorf("its %s is not an object: correct it first", key)
	}
	old := settings.Member(list, serverName)
	switch {
	case remove && old == nil:
		return text, nil
	case remove:
		for settings.Member(list, serverName) != nil { // a hand-edited file may have several
			removeMember(list, serverName)
		}
	case old != nil && hasURL(old):
		return "", fmt.Errorf("its %s has an entry %s with a url, which is a different server: rename or remove it first",
			key, serverName)
	case old != nil && merge(old, entry, indent):
		return text, nil
	case old == nil:
		value, err := valueOf(entry, indent, 2)
		if err != nil {
			return "", err
		}
		settings.SetMember(list, serverName, value, indent, 1)
	}
	after := string(root.Pack())
	if json.Valid([]byte(text)) && !json.Valid([]byte(after)) {
		return "", fmt.Errorf("its %s has a form that Pollux cannot change: change it by hand", key)
	}
	return after, nil
}

func parseJSON(text []byte) (hujson.Value, error) {
	if err := settings.CheckJSON(text); err != nil {
		return hujson.Value{}, err
	}
	return hujson.Parse(text)
}

// valueOf returns a value that is formatted for the given depth of indentation.
func valueOf(v any, indent string, depth int) (hujson.Value, error) {
	text, err := json.MarshalIndent(v, strings.Repeat(indent, depth), indent)
	if err != nil {
		return hujson.Value{}, err
	}
	return hujson.Parse(text)
}

// merge updates the user's entry and keeps its other members. It reports whether
// nothing changed.
func merge(old *hujson.Value, entry serverEntry, indent string) (same bool) {
	o := settings.Object(old)
	if o == nil {
		value, err := valueOf(entry, indent, 2)
		if err == nil {
			old.Value = value.Value
		}
		return false
	}
	same = true
	set := func(name string, v any) {
		if value, err := valueOf(v, indent, 3); err == nil {
			settings.SetMember(o, name, value, indent, 2)
			same = false
		}
	}
	var has struct {
		Command string
		Args    []string
		Env     map[string]any
		Type    string
	}
	std := old.Clone()
	std.Standardize()
	json.Unmarshal(std.Pack(), &has)
	if has.Type != entry.Type && entry.Type != "" {
		set("type", entry.Type)
	}
	if has.Command != entry.Command {
		set("command", entry.Command)
	}
	if !slices.Contains(has.Args, "bridge") {
		set("args", entry.Args)
	}
	if path := entry.Env["PATH"]; path != "" {
		env := settings.Member(o, "env")
		switch list := settings.Object(env); {
		case env == nil:
			set("env", entry.Env)
		case list != nil && has.Env["PATH"] == nil:
			if value, err := valueOf(path, indent, 4); err == nil {
				settings.SetMember(list, "PATH", value, indent, 3)
				same = false
			}
		}
	}
	return same
}

func hasURL(v *hujson.Value) bool {
	o := settings.Object(v)
	return o != nil && settings.Member(o, "url") != nil
}

// removeMember removes a member. It keeps comments before it, and the text after
// the last member.
func removeMember(o *hujson.Object, name string) {
	i := slices.IndexFunc(o.Members, func(m hujson.ObjectMember) bool { return settings.NameOf(m) == name })
	gone := o.Members[i]
	comment := strings.TrimRight(string(gone.Name.BeforeExtra), " \t\n")
	o.Members = slices.Delete(o.Members, i, i+1)
	if i < len(o.Members) {
		next := &o.Members[i].Name.BeforeExtra
		*next = before(comment, *next)
		return
	}
	if n := len(o.Members); n > 0 {
		// The new last member gets a comma only if the old one had one.
		last := &o.Members[n-1].Value.AfterExtra
		if gone.Value.AfterExtra == nil {
			comment = strings.TrimRight(string(*last), " \t\n") + comment
			*last = nil
		} else if *last == nil {
			*last = hujson.Extra{}
		}
	}
	o.AfterExtra = before(comment, o.AfterExtra)
}

// before joins a comment, which may need a line ending, to the text after it.
func before(comment string, rest hujson.Extra) hujson.Extra {
	if strings.Contains(comment, "//") && !strings.HasPrefix(string(rest), "\n") {
		comment += "\n"
	}
	return append(hujson.Extra(comment), rest...)
}
