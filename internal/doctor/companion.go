package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"pollux/internal/ide/geminiide"
	"pollux/internal/sys"
)

const startOne = "pollux run, or start an editor here that has Pollux (pollux install)"

// ideVariables lead a CLI to the companion of the editor in whose terminal it
// runs.
var ideVariables = []string{"GEMINI_CLI_IDE_SERVER_PORT", "GEMINI_CLI_IDE_WORKSPACE_PATH", "GEMINI_CLI_IDE_AUTH_TOKEN", "GEMINI_CLI_IDE_PID", "GEMINI_CLI_IDE_SERVER_STDIO_COMMAND", "GEMINI_CLI_IDE_SERVER_STDIO_ARGS"}

// checkVariables finds a terminal that an editor left behind.
func (e *exam) checkVariables() {
	port := env("GEMINI_CLI_IDE_SERVER_PORT")
	pid, _ := strconv.Atoi(env("GEMINI_CLI_IDE_PID"))
	gone := ""
	switch {
	case port != "" && refuses(geminiide.DialHost(e.place), port):
		gone = "on port " + oneLine(port) + " nobody listens"
	case pid > 0 && !sys.Alive(pid) && port == "":
		gone = fmt.Sprintf("there is no process %d", pid)
	}
	if port == "" && pid == 0 {
		return
	}
	set := slices.DeleteFunc(slices.Clone(ideVariables), func(key string) bool { return env(key) == "" })
	switch {
	case gone != "":
		e.warn("variables", "unset "+strings.Join(set, " "), "this terminal's variables (%s, ...) are of a companion that is gone: %s", set[0], gone)
	case len(set) > 0:
		e.ok("variables", "this terminal's variables name a companion that is there")
	}
}

func refuses(host, port string) bool {
	conn, err := net.DialTimeout("tcp", net.JoinHostPort(host, port), time.Second)
	if err == nil {
		conn.Close()
	}
	return sys.Refused(err)
}

// checkCompanion goes the way that the CLI goes.
func (e *exam) checkCompanion(ctx context.Context) {
	if !psWorks(ctx) {
		e.place.PID = 0
	}
	e.lookup = geminiide.Replay(e.place)
	e.checkProcess()
	e.checkDirectory()
	e.checkStale(ctx)
	c := e.lookup.Chosen
	if c == nil {
		e.none(ctx)
		return
	}
	if e.failed("directory", "user") { // whoever owns it says what is there
		return
	}
	if e.failed("stale") { // nobody is behind what it will take
		return
	}
	if !c.Own {
		e.fail("user", "rm "+word(c.Path)+", or start Gemini CLI as the user who started that editor", "Gemini CLI %s will take %s, which is not a file of yours", e.cli.Version, c.Path)
		return
	}
	if !e.knownEditor(c) {
		e.fail("editor", "update that editor's companion, or use `pollux run`", "the file %s names no editor, and this terminal is none that Gemini CLI knows: it says that IDE integration is not supported", c.Path)
	}
	if !e.checkWorkspace(c) {
		return
	}
	e.checkConnection(ctx, c)
	e.checkOthers(c)
	e.checkVersion(c)
}

