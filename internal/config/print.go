package config

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// A Shown is a setting, its value and its origin, for `pollux config --json`.
type Shown struct {
	Key string `json:"key"`
	// Value is written as in the file.
	Value   any `json:"value"`
	Default any `json:"default"`
	// Source says what has the value, and Origin where.
	Source string `json:"source"`
	Origin Origin `json:"origin,omitzero"`
	// Variable and Flag can set the value, too.
	Variable string `json:"variable,omitempty"`
	Flag     string `json:"flag,omitempty"`
	Help     string `json:"help"`
}

// Show returns all settings in the order of the table, then the agents of the file.
func (v *Values) Show() (all []Shown) {
	for _, s := range v.rows() {
		all = append(all, Shown{
			Key: s.Key, Value: plain(s, v.Value(s.Key)), Default: plain(s, s.Value()),
			Source: v.Origin(s.Key).Source(), Origin: v.Origin(s.Key),
			Variable: s.Variable, Flag: s.Flag, Help: s.Usage(),
		})
	}
	return all
}

// rows returns the table of settings, and rows for the agents of the file.
func (v *Values) rows() []Setting { return slices.Concat(Settings, v.agentSettings()) }

// plain returns a value as the file holds it.
func plain(s Setting, value any) any {
	if s.Kind == Duration {
		return strings.Trim(literal(value), `"`)
	}
	if list, ok := value.([]string); ok && list == nil {
		return []string{}
	}
	return value
}

// String returns all values as a file of settings. The comments are their origins.
func (v *Values) String() string {
	const most = 40 // longer lines do not move the column of the comments
	line := func(s Setting) string { return s.Name() + " = " + literal(v.Value(s.Key)) }
	width := 0
	rows := v.rows()
	for _, s := range rows {
		if n := utf8.RuneCountInString(line(s)); n <= most {
			width = max(width, n)
		}
	}
	var out strings.Builder
	for i, s := range rows {
		if i == 0 || s.Table() != rows[i-1].Table() {
			fmt.Fprintf(&out, "\n[%s]\n", s.Table())
		}
		fmt.Fprintf(&out, "%-*s  # %s\n", width, line(s), v.Origin(s.Key))
	}
	return out.String()
}

// Template returns a file that sets nothing: all settings with their defaults, as comments.
func Template() string {
	var out strings.Builder
	out.WriteString("# Settings of Pollux. `pollux config` shows the values in use and where they come from.\n" +
		"# To change a default, remove the # in front of it.\n")
	for i, s := range Settings {
		if i == 0 || s.Table() != Settings[i-1].Table() {
			fmt.Fprintf(&out, "\n[%s]\n", s.Table())
		}
		fmt.Fprintf(&out, "# %s\n#%s = %s\n", s.Usage(), s.Name(), literal(s.Value()))
	}
	out.WriteString("\n# another agent that the bridge can ask: `pollux help config`\n#[agents.kimi]\n#acp = [\"kimi\", \"acp\"]\n")
	return out.String()
}

// Variables returns the lines of a help text about the environment variables of tables,
// at most 79 columns wide.
func Variables(tables ...string) string {
	const first, most = 31, 79
	var out strings.Builder
	for _, s := range Settings {
		if s.Variable == "" || !slices.Contains(tables, s.Table()) {
			continue
		}
		line := fmt.Sprintf("  %-*s", first-2, s.Variable)
		help := s.Usage()
		if s.Default != "" {
			help += " (" + s.Default + ")"
		}
		for _, word := range strings.Fields(help) {
			if len(line)+1+len(word) > most {
				out.WriteString(line + "\n")
				line = strings.Repeat(" ", first)
			}
			line += " " + word
		}
		out.WriteString(line + "\n")
	}
	return out.String()
}
