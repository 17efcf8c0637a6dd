package gemini

import (
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"pollux/internal/agent"
	"pollux/internal/agent/gemini/settings"
	"pollux/internal/lazy"
	"pollux/internal/paths"
	"pollux/internal/sys/disk"
)

// oneShotCommand returns a command for one request.
func oneShotCommand(l agent.Launch) (agent.Command, error) {
	c, err := readOnlyCommand(l)
	c.Args = append([]string{"--output-format=stream-json"}, c.Args...)
	if l.Model != "" {
		c.Args = append(c.Args, "--model="+l.Model)
	}
	return c, err
}

// acpCommand returns a command for a server of the Agent Client Protocol.
func acpCommand(l agent.Launch) (agent.Command, error) {
	c, err := readOnlyCommand(l)
	if err != nil {
		return c, err
	}
	c.Args = append([]string{"--acp"}, c.Args...)
	if l.Change {
		// The CLI writes to files in its home, such as its memory, even if the
		// client serves files.
		home := filepath.Join(l.TempDir, "home")
		if c.Unlinked, err = privateHome(l.Env, home); err != nil {
			return c, err
		}
		c.Env = append(c.Env, "GEMINI_CLI_HOME="+home)
		// Before the client writes a new file, the CLI makes its directory.
		c.Parents = []string{l.Dir}
	}
	// As a server, the CLI writes its log to this file only.
	log := "/dev/stderr"
	if runtime.GOOS == "windows" {
		log = filepath.Join(l.TempDir, "log")
		c.Logs = log
	}
	c.Env = append(c.Env, "GEMINI_DEBUG_LOG_FILE="+log)
	return c, nil
}

// readOnlyCommand writes the policy and returns the arguments and the
// environment that enforce it. Each process gets a new policy file, because the
// CLI runs without a policy if the file is missing.
func readOnlyCommand(l agent.Launch) (agent.Command, error) {
	rules := filepath.Join(l.TempDir, "policy.toml")
	if err := os.WriteFile(rules, policy(l.Dir, l.Change), 0o600); err != nil {
		return agent.Command{}, err
	}
	env := append(childEnv(l.Env, l.Tmp()), compileCache(l)...)
	return agent.Command{Args: enforce(rules), Env: env, Writable: writable(l, agent.Env(env).Get(compileCacheVar))}, nil
}

// writable returns the paths that the CLI must be able to change: the compile cache, and its
// own directories. In change mode it has its own home, with links to the user's credentials,
// which are the only files in the user's home that the result names. writable creates the
// directories, because the CLI cannot.
func writable(l agent.Launch, cache string) []string {
	var dirs, credentials []string
	if filepath.IsAbs(cache) {
		dirs = append(dirs, cache)
	}
	own := ownDirs(l.Env)
	if l.Change {
		entries, _ := os.ReadDir(own[0])
		for _, e := range entries {
			if secretFile().MatchString(e.Name()) {
				credentials = append(credentials, filepath.Join(own[0], e.Name()))
			}
		}
	} else {
		dirs = append(dirs, own...)
	}
	for _, dir := range dirs {
		os.MkdirAll(dir, 0o700) // or the CLI says what is wrong
	}
	return append(dirs, credentials...)
}

// compileCacheTTL is how long the compile cache is kept. Node.js never removes
// the code of older releases of the CLI.
const compileCacheTTL = 30 * 24 * time.Hour

// compileCache returns the variable that makes Node.js (22.1 or newer) keep the
// compiled code of the CLI, below the user's directory for caches. The user's own
// setting has precedence. The cache must not be in the workspace, where change mode
// would take its files for edits.
func compileCache(l agent.Launch) []string {
	dir := cacheDir(l.Env)
	if _, set := l.Env.Lookup(compileCacheVar); set || dir == "" || paths.Contains(l.Dir, paths.Real(dir)) {
		return nil
	}
	if info, err := os.Lstat(dir); err == nil && time.Since(info.ModTime()) > compileCacheTTL {
		os.RemoveAll(dir) // or it stays until the next start
	}
	return []string{compileCacheVar + "=" + dir}
}

const compileCacheVar = "NODE_COMPILE_CACHE"

// cacheDir returns the directory of the compile cache, or "". Node.js creates it.
func cacheDir(env agent.Env) string {
	own := filepath.Join("pollux", "node-compile-cache")
	if dir := env.Get("XDG_CACHE_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, own)
	}
	if dir := env.Get("LOCALAPPDATA"); runtime.GOOS == "windows" && filepath.IsAbs(dir) {
		return filepath.Join(dir, own)
	}
	home, err := env.HomeDir()
	if err != nil || !filepath.IsAbs(home) {
		return ""
	}
	return filepath.Join(home, ".cache", own)
}

