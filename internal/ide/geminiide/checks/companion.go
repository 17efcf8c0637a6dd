// Package checks contains doctor's checks of Gemini CLI's protocol. They replay what
// a Gemini CLI started here will do: which discovery file it reads, which companion
// it chooses, and whether that companion answers. Package geminiide has the rules;
// this package says why they fail and what to do.
package checks

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"pollux/internal/doctor"
	"pollux/internal/ide/geminiide"
	"pollux/internal/sys/disk"
	"pollux/internal/sys/proc"
	"pollux/internal/sys/shell"
	"pollux/internal/sys/sock"
)

// newestMinor is the release whose rules apply if the program's version is unknown.
const newestMinor = 61

var startOne = doctor.StartWith(geminiide.GeminiCommand)

// A Protocol checks the protocol in one run of doctor. Its methods are checks; they
// need what the program's own check found, and Release runs before the others.
type Protocol struct {
	launch launch
	lookup lookup
}

// A checker is a running check of the protocol.
type checker struct {
	*doctor.Checker
	*Protocol
}

// Release checks that the program's version can connect to a companion. It reports
// nothing if the program's own check has found something already.
func (p *Protocol) Release(_ context.Context, c *doctor.Checker) {
	program := c.Program
	p.launch = launch{Dir: c.Dir, Getenv: os.Getenv, PID: os.Getpid(), Minor: newestMinor}
	if program.Major != 0 || program.Minor != 0 {
		p.launch.Major, p.launch.Minor = program.Major, program.Minor
	}
	switch {
	case c.Reported("cli"):
	case !p.launch.sendsToken():
		c.Fail("cli", program.Update,
			"Gemini CLI %s (%s) is too old: it sends no token, so companions that require one refuse it",
			program.Version, program.Path)
	case !p.launch.anyPID():
		c.Warn("cli", program.Update,
			"Gemini CLI %s (%s) is old: it finds a companion only if its process is exactly the one it looks for",
			program.Version, program.Path)
	default:
		c.OK("cli", "Gemini CLI %s (%s)", program.Version, program.Path)
	}
}

// Variables checks whether this terminal's variables name a running companion.
func (p *Protocol) Variables(ctx context.Context, c *doctor.Checker) {
	port := env("GEMINI_CLI_IDE_SERVER_PORT")
	pid, _ := strconv.Atoi(env("GEMINI_CLI_IDE_PID"))
	set := slices.DeleteFunc(slices.Clone(geminiide.EnvNames), func(key string) bool {
		return !strings.HasPrefix(key, "GEMINI_CLI_IDE_") || env(key) == ""
	})
	gone := ""
	switch {
	case port != "":
		address := net.JoinHostPort(dialHost(p.launch), port)
		if err := probe(ctx, address); sock.Refused(err) {
			gone = "nothing listens on port " + doctor.Short(port)
		} else if err != nil {
			gone = fmt.Sprintf("%s does not answer: %v", doctor.Short(address), disk.Cause(err))
		}
	case pid == 0:
		return
	case pid > 0 && !proc.Alive(pid):
		gone = fmt.Sprintf("there is no process %d", pid)
	}
	if gone == "" {
		c.OK("variables", "this terminal's variables name a companion that is running")
		return
	}
	c.Warn("variables", shell.UnsetCommand(set...),
		"this terminal's variables (%s, ...) name a companion that is not running: %s", set[0], gone)
}

// probe returns nil if an HTTP server answers at an address, as a companion does even
// without its token.
func probe(ctx context.Context, address string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/mcp", nil)
	if err != nil {
		return err
	}
	res, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(req)
	if err == nil {
		res.Body.Close()
	}
	return err
}

// Companion does what Gemini CLI does to find its companion and connect to it.
func (p *Protocol) Companion(ctx context.Context, dc *doctor.Checker) {
	c := &checker{dc, p}
	if !psWorks(ctx) {
		c.launch.PID = 0
	}
	c.lookup = replay(c.launch)
	c.checkProcess()
	c.checkDirectory()
	c.checkStale(ctx)
	chosen := c.lookup.Chosen
	if chosen == nil {
		c.explainNone(ctx)
		return
	}
	// If the directory is another user's, or the file's companion has ended, there is
	// nothing more to check.
	if c.Failed("directory", "user", "stale") {
		return
	}
	if !chosen.Own {
		c.Fail("user", shell.RemoveCommand(chosen.Path)+", or start Gemini CLI as the user who started that editor",
			"Gemini CLI %s will use %s, which is not your file", c.Program.Version, chosen.Path)
		return
	}
	if !knownEditor(chosen) {
		c.Fail("editor", "update that editor's companion, or use `pollux run`",
			"%s names no editor, and Gemini CLI does not know this terminal: "+
				"it says that IDE integration is not supported",
			chosen.Path)
	}
	if !c.checkWorkspace(chosen) {
		return
	}
	c.checkConnection(ctx, chosen)
	c.checkOthers(chosen)
	c.checkVersion(chosen)
}

