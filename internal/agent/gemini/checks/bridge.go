package checks

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"pollux/internal/agent"
	"pollux/internal/agent/gemini"
	"pollux/internal/agent/gemini/settings"
	"pollux/internal/doctor"
	"pollux/internal/sys/disk"
)

// probeTimeout limits the start of a warm process.
const probeTimeout = time.Minute

// authKinds are the sign-in methods that Gemini CLI supports without a terminal.
var authKinds = []string{"oauth-personal", "gemini-api-key", "vertex-ai", "compute-default-credentials"}

// Bridge tries everything that the bridge needs, up to a session in a warm
// process, which uses no quota. An MCP client may start the bridge in an
// environment that differs from this one.
func (g *CLI) Bridge(ctx context.Context, c *doctor.Checker) {
	if g.dir == "" { // the CLI was not examined
		g.Node(ctx, c)
		g.Settings(ctx, c)
	}
	program, err := gemini.Find(ctx, agent.Source{Command: g.Command})
	if err == nil {
		err = gemini.ReadOnly(agent.Source{}, program)
	}
	if err != nil {
		c.Fail("read-only", "", "%s", doctor.Short(err.Error()))
		return
	}
	c.OK("read-only", "Gemini CLI %s can be enforced read-only", program.Version)
	if err := g.Wall.Check(gemini.Agent()); err != nil {
		c.Fail("wall", "", "%s", doctor.Short(err.Error()))
		return
	}
	c.OK("wall", "%s", doctor.Short(g.Wall.String()))
	if c.Failed("settings", "node") {
		return
	}
	g.checkAuth(c)
	g.checkTrust(c)
	if c.Failed("auth", "disk") || ctx.Err() != nil {
		return
	}
	g.checkStart(ctx, c, program)
}

// checkStart reports whether a warm process starts.
func (g *CLI) checkStart(ctx context.Context, c *doctor.Checker, program agent.Program) {
	ctx, cancel := context.WithTimeoutCause(ctx, probeTimeout, fmt.Errorf("it was not ready in %.0f s", probeTimeout.Seconds()))
	defer cancel()
	took, err := g.Probe(ctx, gemini.Agent(), program, c.Dir, g.Wall)
	var fault *agent.Error
	switch {
	case err == nil:
		c.OK("warm", "a warm process was ready in %.1f s", took.Seconds())
	case errors.As(err, &fault) && fault.Kind == agent.Auth:
		c.Fail("auth", "", "%s", doctor.Short(err.Error()))
	default:
		const next = "run `gemini` in a terminal to see what it says; GEMINI_RUNNER=spawn works without a warm process"
		c.Warn("warm", next, "no warm process is available, so each call starts Gemini CLI again: %s", doctor.Short(err.Error()))
	}
}

// checkAuth reports how Gemini CLI signs in, as far as files and variables show.
func (g *CLI) checkAuth(c *doctor.Checker) {
	kind, enforced := g.settings.Auth()
	file, get, err := g.settings.Variables(nil, c.Dir)
	if err != nil {
		c.Fail("auth", "move it away, or make it a regular file",
			"%s, the only .env file that Gemini CLI reads here, cannot be read: %v", file, doctor.Reason(err))
		return
	}
	if kind == "" {
		kind = settings.AuthFromEnv(get)
	}
	where := "the environment"
	if file != "" {
		where += " or " + file + ", the only .env file that Gemini CLI reads here"
	}
	home, _ := settings.Home(nil)
	switch {
	case kind == "":
		c.Fail("auth", "run `gemini` once and sign in, or set GEMINI_API_KEY", "no sign-in method is selected")
	case !slices.Contains(authKinds, kind):
		c.Fail("auth", "select another: run `gemini` once, or set security.auth.selectedType in its settings",
			"Gemini CLI does not support the sign-in method %s without a terminal", doctor.Short(kind))
	case enforced != "" && kind != enforced:
		c.Fail("auth", "run `gemini` once and sign in with the required method",
			"the administrator requires the sign-in method %s, but %s is selected",
			doctor.Short(enforced), doctor.Short(kind))
	case kind == "oauth-personal" && !disk.Exists(filepath.Join(home, "oauth_creds.json")):
		c.Warn("auth", "run `gemini` once and sign in",
			"sign-in with Google is selected, but %s has no credentials", home)
	case kind == "gemini-api-key" && get("GEMINI_API_KEY") == "":
		c.Warn("auth", "set GEMINI_API_KEY, or run `gemini` once and enter it",
			"an API key is selected, but there is none in %s; it may be in the keychain", where)
	case kind == "vertex-ai" && get("GOOGLE_API_KEY") == "" &&
		(get("GOOGLE_CLOUD_PROJECT") == "" || get("GOOGLE_CLOUD_LOCATION") == ""):
		c.Fail("auth", "set GOOGLE_CLOUD_PROJECT and GOOGLE_CLOUD_LOCATION, or GOOGLE_API_KEY",
			"Vertex AI is selected, but neither a project with its location nor a key is set")
	default:
		c.OK("auth", "Gemini CLI signs in with %s", doctor.Short(kind))
	}
}

// checkTrust reports whether Gemini CLI trusts the folder.
func (g *CLI) checkTrust(c *doctor.Checker) {
	const next = "run `gemini` here once and trust the folder, " +
		"or set GEMINI_CLI_TRUST_WORKSPACE=true where the agent starts Pollux"
	const refused = "it refuses calls that no warm process answers"
	switch g.settings.Trust {
	case settings.Trusted:
		c.OK("trust", "Gemini CLI trusts this folder")
	case settings.Untrusted:
		c.Warn("trust", next, "Gemini CLI does not trust this folder (%s): "+refused, g.settings.TrustFrom)
	default:
		c.Warn("trust", next, "Gemini CLI does not know whether to trust this folder: "+refused)
	}
}
