package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/charmbracelet/x/ansi"
	"github.com/spf13/cobra"

	"pollux/internal/editor"
)

// notifyEvents are the values of --event.
var notifyEvents = []string{"focus", "close", "save", "quit"}

func newNotify(streams IO) *cobra.Command {
	var e editor.ContextEvent
	var line, column, nameFD int
	var unit, anchor, socket string
	var quiet, blockCursor bool
	cmd := &cobra.Command{
		Use:   "notify [FILE]",
		Short: "Tell a running companion which file an editor has open",
		Long: `For editors that can only run shell commands (Kakoune, Helix, micro): reports
that FILE has the focus, where the cursor is and what is selected. Pass the
selection on standard input: other users can see the arguments of a process.

$POLLUX_SOCKET names the companion. Without it, Pollux takes a companion whose
workspace contains the file, preferably one with a connected agent.`,
		Example: `  pollux notify main.go --line 12 --column 4
  printf %s "$kak_selection" | pollux notify "$kak_buffile" --line "$kak_cursor_line" \
    --column "$kak_cursor_column" --unit byte --anchor "${kak_selection_desc%%,*}" --selection -
  pollux notify main.go --event close`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 {
				return errors.New("more than one file given: name one file")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			err := func() error {
				usage := func(text string) error { return usageError{errors.New(text)} }
				switch {
				case !slices.Contains(notifyEvents, e.Event):
					return usage(fmt.Sprintf("unknown event %q: use focus, close, save or quit", e.Event))
				case nameFD > 0 && len(args) == 0:
					name, err := readName(nameFD)
					if err != nil {
						return usage(err.Error())
					}
					args = []string{name}
				case len(args) == 0 && e.Event != "quit":
					return usage("no file given: name the file")
				}
				if len(args) > 0 {
					path, err := filepath.Abs(args[0])
					if err != nil {
						return err
					}
					e.Path = path
				}
				if line > 0 {
					char, err := utf16Column(e.Path, line, max(column, 1), unit)
					if err != nil {
						return usage(err.Error())
					}
					e.Cursor = &editor.Cursor{Line: line, Character: char}
				}
				if e.Selection == "-" {
					data, err := io.ReadAll(io.LimitReader(streams.In, 1<<20))
					if err != nil {
						return err
					}
					e.Selection = string(data)
				}
				if blockCursor && isOneCharacter(e.Selection) {
					e.Selection = ""
				}
				if anchor != "" && e.Selection != "" {
					where, err := selectionRange(e.Path, e.Selection, anchor, line, max(column, 1), unit)
					if err != nil {
						return usage(err.Error())
					}
					e.Range = where
				}
				return editor.WithClientFor(cmd.Context(), self(), socket, e.Path,
					func(ctx context.Context, c *editor.Client) error {
						if e.Event == "save" { // a request: its answer says that it has arrived
							return c.Call(ctx, editor.MethodFileSaved, editor.FilePath{Path: e.Path}, nil)
						}
						return c.Call(ctx, editor.MethodContextEvent, e, nil)
					})
			}()
			if quiet && !errors.As(err, new(usageError)) {
				return nil
			}
			return err
		},
	}
	fs := cmd.Flags()
	fs.StringVar(&e.Event, "event", "focus", "the `event`: focus, close, save (the user saved FILE), or quit (the editor has ended)")
	fs.StringVar(&e.Source, "source", "shell", "`name` that distinguishes this editor from others")
	fs.IntVar(&line, "line", 0, "the cursor's line, from 1")
	fs.IntVar(&column, "column", 0, "the cursor's column, from 1")
	fs.StringVar(&unit, "unit", "char", "`unit` of --column: char, byte, utf16 or grapheme")
	fs.IntVar(&nameFD, "name-fd", 0,
		"read FILE's name, one line, from this file `descriptor`: for editors that cannot quote it in a shell command")
	fs.BoolVar(&blockCursor, "block-cursor", false, "treat a selection of one character as the cursor")
	fs.StringVar(&e.Selection, "selection", "", "the selected `text`; - reads standard input")
	fs.StringVar(&anchor, "anchor", "", "`LINE.COLUMN` of the other end of the selection")
	fs.Uint64Var(&e.Number, "number", 0,
		"the event's `place` among those of --source, from 1: a hook that does not wait may start two that arrive in another order")
	fs.StringVar(&socket, "socket", "", "`path` of the companion's socket")
	fs.BoolVar(&quiet, "quiet", false, "do nothing if no companion is running: for an editor's hooks")
	return cmd
}

