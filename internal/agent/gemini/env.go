package gemini

import (
	"runtime"
	"slices"
	"strings"

	"pollux/internal/agent"
)

// The CLI gets only these variables: it needs them to find its settings, its
// credentials, the network and the system.
var (
	envNames = []string{
		"HOME", "PATH", "USER", "LOGNAME", "SHELL", "LANG", "TZ",
		"XDG_CONFIG_HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR",
		// proxies and certificates
		"HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY", "NODE_EXTRA_CA_CERTS", "NODE_USE_SYSTEM_CA",
		"NODE_TLS_REJECT_UNAUTHORIZED", "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CODE_ASSIST_ENDPOINT",
		// the keychain on a desktop
		"DBUS_SESSION_BUS_ADDRESS",
		// Windows
		"SYSTEMROOT", "SYSTEMDRIVE", "WINDIR", "COMSPEC", "PATHEXT", "APPDATA", "LOCALAPPDATA", "PROGRAMDATA",
		"PROGRAMFILES", "USERPROFILE", "USERNAME", "HOMEDRIVE", "HOMEPATH", "NUMBER_OF_PROCESSORS", "PROCESSOR_ARCHITECTURE",
		// Google Cloud, where the CLI uses another sign-in
		"CLOUD_SHELL", "GCLOUD_PROJECT",
		// compiled code of Node.js
		"NODE_COMPILE_CACHE", "NODE_DISABLE_COMPILE_CACHE",
		// version managers of Node.js, in which node is a wrapper
		"VOLTA_HOME", "ASDF_DIR", "ASDF_DATA_DIR", "NVM_DIR", "FNM_DIR", "FNM_MULTISHELL_PATH", "MISE_DATA_DIR", "MISE_CONFIG_DIR",
	}
	envPrefixes = []string{"GOOGLE_", "GEMINI_", "CLOUDSDK_", "LC_"}
	envDropped  = []string{
		// An editor's companion would add the user's open files to every prompt.
		// The CLI's sandbox restarts it with the prompt in its arguments.
		"GEMINI_CLI_IDE_", "GEMINI_CLI_NO_RELAUNCH", "GEMINI_CLI_ACTIVITY_LOG", "GEMINI_SANDBOX",
		// The CLI sets these for the programs that it starts, with a new value in
		// each session. One of these programs may be Pollux.
		"GEMINI_SESSION_ID", "GEMINI_CWD", "GEMINI_PROJECT_DIR", "GEMINI_PLANS_DIR", "GEMINI_PTY_INFO",
		// The bridge's own settings.
		"GEMINI_CLI_PATH", "GEMINI_DEFAULT_MODEL", "GEMINI_FALLBACK_MODEL", "GEMINI_MAX_CONCURRENT",
		"GEMINI_MIN_INVOCATION_GAP_MS", "GEMINI_SPAWN_JITTER_MAX_MS", "GEMINI_IDLE_TIMEOUT_MS", "GEMINI_PROMPTS_DIR",
		"GEMINI_RUNNER", "GEMINI_WARM_",
	}
)

// environment returns the variables that the lists allow. Each one that differs
// between two clients costs another process.
func environment(env agent.Env) []string {
	return env.Only(func(name string) bool {
		// Proxy variables may be in lower case, and Windows ignores the case of names.
		name = strings.ToUpper(name)
		hasPrefix := func(prefix string) bool { return strings.HasPrefix(name, prefix) }
		return (slices.Contains(envNames, name) || slices.ContainsFunc(envPrefixes, hasPrefix)) &&
			!slices.ContainsFunc(envDropped, hasPrefix)
	})
}

// childEnv returns the environment of a CLI: the variables that the lists allow,
// and those that Pollux sets. tmp is its temporary directory. The CLI leaves
// reports there that may contain the conversation.
func childEnv(from agent.Env, tmp string) []string {
	env := append(environment(from),
		"NO_COLOR=1", "FORCE_COLOR=0", "TERM=dumb",
		// Run one process instead of two: the outer one ignores signals.
		"GEMINI_CLI_NO_RELAUNCH=true",
		// The outer process would set the heap size. With the default size,
		// garbage collection nearly doubles the time of large runs.
		"NODE_OPTIONS=--max-old-space-size=8192",
		"NO_BROWSER=true",
		"TMPDIR="+tmp,
	)
	if runtime.GOOS == "windows" {
		env = append(env, "TMP="+tmp, "TEMP="+tmp)
	}
	return env
}
