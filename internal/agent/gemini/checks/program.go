// Package checks contains doctor's checks of Gemini CLI itself: the program, its
// requirements for starting and for asking questions, its settings, and the
// requirements of the bridge.
package checks

import (
	"context"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"time"

	"pollux/internal/agent"
	"pollux/internal/agent/gemini"
	"pollux/internal/agent/gemini/settings"
	"pollux/internal/doctor"
)

// A CLI is the Gemini CLI that one run of doctor examines. Its methods are
// checks. They run in the order program, node, settings, and then the others.
type CLI struct {
	// Command is the program that the bridge runs; empty for the one on the PATH.
	Command string
	// Wall is the one behind which the bridge runs it.
	Wall agent.Wall
	// Probe starts a warm process of an agent in dir, behind a wall, and ends it. It
	// returns the time until the process was ready.
	Probe func(ctx context.Context, row *agent.Agent, program agent.Program, dir string, wall agent.Wall) (time.Duration, error)

	program  agent.Program
	settings settings.Settings
	dir      string // whose settings they are; empty if none were loaded
}

const install = "npm install -g @google/gemini-cli"

// Program finds the command that the shell would start.
func (g *CLI) Program(ctx context.Context, c *doctor.Checker) {
	var err error
	g.program, err = gemini.Find(ctx, agent.Source{})
	c.Program = doctor.Program{Path: g.program.Path, Version: g.program.Version, Update: install + "@latest"}
	if err != nil {
		if _, err := exec.LookPath("npm"); err == nil {
			c.Warn("cli", install, "Gemini CLI is not on the PATH; `pollux run` offers to download it")
			return
		}
		c.Fail("cli", install, "neither Gemini CLI nor npm, which could download it, is on the PATH")
		return
	}
	n, ok := agent.Numbers(g.program.Version)
	if !ok {
		c.Warn("cli", c.Program.Update,
			"%s does not report its version; the checks below assume the newest one", g.program.Path)
		return
	}
	c.Program.Major, c.Program.Minor = n[0], n[1]
	c.FoundVersion(g.program.Version)
	if inWSL() && regexp.MustCompile(`^/mnt/[a-z]/`).MatchString(g.program.Path) {
		c.Fail("cli", install+" (in WSL)",
			"gemini is the Windows one (%s): it sees other processes and files, and finds no companion in WSL",
			g.program.Path)
	}
}

// inWSL reports whether this is Linux in Windows.
func inWSL() bool {
	release, _ := os.ReadFile("/proc/sys/kernel/osrelease")
	return strings.Contains(strings.ToLower(string(release)), "microsoft") || os.Getenv("WSL_DISTRO_NAME") != ""
}

const minNode = 20

// Node checks the version of Node.js, which Gemini CLI needs.
func (g *CLI) Node(ctx context.Context, c *doctor.Checker) {
	const installNode = "install Node.js 20 or newer: https://nodejs.org"
	path, err := exec.LookPath("node")
	if err != nil {
		c.Fail("node", installNode, "Node.js is not on the PATH, and Gemini CLI needs it")
		return
	}
	version := nodeVersion(ctx, path)
	first, _, _ := strings.Cut(version, ".")
	major, err := strconv.Atoi(first)
	switch {
	case err != nil:
		c.Fail("node", installNode, "%s does not report its version", path)
	case major < minNode:
		c.Fail("node", installNode, "Node.js v%s (%s) is too old for Gemini CLI", version, path)
	default:
		c.OK("node", "Node.js v%s (%s)", version, path)
	}
}

// nodeTimeout limits how long Node.js may take to print its version.
const nodeTimeout = 10 * time.Second

// nodeVersion returns what Node.js prints as its version, such as 22.1.0, or "".
func nodeVersion(ctx context.Context, path string) string {
	ctx, cancel := context.WithTimeout(ctx, nodeTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, "--version")
	cmd.WaitDelay = time.Second
	out, err := cmd.Output()
	if err != nil {
		return ""
	}
	return strings.TrimPrefix(strings.TrimSpace(string(out)), "v")
}
