package cli

import (
	"fmt"
	"os"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"pollux/internal/agent/agents"
	"pollux/internal/config"
)

// loadSettings returns the settings of this process.
func loadSettings() *config.Values { return config.Load(os.Getenv, agents.Names()...) }

// textFlag, switchFlag and listFlag add the flag of a setting. Before a command runs,
// [applySettings] gives it the value of the environment or the file.
func textFlag(cmd *cobra.Command, key string, value *string) {
	s := config.Row(key)
	cmd.Flags().StringVar(value, s.Flag, s.Value().(string), s.Help)
}

func switchFlag(cmd *cobra.Command, key string, value *bool) {
	s := config.Row(key)
	cmd.Flags().BoolVar(value, s.Flag, s.Value().(bool), s.Help)
}

func listFlag(cmd *cobra.Command, key string, value *[]string) {
	s := config.Row(key)
	cmd.Flags().StringArrayVar(value, s.Flag, s.Value().([]string), s.Help)
}

// settingsOf returns the settings that are flags of a command.
func settingsOf(cmd *cobra.Command) []config.Setting {
	if cmd.Parent() == nil || cmd.Parent().HasParent() {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(config.Settings), func(s config.Setting) bool {
		return !slices.Contains(s.Commands, cmd.Name())
	})
}

// applySettings gives flags that are not on the command line the values of the environment
// and the file.
func applySettings(cmd *cobra.Command) error {
	all := settingsOf(cmd)
	if len(all) == 0 {
		return nil
	}
	v := loadSettings()
	err := v.ErrFor(func(s config.Setting) bool { return slices.Contains(s.Commands, cmd.Name()) })
	if err != nil {
		if cmd.Name() == bridgeCommand {
			return nil // the bridge reports it to its client
		}
		return err
	}
	flags := cmd.Flags()
	v.SetFlags(changedFlags(flags, all))
	for _, s := range all {
		from := v.Origin(s.Key)
		if from == (config.Origin{}) || flags.Changed(s.Flag) {
			continue
		}
		if err := setFlag(flags.Lookup(s.Flag), v.Value(s.Key)); err != nil {
			return fmt.Errorf("%s: %w", from, err)
		}
	}
	return nil
}

// changedFlags returns the values of the flags that are on the command line, by the keys
// of their settings.
func changedFlags(flags *pflag.FlagSet, all []config.Setting) map[string]any {
	values := make(map[string]any)
	for _, s := range all {
		if s.Flag == "" || !flags.Changed(s.Flag) {
			continue
		}
		f := flags.Lookup(s.Flag)
		if list, ok := f.Value.(pflag.SliceValue); ok {
			values[s.Key] = list.GetSlice()
		} else if s.Kind == config.Switch {
			values[s.Key] = f.Value.String() == "true"
		} else {
			values[s.Key] = f.Value.String()
		}
	}
	return values
}

// addFlags adds the flags of all settings.
func addFlags(cmd *cobra.Command) {
	for _, s := range config.Settings {
		if s.Flag == "" {
			continue
		}
		switch s.Kind {
		case config.Switch:
			switchFlag(cmd, s.Key, new(bool))
		case config.List:
			listFlag(cmd, s.Key, new([]string))
		default:
			textFlag(cmd, s.Key, new(string))
		}
	}
}

// setFlag sets a flag, as if it had that default.
func setFlag(f *pflag.Flag, value any) error {
	if list, ok := f.Value.(pflag.SliceValue); ok {
		return list.Replace(value.([]string))
	}
	return f.Value.Set(fmt.Sprint(value))
}
