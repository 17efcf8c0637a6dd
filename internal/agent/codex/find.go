package codex

import "pollux/internal/agent/program"

// release is the oldest one whose app server is known to apply the permissions that
// [serverCommand] defines.
var release = program.Release{
	Command: "codex", Packages: []string{"@openai/codex"}, Oldest: "0.169.0", Env: childEnv, Remedies: remedies,
}
