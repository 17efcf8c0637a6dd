package cli

import (
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"pollux/internal/config"
)

// The commands have the flags that the table of settings gives them, with its defaults. No
// flag of `pollux run` is missing in the table.
func TestSettingsAreFlags(t *testing.T) {
	root := newRoot(IO{strings.NewReader(""), io.Discard, io.Discard})
	commands := make(map[string]*cobra.Command)
	for _, cmd := range root.Commands() {
		commands[cmd.Name()] = cmd
	}
	for _, s := range config.Settings {
		for _, name := range s.Commands {
			f := commands[name].Flags().Lookup(s.Flag)
			if f == nil || f.Usage != s.Help {
				t.Errorf("pollux %s --%s is not the flag of %s: %+v", name, s.Flag, s.Key, f)
				continue
			}
			if s.Kind != config.List && f.DefValue != s.Default {
				t.Errorf("pollux %s --%s has the default %q, want %q", name, s.Flag, f.DefValue, s.Default)
			}
			if err := setFlag(f, s.Value()); err != nil {
				t.Errorf("pollux %s --%s: %v", name, s.Flag, err)
			}
		}
	}
	// The flags of a companion and of a log are settings for every command that has them.
	for name, cmd := range commands {
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			i := slices.IndexFunc(config.Settings, func(s config.Setting) bool { return s.Flag == f.Name && s.Help == f.Usage })
			switch {
			case name == "connect", name == "config":
			case i >= 0 && !slices.Contains(config.Settings[i].Commands, name):
				t.Errorf("the setting %s does not count for pollux %s", config.Settings[i].Key, name)
			case i < 0 && name == "run" && f.Name != "help":
				t.Errorf("pollux run --%s is not in the table of settings", f.Name)
			}
		})
	}
}
