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
	"pollux/internal/sys"
)

// A Place is where a Gemini CLI is to be started, for [Replay].
type Place struct {
	// Dir is the working directory.
	Dir string
	// Getenv is its environment.
	Getenv func(string) string
	// PID is a process with the ancestors that the CLI will have: a child of
	// the same shell; 0 where the CLI cannot see them, for want of ps.
	PID int
	// Major and Minor are the CLI's version, which decides about the rules.
	Major, Minor int
}

// Since which release Gemini CLI does what, in its 0.x series; found by running
// them.
const (
	sendsToken = 6  // before, it connects to no companion that asks for one
	anyPID     = 31 // before, only files of the exact PID are looked at; GEMINI_CLI_IDE_PID too
	checksUser = 59 // files of other users are passed over
)

func (p Place) since(minor int) bool { return p.Major > 0 || p.Minor >= minor }

// SendsToken reports whether the CLI authenticates itself.
func (p Place) SendsToken() bool { return p.since(sendsToken) }

// AnyPID reports whether the CLI takes a companion whose PID is not the one it
// looks for.
func (p Place) AnyPID() bool { return p.since(anyPID) }

// A Candidate is one discovery file as a CLI judges it.
type Candidate struct {
	Path string
	// PID is the process in its name; Alive says whether there is one.
	PID   int
	Alive bool
	// File is what it says; PortText its port as written, in a number or a
	// string; Workspace is nil where it names none.
	File      DiscoveryFile
	PortText  string
	Workspace *string
	// Err says why the CLI passes over it; [ErrOtherUser] among others.
	Err error
	// Inside is whether its workspace holds the working directory.
	Inside bool
	// Own is whether the file, which is no link, is the user's own.
	Own bool
	// Direct is whether it has the name without a port of an early companion,
	// which wins whatever its workspace.
	Direct bool
}

// ErrOtherUser is why a file of another user is passed over.
var ErrOtherUser = errors.New("it belongs to another user")

// A Lookup is what a CLI finds.
type Lookup struct {
	// Dir is where it looks, PID the process it looks for.
	Dir string
	PID int
	// Candidates are all files there, those it prefers first. Of those with
	// another PID a CLI before 0.31 sees none.
	Candidates []Candidate
	// Chosen is the one file that it will try; nil if there is none. Its
	// workspace may not fit.
	Chosen *Candidate
}

// Replay does what Gemini CLI does at its start to find a companion, by the
// rules of its version. It changes nothing and dials nobody.
func Replay(p Place) Lookup {
	gemini := clis[0]
	l := Lookup{Dir: filepath.Join(NodeTempDir(runtime.GOOS, p.Getenv), "gemini", "ide"), PID: idePID(p.PID)}
	if pid, err := strconv.Atoi(p.Getenv("GEMINI_CLI_IDE_PID")); err == nil && pid > 0 && p.AnyPID() {
		l.PID = pid
	}
	direct := filepath.Join(l.Dir, fmt.Sprintf("gemini-ide-server-%d.json", l.PID))
	if !p.AnyPID() {
		direct = filepath.Join(filepath.Dir(filepath.Dir(l.Dir)), filepath.Base(direct))
	}
	if c := p.judge(direct); c.Err == nil {
		c.PID, c.Alive, c.Direct = l.PID, sys.Alive(l.PID), true
		l.Candidates, l.Chosen = []Candidate{c}, &c
	}
	entries, _ := os.ReadDir(l.Dir)
	var found []Candidate
	for _, e := range entries {
		m := gemini.pattern.FindStringSubmatch(e.Name())
		if m == nil {
			continue
		}
		c := p.judge(filepath.Join(l.Dir, e.Name()))
		c.PID, _ = strconv.Atoi(m[1])
		c.Alive = sys.Alive(c.PID)
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

// choose picks among the files in the order of preference.
func (p Place) choose(pid int, found []Candidate) *Candidate {
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

// judge reads one file as the CLI would.
func (p Place) judge(path string) Candidate {
	c := Candidate{Path: path}
	if link, err := os.Lstat(path); err == nil {
		c.Own = link.Mode().IsRegular() && sys.Own(link)
	}
	info, err := os.Stat(path)
	if err != nil {
		c.Err = sys.Cause(err)
		return c
	}
	if p.since(checksUser) && !sys.Own(info) {
		c.Err = ErrOtherUser
		return c
	}
	data, err := sys.ReadFile(path, maxFile)
	if err != nil {
		c.Err = sys.Cause(err)
		return c
	}
	var lenient struct {
		Port          json.RawMessage
		WorkspacePath *string
	}
	if err := json.Unmarshal(data, &lenient); err != nil {
		c.Err = errors.New("it is no JSON object")
		return c
	}
	c.PortText = strings.Trim(string(lenient.Port), `"`)
	if c.PortText == "0" || c.PortText == "null" { // the CLI takes it for none
		c.PortText = ""
	}
	c.Workspace = lenient.WorkspacePath
	json.Unmarshal(data, &c.File) // the rest, as far as it is what it should be
	c.File.Port, _ = strconv.Atoi(c.PortText)
	c.Inside = lenient.WorkspacePath != nil && Holds(*lenient.WorkspacePath, p.Dir)
	return c
}

// Holds reports whether a workspacePath holds the directory, by the CLI's rule:
// a list of URI-encoded paths, symbolic links resolved. An empty list holds
// nothing; an empty part of a list holds the working directory of the CLI and
// so, in effect, everything.
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

// cliPath is what the CLI makes of a path: decoded as a URI where it can be,
// absolute, with symbolic links resolved as far as it exists.
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

// DialHost is the host at which a CLI in this place dials a companion's port:
// the loopback address or, in a container that it does not take for one of an
// editor's, the container's host.
func DialHost(p Place) string {
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
