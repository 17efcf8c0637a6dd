// Package checks contains doctor's checks of Claude Code and opencode. They replay
// what an agent started here will do: whether it connects by itself, which lock file it
// takes, and whether that companion answers. Package claudeide has the rules; this
// package says why they fail and what to do.
package checks

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"pollux/internal/doctor"
	"pollux/internal/ide/asking"
	"pollux/internal/ide/claudeide"
	"pollux/internal/paths"
	"pollux/internal/sys/disk"
	"pollux/internal/sys/proc"
	"pollux/internal/sys/shell"
	"pollux/internal/sys/sock"
)

const (
	startOne = "pollux run -- claude, or start an editor here that has Pollux (pollux install)"
	attach   = "pollux run --attach -- claude"
	// showChanges is what to do if nothing shows a companion's changes.
	showChanges = "pollux review, or attach an editor that has Pollux"
	// answerTimeout limits the wait for a companion.
	answerTimeout = 3 * time.Second
	// searchTimeout is how long Claude Code looks for a lock after its start.
	searchTimeout = 30 * time.Second
)

// A claude is one run of Claude Code's checks.
type claude struct {
	*doctor.Checker
	search   claudeide.Search
	settings settings
}

// Claude checks why Claude Code does not connect to a companion, or shows no diffs.
func Claude(ctx context.Context, dc *doctor.Checker) {
	c := &claude{Checker: dc, search: newSearch(dc)}
	c.settings = loadSettings(c.search)
	for _, err := range c.settings.errs {
		c.Warn("settings", "correct the file", "Claude Code cannot read its settings: %s", doctor.Short(err.Error()))
	}
	c.checkAutoConnect()
	c.checkDirectory()
	checkStale(dc, c.search.Locks())
	if lock, ok := c.findLock(); ok && c.checkLock(ctx, lock) {
		c.checkLate(lock)
	}
	c.checkDiffs()
}

func newSearch(c *doctor.Checker) claudeide.Search {
	s := claudeide.Search{Dir: c.Dir, Getenv: os.Getenv}
	// A link, which Claude Code resolves, is more than a spelling.
	if dir := claudeide.Spelling(); paths.Same(dir, c.Dir) {
		s.Spelling = dir
	}
	return s
}

// ClaudeHome returns the directory of Claude Code's settings.
func ClaudeHome() (string, error) { return claudeHome(os.Getenv) }

// checkAutoConnect checks whether a Claude Code started here looks for a companion.
func (c *claude) checkAutoConnect() {
	const byHand = "claude --ide"
	auto, set := isTrue(os.Getenv(claudeide.EnvAutoConnect)), isFalse(os.Getenv(claudeide.EnvAutoConnect))
	switch {
	case set:
		c.Fail("auto-connect", shell.UnsetCommand(claudeide.EnvAutoConnect)+", or type /ide in Claude Code",
			"%s=%s keeps Claude Code from connecting by itself, even with --ide or %s",
			claudeide.EnvAutoConnect, doctor.Short(os.Getenv(claudeide.EnvAutoConnect)), claudeide.EnvPort)
	case isTrue(os.Getenv("CLAUDE_CODE_SIMPLE")):
		c.Fail("auto-connect", shell.UnsetCommand("CLAUDE_CODE_SIMPLE"), "CLAUDE_CODE_SIMPLE keeps Claude Code from connecting by itself")
	case auto:
		c.OK("auto-connect", "Claude Code connects by itself (%s)", claudeide.EnvAutoConnect)
	case os.Getenv(claudeide.EnvPort) != "":
		c.OK("auto-connect", "Claude Code connects by itself (%s)", claudeide.EnvPort)
	case c.settings.AutoConnect:
		c.OK("auto-connect", "Claude Code connects by itself (autoConnectIde)")
	case c.search.InIDETerminal():
		c.OK("auto-connect", "Claude Code connects by itself in this terminal")
	default:
		text := "a Claude Code started here connects only with --ide, or once you type /ide"
		if os.Getenv("ENABLE_IDE_INTEGRATION") != "" {
			text += "; ENABLE_IDE_INTEGRATION has no effect any more"
		}
		c.Warn("auto-connect", byHand+", or turn on \"Auto-connect to IDE\" in its /config", "%s", text)
	}
}

