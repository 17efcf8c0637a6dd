// Package checks contains doctor's checks of Claude Code and opencode. They replay
// what an agent started here will do: whether it connects automatically, which lock file it
// takes, and whether that companion answers. Package claudeide has the rules; this
// package says why they fail and what to do.
package checks

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"pollux/internal/doctor"
	"pollux/internal/ide/blocking"
	"pollux/internal/ide/claudeide"
	"pollux/internal/paths"
	"pollux/internal/sys/disk"
	"pollux/internal/sys/proc"
	"pollux/internal/sys/shell"
	"pollux/internal/sys/sock"
)

const (
	attach = "pollux run --attach -- claude"
	// searchTimeout is how long Claude Code looks for a lock after its start.
	searchTimeout = 30 * time.Second
	// maxAncestors is how many processes above it Claude Code examines.
	maxAncestors = 10
)

// A claude is one run of Claude Code's checks.
type claude struct {
	*doctor.Checker
	search   search
	settings settings
}

// Claude checks why Claude Code does not connect to a companion, or shows no diffs.
func Claude(ctx context.Context, dc *doctor.Checker) {
	c := &claude{Checker: dc, search: newSearch(dc)}
	c.settings = loadSettings(dc.Dir)
	for _, err := range c.settings.errs {
		c.Warn("settings", "correct the file", "Claude Code cannot read its settings: %s", doctor.Short(err.Error()))
	}
	doctor.First(dc, autoConnect, c)
	c.checkDirectory()
	checkStale(dc, c.search.locks())
	if l, ok := c.findLock(); ok && c.checkLock(ctx, l) {
		c.checkLate(l.Found)
	}
	if tool := c.settings.DiffTool; tool != "" && tool != "auto" {
		c.Fail("diff-tool", `type /config in Claude Code, and set "Diff tool" to auto`,
			"the setting diffTool is %s: Claude Code shows changes in its terminal only", doctor.Short(tool))
	}
}

// autoConnect says whether a Claude Code started here looks for a companion.
var autoConnect = []doctor.Cause[*claude]{
	doctor.Fails("auto-connect", func(*claude) bool { return isOne(claudeide.EnvAutoConnect, "0", "false", "no", "off") },
		claudeide.EnvAutoConnect+" is false: it keeps Claude Code from connecting automatically, even with --ide or "+claudeide.EnvPort,
		shell.UnsetCommand(claudeide.EnvAutoConnect)+", or type /ide in Claude Code"),
	doctor.Fails("auto-connect", func(*claude) bool { return isTrue("CLAUDE_CODE_SIMPLE") },
		"CLAUDE_CODE_SIMPLE keeps Claude Code from connecting automatically", shell.UnsetCommand("CLAUDE_CODE_SIMPLE")),
	doctor.Passes("auto-connect", func(*claude) bool { return isTrue(claudeide.EnvAutoConnect) },
		"Claude Code connects automatically ("+claudeide.EnvAutoConnect+")"),
	doctor.Passes("auto-connect", func(*claude) bool { return os.Getenv(claudeide.EnvPort) != "" },
		"Claude Code connects automatically ("+claudeide.EnvPort+")"),
	doctor.Passes("auto-connect", func(c *claude) bool { return c.settings.AutoConnect },
		"Claude Code connects automatically (autoConnectIde)"),
	doctor.Passes("auto-connect", func(c *claude) bool { return c.search.inIDETerminal() },
		"Claude Code connects automatically in this terminal"),
	doctor.Passes("auto-connect", func(c *claude) bool { return c.Overview && c.RunningHere() == nil },
		"Claude Code connects if pollux run or an editor's terminal starts it, with --ide, or once you type /ide"),
	doctor.Warns("auto-connect", func(*claude) bool { return os.Getenv("ENABLE_IDE_INTEGRATION") != "" },
		byHand+"; ENABLE_IDE_INTEGRATION has no effect any more", turnOn),
	doctor.Warns("auto-connect", doctor.Otherwise[*claude], byHand, turnOn),
}

const (
	byHand = "a Claude Code started here connects only with --ide, or once you type /ide"
	turnOn = `claude --ide, or turn on "Auto-connect to IDE" in its /config`
)

