package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/BurntSushi/toml"

	"pollux/internal/jsontoml"
	"pollux/internal/sys/disk"
	"pollux/internal/typo"
)

// EnvFile is the variable that names another file.
const EnvFile = "POLLUX_CONFIG"

// maxFile limits the file, in bytes.
const maxFile = 1 << 20

// FilePath returns the path of the file: $POLLUX_CONFIG, or pollux/config.toml in
// $XDG_CONFIG_HOME or ~/.config, on Windows in the roaming application data.
func FilePath(getenv func(string) string) (string, error) {
	if path := getenv(EnvFile); path != "" {
		return filepath.Abs(path)
	}
	dir := getenv("XDG_CONFIG_HOME")
	if !filepath.IsAbs(dir) {
		var err error
		variable := "HOME"
		if runtime.GOOS == "windows" {
			variable = "APPDATA"
			dir, err = os.UserConfigDir()
		} else if dir, err = os.UserHomeDir(); err == nil {
			dir = filepath.Join(dir, ".config")
		}
		if err != nil {
			return "", fmt.Errorf("no home directory (%w): set %s or %s", err, variable, EnvFile)
		}
	}
	return filepath.Join(dir, "pollux", "config.toml"), nil
}

// readFile reads the user's file. A file that does not exist sets nothing.
func (v *Values) readFile(getenv func(string) string) {
	path, err := FilePath(getenv)
	if err != nil {
		return // without a home directory, there is no file
	}
	v.Path = path
	data, err := disk.ReadFile(path, maxFile)
	switch {
	case errors.Is(err, fs.ErrNotExist) && getenv(EnvFile) == "":
	case errors.Is(err, fs.ErrNotExist):
		v.problem(0, "the file in %s does not exist: create it, or unset the variable", EnvFile)
	case err != nil:
		v.problem(0, "cannot read the settings (%v): make it a readable file, or remove it", disk.Cause(err))
	default:
		v.decode(string(data))
	}
}

// problem adds a problem of the file.
func (v *Values) problem(line int, format string, args ...any) {
	v.Problems = append(v.Problems, &Problem{Origin: Origin{File: v.Path, Line: line}, Text: fmt.Sprintf(format, args...)})
}

// singleQuotes is the next step for a path in which TOML reads backslashes as escapes.
const singleQuotes = "write a path with backslashes in single quotes"

