package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"pollux/internal/agent"
	"pollux/internal/ide"
	"pollux/internal/sys/shell"
	"pollux/internal/termtext"
)

// namesAgent checks the arguments of `pollux run`. dash is how many come before the argument
// --, or -1 without one. Only the name of an agent needs no --.
func namesAgent(args []string, dash int) error {
	if dash == 0 || len(args) == 0 || isAgent(args[0]) {
		return nil
	}
	if s := similar(args[0], flagValues()["agent"]); len(s) > 0 {
		return usageError{unknown("agent", args[0], []string{"pollux run " + s[0]})}
	}
	return usageError{fmt.Errorf("unknown agent %q: use %s, or put another command after --, as in `pollux run %s %s`",
		args[0], names(ide.Launches()), shell.EndOfFlags(), args[0])}
}

// isAgent reports whether Pollux can start an agent with that name.
func isAgent(name string) bool {
	return slices.ContainsFunc(ide.Launches(), func(l ide.Launch) bool { return l.Name == name })
}

// launches returns the agents that match, of those that Pollux can start.
func launches(match func(ide.Launch) bool) []ide.Launch {
	return slices.DeleteFunc(ide.Launches(), func(l ide.Launch) bool { return !match(l) })
}

// find returns the path of an agent that is installed, or that Pollux has downloaded.
func find(l ide.Launch) (path string, ok bool) {
	if path, err := agent.Env(nil).LookPath(l.Name); err == nil {
		return path, true
	}
	return downloaded(l)
}

func isInstalled(l ide.Launch) bool {
	_, ok := find(l)
	return ok
}

// names returns the commands of agents as a list for people, such as "gemini, qwen or claude".
func names(all []ide.Launch) string {
	var list []string
	for _, l := range all {
		list = append(list, l.Name)
	}
	last := len(list) - 1
	if last < 1 {
		return strings.Join(list, "")
	}
	return strings.Join(list[:last], ", ") + " or " + list[last]
}

// agentList returns the agents that Pollux can start, for a help text.
func agentList() string {
	var b strings.Builder
	for _, l := range ide.Launches() {
		fmt.Fprintf(&b, "    %-9s %s\n", l.Name, l.Title)
	}
	return b.String()
}

// completeAgents completes the name of the agent.
func completeAgents(_ *cobra.Command, args []string, prefix string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveDefault
	}
	var all []cobra.Completion
	for _, l := range launches(func(l ide.Launch) bool { return strings.HasPrefix(l.Name, prefix) }) {
		all = append(all, cobra.CompletionWithDesc(l.Name, l.Title))
	}
	return all, cobra.ShellCompDirectiveDefault
}

// findAgent returns how to start the command in args, or, without a command, the
// agent that is installed or that the user chooses. away is set if the companion is
// on another machine.
func findAgent(ctx context.Context, streams IO, args []string, away bool) (session, error) {
	if len(args) == 0 {
		l, err := chooseAgent(ctx, streams, away)
		if err != nil {
			return session{}, err
		}
		argv, err := command(ctx, streams, l)
		if exit := (exitError{}); err != nil && !errors.As(err, &exit) {
			all := launches(func(l ide.Launch) bool { return l.Remote || !away })
			err = fmt.Errorf("no agent is on the PATH (%s): install one. %w", names(all), err)
		}
		return session{agent: l, argv: argv}, err
	}
	l := ide.LaunchOf(args[0])
	if args[0] == l.Name && l.Package != "" {
		argv, err := command(ctx, streams, l)
		if exit := (exitError{}); err != nil && !errors.As(err, &exit) {
			say(streams.Err, "%s", err)
			err = exitError{127}
		}
		return session{agent: l, argv: append(argv, args[1:]...)}, err
	}
	path, err := exec.LookPath(args[0])
	if err != nil {
		next := "check the command after --"
		if s := similar(args[0], flagValues()["agent"]); len(s) > 0 {
			next = "did you mean `pollux run -- " + s[0] + "`?"
		}
		say(streams.Err, "%v: %s", err, next)
		return session{}, exitError{127}
	}
	return session{agent: l, argv: slices.Concat([]string{path}, l.Args, args[1:])}, nil
}

