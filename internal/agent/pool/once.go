package pool

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"pollux/internal/agent"
	"pollux/internal/sys/proc"
)

const (
	// maxOutput limits the total output of a run, which goes to the disk.
	maxOutput = 256 << 20
	// exitTimeout is how long a process may take to end after its result. The
	// answer then waits no longer.
	exitTimeout = 3 * time.Second
	// readInterval is the time between two reads of the output. It is short
	// compared with the model's time, and long enough to cost nothing.
	readInterval = 10 * time.Millisecond
)

// A run is one process for one request, and its output. One goroutine uses it at a time.
//
// The prompt goes to the process's standard input, never to its arguments, which
// every user of the machine can read. Its output goes to files, which the run
// reads while they grow. A pipe would lose the end of a long answer, because
// agents exit before their output has been read. Also, processes that an agent
// leaves behind would keep a pipe open. The files are in the run's directory,
// together with the agent's temporary files, and are removed with it.
type run struct {
	p    *Pool
	req  agent.Request
	emit func(agent.Event)

	dir            string
	stdin          *os.File // our end
	stdout, stderr *os.File // opened for reading
	child          *proc.Child
	unescape       bool
	held           string // the end of the text so far, which may be the start of an escape

	transcript *agent.Transcript
	parser     agent.Parser
	monitor    agent.Monitor
	buf        []byte
	errText    []byte // the first and the last part of standard error
	printed    int64
	news       time.Time // when it last printed something
	unenforced bool      // it ignores its policy
	looping    bool      // it repeats a web search, if it searches
}

// runOnce answers a request with a process that exits after its answer. The caller must be one
// of p.tasks. over is closed when the process has ended.
func (p *Pool) runOnce(ctx context.Context, program agent.Program, req agent.Request, emit func(agent.Event)) (result agent.Result, over <-chan struct{}, err error) {
	run := &run{p: p, req: req, emit: emit, monitor: p.agent.OneShot.Monitor(req.Source.Env)}
	run.req.Prompt = cmp.Or(req.Replay, req.Prompt)
	run.transcript = agent.NewTranscript(p.agent, req.Source.Env, false, run.send)
	run.parser = p.agent.OneShot.Parser(run.transcript)
	ended := make(chan struct{})
	defer p.tasks.Go(func() {
		defer close(ended)
		run.end()
	})
	if err := run.start(program); err != nil {
		return agent.Result{}, ended, err
	}
	result, err = run.follow(ctx)
	run.flush()
	result.Runner = agent.Spawned
	if run.unescape {
		result.Answer, result.Narration = p.agent.OneShot.Unescape(result.Answer), p.agent.OneShot.Unescape(result.Narration)
	}
	return result, ended, err
}

