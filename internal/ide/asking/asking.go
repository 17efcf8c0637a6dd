// Package asking says whether an agent asks before it changes a file. The package of an
// agent reads the agent's arguments, variables and settings; docs/CODING-AGENTS.md has the
// findings.
package asking

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode"

	"pollux/internal/jsontoml"
	"pollux/internal/sys/disk"
)

// A Start is how an agent starts, or has started.
type Start struct {
	// Args are the user's arguments. Those of a running agent may begin with its program.
	Args []string
	// Dir is the agent's working directory.
	Dir    string
	Getenv func(string) string
}

// A Mode says what an agent does before it changes a file. The zero Mode asks.
type Mode struct {
	// Args and Env, as KEY=VALUE, make an agent ask if its user has chosen no mode. They
	// are empty if the user has, or if the agent asks anyway.
	Args, Env []string
	// Path and Text are a file that Args or Env name. Write it before the agent starts.
	Path, Text string
	// Silent, if not empty, names what lets the agent write without asking, such as
	// "auto mode (--permission-mode)". Ask then says how to change that.
	Silent, Ask string
}

// Warning tells the user of an agent, given its name, that it does not ask, and what to do;
// "" if it asks.
func (m Mode) Warning(title string) string {
	if m.Silent == "" {
		return ""
	}
	return title + " changes files without asking: " + m.Silent + ". To review its changes, " + m.Ask
}

// Finding is [Mode.Warning] for doctor, given the agent's command, too: what is wrong with
// an agent that starts so, and what to do.
func (m Mode) Finding(title, command string) (text, next string) {
	text = title + " changes files without asking: " + m.Silent
	if m.Makes() {
		return "unless `pollux run` starts it, " + text, "pollux run -- " + command + ", or " + m.Ask
	}
	return text, m.Ask
}

// Makes reports whether [Mode.Args] and [Mode.Env] make the agent ask.
func (m Mode) Makes() bool { return len(m.Args)+len(m.Env) > 0 }

// Write writes the file at [Mode.Path].
func (m Mode) Write() error {
	if m.Path == "" {
		return nil
	}
	if err := disk.PrivateDir(filepath.Dir(m.Path)); err != nil {
		return err
	}
	return disk.WriteFile(m.Path, []byte(m.Text))
}

// Settings are the parts of a file of settings that are about changes to files.
type Settings struct {
	Path  string
	Mode  string   // the mode that the agent starts in; "" if the file chooses none
	Allow []string // the rules that let the agent use tools without asking
	Err   error    // why the file cannot be read; it names the file
}

// ReadSettings reads files of settings. get returns what counts of one. A file that does not
// exist says nothing.
func ReadSettings[T any](get func(file T) (mode string, allow []string), paths ...string) (all []Settings) {
	for _, path := range paths {
		var file T
		set := Settings{Path: path, Err: Read(path, &file)}
		if set.Err == nil {
			set.Mode, set.Allow = get(file)
		}
		all = append(all, set)
	}
	return all
}

// A Choice is how the user of an agent chooses its mode.
type Choice struct {
	// Flag chooses a mode. In the mode "default", the agent asks.
	Flag string
	// SkipFlags are flags that choose the mode Skip.
	Skip      string
	SkipFlags []string
	// Silent are the modes in which the agent does not ask, and Default names its own mode, which
	// it has without a choice, if it does not ask in that.
	Silent  []string
	Default string
	// Ask says how to make a running agent ask.
	Ask string
}

// Chosen returns the mode that the arguments choose, or else the first of the settings that does,
// and where it is chosen. Both are empty if none is chosen.
func (c Choice) Chosen(s Start, settings []Settings) (mode, from string) {
	if mode, set := s.Flag(c.Flag); set {
		return mode, c.Flag
	}
	if _, set := s.Flag(c.SkipFlags...); set {
		return c.Skip, c.SkipFlags[0]
	}
	for _, set := range settings {
		if set.Mode != "" {
			return set.Mode, set.Path
		}
	}
	return "", ""
}

// Mode returns whether the agent asks by its mode. A project may not choose a silent mode.
func (c Choice) Mode(s Start, settings []Settings) Mode {
	mode, from := c.Chosen(s, settings)
	asks := []string{c.Flag, "default"}
	switch {
	case mode == "" && c.Default != "":
		return Mode{Args: asks, Silent: c.Default, Ask: c.Ask}
	case !slices.Contains(c.Silent, mode):
		return Mode{}
	}
	m := Mode{Silent: mode + " mode (" + from + ")", Ask: c.Ask}
	if s.FromProject(from) {
		m.Args = asks
	}
	return m
}

// A Rule lets an agent use a tool without asking.
type Rule struct {
	Text string // such as "Edit(src/**)"
	From string // a file of settings, or an option
}

// Allowed returns those of the rules that allow one of the tools. A user's rule for some
// files is a choice that needs no warning, and is left out; a project's rule is not.
func (s Start) Allowed(rules []string, from string, tools ...string) (allowed []Rule) {
	for _, text := range rules {
		tool, files, some := strings.Cut(strings.TrimSpace(text), "(")
		some = some && strings.Trim(files, "*)") != ""
		if slices.Contains(tools, tool) && (!some || s.FromProject(from)) {
			allowed = append(allowed, Rule{text, from})
		}
	}
	return allowed
}

// AllowedBySettings is [Start.Allowed] for the rules in files of settings.
func (s Start) AllowedBySettings(settings []Settings, tools ...string) (rules []Rule) {
	for _, set := range settings {
		rules = append(rules, s.Allowed(set.Allow, set.Path, tools...)...)
	}
	return rules
}

