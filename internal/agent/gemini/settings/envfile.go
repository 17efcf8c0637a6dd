package settings

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"pollux/internal/agent"
	"pollux/internal/sys"
)

// authVariables are the variables that the CLI reads from a .env file even in an
// untrusted folder.
var authVariables = []string{"GEMINI_API_KEY", "GOOGLE_API_KEY", "GOOGLE_CLOUD_PROJECT", "GOOGLE_CLOUD_LOCATION"}

// maxEnvFile limits a .env file, in bytes.
const maxEnvFile = 16 << 20

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
		if _, err := os.Stat(f); err == nil {
			return f
		}
	}
	return ""
}

// parseEnvFile returns the variables that the CLI uses from a .env file.
func (s Settings) parseEnvFile(path string) (map[string]string, error) {
	data, err := sys.ReadFile(path, maxEnvFile)
	if err != nil {
		return nil, err
	}
	vars := make(map[string]string)
	for line := range strings.Lines(string(data)) {
		k, v, ok := strings.Cut(strings.TrimPrefix(strings.TrimSpace(line), "export "), "=")
		k, v = strings.TrimSpace(k), strings.TrimSpace(v)
		if n := len(v); n > 1 && (v[0] == '"' || v[0] == '\'') && v[n-1] == v[0] {
			v = v[1 : n-1]
		}
		if ok && (s.Trust == Trusted || slices.Contains(authVariables, k)) {
			vars[k] = v
		}
	}
	return vars, nil
}