// psWorks reports whether Gemini CLI can see its parent processes.
func psWorks(ctx context.Context) bool {
	if runtime.GOOS == "windows" {
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, "ps", "-o", "ppid=,command=", "-p", strconv.Itoa(os.Getpid()))
	cmd.WaitDelay = time.Second
	out, err := cmd.Output()
	return err == nil && len(strings.Fields(string(out))) > 1
}

// checkProcess reports which process Gemini CLI will look for.
func (c *checker) checkProcess() {
	pid, what := c.lookup.PID, ""
	if pid == 0 {
		const text = "Gemini CLI cannot see which process started it, because ps does not work here"
		if c.launch.anyPID() {
			c.OK("process", "%s; it uses any companion for this folder", text)
		} else {
			c.Fail("process", "install procps, or "+c.Program.Update,
				"%s, and this version uses no other companion", text)
		}
		return
	}
	if p, err := proc.Lookup(pid); err == nil {
		what = " (" + doctor.Short(p.Name) + ")"
	}
	if env("TMUX") != "" {
		what += ", in tmux"
	}
	if !c.launch.anyPID() && c.lookup.Chosen == nil {
		usable := func(c candidate) bool { return c.Err == nil && c.Inside }
		if i := slices.IndexFunc(c.lookup.Candidates, usable); i >= 0 {
			other := &c.lookup.Candidates[i]
			c.Fail("process", c.Program.Update+", or pollux run",
				"Gemini CLI %s looks only for the companion of process %d%s; %s belongs to process %d",
				c.Program.Version, pid, what, name(other), other.PID)
			return
		}
	}
	if !proc.Alive(pid) {
		what = " (which has ended)"
	}
	c.OK("process", "Gemini CLI will look first for the companion of process %d%s", pid, what)
}

// name returns what to call a companion.
func name(c *candidate) string {
	title := cmp.Or(doctor.Short(c.File.IDEInfo.DisplayName), doctor.Short(c.File.IDEInfo.Name), "a companion")
	if c.PortText == "" {
		return title
	}
	return fmt.Sprintf("%s (port %s)", title, doctor.Short(c.PortText))
}

// folders returns a workspacePath for a person to read.
func folders(path string) string {
	return doctor.Short(strings.ReplaceAll(path, string(os.PathListSeparator), ", "))
}

// explainNone says why Gemini CLI finds no file.
func (c *checker) explainNone(ctx context.Context) {
	if c.Failed("process", "directory", "user") || c.connectsByVariables(ctx) || c.findElsewhere() {
		return
	}
	for _, candidate := range c.lookup.Candidates {
		if errors.Is(candidate.Err, errOtherUser) {
			c.failOtherUser()
			return
		}
	}
	if r := c.RunningHere(); r != nil {
		c.Fail("file", "pollux run --attach, or restart that companion",
			"the companion of %s is running for this folder, but its discovery file in %s is gone: "+
				"does something clean that directory?",
			doctor.Short(r.Editor.DisplayName), c.lookup.Dir)
		return
	}
	c.None(geminiide.GeminiCommand)
}

func (c *checker) failOtherUser() {
	who := "another user"
	if u := env("SUDO_USER"); u != "" {
		who = doctor.Short(u)
	}
	c.Fail("user", "start Gemini CLI as the user who started the editor, without sudo",
		"the companion belongs to %s: Gemini CLI skips files of other users", who)
}

// connectsByVariables reports whether Gemini CLI connects without a file: by the
// variables, in a terminal that it knows.
func (c *checker) connectsByVariables(ctx context.Context) bool {
	path := env("GEMINI_CLI_IDE_WORKSPACE_PATH")
	if !knownTerminal() || path == "" || !geminiide.Holds(path, c.Dir) {
		return false
	}
	how, tools, err := c.connectByVariables(ctx, env("GEMINI_CLI_IDE_AUTH_TOKEN"))
	if err != nil {
		return false
	}
	c.OK("companion", "Gemini CLI will connect with %s", how)
	c.checkTools(tools)
	return true
}

