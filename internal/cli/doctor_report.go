package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"runtime"
	"slices"
	"time"

	"pollux/internal/agent/shared"
	"pollux/internal/config"
	"pollux/internal/doctor"
	"pollux/internal/editor"
	"pollux/internal/ide"
	"pollux/internal/install"
	"pollux/internal/lazy"
	"pollux/internal/paths"
	"pollux/internal/wall"
)

// A bugReport is the text that `pollux doctor --report` writes. It contains only words that
// Pollux itself defines: the names of checks, variables, agents and editors, the texts of
// findings without their quotations, and numbers. So it holds no text of the user or of
// another program.
type bugReport struct {
	version  string
	dir      string // where the user is; it is not written
	found    doctor.Report
	settings *config.Values
	running  []editor.Running
	pools    []shared.Status
	silent   int // pools that do not answer
}

// reportToFile writes a report about what the arguments name to a new file, and prints the
// file's name.
func reportToFile(ctx context.Context, streams IO, args []string) error {
	cfg, err := doctorConfig(ctx)
	if err != nil {
		return err
	}
	r := bugReport{version: cfg.Version, dir: cfg.Dir, running: cfg.Running, settings: loadSettings()}
	if r.found, err = examine(ctx, streams, args, true); err != nil {
		return err
	}
	running, unreachable, err := shared.List(ctx)
	r.pools, r.silent = running, len(unreachable)
	if err != nil {
		r.silent++
	}
	file, err := os.CreateTemp("", "pollux-report-*.txt") // for the user alone
	if err != nil {
		return err
	}
	if err := errors.Join(r.write(file), file.Close()); err != nil {
		return errors.Join(err, os.Remove(file.Name()))
	}
	fmt.Fprintln(streams.Out, file.Name())
	say(streams.Err, "read this file before you send it; Pollux has left out your secrets, texts, paths and names")
	return nil
}

func (r bugReport) write(w io.Writer) error {
	var err error
	line := func(format string, args ...any) {
		_, printErr := fmt.Fprintf(w, format+"\n", args...)
		err = cmp.Or(err, printErr)
	}
	line("Pollux %s, %s, %s/%s", number(r.version), runtime.Version(), runtime.GOOS, runtime.GOARCH)
	line("the kernel can keep agents from changing files: %v", wall.Available() == nil)
	line("\nSet variables:")
	for _, name := range reportedVariables() {
		if os.Getenv(name) != "" {
			line("  %s", name)
		}
	}
	line("\nSettings in config.toml:")
	for _, s := range config.Settings {
		if r.settings.Origin(s.Key).Source() == "file" {
			line("  %s", s.Key)
		}
	}
	line("\nVersions:")
	for _, s := range slices.Sorted(maps.Keys(r.found.Versions)) {
		line("  %s %s", s, number(r.found.Versions[s]))
	}
	line("\nFindings:")
	for _, f := range r.found.Findings {
		line("  %-8s %s/%s: %s", f.Status, f.Part, f.Check, f.Rule)
	}
	line("\nCompanions:")
	for _, c := range r.running {
		r.writeCompanion(line, c)
	}
	line("\nPools:")
	for _, p := range r.pools {
		line("  Pollux %s, up %s, %d sessions, %d processes, %d MB", number(p.Version), time.Since(p.Started).Truncate(time.Second),
			len(p.Sessions), len(p.Workers), p.Memory>>20)
	}
	if r.silent > 0 {
		line("  %d that cannot be asked", r.silent)
	}
	return err
}

// writeCompanion writes the lines about a companion.
func (r bugReport) writeCompanion(line func(format string, args ...any), c editor.Running) {
	if c.Stopped {
		line("  one that does not answer")
		return
	}
	where := "another directory"
	if slices.ContainsFunc(c.Roots, func(root string) bool { return paths.Contains(root, r.dir) }) {
		where = "this directory"
	}
	line("  Pollux %s in %s for %s, up %s, %d views, page %v, %d open files, %d changes, %d changes outside",
		number(c.Version), ownWord(c.Editor.DisplayName, "another editor"), where, editor.Since(c.Started), len(c.Surfaces), c.Page, c.Files,
		len(c.Diffs), len(c.Outside.Files))
	for _, a := range c.Clients {
		line("    %s %s, connected for %s, asks before it changes a file: %v", ownWord(a.Name, "another agent"), number(a.Version), editor.Since(a.Since), a.Silent == "")
	}
}

// ownWord returns a name that Pollux has given, or another word for it.
func ownWord(name, otherwise string) string {
	ours := name == "Pollux" ||
		slices.ContainsFunc(install.Editors, func(e install.Editor) bool { return e.Title == name }) ||
		slices.ContainsFunc(ide.Launches(), func(l ide.Launch) bool { return l.Title == name })
	if ours {
		return name
	}
	return otherwise
}

var digits = lazy.Regexp(`^v?\d{1,6}\.\d{1,6}\.\d{1,6}`)

// number returns the numbers of a version.
func number(version string) string {
	if version == "devel" {
		return version
	}
	return cmp.Or(digits().FindString(version), "of unknown version")
}

// reportedVariables returns the names of the variables that may explain a finding.
func reportedVariables() []string {
	names := append(ide.EnvNames(),
		"CI", "GITHUB_ACTIONS", "SSH_CONNECTION", "STY", "SUDO_USER", "TERM", "TERM_PROGRAM", "TERMINAL_EMULATOR", "TMPDIR", "TMUX",
		"WSL_DISTRO_NAME", "REMOTE_CONTAINERS", "HTTP_PROXY", "HTTPS_PROXY", "NODE_EXTRA_CA_CERTS", "XDG_CONFIG_HOME", "XDG_RUNTIME_DIR",
		"CLAUDE_CONFIG_DIR", "CODEX_HOME", "COPILOT_HOME", "GEMINI_CLI_HOME", "QWEN_HOME", "ANTHROPIC_API_KEY", "GEMINI_API_KEY", "OPENAI_API_KEY")
	for _, s := range config.Settings {
		if s.Variable != "" {
			names = append(names, s.Variable)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}
