// Package conformance checks any companion against its contract: Google's
// "companion plugin: interface specification", and what the real Gemini CLI needs
// beyond it. It starts the companion with the author's command, connects as a CLI
// does, and reports.
//
// Some checks need a user who opens a file or accepts a diff in an editor. The
// author's commands do that, or a person. Without either the checks are skipped,
// and the report says so. docs/CONFORMANCE.md is for authors.
package conformance

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"pollux/internal/editor"
	"pollux/internal/ide/geminiide"
	"pollux/internal/ide/geminiide/client"
	"pollux/internal/sys/disk"
	"pollux/internal/sys/proc"
	"pollux/internal/sys/shell"
)

// A Level says how binding a check is.
type Level string

// Must and Should are words of the contract. CLI marks what the real CLI needs
// although the contract does not say it or says something else. Safe marks what
// keeps other users and web pages out.
const (
	Must   Level = "MUST"
	Should Level = "SHOULD"
	CLI    Level = "CLI"
	Safe   Level = "SAFE"
)

// An Outcome is the outcome of a check. A SHOULD that is not followed is a warning.
type Outcome string

const (
	Pass    Outcome = "pass"
	Fail    Outcome = "fail"
	Warning Outcome = "warning"
	Skipped Outcome = "skipped"
)

// A Result is the result of one check.
type Result struct {
	ID      string  `json:"id"`
	Level   Level   `json:"level"`
	Section string  `json:"section"` // of companion-spec; empty for CLI and SAFE
	Text    string  `json:"text"`    // what the check requires
	Outcome Outcome `json:"outcome"`
	Detail  string  `json:"detail,omitempty"` // what happened instead, or why the check was skipped
}

// A Report has the results in the order of the checks.
type Report struct {
	Command []string    `json:"command"`
	Editor  editor.Info `json:"editor"`
	Results []Result    `json:"results"`
}

// Count returns the number of results with an outcome.
func (r Report) Count(o Outcome) (n int) {
	for _, res := range r.Results {
		if res.Outcome == o {
			n++
		}
	}
	return n
}

// An Action is an action of the user in the editor.
type Action string

const (
	Open   Action = "open"   // open the file and put the cursor into it
	Edit   Action = "edit"   // change the proposed text, in the diff of the file
	Accept Action = "accept" // accept the diff of the file
	Reject Action = "reject" // reject it
)

// A Config is one run.
type Config struct {
	// Command starts the companion, in a new directory that is its workspace.
	Command []string
	// Actions are shell commands. Each finds the file's absolute path in $FILE
	// and, for Edit, the path of a file with the new text in $TEXT.
	Actions map[Action]string
	// Ask, if not nil, asks a person to do an action that has no command, and
	// waits for it. text is the new text for Edit.
	Ask func(a Action, file, text string) error
	// Slow also runs the checks that take minutes.
	Slow bool
	// Errors receives the companion's standard error.
	Errors io.Writer
	// Emit is called with each result as soon as it is known; may be nil.
	Emit func(Result)

	timeouts *timeouts // usualTimeouts if nil
	mute     bool      // as if the companion could not be asked to end
}

// A timeouts holds how long a run waits.
type timeouts struct {
	start  time.Duration            // for the companion, or the command of an action
	output time.Duration            // for the rest of the output of a command that has ended
	answer time.Duration            // for an answer or a notification
	effect map[Action]time.Duration // for the effect of an action's command, if not answer
	quiet  time.Duration            // for an unexpected notification
	notice time.Duration            // for the end of a stream to be noticed
	remove time.Duration            // for a companion that ends to remove its file
	end    time.Duration            // for its server, its process and its streams to end
}

var usualTimeouts = timeouts{
	start: 20 * time.Second, output: time.Second, answer: 5 * time.Second, quiet: 700 * time.Millisecond,
	notice: 200 * time.Millisecond, remove: 20 * time.Second, end: 5 * time.Second,
}

// personTimeout is how long to wait for the effect of what a person does.
const personTimeout = 2 * time.Minute

// A skip is the reason why a check was not run.
type skip string

func (s skip) Error() string { return string(s) }

