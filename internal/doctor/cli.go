package doctor

import (
	"context"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"time"

	"pollux/internal/agent/gemini"
	"pollux/internal/agent/gemini/settings"
	"pollux/internal/ide/geminiide"
)

const installCLI = "npm install -g @google/gemini-cli"

// newest are the rules where no CLI is here to ask.
const newest = 61

// checkCLI finds the CLI that the shell would start.
func (e *exam) checkCLI(ctx context.Context) {
	e.place = geminiide.Place{Dir: e.Dir, Getenv: os.Getenv, PID: os.Getpid(), Minor: newest}
	e.cli, e.cliErr = gemini.Find(ctx, "gemini")
	if e.cliErr != nil {
		if _, err := exec.LookPath("npx"); err == nil {
			e.warn("cli", installCLI, "Gemini CLI is not on the PATH; `pollux run` will fetch it with npx")
			return
		}
		e.fail("cli", installCLI, "Gemini CLI is not on the PATH, nor npx, which could fetch it")
		return
	}
	major, minor, ok := e.cli.Number()
	if !ok {
		e.warn("cli", installCLI+"@latest", "the version of %s cannot be told; what follows goes by the rules of the newest", e.cli.Path)
		return
	}
	e.place.Major, e.place.Minor = major, minor
	switch {
	case inWSL() && regexp.MustCompile(`^/mnt/[a-z]/`).MatchString(e.cli.Path):
		e.fail("cli", installCLI+" (in WSL)", "gemini is that of Windows (%s), which sees other processes and files: a companion in WSL is none for it", e.cli.Path)
	case !e.place.SendsToken():
		e.fail("cli", installCLI+"@latest", "Gemini CLI %s (%s) sends no token, so that no companion which asks for one takes it", e.cli.Version, e.cli.Path)
	case !e.place.AnyPID():
		e.warn("cli", installCLI+"@latest", "Gemini CLI %s (%s) is old: it finds only a companion whose process is exactly the one it looks for", e.cli.Version, e.cli.Path)
	default:
		e.ok("cli", "Gemini CLI %s (%s)", e.cli.Version, e.cli.Path)
	}
}

// inWSL reports whether this is Linux in Windows.
func inWSL() bool {
	release, _ := os.ReadFile("/proc/sys/kernel/osrelease")
	return strings.Contains(strings.ToLower(string(release)), "microsoft") || env("WSL_DISTRO_NAME") != ""
}

const minNode = 20

func (e *exam) checkNode(ctx context.Context) {
	const install = "install Node.js 20 or newer: https://nodejs.org"
	path, err := exec.LookPath("node")
	if err != nil {
		e.fail("node", install, "Node.js is not on the PATH, and Gemini CLI needs it")
		return
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, "--version")
	cmd.WaitDelay = time.Second
	out, err := cmd.Output()
	version := strings.TrimSpace(string(out))
	first, _, _ := strings.Cut(strings.TrimPrefix(version, "v"), ".")
	major, numErr := strconv.Atoi(first)
	switch {
	case err != nil || numErr != nil:
		e.fail("node", install, "%s does not say its version", path)
	case major < minNode:
		e.fail("node", install, "Node.js %s (%s) is too old for Gemini CLI", version, path)
	default:
		e.ok("node", "Node.js %s (%s)", version, path)
	}
}

// checkSettings looks at what the CLI reads before it looks for a companion.
func (e *exam) checkSettings() {
	var err error
	if e.settings, err = settings.Load(e.Dir); err != nil {
		e.fail("settings", "set HOME", "there is no home directory, so that Gemini CLI has no settings: %v", err)
		return
	}
	for _, l := range e.settings.Layers {
		if l.Err != nil {
			e.fail("settings", "correct "+word(l.Path), "Gemini CLI does not start with the settings in %s: %s", l.Path, oneLine(l.Err.Error()))
		}
		if l.Skipped != "" && l.Name != "workspace" {
			e.warn("settings", "make them so, or ask the administrator", "Gemini CLI passes over %s: %s", l.Path, l.Skipped)
		}
	}
	if err := e.settings.TrustErr; err != nil {
		e.fail("settings", "correct the file", "Gemini CLI does not start with its list of trusted folders, %s", oneLine(err.Error()))
	}
	if !e.failed("settings") {
		e.ok("settings", "Gemini CLI can read its settings")
	}
	e.checkIDEMode()
}

func (e *exam) checkIDEMode() {
	on, by := e.settings.IDEMode()
	user, err := settings.UserFile()
	if err != nil {
		return
	}
	enable := Finding{
		Check: "ide-mode", Status: Failed, Next: mendHint + " turns it on, or type /ide enable in Gemini CLI",
		Mends: "turn on IDE mode (ide.enabled) in " + user,
		mend:  func() error { return settings.EnableIDE(user) },
	}
	switch {
	case on:
		e.ok("ide-mode", "IDE mode is on (%s)", by.Path)
	case by == nil && e.failed("settings"): // what it would be is not known
	case by == nil:
		enable.Text = "IDE mode is not on: Gemini CLI does not look for a companion"
		e.add(enable)
	case by.Name == "user":
		enable.Text = "IDE mode is turned off in " + by.Path
		e.add(enable)
	case by.Name == "workspace":
		e.fail("ide-mode", "take ide.enabled out of "+word(by.Path), "IDE mode is turned off for this folder, in %s", by.Path)
	case by.Name == "system":
		e.fail("ide-mode", "ask the administrator of this machine", "IDE mode is turned off for all users, in %s", by.Path)
	default: // by default for all users, which the user's own settings override
		enable.Text = "IDE mode is turned off by default, in " + by.Path
		e.add(enable)
	}
}
