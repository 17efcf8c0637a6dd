package cli

import (
	"github.com/spf13/cobra"

	"pollux/internal/agent"
	"pollux/internal/wall"
)

// newWall returns the launcher of agents behind the wall. Only Pollux starts it.
func newWall() *cobra.Command {
	return &cobra.Command{
		Use:                wall.Command,
		Short:              "Run an agent that cannot change files; only Pollux starts it",
		Hidden:             true,
		DisableFlagParsing: true, // paths may be anything
		Args:               cobra.ArbitraryArgs,
		RunE:               func(_ *cobra.Command, args []string) error { return wall.Launch(args) },
	}
}

// thisWall returns the wall that this program builds on this system.
func thisWall(mode string) agent.Wall {
	return agent.Wall{Mode: mode, Launcher: wall.Self, Missing: wall.Available()}
}
