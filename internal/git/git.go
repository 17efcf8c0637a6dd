// Package git runs git without trusting the repository.
package git

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"

	"pollux/internal/sys/proc"
)

// A Repository is a working tree that is not trusted. Its hooks and monitors do not run,
// nothing is fetched, and its index is not locked. Use plumbing commands: others, such as
// status, start the filters that its configuration names.
type Repository struct {
	Context context.Context
	Dir     string // the commands' working directory
}

// WithoutFilters returns a variable for a program that runs git itself, in dir: its commands, such
// as status, then start no filter, hook or monitor that the repository's configuration names.
func WithoutFilters(dir string) string {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	g := Repository{Context: ctx, Dir: dir}
	names, _ := g.Output("config", "--null", "--name-only", "--get-regexp", `^filter\.`) // fails if there are none
	set := []string{
		quoted("diff.ignoreSubmodules", "dirty"), // a submodule has its own configuration
		quoted("core.fsmonitor", "false"), quoted("core.hooksPath", os.DevNull),
	}
	done := make(map[string]bool)
	for name := range strings.SplitSeq(names, "\x00") {
		i := strings.LastIndexByte(name, '.')
		if i < 0 || done[name[:i]] {
			continue
		}
		filter := name[:i]
		done[filter] = true
		set = append(set, quoted(filter+".clean", ""), quoted(filter+".process", ""), quoted(filter+".smudge", ""),
			quoted(filter+".required", "false"))
	}
	// GIT_CONFIG_KEY_0 and so on would look like secrets to agents.
	return "GIT_CONFIG_PARAMETERS=" + strings.Join(set, " ")
}

// quoted returns a setting in the form in which git passes -c to the commands that it runs.
func quoted(key, value string) string {
	quote := strings.NewReplacer("'", `'\''`, "!", `'\!'`).Replace
	if strings.Contains(key, "=") { // git before 2.31 fails then, and runs nothing
		return "'" + quote(key) + "'='" + quote(value) + "'"
	}
	return "'" + quote(key+"="+value) + "'"
}

// Output returns the output of a command. If the command fails, that is the output so far.
func (g Repository) Output(args ...string) (string, error) {
	var out strings.Builder
	err := g.Run(&out, args...)
	return out.String(), err
}

// Run runs a command, which writes to out.
func (g Repository) Run(out io.Writer, args ...string) error {
	args = append([]string{
		"-c", "core.fsmonitor=false", "-c", "core.hooksPath=" + os.DevNull, "-c", "core.pager=cat",
		"-c", "core.untrackedCache=false", "-c", "submodule.recurse=false",
		// Without it, Git for Windows leaves out paths of more than 260 characters.
		"-c", "core.longPaths=true",
	}, args...)
	cmd := exec.CommandContext(g.Context, "git", args...)
	cmd.Dir = g.Dir
	proc.HideConsole(cmd)
	cmd.WaitDelay = time.Second
	for _, kv := range os.Environ() {
		if !strings.HasPrefix(strings.ToUpper(kv), "GIT_") { // Windows ignores the case of names
			cmd.Env = append(cmd.Env, kv)
		}
	}
	// Do not fetch objects: the repository could name a command for that.
	cmd.Env = append(cmd.Env, "GIT_OPTIONAL_LOCKS=0", "GIT_TERMINAL_PROMPT=0", "GIT_NO_LAZY_FETCH=1",
		"GIT_ALLOW_PROTOCOL=none", "LC_ALL=C")
	var stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = out, &stderr
	if err := cmd.Run(); err != nil {
		switch err := context.Cause(g.Context); {
		case errors.Is(err, context.DeadlineExceeded):
			return errors.New("git took too long")
		case err != nil:
			return fmt.Errorf("git was stopped: %w", err)
		}
		line, _, _ := strings.Cut(strings.TrimSpace(stderr.String()), "\n")
		if line == "" {
			line = err.Error()
		}
		return errors.New(line)
	}
	return nil
}