// enforce returns the arguments that enforce a policy. An equals sign joins each
// value to its flag, so that no value is read as a flag.
func enforce(policy string) []string {
	return []string{
		"--approval-mode=default",
		"--admin-policy=" + policy,
		// If the CLI ignores the flag above, the rules still apply as a user
		// policy.
		"--policy=" + policy,
		"--sandbox=false",
		"--extensions=none",
		// No server has this name.
		"--allowed-mcp-server-names=" + rand.Text(),
	}
}

// privateHome creates a home directory for a CLI. It looks like the home in env,
// but nothing is written back: settings and memory are copies. Credentials are
// linked and not copied, because the CLI renews them in the user's own files. Its
// tools may not write there. privateHome returns the names of the credentials that
// cannot be linked.
func privateHome(env agent.Env, home string) (unlinked []string, err error) {
	theirs, ours := geminiHome(env), filepath.Join(home, ".gemini")
	if err := os.MkdirAll(ours, 0o700); err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(theirs)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	for _, e := range entries {
		from, to := filepath.Join(theirs, e.Name()), filepath.Join(ours, e.Name())
		info, err := os.Stat(from)
		if err != nil || !info.Mode().IsRegular() || info.Size() > maxHomeFile {
			continue
		}
		if secretFile().MatchString(e.Name()) {
			if os.Symlink(from, to) != nil {
				unlinked = append(unlinked, e.Name())
			}
			continue
		}
		data, err := disk.ReadFile(from, maxHomeFile)
		if err != nil {
			return nil, err
		}
		if err := os.WriteFile(to, data, 0o600); err != nil {
			return nil, err
		}
	}
	return unlinked, nil
}

// maxHomeFile limits a file that is copied from the CLI's home, in bytes.
const maxHomeFile = 1 << 20

// secretFile matches the names of files with secrets in the CLI's home.
var secretFile = lazy.Regexp(`(?i)^\.env|cred|oauth|account|token|secret|key`)

// geminiHome returns the CLI's own directory.
func geminiHome(env agent.Env) string {
	home, _ := settings.Home(env)
	return home
}

// ownDirs returns the directories that the CLI writes to, its own first.
func ownDirs(env agent.Env) []string {
	dirs := []string{geminiHome(env)}
	if home, err := env.HomeDir(); err == nil {
		dirs = append(dirs, filepath.Join(home, ".gemini"))
	}
	return dirs
}

// canChange returns an error if the CLI would write to the disk in change mode.
func canChange(from agent.Source, p agent.Program, dir string) error {
	switch {
	case !servesFiles(p):
		return fmt.Errorf("version %s writes to the disk", p.Version)
	case nearHome(from.Env, dir):
		return errors.New("it writes to its own files in this directory")
	}
	return nil
}

// nearHome reports whether a workspace contains a directory that belongs to the CLI,
// or lies in one. The CLI itself writes there.
func nearHome(env agent.Env, dir string) bool {
	dir = paths.Real(dir)
	for _, own := range ownDirs(env) {
		own = paths.Real(own)
		if paths.Contains(dir, own) || paths.Contains(own, dir) {
			return true
		}
	}
	return false
}

// inputs returns the files that the CLI reads when it starts.
func inputs(from agent.Source, p agent.Program, dir string) []string {
	files := []string{p.Path}
	own := geminiHome(from.Env)
	system, defaults := settings.SystemFiles(from.Env)
	for _, name := range []string{"../.env", ".env", "settings.json", "google_accounts.json", "GEMINI.md"} {
		files = append(files, filepath.Join(own, filepath.FromSlash(name)))
	}
	for _, policies := range []string{filepath.Join(own, "policies"), systemPolicies()} {
		rules, _ := filepath.Glob(filepath.Join(policies, "*.toml"))
		files = append(files, rules...)
	}
	files = append(files, system, defaults, settings.TrustFile(from.Env, own), filepath.Join(dir, ".gemini", "settings.json"))
	for d := dir; ; d = filepath.Dir(d) {
		files = append(files, filepath.Join(d, ".env"), filepath.Join(d, ".gemini", ".env"))
		if d == filepath.Dir(d) {
			return files
		}
	}
}