// decode sets the values that a file holds.
func (v *Values) decode(text string) {
	var top map[string]toml.Primitive
	md, err := jsontoml.DecodeTOML(text, &top)
	if err != nil {
		problem, next := message(err), "correct it"
		if strings.Contains(problem, `\`) { // an escape that TOML does not have, as in "C:\app"
			next = singleQuotes
		}
		v.problem(position(err), "not valid TOML: %s: %s", problem, next)
		return
	}
	tables := make(map[string]map[string]toml.Primitive)
	for _, key := range md.Keys() {
		table, met := tables[key[0]]
		if key[0] == ownAgents {
			if !met {
				v.decodeAgents(&md, top[ownAgents])
				tables[ownAgents] = nil
			}
			continue
		}
		if !met {
			table = v.table(&md, key[0], top[key[0]])
			tables[key[0]] = table
		}
		if len(key) != 2 {
			continue
		}
		if p, ok := table[key[1]]; ok {
			delete(table, key[1]) // Keys repeats what is in an array of tables
			if s, ok := Find(key[0] + "." + key[1]); ok {
				v.decodeValue(&md, s, p)
			} else {
				v.unknown(key[0]+"."+key[1], line(&md, p))
			}
		}
	}
}

// table returns the content of a table of the file, or nil if Pollux has no such table.
func (v *Values) table(md *toml.MetaData, name string, p toml.Primitive) (table map[string]toml.Primitive) {
	isTable := md.PrimitiveDecode(p, &table) == nil && table != nil
	known := slices.Contains(tableNames(), name)
	switch at := line(md, p); {
	case isTable && known:
		return table
	case known:
		v.problem(at, "%s is not a table: write [%s] on its own line, and its keys below", name, name)
	case isTable:
		v.problem(at, "unknown table [%s]: %s", name, advice(closest(name, tableNames()), "[%s]"))
	default:
		v.unknown(name, at)
	}
	return nil
}

// tableNames returns the names of all tables, in order.
func tableNames() (names []string) {
	names = []string{ownAgents}
	for _, s := range Settings {
		if !slices.Contains(names, s.Table()) {
			names = append(names, s.Table())
		}
	}
	return names
}

// decodeValue sets one value.
func (v *Values) decodeValue(md *toml.MetaData, s Setting, p toml.Primitive) {
	at := line(md, p)
	var raw any
	if err := md.PrimitiveDecode(p, &raw); err != nil {
		v.problem(at, "%s: %s: correct it", s.Key, message(err))
		return
	}
	value, err := s.fromFile(raw)
	if err != nil {
		v.problem(at, "%s is %s%v", s.Key, show(raw), err)
		return
	}
	v.set(s, value, Origin{File: v.Path, Line: at})
}

// unknown adds the problem of a key that no setting has.
func (v *Values) unknown(key string, at int) {
	v.problem(at, "unknown key %s: %s", key, advice(nearest(key), "%s"))
}

// advice returns the next step after an unknown name.
func advice(near, format string) string {
	if near == "" {
		return "remove it; `pollux config` lists the known keys"
	}
	return fmt.Sprintf("did you mean "+format+"?", near)
}

// show returns a value of the file for a message.
func show(raw any) string {
	switch raw := raw.(type) {
	case string:
		return fmt.Sprintf("%q", raw)
	case map[string]any, []map[string]any:
		return "a table"
	case []any:
		return "an array"
	}
	return fmt.Sprint(raw)
}

// fromFile returns the value that the file holds. The error continues the sentence
// "KEY is VALUE".
func (s Setting) fromFile(raw any) (any, error) {
	switch s.Kind {
	case Switch:
		if on, ok := raw.(bool); ok {
			return on, nil
		}
		return nil, errors.New(": write true or false, without quotes")
	case Number:
		n, ok := raw.(int64)
		if !ok || n < int64(s.Least) || n > int64(s.Most) {
			return nil, fmt.Errorf(": write a whole number from %d to %d, without quotes", s.Least, s.Most)
		}
		return int(n), nil
	case Duration:
		least, most := time.Duration(s.Least)*time.Millisecond, time.Duration(s.Most)*time.Millisecond
		text, ok := raw.(string)
		d, err := time.ParseDuration(text)
		if !ok || err != nil || d < least || d > most {
			return nil, fmt.Errorf(": write a time from %s to %s with its unit, as in %s",
				short(least), short(most), literal(s.Value()))
		}
		return d, nil
	case List:
		items, ok := raw.([]any)
		list := make([]string, len(items))
		for i, item := range items {
			text, isText := item.(string)
			ok = ok && isText
			list[i] = expand(text)
		}
		if !ok {
			return nil, errors.New(`: write a list of strings, as in ["a", "b"]`)
		}
		if s.check != nil {
			return list, s.check(list)
		}
		return list, nil
	}
	text, ok := raw.(string)
	if !ok {
		return nil, errors.New(": write a string, in quotes")
	}
	switch s.Kind {
	case Choice:
		return s.choice(text)
	case Model:
		return s.model(text)
	case Path, Program:
		if strings.ContainsFunc(text, unicode.IsControl) { // as in "C:\temp"
			return nil, errors.New(": " + singleQuotes)
		}
		path := expand(text)
		if path != "" && !filepath.IsAbs(path) && (s.Kind == Path || filepath.Base(path) != path) {
			return nil, errors.New(": write an absolute path, or one that starts with ~/")
		}
		return path, nil
	}
	return expand(text), nil
}

// expand replaces ~/ at the start of a path, and ~\ on Windows, by the home directory.
func expand(path string) string {
	if rest, ok := strings.CutPrefix(path, "~"); ok && rest != "" && os.IsPathSeparator(rest[0]) {
		if home, err := os.UserHomeDir(); err == nil {
			return filepath.Join(home, rest)
		}
	}
	return path
}

// line returns the line of a value. The library reports it only in errors.
func line(md *toml.MetaData, p toml.Primitive) int {
	return position(md.PrimitiveDecode(p, refuse{}))
}

// refuse is a value that cannot be decoded.
type refuse struct{}

func (refuse) UnmarshalTOML(any) error { return errors.New("refused") }

func position(err error) int {
	at, _ := errors.AsType[toml.ParseError](err)
	return at.Position.Line
}

// message returns the library's message without the position.
func message(err error) string {
	if at, ok := errors.AsType[toml.ParseError](err); ok {
		return strings.TrimSuffix(at.Message, ".")
	}
	return err.Error()
}

// nearest returns the key that a wrong one resembles most, or "".
func nearest(key string) string {
	keys := make([]string, len(Settings))
	for i, s := range Settings {
		if keys[i] = s.Key; key[strings.LastIndexByte(key, '.')+1:] == s.Name() {
			return s.Key // the right key in a wrong table, or in none
		}
	}
	return closest(key, keys)
}

// closest returns the word that a wrong one resembles most, or "" if it resembles none.
func closest(wrong string, words []string) string {
	for letters := 1; letters <= max(1, len(wrong)/4); letters++ {
		if found := typo.Similar(wrong, words, letters); len(found) > 0 {
			return found[0]
		}
	}
	return ""
}
