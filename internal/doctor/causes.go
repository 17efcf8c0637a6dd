package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"pollux/internal/paths"
	"pollux/internal/sys/disk"
	"pollux/internal/sys/proc"
	"pollux/internal/sys/shell"
	"pollux/internal/sys/sock"
)

// The tables in this file have the causes that several agents share.

// ShowChanges is the next step if nothing shows a companion's changes.
const ShowChanges = "pollux review, or attach an editor that has Pollux"

// StartWith returns what starts a companion with an agent.
func StartWith(command string) string {
	return "pollux run -- " + command + ", or start an editor here that has Pollux (pollux install)"
}

// A Lock is a file that leads an agent to a companion, as the agent reads it. It is the
// subject of [Locks] and [Answers].
type Lock struct {
	// Agent is the agent's name, Command what starts it, and Dir where it starts.
	Agent, Command, Dir string
	// Path is the file's, Program the name of the program that wrote it, and Process that
	// program's process; 0 if unknown.
	Path, Program string
	Process       int
	Folders       []string
	// Exact is set if the agent wants its own folder, and none above.
	Exact bool
	// Live reports whether the agent would connect if the folder is right.
	Live bool
	// Skipped is why the agent does not read the file, or nil.
	Skipped error
	// Address is where the companion listens, and Answer what came of an attempt to connect.
	Address string
	Answer  error
}

// Words returns the words that the tables may name.
func (l *Lock) Words() Words {
	folder := l.closest()
	host, _, _ := net.SplitHostPort(l.Address)
	words := Words{
		"agent": l.Agent, "start": StartWith(l.Command), "dir": l.Dir, "file": l.Path, "program": l.Program, "address": Short(l.Address), "host": Short(host),
		"folder": Short(folder), "target": Word(paths.Real(folder)), "enter": shell.EnterCommand(folder), "remove": shell.RemoveCommand(l.Path),
		"resume": shell.ResumeOrKill(l.Process), "gone": "nothing answers on its port",
	}
	if l.Process != 0 {
		words["gone"] = fmt.Sprintf("its process %d does not run here", l.Process)
	}
	if err := cmp.Or(l.Skipped, l.Answer); err != nil {
		words["error"] = Reason(err)
	}
	return words
}

// covers, links and near report how a folder of the lock relates to the agent's: the agent takes
// it for its own; it would, but for a symbolic link; it is above or below.
func (l *Lock) covers(folder string) bool {
	return folder != "" && (filepath.Clean(folder) == l.Dir || !l.Exact && paths.Contains(folder, l.Dir))
}

func (l *Lock) links(folder string) bool { return folder != "" && l.covers(paths.Real(folder)) }

func (l *Lock) near(folder string) bool {
	return folder != "" && (paths.Contains(l.Dir, folder) || paths.Contains(folder, l.Dir))
}

// closest returns the folder with the closest relation; "" if there is none.
func (l *Lock) closest() string {
	for _, is := range []func(string) bool{l.covers, l.links, l.near} {
		if i := slices.IndexFunc(l.Folders, is); i >= 0 {
			return l.Folders[i]
		}
	}
	return ""
}

// Covers reports whether the agent takes a folder of the lock for its own.
func (l *Lock) Covers() bool { return l.covers(l.closest()) }

// Own reports whether the file is the user's.
func (l *Lock) Own() bool {
	info, err := os.Stat(l.Path)
	return err == nil && disk.Own(l.Path, info)
}

// Locks says why an agent takes none of its locks.
var Locks = []Cause[*Lock]{
	Fails("lock", func(l *Lock) bool { return l.Skipped != nil && l.links(l.closest()) },
		"{agent} skips {file}: {error}", "restart that editor"),
	Fails("lock", func(l *Lock) bool { return l.Skipped == nil && !l.Live && l.Covers() },
		"{program} has this folder, but {gone}: {agent} does not use its file", "{start}"),
	Fails("symlink", func(l *Lock) bool { return l.Skipped == nil && l.Live && !l.Covers() && l.links(l.closest()) },
		"{program} names its folder {folder}, which is a symbolic link: {agent} compares it with {dir}",
		"open {target} in that editor, or type /ide"),
	Fails("workspace", func(l *Lock) bool { return l.Skipped == nil && l.Live && !l.Covers() && l.near(l.closest()) },
		"{program} is for {folder}, but this is {dir}", "{enter}, or here: {start}"),
}