// findElsewhere looks for a companion for this folder in the temporary directories
// of the user's other processes, and reports whether it found one.
func (c *checker) findElsewhere() bool {
	return c.FindTemp(c.lookup.Dir, []string{"TMPDIR", "TMP", "TEMP"}, func(tmp string) (string, bool) {
		if filepath.Join(tmp, "gemini", "ide") == c.lookup.Dir {
			return "", false
		}
		there := c.launch
		there.Getenv = func(key string) string {
			if key == "TMPDIR" {
				return tmp
			}
			return os.Getenv(key)
		}
		found := replay(there).Chosen
		if found == nil || !found.Own || !found.Inside || claimsAll(found.Workspace) || !c.answers(found) {
			return "", false
		}
		return name(found) + " is running for this folder, with its file in " + filepath.Dir(found.Path), true
	})
}

// knownTerminal reports whether Gemini CLI recognises this terminal as an editor's.
func knownTerminal() bool {
	return slices.Contains([]string{"vscode", "sublime", "Zed"}, env("TERM_PROGRAM")) || env("ZED_SESSION_ID") != "" ||
		env("XCODE_VERSION_ACTUAL") != "" || strings.Contains(strings.ToLower(env("TERMINAL_EMULATOR")), "jetbrains")
}

func knownEditor(c *candidate) bool {
	return c.File.IDEInfo.Name != "" && c.File.IDEInfo.DisplayName != "" || knownTerminal()
}

// checkWorkspace reports whether the companion is for the directory.
func (c *checker) checkWorkspace(chosen *candidate) bool {
	path := chosen.Workspace
	if v, ok := os.LookupEnv("GEMINI_CLI_IDE_WORKSPACE_PATH"); path == nil && ok {
		path = &v
	}
	switch {
	case path == nil:
		c.Fail("workspace", startOne, "%s names no workspace in %s", name(chosen), chosen.Path)
	case *path == "":
		c.Fail("workspace", "open the folder in the editor, or "+startOne, "%s has no folder open", name(chosen))
	case !geminiide.Holds(*path, c.Dir):
		if c.findElsewhere() {
			return false
		}
		first, _, _ := strings.Cut(*path, string(os.PathListSeparator))
		c.Fail("workspace", shell.EnterCommand(first)+", or here: "+startOne,
			"%s is for %s, but this is %s", name(chosen), folders(*path), c.Dir)
	default:
		if claimsAll(path) {
			c.Warn("hijack", "stop it, or use `pollux run --attach`",
				"%s claims every folder: its workspace has an empty part", name(chosen))
		}
		c.OK("workspace", "%s is for %s", name(chosen), folders(*path))
		return true
	}
	return false
}

// claimsAll reports whether a workspace has an empty part, which matches every
// directory.
func claimsAll(workspace *string) bool {
	return slices.Contains(strings.Split(*workspace, string(os.PathListSeparator)), "")
}

// checkOthers looks for other companions for the directory.
func (c *checker) checkOthers(chosen *candidate) {
	seen := []string{address(chosen)}
	var others []string
	for i := range c.lookup.Candidates {
		other := &c.lookup.Candidates[i]
		usable := other.Err == nil && other.Own && other.Inside
		if !usable || slices.Contains(seen, address(other)) || !c.answers(other) {
			continue
		}
		seen = append(seen, address(other))
		others = append(others, name(other))
		if chosen.File.Pollux == 0 && other.File.Pollux != 0 {
			c.Warn("hijack", "pollux run --attach",
				"Gemini CLI will use %s and not Pollux's %s", name(chosen), name(other))
			return
		}
	}
	if len(others) > 0 && env("GEMINI_CLI_IDE_SERVER_PORT") != chosen.PortText {
		c.Warn("several", "start the CLI in the terminal of the editor you mean, or with `pollux run --attach`",
			"Gemini CLI will use %s; also running for this folder: %s", name(chosen), strings.Join(others, ", "))
	}
}

// address identifies a companion, which may have several files: by its port or,
// without one, by its command.
func address(c *candidate) string {
	if c.PortText == "" && c.File.Stdio != nil {
		return strings.Join(c.File.Stdio.Args, " ")
	}
	return c.PortText
}

// answers reports whether a companion is probably running: its port accepts
// connections or, if it has only a command, its process is alive.
func (c *checker) answers(candidate *candidate) bool {
	if candidate.PortText == "" {
		return proc.Alive(candidate.File.Pollux)
	}
	return !sock.Refused(probe(context.Background(), net.JoinHostPort(dialHost(c.launch), candidate.PortText)))
}

// checkVersion reports a companion that was started before an update of Pollux.
func (c *checker) checkVersion(chosen *candidate) {
	for _, r := range c.Running {
		if r.PID == chosen.File.Pollux && !r.Stopped && r.Version != c.Version {
			c.Warn("version", "restart the editor",
				"the companion is Pollux %s, but this is %s", doctor.Short(r.Version), c.Version)
		}
	}
}

func env(key string) string { return os.Getenv(key) }