func newSearch(c *doctor.Checker) search {
	s := search{dir: c.Dir, getenv: os.Getenv}
	// A link, which Claude Code resolves, is more than a spelling.
	if dir := claudeide.Spelling(); paths.Same(dir, c.Dir) {
		s.spelling = dir
	}
	return s
}

// isOne reports whether a variable has one of the values, as Claude Code reads it.
func isOne(variable string, values ...string) bool {
	return slices.Contains(values, strings.ToLower(strings.TrimSpace(os.Getenv(variable))))
}

func isTrue(variable string) bool { return isOne(variable, "1", "true", "yes", "on") }

// checkDirectory checks that companions can write lock files, and that no other user can
// read the tokens in them.
func (c *claude) checkDirectory() {
	dir, err := claudeide.Dir()
	if err != nil {
		c.Fail("directory", "set "+disk.HomeVar, "there is no directory for lock files: %v", err)
		return
	}
	dir = paths.Real(dir)
	info, well := c.OwnDirectory(dir, "start Claude Code and the editor as the same user")
	if info == nil || !well {
		return // the first companion makes it
	}
	var files []string
	for _, f := range claudeide.Find(dir) {
		if f.Pollux != nil {
			files = append(files, f.Path)
		}
	}
	c.WarnOpen(files, dir)
}

// checkStale finds the locks that companions left behind when they were killed.
func checkStale(c *doctor.Checker, locks []claudeide.Found) {
	var stale []string
	for _, f := range locks {
		if f.Pollux.Stale(f.PID) {
			stale = append(stale, f.Path)
		}
	}
	c.WarnStale(stale, blocking.RemoveStale)
}

// A lock is a lock file as Claude Code or opencode reads it.
type lock struct {
	doctor.Lock
	claudeide.Found
	search search
}

// newLock returns the lock of a file, for an agent that dials a host.
func newLock(agent, command, host string, s search, f claudeide.Found) *lock {
	return &lock{Found: f, search: s, Lock: doctor.Lock{
		Agent: agent, Command: command, Dir: s.dir, Path: f.Path, Folders: f.WorkspaceFolders, Process: f.PID,
		Program: fmt.Sprintf("%s (port %d)", cmp.Or(doctor.Short(f.Title()), "a program without a name"), f.Port),
		Address: net.JoinHostPort(host, strconv.Itoa(f.Port)),
	}}
}

// Words returns the words that the tables may name.
func (l *lock) Words() doctor.Words {
	words := l.Lock.Words()
	words["spelling"], words["config"] = doctor.Short(l.search.spelling), filepath.Dir(filepath.Dir(l.Lock.Path))
	words["home"], words["attach"] = shell.EnterCommand(l.Dir), attach
	return words
}

// findLock returns the lock that Claude Code takes, or says why it takes none.
func (c *claude) findLock() (*lock, bool) {
	matches := c.search.claude()
	if port := os.Getenv(claudeide.EnvPort); port != "" && (len(matches) != 1 || matches[0].Port != c.search.port()) {
		next := shell.UnsetCommand(claudeide.EnvPort)
		const text = claudeide.EnvPort + "=%s names a server without a lock file"
		if len(matches) == 1 {
			c.Warn("variables", next, text, doctor.Short(port))
		} else {
			c.Fail("variables", next+"; then "+doctor.StartWith(claudeide.ClaudeCommand),
				text+": Claude Code needs the token in that file", doctor.Short(port))
		}
	}
	var names []string
	for _, f := range matches {
		names = append(names, c.lock(f).Program)
	}
	switch len(matches) {
	case 0:
		c.explainNone()
	case 1:
		return c.lock(matches[0]), true
	default:
		c.Fail("several", "end one of them, or "+attach,
			"Claude Code connects to none of several that have this folder: %s", strings.Join(names, ", "))
	}
	return nil, false
}

func (c *claude) lock(f claudeide.Found) *lock {
	return newLock("Claude Code", claudeide.ClaudeCommand, c.search.host(), c.search, f)
}