// What a companion may answer, for [Lock.Answer].
var (
	ErrToken        = errors.New("it refuses the token")
	ErrNoView       = errors.New("nothing shows its changes")
	ErrNotCompanion = errors.New("it does not answer as a companion does")
	ErrIPv6         = errors.New("it listens on ::1 only")
	errForeign      = errors.New("its file is not the user's")
)

// Refusal returns what a companion that answers with a status of HTTP refuses, or nil.
func Refusal(status int) error {
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden:
		return ErrToken
	case http.StatusServiceUnavailable:
		return ErrNoView
	}
	return nil
}

func answers(causes ...error) func(*Lock) bool {
	return func(l *Lock) bool {
		return slices.ContainsFunc(causes, func(err error) bool { return errors.Is(l.Answer, err) })
	}
}

// answerTimeout is how long a companion may take to answer.
const answerTimeout = 3 * time.Second

// Ask reports what comes of an attempt to connect to the companion of a lock, and whether the
// companion answers. It does not connect for a file that is not the user's.
func (c *Checker) Ask(ctx context.Context, l *Lock, connect func(context.Context) error) bool {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	l.Answer = errForeign
	if l.Own() {
		l.Answer = connect(ctx)
	}
	First(c, Answers, l)
	return l.Answer == nil
}

// Answers says whether the companion of a lock answers, and why not.
var Answers = []Cause[*Lock]{
	Passes("port", func(l *Lock) bool { return l.Answer == nil }, "{program} answers"),
	Passes("port", answers(errors.ErrUnsupported), "{program} has an address of another system, which doctor cannot check"),
	Fails("user", answers(errForeign), "{file} is not your file", "start {agent} and the editor as the same user"),
	Fails("port", answers(ErrIPv6), "{program} listens on ::1 only, and the agent connects to {host}", "let it listen on 127.0.0.1"),
	Fails("token", answers(ErrToken), "{program} refuses the token in {file}", "restart that editor"),
	Fails("view", answers(ErrNoView), "{program} refuses agents: nothing shows its changes", ShowChanges),
	Fails("port", answers(ErrNotCompanion), "a program other than {program} may listen on {address}, which {file} names: {error}",
		"restart that editor, or {remove}"),
	Fails("port", func(l *Lock) bool { return sock.Refused(l.Answer) },
		"nothing listens on {address}, which {file} of {program} names", "restart that editor"),
	Fails("port", answers(context.DeadlineExceeded, os.ErrDeadlineExceeded),
		"{program} accepts connections but does not answer: it is stopped or hangs", "{resume}"),
	Fails("port", Otherwise[*Lock], "{program} does not answer: {error}", "restart that editor"),
}

// NoView reports whether the companion here publishes no lock file because nothing shows its
// changes, and adds the finding.
func (c *Checker) NoView() bool {
	r := c.RunningHere()
	if r == nil || len(r.Surfaces) > 0 || r.Page {
		return false
	}
	c.Fail("view", ShowChanges, "the companion of %s has no lock file, because nothing shows its changes", Short(r.Editor.DisplayName))
	return true
}

// NotInstalled warns that the part's agent is not on the PATH. install is the command that
// installs it.
func (c *Checker) NotInstalled(title, command, install string) {
	c.install = install
	c.Warn("cli", install, "%s is not installed here: no %s is on the PATH of this shell", title, command)
}

// Missing reports whether the part's agent is not installed, as [Checker.NotInstalled] has said.
func (c *Checker) Missing() bool { return c.install != "" }

// None reports that an agent finds no companion here. If none runs and no agent was named,
// that is not a failure: the agent has not been started. A running companion publishes itself
// only to agents that it has found, so one that was installed later may not find it.
func (c *Checker) None(command string) {
	next, text := StartWith(command), "no companion is running for "+c.Dir
	switch r := c.RunningHere(); {
	case r != nil:
		next = "restart that companion"
		text = fmt.Sprintf("the companion of %s is running for this folder, but %s does not find it", Short(r.Editor.DisplayName), command)
	case c.Overview:
		c.none = true
		c.OK("companion", "no companion is running here; `pollux run %s` starts both", command)
		return
	}
	if c.Missing() {
		next = c.install + ", then " + next
	}
	c.Fail("companion", next, "%s", text)
}

