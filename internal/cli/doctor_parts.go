package cli

import (
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"pollux/internal/agent"
	"pollux/internal/agent/agents"
	askchecks "pollux/internal/agent/checks"
	geminichecks "pollux/internal/agent/gemini/checks"
	"pollux/internal/agent/gemini/settings"
	"pollux/internal/agent/shared"
	poolchecks "pollux/internal/agent/shared/checks"
	"pollux/internal/config"
	"pollux/internal/doctor"
	"pollux/internal/ide"
	asks "pollux/internal/ide/asking"
	"pollux/internal/ide/claudeide"
	claudechecks "pollux/internal/ide/claudeide/checks"
	"pollux/internal/ide/codexide"
	codexchecks "pollux/internal/ide/codexide/checks"
	"pollux/internal/ide/copilotide"
	copilotchecks "pollux/internal/ide/copilotide/checks"
	"pollux/internal/ide/geminiide"
	protocolchecks "pollux/internal/ide/geminiide/checks"
	"pollux/internal/ide/opencode"
	"pollux/internal/install"
	"pollux/internal/sys/disk"
	"pollux/internal/usage"
)

// doctorParts lists what doctor examines, in order. Each agent and each protocol defines its
// own checks. Add new ones here.
func doctorParts(v *config.Values) []doctor.Part {
	gemini := &geminichecks.CLI{Wall: thisWall(v.Text("bridge.wall")), Probe: agents.Probe}
	if v.Origin("bridge.command") != (config.Origin{}) {
		gemini.Command = v.Text("bridge.command")
	}
	protocol := new(protocolchecks.Protocol)
	start := asks.Start{Getenv: os.Getenv}
	geminiHome, _ := settings.Home(nil)
	var parts []doctor.Part
	var asked []doctor.Part // the bridge's check of each agent
	for _, row := range []struct {
		command string
		home    string // the directory of its settings
		checks  []doctor.Check
	}{
		{geminiide.GeminiCommand, geminiHome, []doctor.Check{
			gemini.Program, protocol.Release, gemini.Node, gemini.Settings, gemini.IDEMode, gemini.Terminal,
			protocol.Variables, protocol.Companion, gemini.Proxy, gemini.Disk,
		}},
		// Companions make Qwen Code's directory, so only the PATH shows that it is installed.
		{geminiide.QwenCommand, "", []doctor.Check{protocolchecks.Qwen}},
		{claudeide.ClaudeCommand, start.Home("CLAUDE_CONFIG_DIR", ".claude"), []doctor.Check{claudechecks.Claude}},
		{opencode.Command, filepath.Join(start.Home("XDG_CONFIG_HOME", ".config"), "opencode"), []doctor.Check{claudechecks.Opencode}},
		{copilotide.Command, start.Home(copilotide.EnvHome, ".copilot"), []doctor.Check{copilotchecks.Copilot}},
		{codexide.Command, start.Home("CODEX_HOME", ".codex"), []doctor.Check{codexchecks.Codex}},
	} {
		l := ide.LaunchOf(row.command)
		p := doctor.Part{
			Name: l.Name, Heading: l.Title, Arg: l.Name, Agent: true, Here: doctor.Installed(l.Name, row.home), Checks: row.checks,
		}
		if l.Name == geminiide.GeminiCommand {
			p.Name, p.Here = doctor.Companion, func() bool { return gemini.Command != "" || doctor.Installed(l.Name, row.home)() }
			asked = append(asked, doctor.Part{Heading: l.Title, Here: p.Here, Checks: []doctor.Check{gemini.Bridge}})
		}
		p.Checks = append(p.Checks, checkMode(l))
		for _, other := range agents.Others() {
			if other.Name == l.Name {
				a := &askchecks.Asked{Agent: other, Source: source(other), Wall: gemini.Wall}
				p.Checks = append(slices.Insert(p.Checks, 0, a.Program(l.Title, l.Package)), a.Check)
				asked = append(asked, doctor.Part{Heading: l.Title, Here: p.Here, Checks: []doctor.Check{a.Check}})
			}
		}
		parts = append(parts, p)
	}
	for _, row := range agents.Custom(v.Agents()...) {
		p := doctor.Part{
			Name: row.Name, Heading: row.DisplayName, Arg: row.Name, Agent: true, Here: func() bool { return true },
			Checks: []doctor.Check{(&askchecks.Asked{Agent: row, Wall: gemini.Wall}).Check},
		}
		parts, asked = append(parts, p), append(asked, p)
	}
	for _, e := range install.Editors {
		parts = append(parts, doctor.Part{
			Name: e.Name, Heading: e.Title, Arg: e.Name, Here: func() bool { return installedIn(e) }, Checks: []doctor.Check{checkEditor(e)},
		})
	}
	return append(parts, doctor.Part{
		Name: doctor.Bridge, Heading: "The bridge", Arg: doctor.Bridge, Here: bridgeUsed,
		Checks: []doctor.Check{checkAsked(asked, gemini.Wall), checkPool},
	})
}