// A check is one requirement. run returns if the companion meets it. Otherwise it ends, as a test
// does, with [fail] and what happened instead, or with [must] and a skip if it cannot be checked.
type check struct {
	id      string
	level   Level
	section string
	text    string
	run     func(*run)
}

// A failure is the panic that ends a check.
type failure struct{ error }

func fail(format string, args ...any) { must(fmt.Errorf(format, args...)) }

// must ends the check if there is an error.
func must(err error) {
	if err != nil {
		panic(failure{err})
	}
}

// value returns a value, or ends the check if there is an error.
func value[T any](v T, err error) T {
	must(err)
	return v
}

// err runs the check, and returns why it ended early, or nil.
func (c check) err(r *run) (err error) {
	defer func() {
		switch e := recover().(type) {
		case nil:
		case failure:
			err = e.error
		default:
			panic(e)
		}
	}()
	c.run(r)
	return nil
}

// A run is one companion under test.
type run struct {
	cfg       Config
	timeouts  timeouts
	ctx       context.Context
	tmp       string // the companion's temporary directory
	workspace string
	runtime   string // a short directory, for sockets
	child     *proc.Child
	in        io.Closer
	errors    *os.File      // its standard error
	drained   chan struct{} // closed when errors has been read to its end

	// lives is why the companion cannot be ended in an orderly way, or nil.
	lives error

	path string // of the discovery file
	file geminiide.DiscoveryFile
	// cli is the session of most checks.
	cli *client.CLI
	// contexts are the contexts that its stream has carried.
	contexts []sent
}

// A sent is a context that the companion has sent.
type sent struct {
	raw   json.RawMessage
	files []geminiide.File
	err   error // why raw is not a context
}

// Run starts the companion and runs all checks. It returns an error if the
// companion cannot be started.
func Run(ctx context.Context, cfg Config) (Report, error) {
	report := Report{Command: cfg.Command}
	root, err := disk.MkdirTemp("", "pollux-conformance-")
	if err != nil {
		return report, err
	}
	defer os.RemoveAll(root)
	if root, err = disk.EvalSymlinks(root); err != nil {
		return report, err
	}
	r := &run{
		cfg: cfg, timeouts: usualTimeouts, ctx: ctx,
		tmp: filepath.Join(root, "tmp"), workspace: filepath.Join(root, "workspace"),
	}
	if cfg.timeouts != nil {
		r.timeouts = *cfg.timeouts
	}
	if r.runtime, err = disk.ShortTempDir("px"); err != nil {
		return report, err
	}
	defer os.RemoveAll(r.runtime)
	for _, d := range []string{r.tmp, r.workspace} {
		if err := os.Mkdir(d, 0o700); err != nil {
			return report, err
		}
	}
	for _, name := range []string{"one.txt", "two.txt"} {
		if err := os.WriteFile(r.name(name), []byte(original), 0o644); err != nil {
			return report, err
		}
	}
	if err := r.start(); err != nil {
		return report, err
	}
	defer r.stop()
	if err := r.discover(); err != nil {
		return report, err
	}
	report.Editor = r.file.IDEInfo
	for _, c := range checks {
		res := Result{ID: c.id, Level: c.level, Section: c.section, Text: c.text, Outcome: Pass}
		err := c.err(r)
		var why skip
		switch {
		case ctx.Err() != nil:
			return report, context.Cause(ctx)
		case errors.As(err, &why):
			res.Outcome, res.Detail = Skipped, why.Error()
		case err != nil && c.level == Should:
			res.Outcome, res.Detail = Warning, err.Error()
		case err != nil:
			res.Outcome, res.Detail = Fail, err.Error()
		}
		report.Results = append(report.Results, res)
		if cfg.Emit != nil {
			cfg.Emit(res)
		}
	}
	return report, nil
}

const original = "one\ntwo\nthree\n"

// name returns the path of a file in the workspace.
func (r *run) name(file string) string { return filepath.Join(r.workspace, file) }

func (r *run) environ() []string {
	var env []string
	for _, kv := range os.Environ() {
		switch k, _, _ := strings.Cut(kv, "="); {
		case strings.HasPrefix(k, "GEMINI_CLI_IDE_"), strings.HasPrefix(k, "QWEN_CODE_IDE_"), k == "POLLUX_SOCKET":
		default:
			env = append(env, kv)
		}
	}
	return append(env, "TMPDIR="+r.tmp, "TMP="+r.tmp, "TEMP="+r.tmp,
		"POLLUX_RUNTIME_DIR="+r.runtime, "POLLUX_STATE_DIR="+filepath.Join(r.tmp, "state"))
}

