// Package config reads Pollux's settings: from flags, environment variables and the
// user's file config.toml, in this order. What none of them sets has a default.
//
// [Settings] is the table of all settings. The defaults and help of flags, the reading of
// the environment, `pollux config` and the table in docs/CONFIG.md are made from it. To
// add a setting, add a row. No setting is a secret: all values may be shown.
package config

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"pollux/internal/agent"
)

// An Origin says where a value comes from. The zero value is the default.
type Origin struct {
	// File and Line are set if the file has the value, Variable if the environment has
	// it, and Flag if a flag does.
	File     string `json:"file,omitempty"`
	Line     int    `json:"line,omitempty"`
	Variable string `json:"variable,omitempty"`
	Flag     string `json:"flag,omitempty"`
}

// Source says what has the value: flag, environment, file or default.
func (o Origin) Source() string {
	switch {
	case o.Flag != "":
		return "flag"
	case o.Variable != "":
		return "environment"
	case o.File != "":
		return "file"
	}
	return "default"
}

func (o Origin) String() string {
	switch {
	case o.Flag != "":
		return "--" + o.Flag
	case o.Variable != "":
		return "$" + o.Variable
	case o.File != "":
		return fmt.Sprintf("%s:%d", o.File, o.Line)
	}
	return "default"
}

// A Problem is an invalid value or an unknown key. Its text contains the place and the
// next step.
type Problem struct {
	Origin
	// Key is the key of the setting, if a variable is invalid.
	Key  string `json:"key,omitempty"`
	Text string `json:"text"`
}

func (p *Problem) Error() string {
	switch {
	case p.File != "" && p.Line > 0:
		return fmt.Sprintf("%s:%d: %s", p.File, p.Line, p.Text)
	case p.File != "":
		return p.File + ": " + p.Text
	}
	return p.Text
}

// Values are the settings of one process.
type Values struct {
	// Path is the file, which may not exist. It is empty without a home directory.
	Path string
	// Problems holds what is invalid. The settings that it concerns have the value of the
	// next source.
	Problems []*Problem

	values  map[string]any
	origins map[string]Origin
	agents  []string // the names of [Values.Agents]
	known   []string // names that they cannot have
}

// Load reads the settings from the environment and the user's file, whose agents cannot have
// the names of the known ones.
func Load(getenv func(string) string, known ...string) *Values {
	v := Defaults()
	v.known = known
	v.readFile(getenv)
	for _, s := range Settings {
		if s.Variable == "" {
			continue
		}
		text := strings.TrimSpace(getenv(s.Variable))
		if text == "" {
			continue
		}
		value, err := s.parse(text)
		if err != nil {
			v.Problems = append(v.Problems, &Problem{
				Origin: Origin{Variable: s.Variable}, Key: s.Key, Text: fmt.Sprintf("%s is %q%v", s.Variable, text, err),
			})
			continue
		}
		v.set(s, value, Origin{Variable: s.Variable})
	}
	return v
}

// Defaults returns the default of each setting.
func Defaults() *Values {
	return &Values{values: make(map[string]any), origins: make(map[string]Origin)}
}

func (v *Values) set(s Setting, value any, from Origin) {
	v.values[s.Key], v.origins[s.Key] = value, from
}

// SetFlags gives settings the values of flags on the command line, by their keys. The
// other settings of their groups get their defaults.
func (v *Values) SetFlags(values map[string]any) {
	decided := make(map[string]bool)
	for key := range values {
		if group := Row(key).Group; group != "" {
			decided[group] = true
		}
	}
	for _, s := range Settings {
		if value, ok := values[s.Key]; ok {
			v.set(s, value, Origin{Flag: s.Flag})
		} else if decided[s.Group] {
			delete(v.values, s.Key)
			delete(v.origins, s.Key)
		}
	}
}

// FileErr returns the problems of the file as one error, or nil.
func (v *Values) FileErr() error {
	return v.ErrFor(func(Setting) bool { return false })
}

// ErrFor returns the problems of the file and of the variables of some settings as one
// error, or nil.
func (v *Values) ErrFor(matter func(Setting) bool) error {
	var errs []error
	for _, p := range v.Problems {
		if p.File != "" || matter(Row(p.Key)) {
			errs = append(errs, p)
		}
	}
	return errors.Join(errs...)
}

// Value returns the value of a setting: a string, bool, int, [time.Duration] or
// []string.
func (v *Values) Value(key string) any {
	if value, ok := v.values[key]; ok {
		return value
	}
	return Row(key).Value()
}

// Origin returns where the value of a setting comes from.
func (v *Values) Origin(key string) Origin { return v.origins[key] }

// Text returns the value of a setting that is a string.
func (v *Values) Text(key string) string { return v.Value(key).(string) }

// Switch returns the value of a Switch.
func (v *Values) Switch(key string) bool { return v.Value(key).(bool) }

// Number returns the value of a Number.
func (v *Values) Number(key string) int { return v.Value(key).(int) }

// Duration returns the value of a Duration.
func (v *Values) Duration(key string) time.Duration { return v.Value(key).(time.Duration) }

// List returns the value of a List.
func (v *Values) List(key string) []string { return v.Value(key).([]string) }

// parse returns the value that an environment variable holds. The error continues the
// sentence "NAME is VALUE".
func (s Setting) parse(text string) (any, error) {
	switch s.Kind {
	case Choice:
		return s.choice(strings.ToLower(text))
	case Switch:
		switch strings.ToLower(text) {
		case "true", "1", "yes", "on":
			return true, nil
		case "false", "0", "no", "off":
			return false, nil
		}
		words := s.Choices
		if len(words) == 0 {
			words = []string{"true", "false"}
		}
		return nil, fmt.Errorf(": set it to %s or %s, or leave it out for %s", words[0], words[1], s.Default)
	case Number, Duration:
		n, err := strconv.Atoi(text)
		if err != nil || n < s.Least || n > s.Most {
			return nil, fmt.Errorf(": set it to a whole number from %d to %d, or leave it out for %s", s.Least, s.Most, s.Default)
		}
		if s.Kind == Duration {
			return time.Duration(n) * time.Millisecond, nil
		}
		return n, nil
	case List:
		if text == "" {
			return []string(nil), nil
		}
		return []string{text}, nil
	case Program:
		if filepath.Base(text) == text {
			return text, nil
		}
		// Another process may start it, in another directory.
		path, err := filepath.Abs(text)
		if err != nil {
			return nil, fmt.Errorf(", and the working directory is gone (%w): set it to an absolute path", err)
		}
		return path, nil
	case Model:
		return s.model(text)
	}
	return text, nil
}

func (s Setting) choice(word string) (any, error) {
	if !slices.Contains(s.Choices, word) {
		last := len(s.Choices) - 1
		return nil, fmt.Errorf(": set it to %s or %s, or leave it out for %s",
			strings.Join(s.Choices[:last], ", "), s.Choices[last], s.Default)
	}
	return word, nil
}

func (s Setting) model(name string) (any, error) {
	if name != "" && !agent.ValidModel(name) {
		return nil, fmt.Errorf(", which is not a valid model name: set it to one such as %s", cmp.Or(s.Default, "gemini-2.5-pro"))
	}
	return name, nil
}