// explainNone says why no lock matches.
func (c *claude) explainNone() {
	if c.NoView() {
		return
	}
	var locks []*lock
	var common []*doctor.Lock
	for _, f := range c.search.locks() {
		l := c.lock(f)
		l.Lock.Live = f.Live()
		locks = append(locks, l)
		if !f.Pollux.Stale(f.PID) {
			common = append(common, &l.Lock)
		}
	}
	if !doctor.First(c.Checker, unmatched, locks...) && !doctor.First(c.Checker, doctor.Locks, common...) {
		c.None(claudeide.ClaudeCommand)
	}
}

// unmatched has causes of Claude Code's own why no lock matches.
var unmatched = []doctor.Cause[*lock]{
	doctor.Fails("container", func(l *lock) bool {
		return l.Lock.Covers() && l.PID != 0 && !l.Found.Live() && !l.Pollux.Stale(l.PID) && l.Listens(l.search.host())
	},
		"{program} answers, but its process does not run here: Claude Code deletes its lock file when it starts",
		"give the container its own {config}, or start the companion here"),
	doctor.Fails("spelling", func(l *lock) bool { return l.search.spelling != "" && l.Lock.Covers() && l.Lock.Live },
		"{program} has this folder, but this terminal spells it {spelling}: Claude Code distinguishes upper and lower case",
		"{home}, or {attach}"),
}

// checkLock reports whether Claude Code connects to the lock's server.
func (c *claude) checkLock(ctx context.Context, l *lock) bool {
	if r := c.RunningHere(); r != nil && l.Own() && l.Pollux == nil && !strayTerminal(l) {
		c.Warn("rival", "end that program, or "+attach, "Claude Code will connect to %s and not to Pollux's companion of %s",
			l.Program, doctor.Short(r.Editor.DisplayName))
	}
	return !doctor.First(c.Checker, []doctor.Cause[*lock]{
		doctor.Fails("terminal", strayTerminal,
			"Claude Code takes this terminal for one of VS Code or JetBrains, and connects only to a program that started it: {program} did not",
			"{attach}"),
		doctor.Fails("transport", func(l *lock) bool { return l.Transport != claudeide.Transport },
			"{program} is not a WebSocket server: Claude Code uses its old protocol, which Pollux does not check",
			"update that editor's plugin, or end it"),
	}, l) && probe(ctx, c.Checker, l)
}

// strayTerminal reports whether Claude Code runs in an editor's terminal, and the lock is
// not that editor's.
func strayTerminal(l *lock) bool {
	return l.search.inIDETerminal() && l.Port != l.search.port() && !proc.Within(os.Getppid(), l.PID, maxAncestors)
}

// probe connects to the lock's server, reports the result, and whether it answers.
func probe(ctx context.Context, c *doctor.Checker, l *lock) bool {
	return c.Ask(ctx, &l.Lock, func(ctx context.Context) error {
		host, _, _ := net.SplitHostPort(l.Address)
		err := probeAs(ctx, l.Found, host)
		if sock.Refused(err) && l.Listens("::1") {
			return doctor.ErrIPv6
		}
		return err
	})
}

// checkLate finds a Claude Code in this folder that stopped looking before the lock
// file was there.
func (c *claude) checkLate(f claudeide.Found) {
	r := c.RunningHere()
	info, err := os.Stat(f.Path)
	if r == nil || f.PID != r.PID || err != nil {
		return
	}
	var connected []int
	for _, agent := range r.Clients {
		if agent.Name == "Claude Code" {
			connected = append(connected, agent.PID)
		}
	}
	late := lateProcesses(proc.ProcessesIn(claudeide.ClaudeCommand, c.Dir), info.ModTime(), connected)
	if len(late) == 0 {
		return
	}
	c.Fail("late", "type /ide in it",
		"a Claude Code that runs here (process %s) started more than 30 s before the companion: it no longer looks for one",
		strings.Join(late, ", "))
}

// lateProcesses returns the processes that stopped looking before the lock was written
// and are not connected. A connected agent whose process is not known, 0, may be any of
// them.
func lateProcesses(processes []proc.StartedProcess, written time.Time, connected []int) (late []string) {
	unknown := 0
	for _, pid := range connected {
		if pid == 0 {
			unknown++
		}
	}
	for _, p := range processes {
		if written.Sub(p.Started) > searchTimeout && !slices.Contains(connected, p.PID) {
			late = append(late, strconv.Itoa(p.PID))
		}
	}
	if len(late) <= unknown {
		return nil
	}
	return late
}