func (r *run) start() error {
	path, err := exec.LookPath(r.cfg.Command[0])
	if err == nil {
		path, err = filepath.Abs(path) // it runs in another directory
	}
	if err != nil {
		return err
	}
	cmd := exec.Command(path, r.cfg.Command[1:]...)
	cmd.Dir, cmd.Env = r.workspace, r.environ()
	// Its input stays open during the run, since many companions end with it.
	child, err := proc.StartPiped(cmd, proc.Stdin|proc.Stderr)
	if err != nil {
		return err
	}
	r.child, r.in, r.errors, r.drained = child.Child, child.Stdin, child.Stderr, make(chan struct{})
	go func() {
		defer close(r.drained)
		io.Copy(r.cfg.Errors, r.errors)
	}()
	return nil
}

// stop ends the companion, if it still runs, and all that it started.
func (r *run) stop() {
	if r.cli != nil {
		r.cli.Close()
	}
	r.in.Close()
	r.child.Stop(r.timeouts.end)
	select {
	case <-r.drained:
	case <-time.After(time.Second): // a process that left the group holds it open
	}
	r.errors.Close()
	<-r.drained
}

// discover waits for the discovery file.
func (r *run) discover() error {
	deadline := time.NewTimer(r.timeouts.start)
	defer deadline.Stop()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		found, _ := filepath.Glob(filepath.Join(r.tmp, "gemini", "ide", "gemini-ide-server-*.json"))
		for _, path := range found {
			if f, err := geminiide.Read(path); err == nil {
				r.path, r.file = path, f
				return nil
			}
		}
		select {
		case <-r.ctx.Done():
			return context.Cause(r.ctx)
		case <-r.child.Done():
			return fmt.Errorf("%s ended before it made a discovery file (exit code %d); it must stay in the foreground",
				r.cfg.Command[0], r.child.ExitCode())
		case <-deadline.C:
			return fmt.Errorf("%s made no discovery file in gemini/ide in its temporary directory within %v",
				r.cfg.Command[0], r.timeouts.start)
		case <-tick.C:
		}
	}
}

// can returns a skip for an action that neither a command nor a person can do.
func (r *run) can(a Action) error {
	if _, ok := r.cfg.Actions[a]; !ok && r.cfg.Ask == nil {
		return skip(fmt.Sprintf("needs --%s COMMAND, or --interactive", a))
	}
	return nil
}

// do runs an action in the editor.
func (r *run) do(a Action, file, text string) error {
	if err := r.can(a); err != nil {
		return err
	}
	command, ok := r.cfg.Actions[a]
	if !ok {
		return r.cfg.Ask(a, file, text)
	}
	textFile := filepath.Join(r.tmp, "text")
	if err := os.WriteFile(textFile, []byte(text), 0o600); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(r.ctx, r.timeouts.start)
	defer cancel()
	cmd := shell.Command(command)
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	cmd.Dir, cmd.Env = r.workspace, append(r.environ(), "FILE="+file, "TEXT="+textFile)
	cmd.WaitDelay = r.timeouts.output
	err := cmd.Start()
	if err == nil {
		stop := context.AfterFunc(ctx, func() { proc.SignalTree(cmd.Process.Pid, syscall.SIGKILL) })
		err = cmd.Wait()
		stop()
	}
	out := output.Bytes()
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("the command of --%s did not end within %v", a, r.timeouts.start)
	case err != nil && len(bytes.TrimSpace(out)) > 0:
		return fmt.Errorf("the command of --%s failed (%w): %s", a, err, bytes.TrimSpace(out))
	case err != nil:
		return fmt.Errorf("the command of --%s failed (%w)", a, err)
	}
	return nil
}

// effectTimeout returns how long to wait for the effect of an action.
func (r *run) effectTimeout(a Action) time.Duration {
	if _, ok := r.cfg.Actions[a]; !ok {
		return personTimeout
	}
	return cmp.Or(r.timeouts.effect[a], r.timeouts.answer)
}
