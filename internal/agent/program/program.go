// Package program finds the command lines of agents and says what all of them need: their
// version, and the variables of an environment that they receive.
package program

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"pollux/internal/agent"
	"pollux/internal/lazy"
	"pollux/internal/npm"
	"pollux/internal/paths"
	"pollux/internal/sys/disk"
	"pollux/internal/sys/proc"
)

// A Release says which program an agent is, and since which release Pollux can keep it from
// changing files.
type Release struct {
	// Name is the agent's name for people. Command is the program's name on the PATH, and
	// Variable the one that overrides it. Packages are the npm packages that it may be a part of.
	Name, Command, Variable string
	Packages                []string
	// Oldest is that release, such as "1.0.92".
	Oldest string
	// Update is the command that installs a newer release. Try is one that asks the agent a
	// question in a terminal.
	Update, Try string
	// Env returns the environment of the program's processes. tmp is their temporary directory.
	Env func(env agent.Env, tmp string) []string
	// Remedies extend or override the ones that [Release.AllRemedies] makes.
	Remedies agent.Remedies
}

// Finder returns the release as a part of a row. environment returns the variables
// that the agent receives.
func (r *Release) Finder(environment func(agent.Env) []string) agent.Finder {
	return agent.Finder{
		Command: r.Command, CommandVar: r.Variable, Environment: environment,
		Locate: r.Locate, AskVersion: r.AskVersion, ReadOnly: r.ReadOnly,
	}
}

// AllRemedies describes the failures of the agent: those that all agents have in common, and
// [Release.Remedies].
func (r *Release) AllRemedies() agent.Remedies {
	all := agent.Remedies{
		agent.TooOld: {What: "this " + r.Name + " is too old to be enforced read-only", Next: fmt.Sprintf("update it with `%s` (%s or newer)", r.Update, strings.TrimSuffix(r.Oldest, ".0"))},
		agent.NoVersion: {What: "this " + r.Name + " does not report its version, so Pollux does not use it",
			Next: fmt.Sprintf("run `%s --version` in a terminal to see what it prints, or set %s to %s itself and not to a wrapper", r.Command, r.Variable, r.Name)},
		agent.Strayed: {What: r.Name + " used a tool that Pollux denies, and was stopped", Next: "check what it changed, and update " + r.Name},
		agent.Stalled: {What: r.Name + " stopped making progress", Next: fmt.Sprintf("run `%s` in a terminal to see whether it waits for a login, then try again", r.Command)},
		agent.Crashed: {What: r.Name + " ended without a result", Next: fmt.Sprintf("try again; if it happens again, run `%s` in a terminal", r.Try)},
		agent.Failed:  {What: r.Name + " failed", Next: fmt.Sprintf("run `%s` in a terminal to see more", r.Try)},
	}
	if len(r.Packages) > 0 {
		all[agent.NotInstalled] = agent.Remedy{What: r.Name + " is not installed", Next: fmt.Sprintf("install it with `npm install -g %s`, or set %s to it", r.Packages[0], r.Variable)}
	}
	maps.Copy(all, r.Remedies)
	return all
}

// Error returns an error with the agent's remedy.
func (r *Release) Error(kind agent.Kind, message string) *agent.Error {
	return r.AllRemedies().Error(kind, message)
}

// Locate returns the program of a source without running it: the command, unless the source
// names another one. The version is that of the npm package, or empty if the program is not
// part of any.
func (r *Release) Locate(from agent.Source) (agent.Program, error) {
	path, err := from.Env.LookPath(cmp.Or(from.Command, r.Command))
	var p agent.Program
	if err == nil {
		p, err = r.At(from, path)
	}
	if errors.Is(err, exec.ErrNotFound) {
		err = fmt.Errorf("%s is not on the PATH", cmp.Or(from.Command, r.Command))
	}
	if err != nil {
		return agent.Program{}, r.Error(agent.NotInstalled, agent.Line(from.Env, err.Error()))
	}
	return p, nil
}

