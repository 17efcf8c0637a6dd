package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"pollux/internal/bridge"
)

func newAsk(streams IO) *cobra.Command {
	var (
		in      bridge.QueryInput
		timeout time.Duration
		words   int
		schema  string
		search  bool
		logs    logFlags
		asJSON  bool
		there   poolFlags
	)
	cmd := &cobra.Command{
		Use:   "ask [QUESTION]",
		Short: "Ask Gemini CLI a question from the shell, read-only",
		Long: `Asks Gemini CLI a question and prints the answer. The CLI can read this directory
and search the web, and nothing else. Without a question, or with -, the question
is read from standard input. With both, the standard input follows the question:

  pollux ask "what does this project do?"
  git diff | pollux ask "review this change"
  pollux ask --json-schema todo.schema.json "list the TODOs" | jq .

The settings of pollux bridge apply, and its flags --ssh, --socket, --via and
--map.`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			var err error
			if in.Prompt, err = question(streams.In, args); err != nil {
				return err
			}
			if strings.TrimSpace(in.Prompt) == "" {
				return usageError{errors.New("no question given: pass it as an argument or on standard input")}
			}
			if timeout < time.Millisecond || timeout > bridge.MaxTimeout {
				return usageError{fmt.Errorf("--timeout is %s: use 1ms to %s", timeout, bridge.MaxTimeout)}
			}
			ms := bridge.Integer(timeout.Milliseconds())
			in.Timeout = &ms
			if cmd.Flags().Changed("words") {
				if words < 1 {
					return usageError{fmt.Errorf("--words is %d: use a number from 1", words)}
				}
				w := bridge.Integer(words)
				in.MaxResponseLength = &w
			}
			in.RequireFiles = true
			var shape []byte
			if schema != "" {
				if in.ChangeMode || search {
					return usageError{errors.New("--json-schema cannot be combined with --changes or --search")}
				}
				if shape, err = os.ReadFile(schema); err != nil {
					return err
				}
			}
			if search && (in.ChangeMode || len(in.Files) > 0) {
				return usageError{errors.New("--search cannot be combined with --changes or --file")}
			}
			change := once
			if there.away() { // that pool may have a warm process
				change = func(*bridge.Config) {}
			}
			return withBridge(cmd.Context(), streams, &logs, &there, change, func(ctx context.Context, b *bridge.Bridge) error {
				status := newStatusLine(streams.Err)
				var a bridge.Answer
				var err error
				switch {
				case shape != nil:
					var s bridge.Structured
					input := bridge.StructuredInput{Common: in.Common, Prompt: in.Prompt, Schema: shape, Files: in.Files}
					s, err = b.Structured(ctx, input, status.report())
					a = bridge.Answer{Text: string(s.JSON), Notes: s.Notes, Meta: s.Meta}
				case search:
					input := bridge.SearchInput{Common: in.Common, Query: in.Prompt, MaxResponseLength: in.MaxResponseLength}
					a, err = b.Search(ctx, input, status.report())
				default:
					a, err = b.Query(ctx, in, status.report())
				}
				status.clear()
				if ctx.Err() != nil {
					return exitError{130}
				}
				// The model's text and file names may contain terminal escape
				// sequences.
				say := func(text string) { fmt.Fprintln(streams.Err, forOutput(streams.Err, text)) }
				for _, n := range a.Notes {
					say("pollux: " + n)
				}
				if err != nil {
					var f *bridge.Failure
					if errors.As(err, &f) && f.Partial != "" {
						say(f.Partial)
					}
					say("pollux: " + err.Error())
					return exitError{1}
				}
				switch {
				case asJSON:
					err = printJSON(streams.Out, jsonAnswer{Text: a.Text, Changes: a.Changes, Meta: a.Meta})
				case a.Changes != nil:
					// Print only the diff, for git apply.
					if a.Changes.Response != "" {
						say(a.Changes.Response)
					}
					if a.Changes.Diff == "" {
						say("pollux: the agent proposed no changes")
					}
					_, err = io.WriteString(streams.Out, forOutput(streams.Out, a.Changes.Diff))
				default:
					_, err = fmt.Fprintln(streams.Out, forOutput(streams.Out, a.Text))
				}
				if err == nil && a.Meta.Partial {
					fmt.Fprintln(streams.Err, "pollux: the answer is incomplete: use a longer --timeout")
					return exitError{1}
				}
				return err
			})
		},
	}
	flags := cmd.Flags()
	flags.StringVarP(&in.Model, "model", "m", "", "the `model` to ask")
	flags.StringArrayVarP(&in.Files, "file", "f", nil, "attach a text or image `file`; may be repeated")
	flags.StringVarP(&in.WorkingDirectory, "dir", "C", "", "the `directory` to work in")
	flags.DurationVarP(&timeout, "timeout", "t", bridge.DefaultTimeout, "how long to wait for the answer, at most 30m")
	flags.IntVar(&words, "words", 0, "maximum length of the answer, in words")
	flags.StringVar(&schema, "json-schema", "", "answer with JSON that is valid against the schema in this `file`")
	flags.BoolVar(&search, "search", false, "search the web")
	flags.BoolVar(&in.ChangeMode, "changes", false, "propose changes, and print them as a diff for git apply")
	flags.BoolVar(&asJSON, "json", false, "print the answer, the model and other details as JSON")
	logs.add(cmd)
	there.add(cmd)
	return cmd
}

type jsonAnswer struct {
	Text    string          `json:"text"`
	Changes *bridge.Changes `json:"changes,omitempty"`
	Meta    bridge.Meta     `json:"meta"`
}

// question returns the question: the arguments, followed by the standard input.
func question(in io.Reader, args []string) (string, error) {
	words := strings.Join(args, " ")
	if words == "-" {
		words = ""
	}
	if isTerminal(in) {
		return words, nil
	}
	if f, ok := in.(*os.File); ok && words != "" {
		// Other kinds of standard input may stay open and never end.
		if info, err := f.Stat(); err != nil || info.Mode()&(os.ModeNamedPipe) == 0 && !info.Mode().IsRegular() {
			return words, nil
		}
	}
	piped, err := io.ReadAll(io.LimitReader(in, 8<<20))
	if err != nil {
		return "", err
	}
	if words == "" || len(piped) == 0 {
		return words + string(piped), nil
	}
	return words + "\n\n" + string(piped), nil
}

// A statusLine shows the progress of a call, on one line of a terminal.
type statusLine struct{ f *os.File }

func newStatusLine(w io.Writer) statusLine {
	if !isTerminal(w) {
		return statusLine{}
	}
	return statusLine{w.(*os.File)}
}

func (s statusLine) report() func(string) {
	if s.f == nil {
		return nil
	}
	return func(message string) {
		// The window may have been resized. Characters outside of ASCII may be
		// wide.
		width, _, err := term.GetSize(int(s.f.Fd()))
		if err != nil || width < 10 {
			return
		}
		used := 0
		for i, r := range message {
			columns := 1
			if r >= 0x1100 {
				columns = 2
			}
			if used += columns; used > width-2 {
				message = message[:i] + "…"
				break
			}
		}
		fmt.Fprintf(s.f, "\r\x1b[K%s", message)
	}
}

func (s statusLine) clear() {
	if s.f != nil {
		fmt.Fprint(s.f, "\r\x1b[K")
	}
}
