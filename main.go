// Command pollux works alongside terminal coding agents. Its companion connects
// Gemini CLI, Qwen Code, Claude Code, Copilot CLI, Codex CLI and opencode to the
// user's editor, and its bridge lets MCP clients and the shell ask an agent. See
// `pollux help`.
package main

import (
	"os"

	"pollux/internal/cli"
)

func main() {
	os.Exit(cli.Main())
}
