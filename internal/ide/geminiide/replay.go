package geminiide

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"pollux/internal/paths"
	"pollux/internal/sys/disk"
	"pollux/internal/sys/proc"
)

// A Launch describes where and how Gemini CLI would be started, for [Replay].
type Launch struct {
	// Dir is the working directory.
	Dir string
	// Getenv is its environment.
	Getenv func(string) string
	// PID is a process with the same ancestors as the CLI: a child of the same
	// shell. It is 0 if the CLI cannot see them, because ps is missing.
	PID int
	// Major and Minor are the CLI's version, on which the rules depend.
	Major, Minor int
}

// The minor versions of Gemini CLI 0.x that changed the rules. We found them by
// running the releases.
const (
	sendsToken = 6  // older ones send no token
	anyPID     = 31 // older ones read only files with the exact PID, and no GEMINI_CLI_IDE_PID
	checksUser = 59 // older ones do not skip files of other users
)

func (p Launch) since(minor int) bool { return p.Major > 0 || p.Minor >= minor }

// SendsToken reports whether the CLI authenticates itself.
func (p Launch) SendsToken() bool { return p.since(sendsToken) }

// AnyPID reports whether the CLI accepts a companion with a PID other than the
// one it looks for.
func (p Launch) AnyPID() bool { return p.since(anyPID) }

// A Candidate is one discovery file as a CLI judges it.
type Candidate struct {
	Path string
	// PID is the process in its name; Alive reports whether that process exists.
	PID   int
	Alive bool
	// File is its content. PortText is its port as written, a number or a
	// string. Workspace is nil if it has none.
	File      DiscoveryFile
	PortText  string
	Workspace *string
	// Err is why the CLI skips it, such as [ErrOtherUser].
	Err error
	// Inside reports whether its workspace contains the working directory.
	Inside bool
	// Own reports whether it is a regular file, not a link, of the user.
	Own bool
	// Direct reports whether its name has no port, as with early companions. Such a
	// file wins regardless of its workspace.
	Direct bool
}

// ErrOtherUser reports a file that belongs to another user.
var ErrOtherUser = errors.New("it belongs to another user")

// A Lookup is the result of a CLI's search.
type Lookup struct {
	// Dir is the directory that it searches, PID the process that it looks for.
	Dir string
	PID int
	// Candidates are all the files there, the preferred ones first. A CLI before
	// 0.31 does not see those with another PID.
	Candidates []Candidate
	// Chosen is the only file that the CLI will try, or nil. Its workspace may
	// not match.
	Chosen *Candidate
}

// Replay searches for a companion as Gemini CLI does when it starts, by the rules
// of its version. It changes nothing and connects to nothing.
func Replay(p Launch) Lookup {
	gemini := clis[0]
	pattern := gemini.pattern()
	l := Lookup{Dir: filepath.Join(NodeTempDir(runtime.GOOS, p.Getenv), gemini.dir), PID: idePID(p.PID)}
	if pid, err := strconv.Atoi(p.Getenv("GEMINI_CLI_IDE_PID")); err == nil && pid > 0 && p.AnyPID() {
		l.PID = pid
	}
	direct := filepath.Join(l.Dir, fmt.Sprintf("%s-%d.json", gemini.prefix, l.PID))
	if !p.AnyPID() {
		direct = filepath.Join(filepath.Dir(filepath.Dir(l.Dir)), filepath.Base(direct))
	}
	if c := p.judge(direct); c.Err == nil {
		c.PID, c.Alive, c.Direct = l.PID, proc.Alive(l.PID), true
		l.Candidates, l.Chosen = []Candidate{c}, &c
	}
	entries, _ := os.ReadDir(l.Dir)
	var found []Candidate
	for _, e := range entries {
		m := pattern.FindStringSubmatch(e.Name())
		if m == nil {
			continue
		}
		c := p.judge(filepath.Join(l.Dir, e.Name()))
		c.PID, _ = strconv.Atoi(m[1])
		c.Alive = proc.Alive(c.PID)
		found = append(found, c)
	}
	rank := func(c Candidate) int {
		switch {
		case c.PID == l.PID:
			return 0
		case c.Alive:
			return 1
		}
		return 2
	}
	slices.SortStableFunc(found, func(a, b Candidate) int {
		if d := rank(a) - rank(b); d != 0 {
			return d
		}
		return b.PID - a.PID
	})
	l.Candidates = append(l.Candidates, found...)
	if l.Chosen == nil {
		l.Chosen = p.choose(l.PID, found)
	}
	return l
}

// choose returns the first usable file in the order of preference, or nil.
func (p Launch) choose(pid int, found []Candidate) *Candidate {
	port := p.Getenv("GEMINI_CLI_IDE_SERVER_PORT")
	var fitting, rest []*Candidate
	for i := range found {
		c := &found[i]
		switch {
		case c.Err != nil || !p.AnyPID() && c.PID != pid:
		case c.Inside:
			fitting = append(fitting, c)
		case p.AnyPID():
			rest = append(rest, c)
		}
	}
	pool := fitting
	if len(pool) == 0 {
		pool = rest
	}
	if len(pool) == 0 {
		return nil
	}
	if i := slices.IndexFunc(pool, func(c *Candidate) bool { return port != "" && c.PortText == port }); i >= 0 {
		return pool[i]
	}
	return pool[0]
}

// judge reads one file as the CLI does.
func (p Launch) judge(path string) Candidate {
	c := Candidate{Path: path}
	if link, err := os.Lstat(path); err == nil {
		c.Own = link.Mode().IsRegular() && disk.Own(path, link)
	}
	info, err := os.Stat(path)
	if err != nil {
		c.Err = disk.Cause(err)
		return c
	}
	if runtime.GOOS != "windows" && p.since(checksUser) && !disk.Own(path, info) {
		c.Err = ErrOtherUser
		return c
	}
	data, err := disk.ReadFile(path, maxFile)
	if err != nil {
		c.Err = disk.Cause(err)
		return c
	}
	var lenient struct {
		Port          json.RawMessage
		WorkspacePath *string
	}
	if err := json.Unmarshal(data, &lenient); err != nil {
		c.Err = errors.New("it is not a JSON object")
		return c
	}
	c.PortText = strings.Trim(string(lenient.Port), `"`)
	if c.PortText == "0" || c.PortText == "null" { // to the CLI it is missing
		c.PortText = ""
	}
	c.Workspace = lenient.WorkspacePath
	json.Unmarshal(data, &c.File) // the other fields, as far as they have the right type
	c.File.Port, _ = strconv.Atoi(c.PortText)
	c.Inside = lenient.WorkspacePath != nil && Holds(*lenient.WorkspacePath, p.Dir)
	return c
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

// DialHost returns the host at which a CLI launched in this way dials a
// companion's port: the loopback address or, in a container that is not known to
// belong to an editor, the container's host.
func DialHost(p Launch) string {
	if !inContainer() {
		return "127.0.0.1"
	}
	for _, key := range []string{"SSH_CONNECTION", "VSCODE_REMOTE_CONTAINERS_SESSION", "REMOTE_CONTAINERS"} {
		if p.Getenv(key) != "" && p.AnyPID() {
			return "127.0.0.1"
		}
	}
	return containerHost
}

const containerHost = "host.docker.internal"
