package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"pollux/internal/companion"
	"pollux/internal/editor"
	"pollux/internal/ide"
	"pollux/internal/lazy"
	"pollux/internal/sys/disk"
	"pollux/internal/termtext"
	"pollux/internal/view/tmux"
)

func newSend(streams IO) *cobra.Command {
	var p editor.SendParams
	var socket string
	var line, nameFD int
	var selection string
	cmd := &cobra.Command{
		Use:   "send FILE[:LINE[-END]] [QUESTION...]",
		Short: "Send a file, lines or a question to an agent",
		Long: `Sends a file, or some of its lines, to a running agent. Claude Code and opencode
show them in their input line, in any terminal. For other agents, and for a
question, Pollux pastes text into the agent's tmux pane. It presses Enter only for
a question. It types only while the agent is in the foreground of the pane and its
input line is empty or holds text from Pollux.

Without --agent, Pollux chooses the most recently active connected agent: the last
one that connected, proposed a change, or received a prompt. If none is connected,
it looks for an agent in a tmux pane in this workspace.

Files that are ignored, or look like secrets, are not sent. Pass a question on
standard input, as "-", to hide it from other users of this machine: they can see
the arguments of a process.`,
		Example: `  pollux send main.go:12-20
  pollux send --agent codex main.go:12 why does this fail?
  echo "why does this fail?" | pollux send main.go -`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			usage := func(err error) error { return usageError{err} }
			if nameFD > 0 {
				name, err := readName(nameFD)
				if err != nil {
					return usage(err)
				}
				args = append([]string{name}, args...)
			}
			if len(args) == 0 {
				return usage(errors.New("no file given: name the file"))
			}
			var err error
			if p.Path, p.Line, p.EndLine, err = fileAndLines(args[0], nameFD > 0); err != nil {
				return usage(err)
			}
			if p.Question, err = questionIn(streams.In, args[1:]); err != nil {
				return err
			}
			if line > 0 {
				if p.Line, p.EndLine, err = selectedLines(streams.In, p.Path, selection, line); err != nil {
					return err
				}
			}
			path, err := editor.Find(cmd.Context(), self(), socket, p.Path)
			if err != nil {
				return err
			}
			res, err := editor.Send(cmd.Context(), path, self(), p)
			if err != nil {
				return err
			}
			printSent(streams.Out, res)
			return nil
		},
	}
	fs := cmd.Flags()
	fs.StringVar(&p.Agent, "agent", "", "`name` of the agent: "+names(ide.Launches()))
	fs.StringVar(&socket, "socket", "", "`path` of the companion's socket")
	fs.IntVar(&nameFD, "name-fd", 0,
		"read FILE's name, one line, from this file `descriptor`: for editors that cannot quote it in a shell command")
	fs.IntVar(&line, "line", 0, "the cursor's `line`, from 1, instead of the one after FILE")
	fs.StringVar(&selection, "selection", "",
		"the selected `text`, of which the cursor is at one end; - reads standard input")
	cmd.RegisterFlagCompletionFunc("agent", completeAgents)
	return cmd
}

// printSent says what has happened.
func printSent(w io.Writer, res editor.SendResult) {
	name := termtext.Line(res.Agent, 64)
	if res.Status == editor.SentPane {
		fmt.Fprintf(w, "Sent to %s in tmux pane %s.\n", name, termtext.Line(res.Pane, 64))
		return
	}
	fmt.Fprintf(w, "Sent to %s.\n", name)
}

// fileLines matches a file with lines, as FILE:LINE or FILE:LINE-END.
var fileLines = lazy.Regexp(`^(.+):(\d+)(?:-(\d+))?$`)

// fileAndLines returns the absolute path and the lines that an argument names. If plain
// is set, or a file has that very name, the argument has no lines.
func fileAndLines(arg string, plain bool) (path string, line, end int, err error) {
	m := fileLines().FindStringSubmatch(arg)
	if _, err := os.Lstat(arg); err == nil || plain {
		m = nil
	}
	if m != nil {
		arg = m[1]
		if line, err = strconv.Atoi(m[2]); err == nil && m[3] != "" {
			end, err = strconv.Atoi(m[3])
		}
		if err != nil || line < 1 || end != 0 && end < line {
			err := fmt.Errorf("%q has no lines: write FILE:LINE or FILE:LINE-END, such as main.go:12-20", m[0])
			return "", 0, 0, err
		}
	}
	path, err = filepath.Abs(arg)
	return path, line, end, err
}

// maxInput bounds what the command reads from standard input, in bytes.
const maxInput = 1 << 20

// readInput returns the text on standard input.
func readInput(in io.Reader) (string, error) {
	data, err := io.ReadAll(io.LimitReader(in, maxInput+1))
	if err == nil && len(data) > maxInput {
		err = errors.New("the text on standard input has more than 1 MiB: shorten it")
	}
	return string(data), err
}

// questionIn returns the question in the arguments, or on standard input.
func questionIn(in io.Reader, args []string) (string, error) {
	if len(args) != 1 || args[0] != "-" {
		return strings.Join(args, " "), nil
	}
	text, err := readInput(in)
	if err == nil && strings.TrimSpace(text) == "" {
		err = errors.New("there is no question on standard input: write one, or leave out the -")
	}
	return text, err
}

// selectedLines returns the lines of a text that the user has selected in a file, given
// the line of the cursor, which is at one end of the text. A text of one character is
// the cursor itself.
func selectedLines(in io.Reader, path, text string, cursor int) (line, end int, err error) {
	if text == "-" {
		if text, err = readInput(in); err != nil {
			return 0, 0, err
		}
	}
	if isOneCharacter(text) {
		return cursor, 0, nil
	}
	more := strings.Count(strings.TrimSuffix(text, "\n"), "\n")
	data, err := disk.ReadFile(path, 64<<20)
	if err != nil {
		return 0, 0, err
	}
	lines := strings.SplitAfter(string(data), "\n")
	first := cursor - more
	if first >= 1 && cursor <= len(lines) && strings.Contains(strings.Join(lines[first-1:cursor], ""), text) {
		return first, cursor, nil
	}
	return cursor, cursor + more, nil
}

// findPane finds agents in tmux for a companion.
func findPane(ctx context.Context, pid int, commands, roots []string) (companion.Pane, error) {
	p, err := tmux.FindPane(ctx, pid, commands, roots)
	if errors.Is(err, tmux.ErrNoPane) {
		err = companion.ErrNoPane
	}
	if err != nil {
		return nil, err
	}
	return p, nil
}

// preferredAgent returns the command of the agent that `pollux run` starts without asking;
// "" if it would ask.
func preferredAgent() string {
	all := launches(isInstalled)
	if len(all) == 1 {
		return all[0].Name
	}
	l, _ := earlier(all)
	return l.Name
}