// command returns the command that starts an agent. If the agent is not installed,
// Pollux offers to download it.
func command(ctx context.Context, streams IO, l ide.Launch) ([]string, error) {
	path, ok := find(l)
	if !ok {
		var err error
		if path, err = offerDownload(ctx, streams, l); err != nil {
			return nil, err
		}
	}
	return append([]string{path}, l.Args...), nil
}

func notInstalled(l ide.Launch) error {
	how := "run"
	if _, err := exec.LookPath("npm"); err != nil {
		how = "install Node.js 22 or newer, then run" // Qwen Code and Claude Code need 22
	}
	return fmt.Errorf("%s is not installed: %s `npm install -g %s`", l.Title, how, l.Package)
}

// chooseAgent returns the installed agent, or the first one of the table if no
// agent is installed. If several are installed, it asks the user, once.
func chooseAgent(ctx context.Context, streams IO, away bool) (ide.Launch, error) {
	all := launches(func(l ide.Launch) bool { return isInstalled(l) && (l.Remote || !away) })
	switch len(all) {
	case 0:
		return ide.Launches()[0], nil
	case 1:
		return all[0], nil
	}
	want := loadSettings().Text("run.agent")
	if l, ok := chosen(all, want); ok {
		return l, nil
	}
	if want != "" && want != askEachTime {
		return ide.Launch{}, fmt.Errorf("the setting run.agent names %q: use %s, or ask (pollux config edit)",
			termtext.Line(want, 40), names(all))
	}
	if want == "" {
		if l, ok := earlier(all); ok {
			say(streams.Err, "starting %s; `pollux run -- NAME` starts another agent", l.Title)
			return l, nil
		}
	}
	unnamed := fmt.Errorf("several agents are installed: name %s, as in `pollux run -- %s`", names(all), all[0].Name)
	if !isTerminal(streams.In) {
		return ide.Launch{}, unnamed
	}
	say(streams.Err, "several agents are installed:")
	for i, l := range all {
		fmt.Fprintf(streams.Err, "  %d  %s (%s)\n", i+1, l.Title, l.Name)
	}
	in := bufio.NewReader(streams.In)
	for {
		fmt.Fprintf(streams.Err, "Which one does `pollux run` start? [1-%d] ", len(all))
		answer, err := readLine(ctx, in)
		if errors.Is(err, io.EOF) {
			return ide.Launch{}, unnamed
		}
		if err != nil {
			return ide.Launch{}, err
		}
		l, ok := chosen(all, answer)
		if !ok {
			continue
		}
		if want == askEachTime {
			return l, nil
		}
		if err := writeState(choice, l.Name+"\n"); err != nil {
			say(streams.Err, "cannot remember the answer: %v", err)
		} else {
			say(streams.Err, "starting %s, now and from now on; to change that, set run.agent: pollux config edit", l.Title)
		}
		return l, nil
	}
}

// askEachTime is the value of run.agent for a question at each start.
const askEachTime = "ask"

// choice is the file with the name of the agent that the user has chosen.
const choice = "agent"

// earlier returns the agent that the user has chosen before.
func earlier(all []ide.Launch) (ide.Launch, bool) {
	name, _ := readState(choice)
	return chosen(all, name)
}

// chosen returns the agent that an answer names, or numbers from 1.
func chosen(all []ide.Launch, answer string) (ide.Launch, bool) {
	answer = strings.TrimSpace(answer)
	for i, l := range all {
		if answer == l.Name || answer == strconv.Itoa(i+1) {
			return l, true
		}
	}
	return ide.Launch{}, false
}