// psWorks reports whether the CLI can see its ancestors.
func psWorks(ctx context.Context) bool {
	if runtime.GOOS == "windows" {
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	cmd := exec.CommandContext(ctx, "ps", "-o", "ppid=,command=", "-p", strconv.Itoa(os.Getpid()))
	cmd.WaitDelay = time.Second
	out, err := cmd.Output()
	return err == nil && len(strings.Fields(string(out))) > 1
}

// checkProcess tells which process the CLI will look for.
func (e *exam) checkProcess() {
	pid, what := e.lookup.PID, ""
	if pid == 0 {
		text := "Gemini CLI cannot see which process started it, for ps does not work here"
		if e.place.AnyPID() {
			e.ok("process", "%s; it takes what companion there is", text)
		} else {
			e.fail("process", "install procps, or "+installCLI+"@latest", "%s, and this release takes no other companion", text)
		}
		return
	}
	if p, err := sys.Lookup(pid); err == nil {
		what = " (" + oneLine(p.Name) + ")"
	}
	if env("TMUX") != "" {
		what += ", in tmux"
	}
	if !e.place.AnyPID() && e.lookup.Chosen == nil {
		if i := slices.IndexFunc(e.lookup.Candidates, func(c geminiide.Candidate) bool { return c.Err == nil && c.Inside }); i >= 0 {
			e.fail("process", installCLI+"@latest, or pollux run", "Gemini CLI %s looks for the companion of process %d%s and no other; %s is that of process %d", e.cli.Version, pid, what, name(&e.lookup.Candidates[i]), e.lookup.Candidates[i].PID)
			return
		}
	}
	if !sys.Alive(pid) {
		what = " (which is gone)"
	}
	e.ok("process", "Gemini CLI will look first for the companion of process %d%s", pid, what)
}

// checkDirectory looks at where the files are, and whether they are the user's
// alone.
func (e *exam) checkDirectory() {
	const own = "export TMPDIR=~/tmp (a directory of your own), for the editor and the CLI"
	for _, dir := range []string{filepath.Dir(e.lookup.Dir), e.lookup.Dir} {
		info, err := os.Lstat(dir)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return
		case err != nil:
			e.fail("directory", own, "%s cannot be looked at: %v", dir, err)
			return
		case !info.IsDir():
			e.fail("directory", "rm "+word(dir), "%s is no directory, so that no companion can publish itself", dir)
			return
		case !sys.Own(info) && env("SUDO_USER") != "":
			e.otherUser()
			return
		case !sys.Own(info):
			e.fail("directory", own, "%s belongs to another user: no companion of yours can publish itself there", dir)
			return
		}
	}
	if runtime.GOOS == "windows" {
		return
	}
	open := slices.DeleteFunc([]string{filepath.Dir(e.lookup.Dir), e.lookup.Dir}, func(dir string) bool {
		info, err := os.Lstat(dir)
		return err != nil || info.Mode().Perm()&0o022 == 0
	})
	if info, err := os.Stat(e.lookup.Dir); err == nil && info.Mode().Perm()&0o011 != 0 { // others get at what is in it
		for _, c := range e.lookup.Candidates {
			if info, err := os.Lstat(c.Path); err == nil && c.Own && info.Mode().Perm()&0o077 != 0 {
				open = append(open, c.Path)
			}
		}
	}
	if len(open) == 0 {
		e.ok("directory", "Gemini CLI will look in %s", e.lookup.Dir)
		return
	}
	e.add(Finding{
		Check: "directory", Status: Warning, Next: mendHint,
		Text:  "other users of this machine can read your companion's token, or put another in its place: " + strings.Join(open, ", "),
		Mends: "make readable for you alone: " + strings.Join(open, ", "),
		mend: func() error {
			var errs []error
			for _, path := range open {
				errs = append(errs, sys.Narrow(path))
			}
			return errors.Join(errs...)
		},
	})
}

// checkStale finds files of companions that have ended, and files that are
// none.
func (e *exam) checkStale(ctx context.Context) {
	for _, c := range e.lookup.Candidates {
		if c.Err != nil && !errors.Is(c.Err, geminiide.ErrOtherUser) {
			e.warn("file", "rm "+word(c.Path), "Gemini CLI passes over %s: %v", c.Path, c.Err)
		}
	}
	stale := geminiide.Stale([]int{e.lookup.PID})
	if len(stale) == 0 {
		return
	}
	f := Finding{
		Check: "stale", Status: Warning, Next: mendHint,
		Text:  "of companions that have ended there are still: " + strings.Join(stale, ", "),
		Mends: "remove " + strings.Join(stale, ", "),
		mend: func() error {
			var errs []error
			for _, path := range geminiide.Stale([]int{e.lookup.PID}) {
				if slices.Contains(stale, path) { // what was shown, and still is so
					errs = append(errs, os.Remove(path))
				}
			}
			return errors.Join(errs...)
		},
	}
	if c := e.lookup.Chosen; c != nil && slices.Contains(stale, c.Path) && !e.variablesLead(ctx, c) {
		f.Status, f.Next = Failed, mendHint+"; then, if none runs, "+startOne
		f.Text = fmt.Sprintf("Gemini CLI will take %s, which a companion that has ended left behind, and try no other", c.Path)
	}
	e.add(f)
}

