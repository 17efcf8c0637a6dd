package gemini

import (
	"pollux/internal/agent"
	"pollux/internal/agent/program"
)

// variables are those that the CLI needs to find its settings, its credentials, the
// network and the system.
var variables = program.Variables{
	Names: []string{
		"CODE_ASSIST_ENDPOINT",
		// Google Cloud, where the CLI uses another sign-in
		"CLOUD_SHELL", "GCLOUD_PROJECT",
	},
	Prefixes: []string{"GOOGLE_", "GEMINI_", "CLOUDSDK_"},
	Dropped: []string{
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
	},
}

func environment(env agent.Env) []string { return variables.Of(env) }

// childEnv returns the environment of a CLI: the variables that the lists allow,
// and those that Pollux sets. tmp is its temporary directory. The CLI leaves
// reports there that may contain the conversation.
func childEnv(from agent.Env, tmp string) []string {
	return variables.Env(from, tmp,
		// Run one process instead of two: the outer one ignores signals.
		"GEMINI_CLI_NO_RELAUNCH=true",
		// The outer process would set the heap size. With the default size,
		// garbage collection nearly doubles the time of large runs.
		"NODE_OPTIONS=--max-old-space-size=8192",
	)
}