// readName reads a line from a file descriptor.
func readName(fd int) (string, error) {
	f := os.NewFile(uintptr(fd), "name")
	if f == nil {
		return "", fmt.Errorf("--name-fd %d is not open: redirect it from a file or pipe", fd)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, 64<<10))
	if err != nil {
		return "", fmt.Errorf("cannot read --name-fd %d (%w): redirect it from a file or pipe", fd, err)
	}
	name := strings.TrimSuffix(string(data), "\n")
	if name == "" {
		return "", fmt.Errorf("--name-fd %d has no name: write the file's name to it", fd)
	}
	return name, nil
}

// selectionRange returns the range of a text that the user has selected between the anchor,
// "LINE.COLUMN", and the cursor. Either can come first.
func selectionRange(path, text, anchor string, line, column int, unit string) (*editor.Range, error) {
	first, second, _ := strings.Cut(anchor, ".")
	anchorLine, err := strconv.Atoi(first)
	anchorColumn, err2 := strconv.Atoi(second)
	if err != nil || err2 != nil || anchorLine < 1 || anchorColumn < 1 {
		return nil, fmt.Errorf("--anchor %q is not a position: write LINE.COLUMN, such as 12.4", anchor)
	}
	if line < 1 {
		return nil, errors.New("--anchor needs the cursor: add --line and --column")
	}
	if anchorLine < line || anchorLine == line && anchorColumn < column {
		line, column = anchorLine, anchorColumn
	}
	char, err := utf16Column(path, line, column, unit)
	if err != nil {
		return nil, err
	}
	start := editor.Cursor{Line: line, Character: char}
	end := start
	for _, r := range text {
		if r == '\n' {
			end = editor.Cursor{Line: end.Line + 1, Character: 1}
			continue
		}
		end.Character += utf16.RuneLen(r)
	}
	return &editor.Range{Start: start, End: end}, nil
}

// isOneCharacter reports whether a text is at most one character, as the user sees it.
func isOneCharacter(text string) bool {
	first, _ := ansi.FirstGraphemeCluster(text, ansi.GraphemeWidth)
	return first == text
}

// utf16Column converts a 1-based column in another unit to UTF-16 code units, using
// the line on disk. If that line is shorter, because the buffer has changes, each
// missing unit is one code unit.
func utf16Column(path string, line, column int, unit string) (int, error) {
	switch unit {
	case "utf16":
		return column, nil
	case "char", "byte", "grapheme":
	default:
		return 0, fmt.Errorf("unknown unit %q: use char, byte, utf16 or grapheme", unit)
	}
	text := ""
	if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() && info.Size() <= 64<<20 {
		data, _ := os.ReadFile(path)
		n := 0
		for l := range strings.Lines(string(data)) {
			if n++; n == line {
				text = strings.TrimRight(l, "\r\n")
				break
			}
		}
	}
	left, units := column-1, 1
	if unit == "grapheme" {
		for ; left > 0 && text != ""; left-- {
			cluster, _ := ansi.FirstGraphemeCluster(text, ansi.GraphemeWidth)
			for _, r := range cluster {
				units += utf16.RuneLen(r)
			}
			text = text[len(cluster):]
		}
		return units + left, nil
	}
	for _, r := range text {
		size := 1
		if unit == "byte" {
			size = utf8.RuneLen(r)
		}
		if left < size {
			return units, nil
		}
		left -= size
		units += utf16.RuneLen(r)
	}
	return units + left, nil
}
