package geminiide

import (
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"pollux/internal/editor"
	"pollux/internal/paths"
	"pollux/internal/sys/disk"
	"pollux/internal/sys/proc"
	"pollux/internal/sys/sock"
)

// A cli is one command-line program that looks for a companion.
type cli struct {
	name string // as people know it
	// dir is the directory of its discovery files: in the user's home if home is set, otherwise in
	// the directory for temporary files.
	dir  string
	home bool
	// prefix is set if the program looks for the PID of its IDE: its files are named
	// PREFIX-PID-PORT.json. Otherwise they are named PORT.lock, and contain the PID of a live process.
	prefix string
	// commands is set if a file may have a command and no port.
	commands bool
	// env begins the names of the variables that lead it to a companion, and variables are their ends.
	env       string
	variables []string
}

const (
	geminiCLI  = "Gemini CLI"
	qwenCode   = "Qwen Code"
	llxprtCode = "LLxprt Code"
)

// Ends of the names of variables.
const (
	envPort      = "SERVER_PORT"
	envWorkspace = "WORKSPACE_PATH"
	envToken     = "AUTH_TOKEN"
	envPID       = "PID"
	envCommand   = "SERVER_STDIO_COMMAND"
	envArgs      = "SERVER_STDIO_ARGS"
)

var clis = []cli{
	{
		name: geminiCLI, dir: filepath.Join("gemini", "ide"), prefix: "gemini-ide-server", commands: true, env: "GEMINI_CLI_IDE_",
		variables: []string{envPort, envWorkspace, envToken, envPID, envCommand, envArgs},
	},
	{
		name: qwenCode, dir: filepath.Join(".qwen", "ide"), home: true, env: "QWEN_CODE_IDE_",
		variables: []string{envPort, envWorkspace, envCommand, envArgs},
	},
	{
		name: llxprtCode, dir: filepath.Join("llxprt", "ide"), prefix: "llxprt-ide-server", env: "LLXPRT_CODE_IDE_",
		variables: []string{envPort, envWorkspace, envToken},
	},
}

// token returns the token for the program's discovery file. Each program has its own, since the
// programs connect under the same name.
func (c cli) token(token string) string {
	if c.name == geminiCLI {
		return token
	}
	mac := hmac.New(sha256.New, []byte(token))
	mac.Write([]byte(c.name))
	return hex.EncodeToString(mac.Sum(nil))
}

// directory returns the directory of the program's discovery files.
func (c cli) directory() (string, error) {
	if !c.home {
		return filepath.Join(NodeTempDir(runtime.GOOS, os.Getenv), c.dir), nil
	}
	home, err := os.UserHomeDir()
	return filepath.Join(home, c.dir), err
}

// files returns the names of the discovery files of a companion with that port.
func (c cli) files(pids []int, port int) (names []string) {
	switch {
	case port == 0 && !c.commands:
		return nil
	case c.prefix == "":
		return []string{fmt.Sprintf("%d.lock", port)}
	case port == 0: // a name always has a second number
		port = os.Getpid()
	}
	for _, pid := range pids {
		names = append(names, fmt.Sprintf("%s-%d-%d.json", c.prefix, pid, port))
	}
	return names
}

// pattern matches these names. Its first group is the PID or the port.
func (c cli) pattern() *regexp.Regexp {
	if c.prefix == "" {
		return regexp.MustCompile(`^(\d+)\.lock$`)
	}
	return regexp.MustCompile(`^` + c.prefix + `-(\d+)-\d+\.json$`)
}

