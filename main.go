// Command pollux works alongside Gemini CLI: it is the companion that IDE mode
// needs, for editors that have none. See `pollux help`.
package main

import (
	"os"

	"pollux/internal/cli"
)

func main() {
	os.Exit(cli.Main())
}
