package claudeide

// The names of the commands.
const (
	ClaudeCommand   = "claude"
	OpencodeCommand = "opencode"
)

// LaunchUnset are variables of another companion, or of another IDE, that must not
// reach an agent that Pollux starts. opencode cannot connect if it has one of them,
// whatever its value is.
var LaunchUnset = []string{EnvPort, EnvOpencodePort}

// ClaudeEnv returns the variables that lead Claude Code to the companion that has
// set the variables in the map. They do so whatever folders the locks name, so also
// if another program has the same folder.
func ClaudeEnv(companion map[string]string) []string {
	env := []string{EnvAutoConnect + "=true"}
	if port := companion[envServerPort]; port != "" {
		env = append(env, EnvPort+"="+port)
	}
	return env
}

// OpencodeHint tells the user of opencode what it does not do.
func OpencodeHint([]string) string {
	return "opencode receives the open file and the selection; it asks about changes only in its own terminal"
}
