// Command docs writes the manual pages and the shell completions of pollux into
// a directory: docs DIRECTORY.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"pollux/internal/cli"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "docs: name the directory to write to")
		os.Exit(2)
	}
	if err := write(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "docs:", err)
		os.Exit(1)
	}
}

func write(dir string) error {
	root := cli.Root()
	man, completions := filepath.Join(dir, "man"), filepath.Join(dir, "completions")
	for _, d := range []string{man, completions} {
		if err := os.RemoveAll(d); err != nil {
			return err
		}
		if err := os.MkdirAll(d, 0o755); err != nil {
			return err
		}
	}
	untag(root)
	header := doc.GenManHeader{Section: "1", Source: "Pollux", Manual: "Pollux"}
	if err := doc.GenManTree(root, &header, man); err != nil {
		return err
	}
	for name, generate := range map[string]func(string) error{
		"pollux.bash": func(path string) error { return root.GenBashCompletionFileV2(path, true) },
		"pollux.zsh":  root.GenZshCompletionFile,
		"pollux.fish": func(path string) error { return root.GenFishCompletionFile(path, true) },
		"pollux.ps1":  root.GenPowerShellCompletionFileWithDesc,
	} {
		if err := generate(filepath.Join(completions, name)); err != nil {
			return err
		}
	}
	return nil
}

// untag removes the generator's line, which contains the date of the build.
func untag(cmd *cobra.Command) {
	cmd.DisableAutoGenTag = true
	for _, sub := range cmd.Commands() {
		untag(sub)
	}
}
