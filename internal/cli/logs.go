package cli

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync/atomic"

	"github.com/spf13/cobra"

	"pollux/internal/config"
	"pollux/internal/logfile"
	"pollux/internal/sys/disk"
	"pollux/internal/termtext"
)

// logFlags are the flags of all commands that have a log.
type logFlags struct {
	level, file string
	command     string // the name of the command
}

func (f *logFlags) add(cmd *cobra.Command) {
	f.command = cmd.Name()
	textFlag(cmd, "log.level", &f.level)
	textFlag(cmd, "log.file", &f.file)
}

// open returns a log that writes to standard error and to the log file. At the default
// level, nothing writes tokens, prompts or the content of files to a log.
func (f *logFlags) open(stderr io.Writer) (*slog.Logger, error) {
	l, err := f.openFile()
	if err != nil {
		return nil, err
	}
	// slog's multi handler gives each record to both.
	return slog.New(slog.NewMultiHandler(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: l.level}), l)), nil
}

// A fileLog is a handler that writes to the log file, and counts warnings.
type fileLog struct {
	slog.Handler
	path     string
	level    slog.Level
	warnings *atomic.Int64
}

// openFile returns a log that writes only to the log file: while an agent runs on the
// terminal, a log there would be in the middle of its text.
func (f *logFlags) openFile() (*fileLog, error) {
	l := &fileLog{warnings: new(atomic.Int64)}
	if err := l.level.UnmarshalText([]byte(f.level)); err != nil {
		return nil, usageError{fmt.Errorf("unknown log level %q: use debug, info, warn or error", f.level)}
	}
	var file io.Writer = io.Discard
	var err error
	if f.file != "" {
		if file, err = logfile.Open(f.file); err != nil {
			return nil, fmt.Errorf("cannot write the log %s (%w): name another file with --log-file", f.file, disk.Cause(err))
		}
		l.path = f.file
	} else if l.path, err = logfile.Default(); err == nil {
		file = logfile.New(l.path)
	}
	l.Handler = slog.NewTextHandler(file, &slog.HandlerOptions{Level: l.level}).
		WithAttrs([]slog.Attr{slog.String("command", f.command), slog.Int("pid", os.Getpid())})
	return l, nil
}

func (l *fileLog) Handle(ctx context.Context, r slog.Record) error {
	if r.Level >= slog.LevelWarn {
		l.warnings.Add(1)
	}
	return l.Handler.Handle(ctx, r)
}

func (l *fileLog) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &fileLog{Handler: l.Handler.WithAttrs(attrs), path: l.path, level: l.level, warnings: l.warnings}
}

// report says where to find warnings, unless there are none.
func (l *fileLog) report(w io.Writer) {
	if n := l.warnings.Load(); n > 0 {
		say(w, "%s: see `pollux log`, or %s", termtext.Count(int(n), "warning"), termtext.Visible(l.path))
	}
}

// logPath returns the file that commands log to, if no flag names another one.
func logPath(v *config.Values) (string, error) {
	if path := v.Text("log.file"); path != "" {
		return path, nil
	}
	return logfile.Default()
}

func newLog(streams IO) *cobra.Command {
	var follow bool
	var lines int
	cmd := &cobra.Command{
		Use:   "log",
		Short: "Show the log of Pollux's processes",
		Long: `Shows the last lines of the log that all of Pollux's processes share. The log is
pollux.log in the state directory, which only you can read, or the file in the
setting log.file (see pollux config). At a megabyte, it is renamed to
pollux.log.1, and a new one begins.

Only warnings and errors are logged, unless log.level or --log says otherwise. At
the default level, no token, prompt or content of a file is in the log.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if lines < 0 {
				return usageError{fmt.Errorf("--lines is %d: use a number from 0", lines)}
			}
			path, err := logPath(reportSettings(streams.Err))
			if err != nil {
				return err
			}
			if !disk.Exists(path) {
				say(streams.Err, "nothing has been logged to %s", termtext.Visible(path))
				if !follow {
					return nil
				}
			}
			ctx, stop := untilSignal(cmd.Context())
			defer stop()
			if err := logfile.Show(ctx, outputWriter{streams.Out}, path, lines, follow); err != nil {
				return fmt.Errorf("cannot show the log %s: %w", path, disk.Cause(err))
			}
			return nil
		},
	}
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "keep running, and show new lines")
	cmd.Flags().IntVarP(&lines, "lines", "n", 100, "how many `lines` to show")
	cmd.AddCommand(newPath(streams, "the log", func() (string, error) { return logPath(reportSettings(streams.Err)) }))
	return cmd
}

// An outputWriter writes what a terminal can show.
type outputWriter struct{ w io.Writer }

func (o outputWriter) Write(text []byte) (int, error) {
	_, err := io.WriteString(o.w, forOutput(o.w, string(text)))
	return len(text), err
}

// reportSettings returns the settings, and prints what is invalid.
func reportSettings(w io.Writer) *config.Values {
	v := loadSettings()
	for _, p := range v.Problems {
		say(w, "%s", p)
	}
	return v
}