// NodeTempDir returns what os.tmpdir() of Node, which the CLI uses, returns on
// that operating system (a GOOS value) with that environment. Go's differs.
func NodeTempDir(goos string, getenv func(string) string) string {
	dir := cmp.Or(getenv("TMPDIR"), getenv("TMP"), getenv("TEMP"), "/tmp")
	separator := "/"
	if goos == "windows" {
		dir = cmp.Or(getenv("TEMP"), getenv("TMP"), cmp.Or(getenv("SystemRoot"), getenv("windir"))+`\temp`)
		separator = `\`
	}
	if len(dir) > 1 && !strings.HasSuffix(dir, `:\`) {
		dir = strings.TrimSuffix(dir, separator)
	}
	return dir
}

// WorkspacePath joins workspace roots as the CLI expects them: it splits at the
// list separator and decodes each part as a URI. So WorkspacePath encodes a
// separator inside a root, but no percent sign, since the CLI decodes its own
// working directory, too, before it compares. Without roots it returns "". The
// result has no empty part, which would match every directory.
func WorkspacePath(roots []string) string {
	sep := string(os.PathListSeparator)
	parts := make([]string, 0, len(roots))
	for _, r := range roots {
		if r == "" {
			continue
		}
		parts = append(parts, strings.ReplaceAll(r, sep, fmt.Sprintf("%%%02X", os.PathListSeparator)))
	}
	return strings.Join(parts, sep)
}

// Holds reports whether a workspacePath contains the directory by the CLI's rule:
// a list of URI-encoded paths with symbolic links resolved. An empty list
// contains nothing. An empty part of a list stands for the CLI's working
// directory and so matches every directory.
func Holds(workspacePath, dir string) bool {
	if workspacePath == "" {
		return false
	}
	dir = cliPath(dir)
	for _, part := range strings.Split(workspacePath, string(os.PathListSeparator)) {
		if part == "" || paths.Contains(cliPath(part), dir) {
			return true
		}
	}
	return false
}

// cliPath returns a path as the CLI reads it: decoded as a URI if possible,
// absolute, with the symbolic links of its existing part resolved.
func cliPath(path string) string {
	if decoded, err := url.PathUnescape(strings.TrimPrefix(path, "file://")); err == nil {
		path = decoded
	}
	abs, err := filepath.Abs(path)
	if err != nil {
		return path
	}
	return paths.Real(abs)
}

// An Endpoint is a companion as a CLI sees it. PIDs are the process IDs that a
// CLI may look for, the likeliest first; there must be at least one. Roots are
// absolute real paths.
type Endpoint struct {
	Port  int
	Token string
	Info  editor.Info
	Roots []string
	PIDs  []int
	// Stdio is the command, with arguments, that connects a CLI that cannot dial
	// the port; none if empty. With a port of 0 it is the only connection.
	Stdio []string
}

// EnvNames are the variables that [Endpoint.Env] may return.
var EnvNames = envNames()

func envNames() []string {
	names := []string{"REMOTE_CONTAINERS"}
	for _, c := range clis {
		for _, v := range c.variables {
			names = append(names, c.env+v)
		}
	}
	return names
}

// Env returns the variables that lead a CLI started with them to this companion:
// the tie-break of companion-spec I.2 and, for CLIs that read them, everything
// needed to connect.
func (e Endpoint) Env() map[string]string {
	// Without a port, the variable is empty: the CLI must not inherit that of another companion.
	values := map[string]string{envPort: "", envWorkspace: WorkspacePath(e.Roots), envPID: strconv.Itoa(e.PIDs[0])}
	if e.Port != 0 {
		values[envPort] = strconv.Itoa(e.Port)
	}
	if len(e.Stdio) > 0 {
		args, err := json.Marshal(e.Stdio[1:])
		if err != nil {
			panic(err) // strings
		}
		values[envCommand], values[envArgs] = e.Stdio[0], string(args)
	}
	env := make(map[string]string)
	for _, c := range clis {
		values[envToken] = c.token(e.Token)
		for _, v := range c.variables {
			if value, set := values[v]; set {
				env[c.env+v] = value
			}
		}
	}
	if InContainer() {
		// Otherwise Gemini CLI dials host.docker.internal, where nothing listens.
		env["REMOTE_CONTAINERS"] = "true"
	}
	return env
}

// InContainer reports whether the CLI takes this machine for a container.
func InContainer() bool {
	return disk.Exists("/.dockerenv") || disk.Exists("/run/.containerenv")
}

func (e Endpoint) file(c cli) DiscoveryFile {
	f := DiscoveryFile{
		Port:          e.Port,
		WorkspacePath: WorkspacePath(e.Roots),
		AuthToken:     c.token(e.Token),
		IDEInfo:       e.Info,
		Pollux:        os.Getpid(),
		Namespace:     proc.Namespace(),
	}
	if len(e.Stdio) > 0 {
		f.Stdio = &Stdio{Command: e.Stdio[0], Args: e.Stdio[1:]}
	}
	if c.prefix == "" {
		f.PPID = e.PIDs[0]
	}
	return f
}

// A Publication is a set of discovery files on disk. Its methods may be called
// concurrently.
type Publication struct {
	writeMu  sync.Mutex // held while files change; taken before mu
	removed  bool
	failed   bool // the last write failed, so the files may differ from endpoint
	paths    []string
	madeDirs []string

	mu       sync.Mutex
	endpoint Endpoint // as published
}

// Publish removes stale files and writes the endpoint's files. After an error it
// leaves nothing behind. It ignores errors with files for programs other than
// Gemini CLI, which most users do not need.
func Publish(e Endpoint) (*Publication, error) {
	if len(e.PIDs) == 0 || e.Port <= 0 && len(e.Stdio) == 0 {
		return nil, errors.New("discovery: an endpoint needs a PID, and a port or a command")
	}
	prune(e.PIDs)
	p := &Publication{endpoint: e}
	p.writeMu.Lock()
	err := p.writeLocked(e)
	p.writeMu.Unlock()
	if err != nil {
		p.Remove()
		return nil, cannotWrite(err)
	}
	return p, nil
}

// SetRoots rewrites the files with other workspace roots. After an error the
// endpoint keeps its old roots, and the next call writes again.
func (p *Publication) SetRoots(roots []string) error {
	p.writeMu.Lock()
	defer p.writeMu.Unlock()
	e := p.Endpoint()
	if p.removed || slices.Equal(e.Roots, roots) && !p.failed {
		return nil
	}
	e.Roots = slices.Clone(roots)
	err := p.writeLocked(e)
	p.failed = err != nil
	if err != nil {
		return cannotWrite(err)
	}
	p.mu.Lock()
	p.endpoint = e
	p.mu.Unlock()
	return nil
}

func cannotWrite(err error) error { return fmt.Errorf("cannot write the discovery file: %w", err) }

// Endpoint returns what is published now.
func (p *Publication) Endpoint() Endpoint {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.endpoint
}

// writeLocked writes the endpoint's files. The caller holds writeMu.
func (p *Publication) writeLocked(e Endpoint) error {
	for _, c := range clis {
		err := p.writeCLILocked(c, e)
		if err != nil && c.name == geminiCLI {
			return err
		}
	}
	return nil
}

func (p *Publication) writeCLILocked(c cli, e Endpoint) error {
	dir, err := c.directory()
	if err != nil {
		return err
	}
	for _, d := range []string{filepath.Dir(dir), dir} {
		if _, err := os.Lstat(d); errors.Is(err, os.ErrNotExist) {
			p.madeDirs = append(p.madeDirs, d)
		}
	}
	if err := ownPath(dir); err != nil {
		return err
	}
	if err := disk.PrivateTempDir(dir); err != nil {
		return err
	}
	// A user who can write to its parent could replace it.
	parent := filepath.Dir(dir)
	info, err := os.Stat(parent)
	switch {
	case err != nil:
		return err
	case !disk.Own(parent, info):
		return errForeign(parent)
	case disk.OthersWrite(parent, info):
		if err := disk.DenyWrites(parent, info); err != nil {
			return err
		}
	}
	data, err := json.Marshal(e.file(c))
	if err != nil {
		return err
	}
	for _, name := range c.files(e.PIDs, e.Port) {
		path := filepath.Join(dir, name)
		if err := disk.WriteFile(path, data); err != nil {
			return err
		}
		if !slices.Contains(p.paths, path) {
			p.paths = append(p.paths, path)
		}
	}
	return nil
}

func errForeign(path string) error {
	return fmt.Errorf("%s belongs to another user: set %s to a directory that you own, for the CLI too", path, disk.TempVars)
}

// maxLinks bounds the symbolic links of a path, as systems do.
const maxLinks = 40

// ownPath checks that no other user can redirect a directory's path. Below a
// directory that others can write to, such as /tmp, each directory and each
// symbolic link must belong to the user or to the owner of its parent, who has
// more rights anyway. A part that does not exist yet is fine.
func ownPath(dir string) error {
	path, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	separator := string(filepath.Separator)
walk:
	for range maxLinks {
		at := filepath.VolumeName(path) + separator
		parent, err := os.Stat(at)
		if err != nil {
			return err
		}
		rest := strings.Split(strings.TrimPrefix(path, at), separator)
		shared := false
		for i, name := range rest {
			up := at
			at = filepath.Join(at, name)
			info, err := os.Lstat(at)
			if errors.Is(err, os.ErrNotExist) {
				return nil
			}
			if err != nil {
				return err
			}
			shared = shared || disk.OthersWrite(up, parent)
			if shared && !disk.Own(at, info) && !disk.SameOwner(at, info, up, parent) {
				return errForeign(at)
			}
			if info.Mode()&os.ModeSymlink != 0 {
				target, err := os.Readlink(at)
				if err != nil {
					return err
				}
				if !filepath.IsAbs(target) {
					target = filepath.Join(filepath.Dir(at), target)
				}
				path = filepath.Join(append([]string{target}, rest[i+1:]...)...)
				continue walk
			}
			parent = info
		}
		return nil
	}
	return fmt.Errorf("%s has too many symbolic links: set %s to a directory that you own, for the CLI too", dir, disk.TempVars)
}

// Remove deletes the files, and the directories that Publish made if they are
// empty. It may be called more than once.
func (p *Publication) Remove() {
	p.writeMu.Lock()
	defer p.writeMu.Unlock()
	p.removed = true
	for _, path := range p.paths {
		os.Remove(path)
	}
	p.paths = nil
	for _, d := range slices.Backward(p.madeDirs) {
		os.Remove(d) // fails, as it should, if others have files there
	}
	p.madeDirs = nil
}

// dialTimeout bounds a dial to the loopback address, where both a listener and a
// dead port answer immediately.
const dialTimeout = 500 * time.Millisecond

// prune removes the files that [Stale] returns.
func prune(pids []int) {
	for _, path := range Stale(pids) {
		os.Remove(path)
	}
}

// Stale returns the user's own discovery files that would lead a CLI to a dead
// companion: files of a Pollux process that has ended, and files whose port
// refuses connections while their process is dead or one of
// pids (the CLI takes the file with its own PID first and tries no other). It
// includes the leftovers of killed writes. It leaves out files of live
// companions, of other users, and of another container, whose processes are not
// visible here.
func Stale(pids []int) (stale []string) {
	for _, c := range clis {
		dir, err := c.directory()
		if err != nil {
			continue
		}
		stale = append(stale, disk.TempFiles.Find(dir)...)
		entries, err := os.ReadDir(dir)
		if err != nil {
			continue
		}
		pattern := c.pattern()
		for _, entry := range entries {
			path := filepath.Join(dir, entry.Name())
			info, err := entry.Info()
			if err != nil || !info.Mode().IsRegular() || !disk.Own(path, info) {
				continue
			}
			m := pattern.FindStringSubmatch(entry.Name())
			if m == nil {
				continue
			}
			f, err := Read(path)
			if err != nil {
				continue
			}
			if f.Namespace != "" && f.Namespace != proc.Namespace() || f.Namespace == "" && disk.Shared(dir) {
				continue
			}
			pid := f.PPID
			if c.prefix != "" {
				pid, _ = strconv.Atoi(m[1])
			}
			switch {
			case f.Pollux > 0 && !proc.Alive(f.Pollux):
				stale = append(stale, path)
			case f.Port == 0: // a command reaches it
			case (!proc.Alive(pid) || slices.Contains(pids, pid)) && refuses(f.Port):
				stale = append(stale, path)
			}
		}
	}
	return stale
}

func refuses(port int) bool {
	conn, err := net.DialTimeout("tcp", address(port), dialTimeout)
	if err == nil {
		conn.Close()
	}
	return sock.Refused(err)
}

func address(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

// MaxFile bounds the size of a discovery file, in bytes.
const MaxFile = 1 << 20

// Read reads one discovery file.
func Read(path string) (DiscoveryFile, error) {
	data, err := disk.ReadFile(path, MaxFile)
	if err != nil {
		return DiscoveryFile{}, err
	}
	return Parse(data)
}

// Parse parses the content of a discovery file and checks that a CLI can use it:
// it needs a port from 1 to 65535, or a command.
func Parse(data []byte) (DiscoveryFile, error) {
	var f DiscoveryFile
	if err := json.Unmarshal(data, &f); err != nil {
		return f, fmt.Errorf("not a discovery file: %w", err)
	}
	if f.Port == 0 && f.Stdio != nil && f.Stdio.Command != "" {
		return f, nil
	}
	if f.Port < 1 || f.Port > 65535 {
		return f, fmt.Errorf("not a discovery file: port %d", f.Port)
	}
	return f, nil
}
