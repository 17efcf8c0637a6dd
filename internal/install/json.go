package install

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/tailscale/hujson"

	"pollux/internal/agent/gemini/settings"
)

// changeJSON sets or removes one server. It keeps everything else, including
// comments.
func changeJSON(settings, key string, entry serverEntry, remove bool) (string, error) {
	if strings.TrimSpace(settings) == "" {
		settings = "{}\n"
	}
	root, err := parseJSON([]byte(settings))
	if err != nil {
		return "", fmt.Errorf("it is not valid JSON (%w): correct it first", err)
	}
	top := object(&root)
	if top == nil {
		return "", errors.New("it is not a JSON object: correct it first")
	}
	indent := "  "
	if m := regexp.MustCompile(`(?m)^([ \t]+)"`).FindStringSubmatch(settings); m != nil {
		indent = m[1]
	}
	servers := member(top, key)
	if servers == nil {
		if remove {
			return settings, nil
		}
		setMember(top, key, hujson.Value{Value: &hujson.Object{}}, indent, 0)
		servers = member(top, key)
	}
	list := object(servers)
	if list == nil {
		return "", fmt.Errorf("its %s is not an object: correct it first", key)
	}
	old := member(list, serverName)
	switch {
	case remove && old == nil:
		return settings, nil
	case remove:
		removeMember(list, serverName)
	case old != nil && hasURL(old):
		return "", fmt.Errorf("its %s has an entry %s with a url, which is a different server: rename or remove it first",
			key, serverName)
	case old != nil && merge(old, entry, indent):
		return settings, nil
	case old == nil:
		value, err := valueOf(entry, indent, 2)
		if err != nil {
			return "", err
		}
		setMember(list, serverName, value, indent, 1)
	}
	after := string(root.Pack())
	if json.Valid([]byte(settings)) && !json.Valid([]byte(after)) {
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
	o := object(old)
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
			setMember(o, name, value, indent, 2)
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
		env := member(o, "env")
		switch list := object(env); {
		case env == nil:
			set("env", entry.Env)
		case list != nil && has.Env["PATH"] == nil:
			if value, err := valueOf(path, indent, 4); err == nil {
				setMember(list, "PATH", value, indent, 3)
				same = false
			}
		}
	}
	return same
}

func hasURL(v *hujson.Value) bool {
	o := object(v)
	return o != nil && member(o, "url") != nil
}

// object returns a value as an object, or nil if it is not one.
func object(v *hujson.Value) *hujson.Object {
	if v == nil {
		return nil
	}
	o, _ := v.Value.(*hujson.Object)
	return o
}

// removeMember removes a member. It keeps comments before it, and the text after
// the last member.
func removeMember(o *hujson.Object, name string) {
	i := slices.IndexFunc(o.Members, func(m hujson.ObjectMember) bool { return nameOf(m) == name })
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

// before joins a comment, which may need a line end, to the text after it.
func before(comment string, rest hujson.Extra) hujson.Extra {
	if strings.Contains(comment, "//") && !strings.HasPrefix(string(rest), "\n") {
		comment += "\n"
	}
	return append(hujson.Extra(comment), rest...)
}

func nameOf(m hujson.ObjectMember) string { return m.Name.Value.(hujson.Literal).String() }

func member(o *hujson.Object, name string) *hujson.Value {
	for i := range o.Members {
		if nameOf(o.Members[i]) == name {
			return &o.Members[i].Value
		}
	}
	return nil
}

// setMember sets a member of an object at the given depth. A new member gets its
// own line, after the comments that follow the last member.
func setMember(o *hujson.Object, name string, value hujson.Value, indent string, depth int) {
	if v := member(o, name); v != nil {
		v.Value = value.Value
		return
	}
	behind, closing := string(o.AfterExtra), "\n"+strings.Repeat(indent, depth)
	if i := strings.LastIndexByte(behind, '\n'); i >= 0 {
		behind, closing = behind[:i], behind[i:]
	}
	line := strings.TrimRight(behind, " \t") + "\n" + strings.Repeat(indent, depth+1)
	m := hujson.ObjectMember{Name: hujson.Value{BeforeExtra: hujson.Extra(line), Value: hujson.String(name)}, Value: value}
	m.Value.BeforeExtra = hujson.Extra(" ")
	if n := len(o.Members); n > 0 && o.Members[n-1].Value.AfterExtra != nil {
		m.Value.AfterExtra = hujson.Extra{} // keep a trailing comma
	}
	o.AfterExtra = hujson.Extra(closing)
	o.Members = append(o.Members, m)
}
