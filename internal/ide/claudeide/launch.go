package claudeide

// ClaudeCommand is the name of Claude Code's command.
const ClaudeCommand = "claude"

// LaunchUnset are variables of another companion, or of another IDE, that must not
// reach an agent that Pollux starts. opencode cannot connect if it has one of them,
// with any value.
var LaunchUnset = []string{EnvPort, EnvOpencodePort}

// ClaudeEnv returns the variables that lead Claude Code to a companion, given the
// variables of that companion. They take precedence over the folders in the locks,
// so they work even if another program has the same folder.
func ClaudeEnv(companion map[string]string) []string {
	env := []string{EnvAutoConnect + "=true"}
	if port := companion[envServerPort]; port != "" {
		env = append(env, EnvPort+"="+port)
	}
	return env
}