// send emits an event, without the escapes in the model's text. Escapes start with a
// backslash, and may be in two pieces.
func (run *run) send(ev agent.Event) {
	if t, ok := ev.(agent.Text); ok && run.unescape {
		text := run.held + t.Text
		whole := strings.TrimRight(text, `\`)
		run.held = text[len(whole):]
		if whole != "" {
			run.emit(agent.Text{Text: run.p.agent.OneShot.Unescape(whole)})
		}
		return
	}
	run.flush()
	run.emit(ev)
}

// flush emits the text that [run.send] holds back.
func (run *run) flush() {
	if run.held != "" {
		run.emit(agent.Text{Text: run.held})
		run.held = ""
	}
}

func (run *run) start(program agent.Program) (err error) {
	row := run.p.agent
	prompt := row.OneShot.Prompt(run.req.Prompt, run.req.Images)
	// The model quotes the escapes of the prompt. If the prompt itself contains
	// some, the two cannot be distinguished.
	run.unescape = !run.req.Verbatim && row.Escaped(run.req.Prompt) && row.OneShot.Unescape(run.req.Prompt) == run.req.Prompt
	if len(prompt) > row.MaxPrompt {
		return row.Error(agent.TooLong, fmt.Sprintf("%d bytes; %s accepts %d", len(prompt), row.DisplayName, row.MaxPrompt))
	}
	if run.dir, err = run.p.temp.Make("run-"); err != nil {
		return run.noRoom(err)
	}
	launch := agent.Launch{Dir: run.req.Dir, TempDir: run.dir, Model: run.req.Model, Env: run.req.Source.Env}
	command, err := row.OneShot.Command(launch)
	if err != nil {
		return run.noRoom(err)
	}
	cmd, err := run.p.wall.Cmd(row, command, program, launch)
	if err != nil {
		return err
	}
	var theirs []*os.File
	defer func() {
		for _, f := range theirs {
			f.Close()
		}
	}()
	output := func(name string) (w, r *os.File, err error) {
		path := filepath.Join(run.dir, name)
		if w, err = os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY|os.O_APPEND, 0o600); err != nil {
			return nil, nil, err
		}
		theirs = append(theirs, w)
		r, err = os.Open(path)
		return w, r, err
	}
	stdout, out, err := output("stdout")
	run.stdout = out
	if err != nil {
		return run.noRoom(err)
	}
	stderr, errs, err := output("stderr")
	run.stderr = errs
	if err != nil {
		return run.noRoom(err)
	}
	cmd.Stdout, cmd.Stderr = stdout, stderr
	child, err := proc.StartPiped(cmd, proc.Stdin)
	if err != nil {
		return row.Error(agent.NotInstalled, row.Tidy(run.req.Source.Env, err.Error()))
	}
	run.child, run.stdin = child.Child, child.Stdin
	// Where open files can be removed, a killed process leaves nothing of the
	// answer on the disk.
	os.Remove(out.Name())
	os.Remove(errs.Name())
	// The agent may end before it has read everything. Then end closes the pipe,
	// and this goroutine ends too.
	go func() {
		io.WriteString(child.Stdin, prompt)
		child.Stdin.Close()
	}()
	return nil
}

func (run *run) noRoom(err error) error {
	return fmt.Errorf("no room for a run (%w): check the disk of %s", err, run.p.temp.Path)
}

// follow reads the output until the process has ended, the context has ended, or
// something has failed.
func (run *run) follow(ctx context.Context) (agent.Result, error) {
	look := time.NewTicker(readInterval)
	defer look.Stop()
	run.news = time.Now()
	var ended time.Time // when the result arrived
	for exited := false; ; {
		n, err := run.read()
		if n > 0 {
			run.news = time.Now()
		}
		if exited || err != nil {
			break
		}
		if ended.IsZero() && run.parser.Outcome().Ended {
			ended = time.Now()
		}
		if !ended.IsZero() && time.Since(ended) > exitTimeout {
			exited = true // nothing after the result matters
			continue
		}
		if fault := run.fault(); fault != nil {
			return run.transcript.Result(), fault
		}
		select {
		case <-run.child.Done():
			exited = true
		case <-ctx.Done():
			run.read()
			run.parser.Finish()
			return run.transcript.Result(), context.Cause(ctx)
		case <-run.p.ctx.Done():
			return run.transcript.Result(), context.Cause(run.p.ctx)
		case <-look.C:
		}
	}
	run.parser.Finish()
	return run.conclude()
}

func (run *run) error(kind agent.Kind, message string) *agent.Error {
	return run.p.agent.Error(kind, message)
}

// fault returns an error if the run must end.
func (run *run) fault() *agent.Error {
	switch {
	case run.unenforced:
		return run.error(agent.Unenforceable, "it does not follow its policy")
	case run.printed > run.p.most:
		return run.error(agent.TooMuchOutput, fmt.Sprintf("over %d MiB", run.p.most>>20))
	}
	return run.transcript.Fault(run.looping, run.news, run.p.idle)
}

// conclude returns the result of a process that has ended. It is a success if
// the exit code is 0, the agent reports success, and there is a text.
func (run *run) conclude() (agent.Result, error) {
	exit := 0
	select {
	case <-run.child.Done():
		exit = run.child.ExitCode()
	default: // it printed its result but did not exit
	}
	outcome, result := run.parser.Outcome(), run.transcript.Result()
	if fault := run.fault(); fault != nil {
		return result, fault
	}
	switch {
	case exit == 0 && outcome.OK && result.Answer != "":
		return result, nil
	case exit == 0 && outcome.OK:
		message := outcome.Message
		if result.Narration != "" {
			message = "it ended after a tool use"
		}
		return result, run.error(agent.Empty, run.p.agent.Tidy(run.req.Source.Env, message))
	case exit == 0 && !outcome.Ended && outcome.Message == "":
		return result, run.error(agent.Crashed, "it printed no result")
	}
	return result, run.p.agent.OneShot.Failure(run.req.Source.Env, exit, outcome.Message, string(run.errText))
}

// read reads the output since the last call.
func (run *run) read() (int, error) {
	if run.buf == nil {
		run.buf = make([]byte, 64<<10)
	}
	total := 0
	for _, stream := range []struct {
		f *os.File
		w io.Writer
	}{{run.stderr, errWriter{run}}, {run.stdout, run.parser}} {
		for run.printed <= run.p.most {
			n, err := stream.f.Read(run.buf)
			total += n
			run.printed += int64(n)
			stream.w.Write(run.buf[:n])
			if n == 0 || err != nil {
				if err != nil && err != io.EOF {
					return total, err
				}
				break
			}
		}
	}
	return total, nil
}

// An errWriter keeps the first and the last part of standard error and looks for
// signs in it.
type errWriter struct{ *run }

func (w errWriter) Write(b []byte) (int, error) {
	signs := w.monitor.Read(b)
	w.unenforced = w.unenforced || signs.Unenforced
	w.looping = w.looping || signs.SearchLoop
	for _, retry := range signs.Retries {
		w.send(retry)
	}
	w.errText = append(w.errText, b...)
	if over := len(w.errText) - maxStderr; over > 0 {
		w.errText = append(w.errText[:maxStderr/2], w.errText[maxStderr/2+over:]...)
	}
	return len(b), nil
}

// end ends the process, if it is still running, and removes its files.
func (run *run) end() {
	if run.child != nil {
		select {
		case <-run.child.Done():
		default:
			run.child.Stop(stopTimeout)
		}
	}
	for _, f := range []*os.File{run.stdin, run.stdout, run.stderr} {
		if f != nil {
			f.Close()
		}
	}
	if run.dir != "" {
		if err := os.RemoveAll(run.dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
			run.p.log.Warn("the files of a run could not be removed", "error", err)
		}
	}
}
