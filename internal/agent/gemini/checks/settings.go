package checks

import (
	"context"

	"pollux/internal/agent/gemini/settings"
	"pollux/internal/doctor"
	"pollux/internal/sys/disk"
)

// Settings checks what Gemini CLI reads before it looks for a companion.
func (g *CLI) Settings(_ context.Context, c *doctor.Checker) {
	var err error
	g.dir = c.Dir
	if g.settings, err = settings.Load(nil, c.Dir); err != nil {
		c.Fail("settings", "set "+disk.HomeVar, "there is no home directory, so Gemini CLI has no settings: %v", err)
		return
	}
	for _, l := range g.settings.Layers {
		if l.Err != nil {
			c.Fail("settings", "correct "+doctor.Word(l.Path),
				"Gemini CLI does not start with the settings in %s: %s", l.Path, doctor.Short(l.Err.Error()))
		}
		if l.Skipped != "" && l.Name != "workspace" {
			c.Warn("settings", "change that, or ask the administrator", "Gemini CLI skips %s: %s", l.Path, l.Skipped)
		}
	}
	if err := g.settings.TrustErr; err != nil {
		c.Fail("settings", "correct the file",
			"Gemini CLI does not start with its list of trusted folders, %s", doctor.Short(err.Error()))
	}
	if !c.Failed("settings") {
		c.OK("settings", "Gemini CLI can read its settings")
	}
}

// IDEMode checks whether Gemini CLI looks for a companion.
func (g *CLI) IDEMode(_ context.Context, c *doctor.Checker) {
	on, by := g.settings.IDEMode()
	user, err := settings.UserFile()
	if err != nil {
		return
	}
	off := "IDE mode is turned off in " + user
	switch {
	case on:
		c.OK("ide-mode", "IDE mode is on (%s)", by.Path)
		return
	case by == nil && c.Failed("settings"): // an unreadable file may turn it on
		return
	case by == nil:
		off = "IDE mode is off: Gemini CLI does not look for a companion"
	case by.Name == "user":
	case by.Name == "workspace":
		c.Fail("ide-mode", "remove ide.enabled from "+doctor.Word(by.Path),
			"IDE mode is turned off for this folder, in %s", by.Path)
		return
	case by.Name == "system":
		c.Fail("ide-mode", "ask the administrator of this machine",
			"IDE mode is turned off for all users, in %s", by.Path)
		return
	default: // which the user's own settings override
		off = "IDE mode is turned off by default for all users, in " + by.Path
	}
	c.Add(doctor.Finding{
		Check: "ide-mode", Status: doctor.Failed, Rule: "IDE mode is off", Text: off,
		Next:  doctor.FixCommand + " turns it on; then restart Gemini CLI",
		Fix:   "turn on IDE mode (ide.enabled) in " + user,
		Apply: func() error { return settings.EnableIDE(user) },
	})
}