// AllowedByHeaders returns the rules in the headers of Markdown files in a directory of the
// project: commands, skills and agents with which the agent uses tools without asking.
func (s Start) AllowedByHeaders(dir string, keys []string, tools ...string) (rules []Rule) {
	for _, pattern := range []string{"*.md", "*/*.md", "*/*/*.md", "*/*/*/*.md"} {
		files, _ := fs.Glob(os.DirFS(dir), pattern)
		for _, file := range files {
			path := filepath.Join(dir, filepath.FromSlash(file))
			words := headerWords(path)
			key, tool := firstOf(keys, words), firstOf(tools, words)
			if key != "" && tool != "" && s.FromProject(path) {
				rules = append(rules, Rule{key, path})
			}
		}
	}
	return rules
}

// headerWords returns the words in the YAML at the beginning of a Markdown file.
func headerWords(path string) []string {
	text, _ := ReadFile(path)
	parts := strings.SplitN(string(text), "---", 3) // nothing, YAML, the text
	if len(parts) < 3 || parts[0] != "" {
		return nil
	}
	return strings.FieldsFunc(parts[1], func(r rune) bool { return r != '_' && r != '-' && !unicode.IsLetter(r) })
}

// firstOf returns the first of the wanted words that is there, or "".
func firstOf(wanted, words []string) string {
	for _, w := range wanted {
		if slices.Contains(words, w) {
			return w
		}
	}
	return ""
}

// Overrule returns the Mode of an agent that has the rules, and would have m without them.
// Rules that may have come with the repository are overruled: the agent also starts with
// what more says. A rule of the user stays, and so does every rule if more is empty.
func (s Start) Overrule(m Mode, rules []Rule, more Mode) Mode {
	if len(rules) == 0 || m.Silent != "" && !m.Makes() {
		return m
	}
	rule := rules[0]
	users := slices.IndexFunc(rules, func(r Rule) bool { return !s.FromProject(r.From) })
	if users >= 0 {
		rule = rules[users]
	}
	more.Silent, more.Ask = "the rule "+rule.Text+" ("+rule.From+")", "remove the rule, and start the agent again"
	if users >= 0 || !more.Makes() {
		return Mode{Silent: more.Silent, Ask: more.Ask}
	}
	more.Args, more.Env = slices.Concat(m.Args, more.Args), slices.Concat(m.Env, more.Env)
	return more
}

// StatePath returns the path of a file in Pollux's directory for [Mode.Path]; "" if there
// is no such directory.
func StatePath(name string) string {
	dir, err := disk.StateDir()
	if err != nil {
		return ""
	}
	return filepath.Join(dir, "asking", name)
}

// Flag returns the last of [Start.Flags], and reports whether there is one.
func (s Start) Flag(names ...string) (value string, set bool) {
	values := s.Flags(names...)
	if len(values) == 0 {
		return "", false
	}
	return values[len(values)-1], true
}

// Flags returns the values of the flags with one of the names, as in "--name value" and
// "--name=value". A flag at the end has the value "".
func (s Start) Flags(names ...string) (values []string) {
	for i, arg := range s.Args {
		if arg == "--" {
			break
		}
		name, value, inline := strings.Cut(arg, "=")
		if !slices.Contains(names, name) {
			continue
		}
		if !inline && i+1 < len(s.Args) {
			value = s.Args[i+1]
		}
		values = append(values, value)
	}
	return values
}

// AllowedByFlag is [Start.Allowed] for the rules in the values of a flag, which spaces or
// commas separate.
func (s Start) AllowedByFlag(flag string, tools ...string) []Rule {
	rules := strings.FieldsFunc(strings.Join(s.Flags(flag), ","), func(r rune) bool { return r == ',' || r == ' ' })
	return s.Allowed(rules, "the option "+flag, tools...)
}

// Command reports whether the first argument is one of the agent's commands.
func (s Start) Command(names ...string) bool {
	return len(s.Args) > 0 && slices.Contains(names, s.Args[0])
}

// Home returns the directory that a variable names, or the one with that name in the
// user's home.
func (s Start) Home(variable, name string) string {
	if dir := s.Getenv(variable); variable != "" && dir != "" {
		return dir
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return ""
	}
	return filepath.Join(home, name)
}

// Dirs returns the directories from the root of the repository to the working directory,
// which is the only one outside a repository.
func (s Start) Dirs() []string {
	var dirs []string
	for dir := s.Dir; ; dir = filepath.Dir(dir) {
		dirs = append(dirs, dir)
		if _, err := os.Lstat(filepath.Join(dir, ".git")); err == nil {
			slices.Reverse(dirs)
			return dirs
		}
		if dir == filepath.Dir(dir) {
			return []string{s.Dir}
		}
	}
}

// FromProject reports whether a file of settings is in the project. It may have come with
// the repository: then its user has chosen nothing.
func (s Start) FromProject(path string) bool {
	const slash = string(filepath.Separator)
	home, err := os.UserHomeDir()
	root := s.Dirs()[0] + slash
	return err == nil && strings.HasPrefix(path, root) && !strings.HasPrefix(home+slash, root)
}

// maxFile bounds a file of settings, in bytes.
const maxFile = 4 << 20

// ReadFile returns what a file of settings holds.
func ReadFile(path string) ([]byte, error) { return disk.ReadFile(path, maxFile) }

// Read reads a file of settings: in TOML if its name says so, otherwise in JSON, which may
// have comments. A file that does not exist leaves v unchanged. The error names the file.
func Read(path string, v any) error {
	data, err := ReadFile(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil
	case err == nil && filepath.Ext(path) == ".toml":
		_, err = jsontoml.DecodeTOML(string(data), v)
	case err == nil:
		err = jsontoml.Decode(data, v)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", path, disk.Cause(err))
	}
	return nil
}