// isTrue and isFalse read a variable as Claude Code does.
func isTrue(v string) bool {
	return slices.Contains([]string{"1", "true", "yes", "on"}, strings.ToLower(strings.TrimSpace(v)))
}

func isFalse(v string) bool {
	return slices.Contains([]string{"0", "false", "no", "off"}, strings.ToLower(strings.TrimSpace(v)))
}

// checkDirectory checks that companions can write lock files, and that nobody else can
// read the tokens in them.
func (c *claude) checkDirectory() {
	dir, err := claudeide.Dir()
	if err != nil {
		c.Fail("directory", "set "+disk.HomeVar, "there is no directory for lock files: %v", err)
		return
	}
	info, err := os.Stat(dir)
	switch {
	case err != nil && errors.Is(err, os.ErrNotExist):
		return // the first companion makes it
	case err != nil || !info.IsDir():
		c.Fail("directory", shell.RemoveCommand(dir), "%s is not a directory, so no companion can write its lock file", dir)
		return
	case !disk.Own(dir, info):
		c.Fail("directory", "start Claude Code and the editor as the same user",
			"%s belongs to another user, so your companions cannot write lock files", dir)
		return
	}
	if open := openToOthers(dir, info); len(open) > 0 {
		c.WarnOpen(open)
	}
}

// openToOthers lists the directory, and the locks of companions in it, if other users
// can read or change them.
func openToOthers(dir string, info fs.FileInfo) (open []string) {
	if disk.Private(dir, info) {
		return nil
	}
	if disk.OthersWrite(dir, info) {
		open = append(open, dir)
	}
	for _, f := range claudeide.Find(dir) {
		if info, err := os.Lstat(f.Path); err == nil && f.Pollux != nil &&
			disk.Own(f.Path, info) && !disk.Private(f.Path, info) {
			open = append(open, f.Path)
		}
	}
	return open
}

// checkStale finds the locks that companions left behind when they were killed.
func checkStale(c *doctor.Checker, locks []claudeide.Found) {
	var stale []string
	for _, f := range locks {
		if f.Leftover() {
			stale = append(stale, f.Path)
		}
	}
	if len(stale) == 0 {
		return
	}
	c.Add(doctor.Finding{
		Check: "stale", Status: doctor.Warning, Next: doctor.FixCommand,
		Text: "companions that have ended left lock files behind: " + strings.Join(stale, ", "),
		Fix:  "remove " + strings.Join(stale, ", "),
		Apply: func() error {
			var errs []error
			for _, path := range stale {
				errs = append(errs, claudeide.RemoveLeftover(path))
			}
			return errors.Join(errs...)
		},
	})
}

// findLock returns the lock that Claude Code takes, or says why it takes none.
func (c *claude) findLock() (lock claudeide.Found, ok bool) {
	matches := c.search.Claude()
	if port := os.Getenv(claudeide.EnvPort); port != "" && (len(matches) != 1 || matches[0].Port != c.search.Port()) {
		next := shell.UnsetCommand(claudeide.EnvPort)
		if len(matches) == 1 {
			c.Warn("variables", next, "%s=%s names a server without a lock file", claudeide.EnvPort, doctor.Short(port))
		} else {
			c.Fail("variables", next+"; then "+startOne,
				"%s=%s names a server without a lock file: Claude Code needs the token in that file",
				claudeide.EnvPort, doctor.Short(port))
		}
	}
	switch len(matches) {
	case 0:
		c.explainNone()
		return lock, false
	case 1:
		return matches[0], true
	}
	var names []string
	for _, f := range matches {
		names = append(names, name(f))
	}
	c.Fail("several", "end one of them, or "+attach,
		"Claude Code connects to none of several that have this folder: %s", strings.Join(names, ", "))
	return lock, false
}

