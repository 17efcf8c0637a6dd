package doctor

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"pollux/internal/agent"
	"pollux/internal/agent/gemini"
	"pollux/internal/agent/gemini/settings"
	"pollux/internal/sys"
)

// probeWithin is how long a warm process may take to be there.
const probeWithin = 30 * time.Second

// ways are those of signing in that the CLI takes without a terminal.
var ways = []string{"oauth-personal", "gemini-api-key", "vertex-ai", "compute-default-credentials"}

// checkBridge tries what the bridge needs. Other agents start it with an
// environment of their own, which may differ from this one.
func (e *exam) checkBridge(ctx context.Context) {
	cli, err := e.cli, e.cliErr
	if command := env("GEMINI_CLI_PATH"); command != "" {
		cli, err = gemini.Find(ctx, command)
	}
	if err == nil {
		err = gemini.ReadOnly(cli)
	}
	if err != nil {
		e.fail("read-only", "", "%s", oneLine(err.Error()))
		return
	}
	e.ok("read-only", "Gemini CLI %s can be held to reading", cli.Version)
	if e.failed("settings", "node") {
		return
	}
	e.checkAuth()
	e.checkTrust()
	if e.failed("auth", "disk") || ctx.Err() != nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, probeWithin)
	defer cancel()
	took, err := gemini.Probe(ctx, cli, e.Dir)
	var fault *agent.Error
	switch {
	case err == nil:
		e.ok("warm", "a warm process is ready in %.1f s", took.Seconds())
	case errors.As(err, &fault) && fault.Kind == agent.Auth:
		e.fail("auth", "", "%s", oneLine(err.Error()))
	default:
		e.warn("warm", "run `gemini` in a terminal to see what it says; GEMINI_RUNNER=spawn does without", "no warm process can be had, so that each call starts Gemini CLI anew: %s", oneLine(err.Error()))
	}
}

// checkAuth tells how the CLI signs in, as far as files and variables say.
func (e *exam) checkAuth() {
	kind, enforced := e.settings.Auth()
	file, vars, err := e.envFile()
	if err != nil {
		e.fail("auth", "move it away, or make it a plain file", "%s, the one .env file that Gemini CLI reads here, cannot be read: %v", file, reason(err))
		return
	}
	get := func(key string) string {
		if v, ok := os.LookupEnv(key); ok {
			return v
		}
		return vars[key]
	}
	switch {
	case kind != "":
	case get("GOOGLE_GENAI_USE_GCA") == "true":
		kind = "oauth-personal"
	case get("GOOGLE_GENAI_USE_VERTEXAI") == "true":
		kind = "vertex-ai"
	case get("GOOGLE_GEMINI_BASE_URL") != "":
		kind = "gateway"
	case get("GEMINI_API_KEY") != "":
		kind = "gemini-api-key"
	case get("CLOUD_SHELL") == "true", get("GEMINI_CLI_USE_COMPUTE_ADC") == "true":
		kind = "compute-default-credentials"
	}
	where := "the environment"
	if file != "" {
		where += " or " + file + ", the one .env file that Gemini CLI reads here"
	}
	home, _ := settings.Home()
	switch {
	case kind == "":
		e.fail("auth", "run `gemini` once and sign in, or set GEMINI_API_KEY", "no way of signing in is chosen")
	case !slices.Contains(ways, kind):
		e.fail("auth", "choose another: run `gemini` once, or set security.auth.selectedType in its settings", "%s is no way of signing in that Gemini CLI takes without a terminal", oneLine(kind))
	case enforced != "" && kind != enforced:
		e.fail("auth", "run `gemini` once and sign in that way", "the administrator wants %s for signing in, and it is %s", oneLine(enforced), oneLine(kind))
	case kind == "oauth-personal" && !exists(filepath.Join(home, "oauth_creds.json")):
		e.warn("auth", "run `gemini` once and sign in", "signing in with Google is chosen, but no credentials are in %s", home)
	case kind == "gemini-api-key" && get("GEMINI_API_KEY") == "":
		e.warn("auth", "set GEMINI_API_KEY, or run `gemini` once and enter it", "an API key is chosen, but none is in %s; it may be in the keychain", where)
	case kind == "vertex-ai" && get("GOOGLE_API_KEY") == "" && (get("GOOGLE_CLOUD_PROJECT") == "" || get("GOOGLE_CLOUD_LOCATION") == ""):
		e.fail("auth", "set GOOGLE_CLOUD_PROJECT and GOOGLE_CLOUD_LOCATION, or GOOGLE_API_KEY", "Vertex AI is chosen, but neither a project with its location nor a key is set")
	default:
		e.ok("auth", "Gemini CLI signs in by %s", oneLine(kind))
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// authVariables are those that the CLI takes from a .env file even where the
// folder is not trusted.
var authVariables = []string{"GEMINI_API_KEY", "GOOGLE_API_KEY", "GOOGLE_CLOUD_PROJECT", "GOOGLE_CLOUD_LOCATION"}

// maxEnvFile bounds a .env file in bytes.
const maxEnvFile = 16 << 20

// envFile is the one .env file that the CLI reads: the nearest, going up from the
// directory, at last the user's own; and what it takes from there.
func (e *exam) envFile() (path string, vars map[string]string, err error) {
	trusted := e.settings.Trust == settings.Trusted
	home, _ := settings.Home()
	var files []string
	add := func(dir string) {
		if trusted {
			files = append(files, filepath.Join(dir, ".gemini", ".env"))
		}
		files = append(files, filepath.Join(dir, ".env"))
	}
	for dir := e.Dir; ; dir = filepath.Dir(dir) {
		add(dir)
		if dir == filepath.Dir(dir) {
			break
		}
	}
	add(filepath.Dir(home))
	i := slices.IndexFunc(files, exists)
	if i < 0 {
		return "", nil, nil
	}
	data, err := sys.ReadFile(files[i], maxEnvFile)
	if err != nil {
		return files[i], nil, err
	}
	vars = make(map[string]string)
	for line := range strings.Lines(string(data)) {
		k, v, ok := strings.Cut(strings.TrimPrefix(strings.TrimSpace(line), "export "), "=")
		k, v = strings.TrimSpace(k), strings.TrimSpace(v)
		if n := len(v); n > 1 && (v[0] == '"' || v[0] == '\'') && v[n-1] == v[0] {
			v = v[1 : n-1]
		}
		if ok && (trusted || slices.Contains(authVariables, k)) {
			vars[k] = v
		}
	}
	return files[i], vars, nil
}

// checkTrust tells what the CLI will do in a folder that it does not know.
func (e *exam) checkTrust() {
	const how = "run `gemini` here once and trust the folder, or set GEMINI_CLI_TRUST_WORKSPACE=true where the agent starts Pollux"
	switch e.settings.Trust {
	case settings.Trusted:
		e.ok("trust", "Gemini CLI trusts this folder")
	case settings.Untrusted:
		e.warn("trust", how, "Gemini CLI does not trust this folder (%s): what is not answered by a warm process is refused", e.settings.TrustFrom)
	default:
		e.warn("trust", how, "Gemini CLI has not been told whether to trust this folder: what is not answered by a warm process is refused")
	}
}
