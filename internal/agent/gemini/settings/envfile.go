package settings

import (
	"path/filepath"
	"slices"
	"strings"

	"pollux/internal/agent"
	"pollux/internal/lazy"
	"pollux/internal/sys/disk"
)

// authVariables are the variables that the CLI reads from a .env file even in an
// untrusted folder.
var authVariables = []string{"GEMINI_API_KEY", "GOOGLE_API_KEY", "GOOGLE_CLOUD_PROJECT", "GOOGLE_CLOUD_LOCATION"}

// maxEnvFile limits a .env file, in bytes. A hostile one takes some seconds to parse.
const maxEnvFile = 2 << 20

// Variables returns a function that returns the variables of a CLI started in dir:
// those of the environment, and others from file, the only .env file that the CLI
// reads there. file may be empty. With an error, it cannot be read.
func (s Settings) Variables(env agent.Env, dir string) (file string, get func(name string) string, err error) {
	file = s.envFile(env, dir)
	vars := make(map[string]string)
	if file != "" {
		vars, err = s.parseEnvFile(file)
	}
	return file, func(name string) string {
		if v, ok := env.Lookup(name); ok {
			return v
		}
		return vars[name]
	}, err
}

// envFile returns the .env file that the CLI reads, or "": the nearest one, from
// the directory upwards, or the one in the user's home.
func (s Settings) envFile(env agent.Env, dir string) string {
	var files []string
	add := func(dir string) {
		if s.Trust == Trusted {
			files = append(files, filepath.Join(dir, ".gemini", ".env"))
		}
		files = append(files, filepath.Join(dir, ".env"))
	}
	for ; ; dir = filepath.Dir(dir) {
		add(dir)
		if dir == filepath.Dir(dir) {
			break
		}
	}
	if home, err := Home(env); err == nil {
		add(filepath.Dir(home))
	}
	for _, f := range files {
		if disk.Exists(f) {
			return f
		}
	}
	return ""
}

// assignment matches an assignment in a .env file. A quoted value may have several lines.
// All other text is skipped.
var assignment = lazy.Regexp(`(?m)^\s*(?:export\s+)?([\w.-]+)(?:\s*=|:\s)` +
	"(\\s*'(?:\\\\'|[^'])*'|\\s*\"(?:\\\\\"|[^\"])*\"|\\s*`(?:\\\\`|[^`])*`|[^#\\n]+)?" +
	`\s*(?:#.*)?$`)

// unsafe matches what the CLI removes from a value in an untrusted folder.
var unsafe = lazy.Regexp(`[^\w./-]`)

// parseEnvFile returns the variables that the CLI uses from a .env file. It reads the file
// like the npm package dotenv, which the CLI uses.
func (s Settings) parseEnvFile(path string) (map[string]string, error) {
	data, err := disk.ReadFile(path, maxEnvFile)
	if err != nil {
		return nil, err
	}
	vars := make(map[string]string)
	text := strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(strings.TrimPrefix(string(data), "\ufeff"))
	for m := assignment().FindStringSubmatchIndex(text); m != nil; m = assignment().FindStringSubmatchIndex(text) {
		name, value := text[m[2]:m[3]], ""
		if m[4] >= 0 {
			value = unquote(strings.TrimSpace(text[m[4]:m[5]]))
		}
		text = text[m[1]:]
		switch {
		case s.Trust == Trusted:
			vars[name] = value
		case slices.Contains(authVariables, name):
			vars[name] = unsafe().ReplaceAllString(value, "")
		}
	}
	return vars, nil
}

// unquote returns a value without its quotes. Double quotes have line endings as escapes.
func unquote(value string) string {
	if value == "" || !strings.Contains("'\"`", value[:1]) {
		return value
	}
	quote, n := value[0], len(value)
	if n > 1 && value[n-1] == quote {
		value = value[1 : n-1]
	}
	if quote == '"' {
		value = strings.NewReplacer(`\n`, "\n", `\r`, "\r").Replace(value)
	}
	return value
}