// explainNone says why no lock matches.
func (c *claude) explainNone() {
	if r := c.RunningHere(); r != nil && len(r.Surfaces) == 0 && !r.Page {
		c.Fail("view", showChanges,
			"the companion of %s has no lock file, because nothing shows its changes", doctor.Short(r.Editor.DisplayName))
		return
	}
	locks := c.search.Locks()
	for _, explain := range []func(claudeide.Found) bool{c.isContainer, c.isGone, c.isSpelling, c.isLink, c.isBelow} {
		if slices.ContainsFunc(locks, explain) {
			return
		}
	}
	if r := c.RunningHere(); r != nil {
		c.Fail("lock", "restart that companion",
			"the companion of %s is running for this folder, but has no lock file that matches",
			doctor.Short(r.Editor.DisplayName))
		return
	}
	c.Fail("companion", startOne, "no companion is running for %s", c.Dir)
}

// isContainer reports a lock whose process is in another container, or on the host.
func (c *claude) isContainer(f claudeide.Found) bool {
	if !f.Covers(c.Dir) || !f.Gone() || f.Leftover() || !f.Listens(c.search.Host()) {
		return false
	}
	c.Fail("container", "give the container its own "+filepath.Dir(filepath.Dir(f.Path))+", or start the companion here",
		"%s answers, but its process %d does not run here: Claude Code deletes its lock file when it starts", name(f), f.PID)
	return true
}

// isGone reports a lock of a process that has ended.
func (c *claude) isGone(f claudeide.Found) bool {
	if !f.Covers(c.Dir) || f.Live() || f.Leftover() {
		return false
	}
	why := "nothing answers on its port"
	if f.PID != 0 {
		why = fmt.Sprintf("its process %d has ended", f.PID)
	}
	c.Fail("lock", startOne, "%s has this folder, but %s: Claude Code deletes its lock file", name(f), why)
	return true
}

// isSpelling reports a lock that has this folder in another case than this terminal.
func (c *claude) isSpelling(f claudeide.Found) bool {
	if c.search.Spelling == "" || !f.Covers(c.Dir) || !f.Live() {
		return false
	}
	c.Fail("spelling", shell.EnterCommand(c.Dir)+", or "+attach,
		"%s has this folder, but this terminal spells it %s: Claude Code distinguishes upper and lower case",
		name(f), doctor.Short(c.search.Spelling))
	return true
}

// isLink reports a lock whose folder is a symbolic link to this one.
func (c *claude) isLink(f claudeide.Found) bool {
	i := slices.IndexFunc(f.WorkspaceFolders, func(folder string) bool { return paths.Contains(paths.Real(folder), c.Dir) })
	if i < 0 || f.Covers(c.Dir) || !f.Live() {
		return false
	}
	folder := f.WorkspaceFolders[i]
	c.Fail("symlink", "open "+doctor.Word(paths.Real(folder))+" in that editor, or type /ide",
		"%s names its folder %s, which is a symbolic link: Claude Code compares it with %s",
		name(f), doctor.Short(folder), c.Dir)
	return true
}

// isBelow reports a lock whose folder is below this one.
func (c *claude) isBelow(f claudeide.Found) bool {
	i := slices.IndexFunc(f.WorkspaceFolders, func(folder string) bool { return paths.Contains(c.Dir, folder) })
	if i < 0 || f.Covers(c.Dir) || !f.Live() {
		return false
	}
	c.Fail("workspace", shell.EnterCommand(f.WorkspaceFolders[i])+", or "+startOne,
		"%s is for %s, but this is %s", name(f), doctor.Short(f.WorkspaceFolders[i]), c.Dir)
	return true
}