// OwnDirectory checks that a directory of companions belongs to the user. It returns nil if
// the directory does not exist, or has a finding: then well is false. own says what to do if
// it is another user's.
func (c *Checker) OwnDirectory(path, own string) (info fs.FileInfo, well bool) {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, true
	case err != nil:
		c.Fail("directory", own, "%s cannot be examined: %v", path, Reason(err))
	case !info.IsDir():
		c.Fail("directory", shell.RemoveCommand(path), "%s is not a directory, so no companion can publish itself there", path)
	case !disk.Own(path, info):
		c.Fail("directory", own, "%s belongs to another user: your companions cannot publish themselves there, and agents do not trust it", path)
	default:
		return info, true
	}
	return nil, false
}

// WarnOpen adds a warning, with a fix, if other users can change a directory, or read or
// change a companion's file in the last directory. It reports whether they can.
func (c *Checker) WarnOpen(files []string, dirs ...string) bool {
	open := slices.DeleteFunc(slices.Clone(dirs), func(dir string) bool {
		info, err := os.Lstat(dir)
		return err != nil || !disk.OthersWrite(dir, info)
	})
	last := dirs[len(dirs)-1]
	if info, err := os.Stat(last); err == nil && info.Mode().Perm()&0o011 != 0 && !disk.Private(last, info) {
		for _, path := range files {
			if info, err := os.Lstat(path); err == nil && disk.Own(path, info) && !disk.Private(path, info) {
				open = append(open, path)
			}
		}
	}
	c.Fixable("directory", Warning, "other users of this machine can read your companion's token or replace it", OwnAlone, open, disk.Narrow)
	return len(open) > 0
}

// WarnStale adds a warning, with a fix, that companions left files behind when they were
// killed. remove removes one of them.
func (c *Checker) WarnStale(stale []string, remove func(path string) error) {
	c.Fixable("stale", Warning, "companions that have ended left files behind", "remove", stale, remove)
}

// OwnAlone is the fix that [disk.Narrow] makes.
const OwnAlone = "make readable for you alone:"

// Fixable adds a finding about files, unless there are none. Its fix applies a function to each
// of them.
func (c *Checker) Fixable(check string, status Status, what, fix string, files []string, apply func(path string) error) {
	if len(files) == 0 {
		return
	}
	list := strings.Join(files, ", ")
	c.Add(Finding{
		Check: check, Status: status, Rule: what, Text: what + ": " + list, Next: FixCommand, Fix: fix + " " + list,
		Apply: func() error {
			var errs []error
			for _, path := range files { // only what the user has seen
				if err := apply(path); !errors.Is(err, fs.ErrNotExist) { // its companion may have ended
					errs = append(errs, err)
				}
			}
			return errors.Join(errs...)
		},
	})
}

// FindTemp looks for a companion in the temporary directories that the variables of the
// user's other processes name. It adds a finding for the first directory in which there finds
// a companion, and reports whether it has found one. what names the companion, and here is
// where the agent looks.
func (c *Checker) FindTemp(here string, variables []string, there func(tmp string) (what string, found bool)) bool {
	tmps := []string{"/tmp", os.Getenv("XDG_RUNTIME_DIR")}
	for _, key := range variables {
		tmps = append(tmps, proc.Environs(key)...)
	}
	slices.Sort(tmps)
	for _, tmp := range slices.Compact(tmps) {
		if !filepath.IsAbs(tmp) {
			continue
		}
		if what, found := there(tmp); found {
			next := "export TMPDIR=" + Word(tmp)
			if tmp == "/tmp" {
				next = "unset " + strings.Join(variables, " ")
			}
			c.Fail("tmpdir", next, "%s, but an agent started here looks for %s: TMPDIR differs", what, here)
			return true
		}
	}
	return false
}
