package cli

import "github.com/spf13/cobra"

func newDemo(streams IO) *cobra.Command { return &cobra.Command{Use: "demo"} }