// name is what to call a companion.
func name(c *geminiide.Candidate) string {
	editor := oneLine(cmp.Or(c.File.IDEInfo.DisplayName, c.File.IDEInfo.Name))
	if editor == "" {
		editor = "a companion"
	}
	if c.PortText == "" {
		return editor
	}
	return fmt.Sprintf("%s (port %s)", editor, oneLine(c.PortText))
}

// folders is a workspacePath for a person.
func folders(path string) string {
	return oneLine(strings.ReplaceAll(path, string(os.PathListSeparator), ", "))
}

// none says why no file is there to be taken.
func (e *exam) none(ctx context.Context) {
	if e.failed("process", "directory", "user") || e.byVariables(ctx) || e.elsewhere() {
		return
	}
	for _, c := range e.lookup.Candidates {
		if errors.Is(c.Err, geminiide.ErrOtherUser) {
			e.otherUser()
			return
		}
	}
	if r := e.running(); r != nil {
		e.fail("file", "pollux run --attach, or restart that companion", "the companion of %s runs for this folder, but its discovery file in %s is gone: does something clean that directory?", oneLine(r.Editor.DisplayName), e.lookup.Dir)
		return
	}
	e.fail("companion", startOne, "no companion is running for %s", e.Dir)
}

func (e *exam) otherUser() {
	who := "another user"
	if u := env("SUDO_USER"); u != "" {
		who = oneLine(u)
	}
	e.fail("user", "start Gemini CLI as the user who started the editor, without sudo", "the companion of %s is not one for you: Gemini CLI passes over files of other users", who)
}

// byVariables goes the one way that is left without a file: the variables, in
// a terminal that the CLI knows.
func (e *exam) byVariables(ctx context.Context) bool {
	path := env("GEMINI_CLI_IDE_WORKSPACE_PATH")
	if !knownTerminal() || path == "" || !geminiide.Holds(path, e.Dir) {
		return false
	}
	how, tools, err := e.connectByVariables(ctx, env("GEMINI_CLI_IDE_AUTH_TOKEN"))
	if err != nil {
		return false
	}
	e.ok("companion", "Gemini CLI will connect by %s", how)
	e.checkTools(tools)
	return true
}

// running is a companion of Pollux's that runs for the directory.
func (e *exam) running() *Running {
	for i, r := range e.Running {
		if slices.ContainsFunc(r.Roots, func(root string) bool { return sys.Inside(root, e.Dir) }) {
			return &e.Running[i]
		}
	}
	return nil
}

// elsewhere looks for a companion for this folder in the temporary directories
// of the user's other processes.
func (e *exam) elsewhere() bool {
	tmps := []string{"/tmp", env("XDG_RUNTIME_DIR")}
	for _, key := range []string{"TMPDIR", "TMP", "TEMP"} {
		tmps = append(tmps, sys.Environs(key)...)
	}
	slices.Sort(tmps)
	for _, tmp := range slices.Compact(tmps) {
		if !filepath.IsAbs(tmp) || filepath.Join(tmp, "gemini", "ide") == e.lookup.Dir {
			continue
		}
		there := e.place
		there.Getenv = func(key string) string {
			if key == "TMPDIR" {
				return tmp
			}
			return os.Getenv(key)
		}
		if c := geminiide.Replay(there).Chosen; c != nil && c.Own && c.Inside && !claimsAll(c.Workspace) && e.there(c) {
			next := "export TMPDIR=" + word(tmp)
			if tmp == "/tmp" {
				next = "unset TMPDIR TMP TEMP"
			}
			e.fail("tmpdir", next, "%s is there for this folder, but in %s, and a CLI started here looks in %s: TMPDIR differs", name(c), filepath.Dir(c.Path), e.lookup.Dir)
			return true
		}
	}
	return false
}

