package cli

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"pollux/internal/sys/shell"
)

// flagError returns what to tell the user of a flag that is unknown, has no value or a wrong
// one.
func flagError(cmd *cobra.Command, err error) error {
	var notFound *pflag.NotExistError
	var invalid *pflag.InvalidValueError
	var missing *pflag.ValueRequiredError
	var syntax *pflag.InvalidSyntaxError
	switch {
	case errors.As(err, &notFound):
		err = unknownFlag(cmd, notFound)
	case errors.As(err, &invalid):
		err = fmt.Errorf("--%s %s: %s", invalid.GetFlag().Name, invalid.GetValue(), allowed(invalid))
	case errors.As(err, &missing):
		name, _ := pflag.UnquoteUsage(missing.GetFlag())
		err = fmt.Errorf("--%s has no value: add the %s", missing.GetFlag().Name, name)
	case errors.As(err, &syntax):
		err = unknown("flag", syntax.GetSpecifiedFlag(), nil)
	}
	return usageError{err}
}

// allowed says which values a flag takes.
func allowed(err *pflag.InvalidValueError) string {
	switch err.GetFlag().Value.Type() {
	case "bool":
		return "use true or false"
	case "int", "uint64":
		return "use a whole number"
	case "duration":
		return "use a time such as 90s or 5m"
	}
	return err.Unwrap().Error()
}

func unknownFlag(cmd *cobra.Command, err *pflag.NotExistError) error {
	name := "--" + err.GetSpecifiedName()
	if short := err.GetSpecifiedShortnames(); short != "" {
		return unknown("flag", "-"+err.GetSpecifiedName(), nil)
	}
	// The agent's own flags.
	if args := cmd.Flags().Args(); cmd.Name() == "run" && len(args) > 0 && isAgent(args[0]) {
		return fmt.Errorf("pollux run has no flag %s: the agent's arguments go after --, as in `pollux run %s %s %s`",
			name, shell.EndOfFlags(), args[0], name)
	}
	var names, all []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			names = append(names, f.Name)
		}
	})
	for _, s := range similar(err.GetSpecifiedName(), names) {
		all = append(all, "--"+s)
	}
	return unknown("flag", name, all)
}
