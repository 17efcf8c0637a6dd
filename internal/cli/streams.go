package cli

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/charmbracelet/x/ansi"
	"golang.org/x/term"

	"pollux/internal/lazy"
	"pollux/internal/sys/proc"
	"pollux/internal/termtext"
)

// An IO holds the standard streams of a command.
type IO struct {
	In       io.Reader
	Out, Err io.Writer
}

// isTerminal reports whether a stream is a terminal.
func isTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// columns returns the width of a terminal, or 0 for another stream.
func columns(stream any) int {
	if !isTerminal(stream) {
		return 0
	}
	width, _, err := term.GetSize(int(stream.(*os.File).Fd()))
	if err != nil {
		return 0
	}
	return width
}

// say prints a message to the user.
func say(w io.Writer, format string, args ...any) {
	fmt.Fprintln(w, prose(w, "pollux: "+termtext.Text(fmt.Sprintf(format, args...))))
}

var quoted = lazy.Regexp("`[^`\n]*`")

// prose returns a text that is written to w. On a terminal its lines end between words, and
// those that follow are indented as the first one. A command in backticks stays in one line,
// so that it can be copied.
func prose(w io.Writer, text string) string {
	width := columns(w)
	if width == 0 {
		return forOutput(w, text)
	}
	const space, unbreakable = " ", "\u00a0"
	text = quoted().ReplaceAllStringFunc(termtext.Text(text), func(command string) string {
		return strings.ReplaceAll(command, space, unbreakable)
	})
	body := strings.TrimLeft(text, space)
	indent := text[:min(len(text)-len(body), width/3)]
	lines := strings.Split(wrap(body, width-len(indent)), "\n")
	return indent + strings.ReplaceAll(strings.Join(lines, "\n"+indent), unbreakable, space)
}

// A proseWriter writes whole lines as [prose].
type proseWriter struct{ w io.Writer }

func (p proseWriter) Write(text []byte) (int, error) {
	for line := range strings.Lines(string(text)) {
		if _, err := fmt.Fprintln(p.w, prose(p.w, strings.TrimSuffix(line, "\n"))); err != nil {
			return 0, err
		}
	}
	return len(text), nil
}

// wrap returns a text with lines of at most this width, where words allow that.
func wrap(text string, width int) string {
	// The package would break a flag such as --log after its first hyphen.
	const hyphen, unbreakable = "-", "\u2011"
	return strings.ReplaceAll(ansi.Wordwrap(strings.ReplaceAll(text, hyphen, unbreakable), width, ""), unbreakable, hyphen)
}

// explainServer tells a user who has started a server in a terminal what it is and what to
// do: only a program can talk to it.
func explainServer(streams IO, text string) {
	if isTerminal(streams.In) {
		say(streams.Err, "%s", text)
	}
}

// forOutput returns text that is written to w. If w is a terminal, it leaves out
// everything that the terminal would interpret.
func forOutput(w io.Writer, text string) string {
	if !isTerminal(w) {
		return text
	}
	return termtext.Text(text)
}

func printJSON(w io.Writer, v any) error {
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return err
	}
	_, err := w.Write(termtext.JSON(out.Bytes()))
	return err
}

// confirm asks a question until the answer is yes or no; Enter means yes. It returns
// an error at the end of the input or of ctx: anything that the user types after
// Ctrl-C is not an answer.
func confirm(ctx context.Context, streams IO, question string) (bool, error) {
	in := bufio.NewReader(streams.In)
	for {
		fmt.Fprintf(streams.Err, "%s ", prose(streams.Err, question+" [Y/n]"))
		answer, err := readLine(ctx, in)
		if err != nil {
			return false, err
		}
		switch strings.ToLower(strings.TrimSpace(answer)) {
		case "", "y", "yes":
			return true, nil
		case "n", "no":
			return false, nil
		}
		fmt.Fprintln(streams.Err, "Please answer y or n.")
	}
}

// readLine reads a line, or returns the cause when ctx ends.
func readLine(ctx context.Context, in *bufio.Reader) (string, error) {
	lines := make(chan string, 1)
	err := await(ctx, func() error {
		line, err := in.ReadString('\n')
		lines <- line
		return err
	})
	if err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		return "", err
	}
	return <-lines, nil
}

// untilSignal returns a context that a signal ends. The cause names the signal.
//
// All commands end in this way: everything that they start uses this context,
// and they wait for it to end. Only [await] and [IO.interruptible] leave
// something running.
func untilSignal(ctx context.Context) (context.Context, context.CancelFunc) {
	return signal.NotifyContext(ctx, heeded(proc.TerminationSignals...)...)
}

// untilTerminated is [untilSignal] for a terminal whose program handles an
// interrupt as a key.
func untilTerminated(ctx context.Context) (context.Context, context.CancelFunc) {
	return signal.NotifyContext(ctx, heeded(syscall.SIGTERM, syscall.SIGHUP)...)
}

// heeded leaves out SIGHUP if this process was started to ignore it, as with nohup.
func heeded(signals ...os.Signal) []os.Signal {
	return slices.DeleteFunc(slices.Clone(signals), func(s os.Signal) bool { return s == syscall.SIGHUP && signal.Ignored(s) })
}

// await runs f and returns its error, or the cause if ctx ends first. Then f is
// left running. Use await only for reads and writes of the standard streams,
// which nothing can interrupt, and only if the process is about to end.
func await(ctx context.Context, f func() error) error {
	done := make(chan error, 1)
	go func() { done <- f() }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// interruptible combines the standard input and output. Closing the result ends a Read and a
// Write in progress; the latter goes on in the background.
func (s IO) interruptible() io.ReadWriteCloser {
	r, w := io.Pipe()
	go func() {
		_, err := io.Copy(w, s.In)
		w.CloseWithError(err)
	}()
	ctx, cancel := context.WithCancelCause(context.Background())
	return stdio{r, s.Out, ctx, cancel}
}

// A stdio is the result of [IO.interruptible].
type stdio struct {
	*io.PipeReader
	out    io.Writer
	open   context.Context
	cancel context.CancelCauseFunc
}

func (s stdio) Write(p []byte) (int, error) {
	err := await(s.open, func() error {
		_, err := s.out.Write(p)
		return err
	})
	if err != nil {
		return 0, err
	}
	return len(p), nil
}

func (s stdio) Close() error {
	s.cancel(io.ErrClosedPipe)
	return s.PipeReader.Close()
}
