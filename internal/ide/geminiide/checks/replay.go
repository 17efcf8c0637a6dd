package checks

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"pollux/internal/ide/geminiide"
	"pollux/internal/lazy"
	"pollux/internal/sys/disk"
	"pollux/internal/sys/proc"
)

// A launch describes where and how Gemini CLI would be started, for [replay].
type launch struct {
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
	tokenSince  = 6  // older ones send no token
	anyPIDSince = 31 // older ones read only files with the exact PID, and no GEMINI_CLI_IDE_PID
	checksUser  = 59 // older ones do not skip files of other users
)

func (p launch) since(minor int) bool { return p.Major > 0 || p.Minor >= minor }

// sendsToken reports whether the CLI authenticates itself.
func (p launch) sendsToken() bool { return p.since(tokenSince) }

// anyPID reports whether the CLI accepts a companion with a PID other than the
// one it looks for.
func (p launch) anyPID() bool { return p.since(anyPIDSince) }

// A candidate is one discovery file as a CLI judges it.
type candidate struct {
	Path string
	// PID is the process in its name; Alive reports whether that process exists.
	PID   int
	Alive bool
	// File is its content. PortText is its port as written, a number or a
	// string. Workspace is nil if it has none.
	File      geminiide.DiscoveryFile
	PortText  string
	Workspace *string
	// Err is why the CLI skips it, such as [errOtherUser].
	Err error
	// Inside reports whether its workspace contains the working directory.
	Inside bool
	// Own reports whether it is a regular file, not a link, of the user.
	Own bool
	// Direct reports whether its name has no port, as with early companions. Such a
	// file wins regardless of its workspace.
	Direct bool
}

// errOtherUser reports a file that belongs to another user.
var errOtherUser = errors.New("it belongs to another user")

// A lookup is the result of a CLI's search.
type lookup struct {
	// Dir is the directory that it searches, PID the process that it looks for.
	Dir string
	PID int
	// Candidates are all the files there, the preferred ones first. A CLI before
	// 0.31 does not see those with another PID.
	Candidates []candidate
	// Chosen is the only file that the CLI will try, or nil. Its workspace may
	// not match.
	Chosen *candidate
}

// fileName matches the names of the files. Its group is the PID.
var fileName = lazy.Regexp(`^gemini-ide-server-(\d+)-\d+\.json$`)

// replay searches for a companion as Gemini CLI does when it starts, by the rules
// of its version. It changes nothing and connects to nothing.
func replay(p launch) lookup {
	l := lookup{Dir: filepath.Join(geminiide.NodeTempDir(runtime.GOOS, p.Getenv), "gemini", "ide"), PID: geminiide.IDEPID(p.PID)}
	if pid, err := strconv.Atoi(p.Getenv("GEMINI_CLI_IDE_PID")); err == nil && pid > 0 && p.anyPID() {
		l.PID = pid
	}
	direct := filepath.Join(l.Dir, fmt.Sprintf("gemini-ide-server-%d.json", l.PID))
	if !p.anyPID() {
		direct = filepath.Join(filepath.Dir(filepath.Dir(l.Dir)), filepath.Base(direct))
	}
	if c := p.judge(direct); c.Err == nil {
		c.PID, c.Alive, c.Direct = l.PID, proc.Alive(l.PID), true
		l.Candidates, l.Chosen = []candidate{c}, &c
	}
	entries, _ := os.ReadDir(l.Dir)
	var found []candidate
	for _, e := range entries {
		m := fileName().FindStringSubmatch(e.Name())
		if m == nil {
			continue
		}
		c := p.judge(filepath.Join(l.Dir, e.Name()))
		c.PID, _ = strconv.Atoi(m[1])
		c.Alive = proc.Alive(c.PID)
		found = append(found, c)
	}
	rank := func(c candidate) int {
		switch {
		case c.PID == l.PID:
			return 0
		case c.Alive:
			return 1
		}
		return 2
	}
	slices.SortStableFunc(found, func(a, b candidate) int {
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
func (p launch) choose(pid int, found []candidate) *candidate {
	port := p.Getenv("GEMINI_CLI_IDE_SERVER_PORT")
	var fitting, rest []*candidate
	for i := range found {
		c := &found[i]
		switch {
		case c.Err != nil || !p.anyPID() && c.PID != pid:
		case c.Inside:
			fitting = append(fitting, c)
		case p.anyPID():
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
	if i := slices.IndexFunc(pool, func(c *candidate) bool { return port != "" && c.PortText == port }); i >= 0 {
		return pool[i]
	}
	return pool[0]
}

// judge reads one file as the CLI does.
func (p launch) judge(path string) candidate {
	c := candidate{Path: path}
	if link, err := os.Lstat(path); err == nil {
		c.Own = link.Mode().IsRegular() && disk.Own(path, link)
	}
	info, err := os.Stat(path)
	if err != nil {
		c.Err = disk.Cause(err)
		return c
	}
	if runtime.GOOS != "windows" && p.since(checksUser) && !disk.Own(path, info) {
		c.Err = errOtherUser
		return c
	}
	data, err := disk.ReadFile(path, geminiide.MaxFile)
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
	c.Inside = lenient.WorkspacePath != nil && geminiide.Holds(*lenient.WorkspacePath, p.Dir)
	return c
}

// dialHost returns the host at which a CLI launched in this way dials a
// companion's port: the loopback address or, in a container that is not known to
// belong to an editor, the container's host.
func dialHost(p launch) string {
	if !geminiide.InContainer() {
		return "127.0.0.1"
	}
	for _, key := range []string{"SSH_CONNECTION", "VSCODE_REMOTE_CONTAINERS_SESSION", "REMOTE_CONTAINERS"} {
		if p.Getenv(key) != "" && p.anyPID() {
			return "127.0.0.1"
		}
	}
	return containerHost
}

const containerHost = "host.docker.internal"