// checkAsked returns the check whether the bridge can ask the agents that the user has.
func checkAsked(agents []doctor.Part, wall agent.Wall) doctor.Check {
	return func(ctx context.Context, c *doctor.Checker) {
		doctor.Disk(c)
		var able []string
		some := false
		for _, p := range agents {
			if !p.Here() {
				continue
			}
			some = true
			causes := c.Causes()
			p.Checks[0](ctx, c)
			if c.Causes() == causes {
				able = append(able, p.Heading)
			}
		}
		if !c.Reported("wall") {
			c.OK("wall", "%s", wall)
		}
		if !some {
			c.Fail("ask", "`pollux doctor` says what to install", "no agent is installed that the bridge can ask")
		} else if len(able) > 0 {
			c.OK("agents", "can ask %s", strings.Join(able, ", "))
		}
	}
}

// checkMode returns the check whether an agent asks before it changes a file. `pollux run`
// makes most agents ask. So if no companion runs here, it is not worth a warning to a user
// who has named no agent.
func checkMode(l ide.Launch) doctor.Check {
	return func(_ context.Context, c *doctor.Checker) {
		m := l.Mode(nil, c.Dir)
		text, next := m.Finding(l.Title, l.Name)
		switch asked := m.Makes(); {
		case c.Missing():
		case m.Silent == "":
			c.OK("mode", "%s asks before it changes a file", l.Title)
		case asked && c.Overview && c.RunningHere() == nil:
			c.OK("mode", "`pollux run` makes %s ask before it changes a file", l.Title)
		default:
			c.Add(doctor.Finding{
				Check: "mode", Status: doctor.Warning, Text: text, Next: next, Rule: l.Title + " changes files without asking",
			})
		}
	}
}

// checkOtherEditors names the editors in which Pollux could be installed.
func checkOtherEditors(_ context.Context, c *doctor.Checker) {
	var titles []string
	for _, e := range install.Editors {
		there := slices.ContainsFunc(append([]string{e.Name}, e.Aliases...), func(command string) bool {
			_, err := exec.LookPath(command)
			return err == nil
		})
		if there && !installedIn(e) {
			titles = append(titles, e.Title)
		}
	}
	if len(titles) > 0 {
		c.OK("plugin", "`pollux install` connects %s", strings.Join(titles, ", "))
	}
}

// installedIn reports whether Pollux is installed in an editor. Its files are there, too, if
// they cannot be removed.
func installedIn(e install.Editor) bool {
	removal, err := e.Plan(true)
	return err != nil || !removal.Empty()
}

// checkEditor returns the check whether Pollux is installed in an editor.
func checkEditor(e install.Editor) doctor.Check {
	return func(_ context.Context, c *doctor.Checker) {
		const check = "plugin"
		next := "pollux install " + e.Name
		update, err := e.Plan(false)
		switch {
		case err != nil:
			c.OK(check, "`%s` cannot change it: %s", next, doctor.Short(err.Error()))
		case update.Empty():
			c.OK(check, "Pollux is installed in it")
		case installedIn(e):
			c.Warn(check, next+", then restart "+e.Title, "%s has the files of another version of Pollux, or starts another copy of it", e.Title)
		default:
			c.Warn(check, next, "Pollux is not installed in %s", e.Title)
		}
	}
}

// usedDays is how long an answer of the bridge shows that it is in use.
const usedDays = 30

// bridgeUsed reports whether the user has the bridge: its pool runs, an MCP client has it in
// its settings, or it was asked in the last month.
func bridgeUsed() bool {
	if pools, err := shared.Sockets(); err == nil && len(pools) > 0 {
		return true
	}
	if dir, err := usage.Dir(); err == nil {
		if r, err := usage.Read(dir, usedDays, time.Now()); err == nil && len(r.Rows) > 0 {
			return true
		}
	}
	return slices.ContainsFunc(install.Clients, func(client install.Client) bool {
		path, err := client.File()
		if err != nil || !disk.Exists(path) {
			return false
		}
		removal, err := client.Plan(true)
		return err == nil && !removal.Empty()
	})
}

// checkPool checks the pool for bridges that start in this environment.
func checkPool(ctx context.Context, c *doctor.Checker) {
	if c.Failed("config") {
		return // no bridge starts a pool
	}
	cfg, err := bridgeConfig()
	offLine := ""
	if from := loadSettings().Origin("pool.enabled"); from.Source() == "file" {
		offLine = from.String()
	}
	p := &poolchecks.Pool{
		Err: err, OffLine: offLine, Off: cfg.NoPool, Settings: cfg.PoolSettings(),
		Socket: func() (string, error) { return shared.SocketPath(build()) },
		Connect: func(ctx context.Context) (io.ReadWriteCloser, error) {
			connect, err := localPool()
			if err != nil {
				return nil, err
			}
			return connect(ctx)
		},
	}
	p.Check(ctx, c)
}

// checkSettings checks the user's file of settings.
func checkSettings(_ context.Context, c *doctor.Checker) {
	v := loadSettings()
	valid := true
	for _, p := range v.Problems {
		if p.File != "" {
			c.Fail("config", "run `pollux config edit`, then restart editors and MCP clients", "%s", p)
			valid = false
		}
	}
	if valid {
		c.OK("config", "%s is valid", v.Path)
	}
}
