package geminiide

// The names of the commands.
const (
	GeminiCommand = "gemini"
	QwenCommand   = "qwen"
	LLxprtCommand = "llxprt"
)

// The agents' npm packages.
const (
	GeminiPackage = "@google/gemini-cli"
	QwenPackage   = "@qwen-code/qwen-code"
)

// GeminiRestartCode is Gemini CLI's exit code that asks its launcher to start it
// again, for instance when the user has decided to trust the folder.
const GeminiRestartCode = 199

// LaunchEnv returns the variables that Pollux sets for Gemini CLI or Qwen Code.
//
// Gemini CLI's launcher is a second process. It ignores the signals that end a
// terminal's programs. Without the launcher, the CLI cannot outlive Pollux.
func LaunchEnv(map[string]string) []string { return []string{"GEMINI_CLI_NO_RELAUNCH=true"} }

// EnableHint returns the function that tells the user of an agent how to connect it.
func EnableHint(title string) func([]string) string {
	return func([]string) string {
		return "if " + title + " does not connect, type /ide enable in it, once, then restart it"
	}
}
