package companion

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-git/go-git/v5/plumbing/format/gitignore"

	"pollux/internal/discovery"
	"pollux/internal/sys"
)

// An excluder says which files the CLI is not told of: those that the
// project's ignore files exclude and those that look like secrets.
type excluder struct {
	mu    sync.Mutex
	cache map[string]ignoreFile // by path
}

type ignoreFile struct {
	modified time.Time
	size     int64
	patterns []gitignore.Pattern
}

// excluded reports whether the file, given by its absolute path, is one, by
// that name or by the one that its symbolic links lead to. A project is the
// nearest directory above that holds .git, else the workspace root the file is
// in.
func (x *excluder) excluded(path string, roots []string) bool {
	real := discovery.RealPath(path)
	return x.match(path, roots) || real != path && x.match(real, roots)
}

func (x *excluder) match(path string, roots []string) bool {
	if secret(path) {
		return true
	}
	top := project(path, roots)
	if top == "" {
		return false
	}
	rel, err := filepath.Rel(top, path)
	if err != nil {
		return false
	}
	parts := strings.Split(rel, string(filepath.Separator))
	var patterns []gitignore.Pattern
	// The least specific first: the last match wins.
	if config := gitConfigDir(); config != "" {
		patterns = x.read(filepath.Join(config, "ignore"), nil)
	}
	patterns = append(patterns, x.read(filepath.Join(top, ".git", "info", "exclude"), nil)...)
	for i := range parts {
		dir := filepath.Join(append([]string{top}, parts[:i]...)...)
		for _, name := range []string{".gitignore", ".geminiignore"} {
			patterns = append(patterns, x.read(filepath.Join(dir, name), parts[:i])...)
		}
	}
	return gitignore.NewMatcher(patterns).Match(parts, false)
}

// gitConfigDir is where git keeps the user's settings, on every system.
func gitConfigDir() string {
	if dir := os.Getenv("XDG_CONFIG_HOME"); dir != "" {
		return filepath.Join(dir, "git")
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return ""
	}
	return filepath.Join(home, ".config", "git")
}

func project(path string, roots []string) string {
	for dir := filepath.Dir(path); ; dir = filepath.Dir(dir) {
		if _, err := os.Lstat(filepath.Join(dir, ".git")); err == nil {
			return dir
		}
		if dir == filepath.Dir(dir) {
			break
		}
	}
	for _, r := range roots {
		if !sys.Inside(r, path) {
			continue
		}
		// The root as this path spells it.
		top := path
		for up := filepath.Dir(top); up != top && sys.Inside(r, up); up = filepath.Dir(top) {
			top = up
		}
		return top
	}
	return ""
}

// maxIgnoreFile bounds an ignore file in bytes.
const maxIgnoreFile = 1 << 20

func (x *excluder) read(path string, domain []string) []gitignore.Pattern {
	info, err := os.Stat(path)
	if err != nil || !info.Mode().IsRegular() || info.Size() > maxIgnoreFile {
		return nil
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if c, ok := x.cache[path]; ok && c.modified.Equal(info.ModTime()) && c.size == info.Size() {
		return c.patterns
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil
	}
	var patterns []gitignore.Pattern
	for line := range strings.Lines(string(data)) {
		line = strings.TrimRight(line, "\r\n")
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		patterns = append(patterns, gitignore.ParsePattern(line, domain))
	}
	if x.cache == nil {
		x.cache = make(map[string]ignoreFile)
	}
	patterns = slices.Clip(patterns) // others append to it
	x.cache[path] = ignoreFile{info.ModTime(), info.Size(), patterns}
	return patterns
}

// secretNames are patterns of base names; secretDirs are directories whose
// files all count.
var (
	secretNames = []string{
		".env", ".env.*", "*.env", ".envrc", ".netrc", "_netrc", ".pgpass", ".pypirc", ".npmrc", ".git-credentials", ".htpasswd",
		"*.pem", "*.key", "*.p12", "*.pfx", "*.jks", "*.keystore", "*.kdbx", "*.ppk", "*.asc", "*.gpg",
		"id_rsa", "id_dsa", "id_ecdsa", "id_ed25519", "credentials", "credentials.json", "client_secret*.json", "secrets.y*ml", "*.tfvars",
	}
	secretDirs = []string{".ssh", ".gnupg", ".aws", ".kube", ".docker"}
	templates  = []string{"example", "sample", "template", "dist"}
)

// secret reports whether a file's name says that it holds secrets. A template,
// such as .env.example, does not.
func secret(path string) bool {
	dir, name := filepath.Split(strings.ToLower(path))
	for _, t := range templates {
		if strings.HasSuffix(name, "."+t) {
			return false
		}
	}
	for _, d := range secretDirs {
		if strings.Contains(dir, string(filepath.Separator)+d+string(filepath.Separator)) {
			return true
		}
	}
	for _, p := range secretNames {
		if ok, _ := filepath.Match(p, name); ok {
			return true
		}
	}
	return false
}