// At returns the program at a path. The error is not an [*agent.Error].
func (r *Release) At(from agent.Source, path string) (agent.Program, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return agent.Program{}, err
	}
	// npm's batch file on Windows starts Node.js with the script.
	argv, err := proc.Direct(path, from.Env.LookPath)
	if err != nil {
		return agent.Program{}, err
	}
	script := argv[len(argv)-1]
	if _, err := os.Stat(script); err != nil {
		return agent.Program{}, err
	}
	p := agent.Program{Path: path, Argv: argv}
	for _, name := range r.Packages {
		p.Version = cmp.Or(p.Version, npm.Version(script, name))
	}
	return p, nil
}

// Platform returns this system and processor, as npm packages with programs for them are named,
// such as "linux-x64".
func Platform() string {
	system, processor := runtime.GOOS, runtime.GOARCH
	if system == "windows" {
		system = "win32"
	}
	if processor == "amd64" {
		processor = "x64"
	}
	return system + "-" + processor
}

// VersionTimeout limits how long a program may take to print its version.
const VersionTimeout = 15 * time.Second

var versionNumber = lazy.Regexp(`\d+\.\d+\.\d+\S*`)

// AskVersion learns the version of a program: it runs it with --version, which takes seconds.
// The version stays empty if it prints none. The error is [context.Cause].
func (r *Release) AskVersion(ctx context.Context, from agent.Source, p agent.Program) (agent.Program, error) {
	p.Version, p.Late = askVersion(ctx, p, r.Env(from.Env, os.TempDir()), VersionTimeout)
	if p.Version == "" && ctx.Err() != nil {
		return agent.Program{}, context.Cause(ctx)
	}
	return p, nil
}

// askVersion reports in late whether the program did not end in time.
func askVersion(ctx context.Context, p agent.Program, env []string, timeout time.Duration) (version string, late bool) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	out, err := os.CreateTemp("", "pollux-version-")
	if err != nil {
		return "", false
	}
	defer os.Remove(out.Name())
	defer out.Close() // Windows does not remove open files
	cmd, err := agent.Command{Args: []string{"--version"}, Env: env}.Cmd(p, "")
	if err != nil {
		return "", false
	}
	cmd.Stdout = out
	child, err := proc.StartChild(cmd)
	if err != nil {
		return "", false
	}
	select {
	case <-child.Done():
	case <-ctx.Done():
		child.Stop(0)
		return "", true
	}
	text, err := disk.ReadFile(out.Name(), 1<<20)
	if err != nil || child.ExitCode() != 0 {
		return "", false
	}
	return strings.TrimSuffix(versionNumber().FindString(string(text)), "."), false // the end of a sentence
}

// ReadOnly returns an error for a program whose version is unknown or older than the oldest
// release.
func (r *Release) ReadOnly(_ agent.Source, p agent.Program) error {
	got, ok := agent.Numbers(p.Version)
	oldest, _ := agent.Numbers(r.Oldest)
	switch {
	case p.Late:
		return r.Error(agent.NoVersion, fmt.Sprintf("%s --version took longer than %s", p.Path, VersionTimeout))
	case p.Version == "":
		return r.Error(agent.NoVersion, p.Path+" --version failed, or printed no version")
	case !ok:
		return r.Error(agent.NoVersion, fmt.Sprintf("it reports %q", agent.Shorten(p.Version, 60)))
	case slices.Compare(got[:], oldest[:]) < 0:
		return r.Error(agent.TooOld, p.Version)
	}
	return nil
}

// Dir returns the directory that a variable names, or else one below the home directory.
func Dir(env agent.Env, variable string, elem ...string) string {
	home, _ := env.HomeDir()
	return cmp.Or(env.Get(variable), filepath.Join(append([]string{home}, elem...)...))
}

