package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"sync"

	"github.com/spf13/cobra"

	"pollux/internal/companion"
	"pollux/internal/companion/journal"
	"pollux/internal/editor"
	"pollux/internal/ide"
	"pollux/internal/sys"
	"pollux/internal/view/web"
)

// companionFlags are common to the commands that start a companion.
type companionFlags struct {
	roots          []string
	includeIgnored bool
	logLevel       string
	host           string
	hostNames      []string
}

func (f *companionFlags) add(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.StringArrayVar(&f.roots, "root", nil, "a workspace `directory`, instead of the working directory; may be repeated")
	fs.BoolVar(&f.includeIgnored, "include-ignored", false, "tell the CLI also of open files that are ignored or look like secrets")
	fs.StringVar(&f.logLevel, "log", "warn", "log `level` on standard error: debug, info, warn, error")
	fs.StringVar(&f.host, "listen", "", "also listen on this `address`, for a CLI in a container")
	fs.StringArrayVar(&f.hostNames, "host-name", []string{"host.docker.internal"}, "a Host `name` that is served on --listen")
}

// config makes a companion's configuration; the caller adds who it is for.
func (f *companionFlags) config(streams IO) (ide.Config, error) {
	log, err := logger(streams.Err, f.logLevel)
	if err != nil {
		return ide.Config{}, err
	}
	j, err := journal.Default()
	if err != nil {
		return ide.Config{}, err
	}
	roots := make([]string, len(f.roots))
	for i, r := range f.roots {
		if roots[i], err = filepath.Abs(r); err != nil {
			return ide.Config{}, err
		}
		if info, err := os.Stat(roots[i]); err != nil || !info.IsDir() {
			return ide.Config{}, usageError{fmt.Errorf("--root %s is not a directory", r), "pollux"}
		}
	}
	if ip := net.ParseIP(f.host); f.host != "" && (ip == nil || ip.IsUnspecified()) {
		return ide.Config{}, usageError{fmt.Errorf("--listen %s: name one IP address of this machine, without a port, such as the container bridge's", f.host), "pollux"}
	}
	cfg := ide.Config{
		Version: version(), Log: log, Roots: roots, Journal: j,
		Settings:  editor.Settings{IncludeIgnored: f.includeIgnored},
		ExtraHost: f.host, ExtraNames: f.hostNames,
		Pages: func(attach func(io.ReadWriteCloser), base string) (http.Handler, func() string) {
			s := web.New(attach, base)
			return s, s.Link
		},
	}
	if exe, err := os.Executable(); err == nil {
		cfg.Connect = []string{exe, "connect"}
	}
	return cfg, nil
}

// guard starts a companion and makes sure that a panic of this goroutine
// leaves no discovery file behind.
func guard(cfg ide.Config, run func(*ide.Host) error) error {
	h, err := ide.Start(cfg)
	if err != nil {
		return err
	}
	defer func() {
		if r := recover(); r != nil {
			h.Unpublish()
			panic(r)
		}
		h.Close()
	}()
	return run(h)
}

func newIDE(streams IO) *cobra.Command {
	var flags companionFlags
	var standalone, attach, page bool
	var socket string
	cmd := &cobra.Command{
		Use:   "ide",
		Short: "Be the companion of the editor that starts this",
		Long: `Speaks the adapter protocol (docs/PROTOCOL.md) on standard input and output
with an editor's plugin, and is a companion for Gemini CLI and Qwen Code as long
as the plugin is there.

With --standalone there is no plugin: the companion runs until it is ended, is
told of files by ` + "`pollux notify`" + `, and shows diffs on its review page.
With --attach the plugin joins a companion that runs already, for instance that
of ` + "`pollux run`" + ` in a terminal beside.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := signal.NotifyContext(cmd.Context(), sys.TerminationSignals...)
			defer stop()
			if attach && standalone {
				return usageError{errors.New("--standalone and --attach do not go together"), cmd.CommandPath()}
			}
			if attach {
				path, err := findCompanion(ctx, socket, "")
				if err != nil {
					return err
				}
				return pipe(ctx, streams, path, "")
			}
			cfg, err := flags.config(streams)
			if err != nil {
				return err
			}
			cfg.Settings.ReviewPage = page || standalone
			if standalone {
				cfg.Editor = editor.Info{Name: "pollux", DisplayName: "Pollux"}
				return guard(cfg, func(h *ide.Host) error {
					printLink(streams.Err, h)
					<-ctx.Done()
					return nil
				})
			}
			return serveEditor(ctx, stdio{streams}, cfg)
		},
	}
	flags.add(cmd)
	cmd.Flags().BoolVar(&standalone, "standalone", false, "run without an editor")
	cmd.Flags().BoolVar(&attach, "attach", false, "join a running companion")
	cmd.Flags().BoolVar(&page, "page", false, "show diffs on the review page where the editor cannot")
	cmd.Flags().StringVar(&socket, "socket", "", "the `path` of the companion to join")
	return cmd
}

// serveEditor is a companion for the plugin on a connection, until it goes or
// a signal comes.
func serveEditor(ctx context.Context, conn io.ReadWriteCloser, cfg ide.Config) error {
	var (
		mu      sync.Mutex // held during a start, so that it ends before we do
		host    *ide.Host
		stopped bool
	)
	start := func(p editor.InitializeParams) (*companion.Companion, error) {
		mu.Lock()
		defer mu.Unlock()
		if stopped {
			return nil, errors.New("pollux is being ended")
		}
		cfg.EditorPID = p.PID
		if cfg.EditorPID <= 0 {
			cfg.EditorPID = os.Getppid()
		}
		cfg.Editor = p.Editor
		if len(p.Roots) > 0 {
			cfg.Roots = p.Roots
		}
		s := p.Settings
		s.IncludeIgnored = s.IncludeIgnored || cfg.Settings.IncludeIgnored
		s.ReviewPage = s.ReviewPage || cfg.Settings.ReviewPage
		cfg.Settings = s
		h, err := ide.Start(cfg)
		if err != nil {
			return nil, err
		}
		host = h
		return h.Companion, nil
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		companion.Serve(conn, start)
	}()
	select {
	case <-ended:
	case <-ctx.Done():
	}
	mu.Lock()
	stopped = true
	mu.Unlock()
	if host != nil {
		host.Close()
	}
	return nil
}

// stdio joins the standard streams. Closing it is left to the process's end.
type stdio struct{ IO }

func (s stdio) Read(b []byte) (int, error)  { return s.In.Read(b) }
func (s stdio) Write(b []byte) (int, error) { return s.Out.Write(b) }
func (s stdio) Close() error {
	if c, ok := s.In.(io.Closer); ok {
		return c.Close()
	}
	return nil
}
