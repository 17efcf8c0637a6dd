package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"sync"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"pollux/internal/companion"
	"pollux/internal/companion/journal"
	"pollux/internal/crash"
	"pollux/internal/editor"
	"pollux/internal/ide"
	"pollux/internal/view/web"
)

// companionFlags are the flags of all commands that start a companion.
type companionFlags struct {
	roots          []string
	includeIgnored bool
	logs           logFlags
	host           string
	hostNames      []string
}

func (f *companionFlags) add(cmd *cobra.Command) {
	listFlag(cmd, "companion.root", &f.roots)
	switchFlag(cmd, "companion.include-ignored", &f.includeIgnored)
	textFlag(cmd, "companion.listen", &f.host)
	listFlag(cmd, "companion.host-name", &f.hostNames)
	f.logs.add(cmd)
}

// config returns the configuration of a companion that logs to standard error. The caller
// adds the editor.
func (f *companionFlags) config(streams IO) (ide.Config, error) {
	log, err := f.logs.open(streams.Err)
	if err != nil {
		return ide.Config{}, err
	}
	return f.configWith(log)
}

// agentConfig returns the configuration of a companion whose agent runs on a terminal: it
// logs to the log file only. The caller calls report when the agent has ended.
func (f *companionFlags) agentConfig() (cfg ide.Config, report func(io.Writer), err error) {
	log, err := f.logs.openFile()
	if err != nil {
		return ide.Config{}, nil, err
	}
	cfg, err = f.configWith(slog.New(log))
	cfg.Editor, cfg.Settings.ReviewPage = editor.NoEditor, true
	return cfg, log.report, err
}

// args returns the flags that the user has given to a command, as arguments of another one.
func (f *companionFlags) args(cmd *cobra.Command) (args []string) {
	own := new(cobra.Command)
	new(companionFlags).add(own)
	cmd.Flags().Visit(func(flag *pflag.Flag) {
		if own.Flags().Lookup(flag.Name) == nil {
			return
		}
		values := []string{flag.Value.String()}
		if list, ok := flag.Value.(pflag.SliceValue); ok {
			values = list.GetSlice()
		}
		for _, v := range values {
			args = append(args, "--"+flag.Name+"="+v)
		}
	})
	return args
}

func (f *companionFlags) configWith(log *slog.Logger) (ide.Config, error) {
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
			return ide.Config{}, usageError{fmt.Errorf("--root %s is not a directory: name an existing one", r)}
		}
	}
	if ip := net.ParseIP(f.host); f.host != "" && (ip == nil || ip.IsUnspecified()) {
		err := fmt.Errorf("--listen %s: name one IP address of this machine, without a port", f.host)
		return ide.Config{}, usageError{err}
	}
	cfg := ide.Config{
		Version: version(), Log: log, Roots: roots, Journal: j,
		Settings:  editor.Settings{IncludeIgnored: f.includeIgnored},
		ExtraHost: f.host, ExtraNames: f.hostNames,
		Preferred: preferredAgent, Waiting: waitingShower(),
		Outside: loadSettings().Switch("companion.outside-changes"),
		Page: func(attach func(io.ReadWriteCloser), port int) (ide.Page, error) {
			return web.Listen(attach, port, log)
		},
	}
	if runtime.GOOS != "windows" { // which has no tmux
		cfg.FindPane = findPane
	}
	if exe, err := os.Executable(); err == nil {
		cfg.Connect = []string{exe, "connect"}
	}
	return cfg, nil
}

// guard starts a companion, calls run and closes the companion.
func guard(cfg ide.Config, run func(*ide.Host) error) error {
	h, err := ide.Start(cfg)
	if err != nil {
		return err
	}
	defer crash.Report()
	err = run(h)
	h.Close()
	return err
}

func newIDE(streams IO) *cobra.Command {
	var flags companionFlags
	var standalone, attach, page bool
	var socket, agent string
	cmd := &cobra.Command{
		Use:   "ide",
		Short: "Run the companion process of an editor plugin",
		Long: `Speaks the editor protocol (pollux help protocol) with a plugin on standard input and
output, and runs a companion for agents such as Gemini CLI until the plugin
disconnects.

With --standalone there is no plugin. The companion runs until it is interrupted,
receives files from ` + "`pollux notify`" + `, and shows diffs on its review page.
With --attach the plugin joins a running companion, such as the companion that
` + "`pollux run`" + ` started in another terminal.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := untilSignal(cmd.Context())
			defer stop()
			if attach && standalone {
				return usageError{errors.New("--standalone and --attach cannot be combined")}
			}
			if !standalone {
				explainServer(streams, "an editor's plugin starts this: to set one up, `pollux install EDITOR`; "+
					"without an editor, `pollux run`; Ctrl-C ends it")
			}
			if attach {
				path, err := editor.Find(ctx, self(), socket, "")
				if err != nil {
					return err
				}
				return pipe(ctx, streams, path)
			}
			if cmd.Flags().Changed("run") {
				flags.logs.command = "run"
				cfg, report, err := flags.agentConfig()
				if err == nil {
					err = serveRuns(ctx, streams, agent, cfg, report)
				}
				if err != nil { // `pollux run` prints it
					fmt.Fprintln(streams.Out, err)
				}
				return err
			}
			cfg, err := flags.config(streams)
			if err != nil {
				return err
			}
			cfg.Settings.ReviewPage = page || standalone
			if standalone {
				cfg.Editor = editor.NoEditor
				return guard(cfg, func(h *ide.Host) error {
					if link, err := h.Link(); err == nil {
						printPageLink(streams.Err, "review changes", link)
					}
					<-ctx.Done()
					return nil
				})
			}
			return serveEditor(ctx, streams.interruptible(), cfg)
		},
	}
	flags.add(cmd)
	cmd.Flags().BoolVar(&standalone, "standalone", false, "run without an editor")
	cmd.Flags().StringVar(&agent, "run", "", "serve pollux run of an `agent`: report on standard output how to reach this companion")
	cmd.Flags().MarkHidden("run")
	cmd.Flags().BoolVar(&attach, "attach", false, "join a running companion")
	cmd.Flags().BoolVar(&page, "page", false, "show diffs on the review page if no editor shows them")
	cmd.Flags().StringVar(&socket, "socket", "", "`path` of the socket of the companion to join")
	return cmd
}

// serveEditor runs a companion for the plugin on a connection, until the plugin
// disconnects or ctx ends.
func serveEditor(ctx context.Context, conn io.ReadWriteCloser, cfg ide.Config) error {
	var (
		mu      sync.Mutex // held during a start, so that serveEditor can wait for it
		host    *ide.Host
		stopped bool
	)
	start := func(p editor.InitializeParams) (*companion.Companion, error) {
		mu.Lock()
		defer mu.Unlock()
		if stopped {
			return nil, errors.New("pollux is shutting down")
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
	await(ctx, func() error {
		companion.Serve(conn, start)
		return nil
	})
	mu.Lock()
	stopped = true
	mu.Unlock()
	if host != nil {
		host.Close()
	}
	return nil
}