// knownTerminal reports whether the CLI takes this terminal for an editor's.
func knownTerminal() bool {
	return slices.Contains([]string{"vscode", "sublime", "Zed"}, env("TERM_PROGRAM")) || env("ZED_SESSION_ID") != "" ||
		env("XCODE_VERSION_ACTUAL") != "" || strings.Contains(strings.ToLower(env("TERMINAL_EMULATOR")), "jetbrains")
}

func (e *exam) knownEditor(c *geminiide.Candidate) bool {
	return c.File.IDEInfo.Name != "" && c.File.IDEInfo.DisplayName != "" || knownTerminal()
}

// checkWorkspace reports whether the companion is one for the directory.
func (e *exam) checkWorkspace(c *geminiide.Candidate) bool {
	path := c.Workspace
	if v, ok := os.LookupEnv("GEMINI_CLI_IDE_WORKSPACE_PATH"); path == nil && ok {
		path = &v
	}
	switch {
	case path == nil:
		e.fail("workspace", startOne, "%s names no workspace in %s", name(c), c.Path)
	case *path == "":
		e.fail("workspace", "open the folder in the editor, or "+startOne, "%s has no folder open", name(c))
	case !geminiide.Holds(*path, e.Dir):
		if e.elsewhere() {
			return false
		}
		first, _, _ := strings.Cut(*path, string(os.PathListSeparator))
		e.fail("workspace", "cd "+word(first)+", or here: "+startOne, "%s is for %s, and this is %s", name(c), folders(*path), e.Dir)
	default:
		if claimsAll(path) {
			e.warn("hijack", "end it, or use `pollux run --attach`", "%s claims every folder, by an empty part in its workspace", name(c))
		}
		e.ok("workspace", "%s is for %s", name(c), folders(*path))
		return true
	}
	return false
}

// claimsAll reports whether a workspace has an empty part, which stands for
// wherever the CLI is started.
func claimsAll(workspace *string) bool {
	return slices.Contains(strings.Split(*workspace, string(os.PathListSeparator)), "")
}

// checkOthers finds more than one companion for the directory.
func (e *exam) checkOthers(chosen *geminiide.Candidate) {
	ways := []string{way(chosen)}
	var others []string
	ours := chosen.File.Pollux != 0
	for i := range e.lookup.Candidates {
		c := &e.lookup.Candidates[i]
		if c.Err != nil || !c.Own || !c.Inside || slices.Contains(ways, way(c)) || !e.there(c) {
			continue
		}
		ways = append(ways, way(c))
		others = append(others, name(c))
		if !ours && c.File.Pollux != 0 {
			e.warn("hijack", "pollux run --attach", "Gemini CLI will take %s, and not Pollux's %s", name(chosen), name(c))
			return
		}
	}
	if len(others) > 0 && env("GEMINI_CLI_IDE_SERVER_PORT") != chosen.PortText {
		e.warn("several", "start the CLI in the terminal of the editor that you mean, or with `pollux run --attach`", "Gemini CLI will take %s; for this folder there is also %s", name(chosen), strings.Join(others, ", "))
	}
}

// way tells companions apart, of which each may have several files: by the port,
// else by the command.
func way(c *geminiide.Candidate) string {
	if c.PortText == "" && c.File.Stdio != nil {
		return strings.Join(c.File.Stdio.Args, " ")
	}
	return c.PortText
}

// there reports whether a companion is likely there: its port takes connections
// or, where a command leads to it, its process lives.
func (e *exam) there(c *geminiide.Candidate) bool {
	if c.PortText == "" {
		return sys.Alive(c.File.Pollux)
	}
	return !refuses(geminiide.DialHost(e.place), c.PortText)
}

// checkVersion finds a companion that was started before an update of Pollux.
func (e *exam) checkVersion(c *geminiide.Candidate) {
	for _, r := range e.Running {
		if r.PID == c.File.Pollux && !r.Stopped && r.Version != e.Version {
			e.warn("version", "restart the editor", "the companion is Pollux %s, and this is %s", oneLine(r.Version), e.Version)
		}
	}
}