// name returns what to call the program that wrote a lock.
func name(f claudeide.Found) string {
	return fmt.Sprintf("%s (port %d)", cmp.Or(doctor.Short(f.IDEName), "a program without a name"), f.Port)
}

// checkLock reports whether Claude Code connects to the lock's server.
func (c *claude) checkLock(ctx context.Context, f claudeide.Found) bool {
	info, err := os.Stat(f.Path)
	if err != nil || !disk.Own(f.Path, info) {
		c.Fail("user", "start Claude Code and the editor as the same user", "%s is not your file", f.Path)
		return false
	}
	if c.search.InIDETerminal() && f.Port != c.search.Port() && !isAncestor(f.PID) {
		c.Fail("terminal", attach,
			"Claude Code takes this terminal for one of VS Code or JetBrains, "+
				"and connects only to a program that started it: %s did not",
			name(f))
		return false
	}
	if r := c.RunningHere(); r != nil && f.Pollux == nil {
		c.Warn("rival", "end that program, or "+attach, "Claude Code will connect to %s and not to Pollux's companion of %s",
			name(f), doctor.Short(r.Editor.DisplayName))
	}
	if !f.WebSocket() {
		c.Fail("transport", "update that editor's plugin, or end it",
			"%s is not a WebSocket server: Claude Code uses its old protocol, which Pollux does not check", name(f))
		return false
	}
	return probe(ctx, c.Checker, f, c.search.Host())
}

// probe connects to the lock's server and reports the result.
func probe(ctx context.Context, c *doctor.Checker, f claudeide.Found, host string) bool {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	err := f.Probe(ctx, host)
	switch {
	case err == nil:
		c.OK("port", "%s answers", name(f))
		return true
	case errors.Is(err, claudeide.ErrToken):
		c.Fail("token", "restart that editor", "%s refuses the token in %s", name(f), f.Path)
	case errors.Is(err, claudeide.ErrNoView):
		c.Fail("view", showChanges, "%s refuses agents: nothing shows its changes", name(f))
	case errors.Is(err, claudeide.ErrNotMCP):
		c.Fail("port", "restart that editor", "%s does not answer as a companion: another program may have the port", name(f))
	case sock.Refused(err) && f.Listens("::1"):
		c.Fail("port", "let it listen on 127.0.0.1", "%s listens on ::1 only, and the agent connects to %s", name(f), host)
	case sock.Refused(err):
		c.Fail("port", "restart that editor", "nothing listens on %s of %s", host, name(f))
	case ctx.Err() != nil:
		c.Fail("port", "continue it if it is stopped, or restart that editor", "%s does not answer: it is stopped or hangs", name(f))
	default:
		c.Fail("port", "restart that editor", "%s does not answer: %s", name(f), doctor.Reason(err))
	}
	return false
}

// maxAncestors is how many processes above it Claude Code examines.
const maxAncestors = 10

// isAncestor reports whether a process is above this one.
func isAncestor(pid int) bool {
	above := os.Getppid()
	for range maxAncestors {
		if above == pid {
			return true
		}
		p, err := proc.Lookup(above)
		if err != nil {
			return false
		}
		above = p.Parent
	}
	return false
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

// checkDiffs checks whether Claude Code shows its changes in the editor.
func (c *claude) checkDiffs() {
	if tool := c.settings.DiffTool; tool != "" && tool != "auto" {
		c.Fail("diff-tool", "type /config in Claude Code, and set \"Diff tool\" to auto",
			"the setting diffTool is %s: Claude Code shows changes in its terminal only", doctor.Short(tool))
	}
	m := claudeide.ClaudeAsking(asking.Start{Dir: c.Dir, Getenv: os.Getenv})
	if m.Silent == "" {
		c.OK("mode", "Claude Code asks before it changes a file")
		return
	}
	text, next := m.Finding("Claude Code", claudeide.ClaudeCommand)
	c.Warn("mode", next, "%s", text)
}