// Variables says which variables of an environment an agent receives: those that every
// program needs to find its files, the network and the system, and its own.
type Variables struct {
	// Names and Prefixes are the agent's own variables, in upper case. Dropped are prefixes
	// of variables that it must not receive.
	Names, Prefixes, Dropped []string
}

// Account returns an identity for the account that the variables of an environment with these
// names, and the login in the directory home, stand for.
func Account(env agent.Env, home string, names ...string) string {
	return Identity(append(Values(env.Get, names...), paths.Real(home))...)
}

// Values returns variables with their values.
func Values(get func(name string) string, names ...string) (all []string) {
	for _, name := range names {
		all = append(all, name, get(name))
	}
	return all
}

// Identity returns a hash of texts, which reveals none of them.
func Identity(texts ...string) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q", texts))
	return hex.EncodeToString(sum[:16])
}

// common are the variables that every agent receives.
var common = []string{
	"HOME", "PATH", "USER", "LOGNAME", "SHELL", "LANG", "TZ",
	"XDG_CONFIG_HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR",
	// proxies and certificates
	"HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY", "NODE_EXTRA_CA_CERTS", "NODE_USE_SYSTEM_CA",
	"NODE_TLS_REJECT_UNAUTHORIZED", "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE",
	// the keychain on a desktop
	"DBUS_SESSION_BUS_ADDRESS",
	// Windows
	"SYSTEMROOT", "SYSTEMDRIVE", "WINDIR", "COMSPEC", "PATHEXT", "APPDATA", "LOCALAPPDATA", "PROGRAMDATA",
	"PROGRAMFILES", "USERPROFILE", "USERNAME", "HOMEDRIVE", "HOMEPATH", "NUMBER_OF_PROCESSORS", "PROCESSOR_ARCHITECTURE",
	// compiled code of Node.js
	"NODE_COMPILE_CACHE", "NODE_DISABLE_COMPILE_CACHE",
	// version managers of Node.js, in which node is a wrapper
	"VOLTA_HOME", "ASDF_DIR", "ASDF_DATA_DIR", "NVM_DIR", "FNM_DIR", "FNM_MULTISHELL_PATH", "MISE_DATA_DIR", "MISE_CONFIG_DIR",
}

// Of returns the variables of an environment that the agent receives, sorted by name.
// Each one that differs between two clients costs another process. Empty ones are left out:
// Gemini CLI, as a client, passes on a variable of its settings as empty if it is not set.
func (v Variables) Of(env agent.Env) []string {
	all := env.Only(func(name string) bool {
		// Proxy variables may be in lower case, and Windows ignores the case of names.
		name = strings.ToUpper(name)
		hasPrefix := func(prefix string) bool { return strings.HasPrefix(name, prefix) }
		return (slices.Contains(common, name) || slices.Contains(v.Names, name) || hasPrefix("LC_") || slices.ContainsFunc(v.Prefixes, hasPrefix)) &&
			!slices.ContainsFunc(v.Dropped, hasPrefix)
	})
	return slices.DeleteFunc(all, func(kv string) bool { _, value, _ := strings.Cut(kv, "="); return value == "" })
}

// Env returns the environment of a process: the variables of [Variables.Of], more, which
// overrides them, and tmp as the directory for temporary files.
func (v Variables) Env(env agent.Env, tmp string, more ...string) []string {
	all := append(v.Of(env), "NO_COLOR=1", "FORCE_COLOR=0", "TERM=dumb", "NO_BROWSER=true", "TMPDIR="+tmp)
	if runtime.GOOS == "windows" {
		all = append(all, "TMP="+tmp, "TEMP="+tmp)
	}
	return append(all, more...)
}

// OwnDirs makes an agent's own directories that do not exist yet, because the agent could not
// make them behind a wall. It returns those with an absolute path.
func OwnDirs(dirs ...string) []string {
	own := slices.DeleteFunc(dirs, func(dir string) bool { return !filepath.IsAbs(dir) })
	for _, dir := range own {
		os.MkdirAll(dir, 0o700) // or the agent says what is wrong
	}
	return own
}
