package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"

	"github.com/spf13/cobra"

	"pollux/internal/editor"
	"pollux/internal/paths"
	"pollux/internal/sys/shell"
	"pollux/internal/termtext"
)

func newOpen(streams IO) *cobra.Command {
	var socket string
	var noBrowser bool
	cmd := &cobra.Command{
		Use:   "open [DIRECTORY]",
		Short: "Open the review page in the browser",
		Long: `Opens the review page of a running companion in the browser, as often as you
like. Over ssh, without a browser or with --no-browser, it prints a link instead:
one line on standard output. Each link opens the page once.

Pollux takes the companion in $POLLUX_SOCKET, or else the one whose workspace
contains the working directory, or DIRECTORY. If there are several, it says which
one it opens, and how to open the others. $BROWSER can name another browser.`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 {
				return errors.New("more than one directory given: name one")
			}
			return nil
		},
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
			return nil, cobra.ShellCompDirectiveFilterDirs
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			dir := strings.Join(args, "")
			if socket == "" && dir == "" {
				socket = os.Getenv(editor.EnvSocket)
			}
			if socket == "" {
				found, err := choosePage(cmd.Context(), streams.Err, dir)
				if err != nil {
					return err
				}
				socket = found
			}
			st, link, err := editor.ReviewPage(cmd.Context(), socket, self())
			if err != nil {
				return err
			}
			if noBrowser {
				say(streams.Err, "the review page of %s opens once at", companionName(st))
			} else {
				say(streams.Err, "opening the review page of %s", companionName(st))
				err := shell.Browse(link.URL)
				if err == nil {
					return nil
				}
				say(streams.Err, "the browser did not open (%v); this link opens the page once:", err)
			}
			fmt.Fprintln(streams.Out, shownURL(streams.Out, link.URL))
			return nil
		},
	}
	cmd.Flags().StringVar(&socket, "socket", "", "`path` of the companion's socket")
	cmd.Flags().BoolVar(&noBrowser, "no-browser", false, "print a link without opening it")
	return cmd
}

// choosePage returns the socket of the companion to open for a directory, the working
// directory if it is empty. If there are several, it tells the user about the others.
func choosePage(ctx context.Context, errs io.Writer, dir string) (string, error) {
	found, dir, err := editor.ListFor(ctx, self(), dir)
	if err != nil {
		return "", err
	}
	if len(found) == 0 {
		err := fmt.Errorf("no companion is running for %s: start one with `pollux run`", dir)
		return "", elsewhere(ctx, err, "pollux open %s")
	}
	if len(found) > 1 {
		say(errs, "%d companions serve %s; to open the others:", len(found), termtext.Visible(paths.Short(dir)))
		for _, c := range found[1:] {
			command := "pollux open --socket " + shell.Quote(termtext.Visible(c.Socket))
			fmt.Fprintf(errs, "  %s: %s\n", companionName(c.Status), command)
		}
	}
	return found[0].Socket, nil
}

// elsewhere adds to err, which says that a directory has no companion, how to give the command
// for a directory that has one.
func elsewhere(ctx context.Context, err error, command string) error {
	all, _ := editor.List(ctx, self())
	for _, c := range all {
		if len(c.Roots) > 0 {
			return fmt.Errorf("%w; for that of another directory, `"+command+"`", err, shortWord(c.Roots[0]))
		}
	}
	return err
}

// shortWord returns a path as one word of a command, with ~ for the home directory if the
// shell expands that.
func shortWord(path string) string {
	if short := paths.Short(path); shell.Quote(short) == short {
		return short
	}
	return shell.Quote(path)
}

// typed returns a command of Pollux as the user can type it: with the path of this program if
// the shell would not find it.
func typed(arguments string) string {
	exe, err := os.Executable()
	if err != nil {
		return "pollux " + arguments
	}
	own, _ := os.Stat(exe)
	path, _ := exec.LookPath("pollux")
	if found, _ := os.Stat(path); os.SameFile(own, found) {
		return "pollux " + arguments
	}
	return shortWord(exe) + " " + arguments
}

// companionName returns what to call a companion: its editor, workspace and process.
func companionName(st editor.Status) string {
	roots := make([]string, len(st.Roots))
	for i, r := range st.Roots {
		roots[i] = paths.Short(r)
	}
	return termtext.Visible(fmt.Sprintf("%s in %s (pid %d)",
		cmp.Or(st.Editor.DisplayName, "Pollux"), strings.Join(roots, ", "), st.PID))
}

// printPageLink prints a link to the review page on a separate line, and says what the user can
// do there, and how long the link is valid.
func printPageLink(w io.Writer, what, url string) {
	say(w, "%s at this link (it opens once; later: `%s`)", what, typed("open"))
	fmt.Fprintln(w, shownURL(w, url))
}

// maxURL bounds a URL that another program sends, in bytes.
const maxURL = 1 << 10

// shownURL returns a URL as it is printed to w. In a terminal it is a hyperlink (OSC 8),
// which can be clicked even where it is broken into two lines. Terminals that do not know
// hyperlinks show the text. Only the terminal of Emacs (M-x term) prints parts of the
// sequence into the URL.
func shownURL(w io.Writer, url string) string {
	url = termtext.Line(url, maxURL)
	if name := os.Getenv("TERM"); !isTerminal(w) || name == "dumb" || strings.HasPrefix(name, "eterm") {
		return url
	}
	return "\x1b]8;;" + url + "\x1b\\" + url + "\x1b]8;;\x1b\\"
}
