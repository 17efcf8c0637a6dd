// Package gemini runs Gemini CLI: how it is found, started, kept read-only and
// read, and how its errors are told apart.
//
// No approval mode of the CLI is read-only, and an @ in a prompt reads files:
// both are handled here.
package gemini

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"pollux/internal/agent"
	"pollux/internal/sys"
)

// MaxPrompt bounds a prompt in bytes: the CLI reads 8 MiB of its standard
// input and drops the rest.
const MaxPrompt = 8<<20 - 4096

const (
	// maxOutput bounds what a run may print in all; the disk takes it.
	maxOutput = 256 << 20
	// maxStderr bounds what is kept of standard error.
	maxStderr = 64 << 10
	// grace is how long a child may take to end when asked to.
	grace = 5 * time.Second
	// exitWait is how long a child may take to end after its result. The
	// answer is not held up by one that does not.
	exitWait = 3 * time.Second
	// searchWait is how long a web search may take.
	searchWait = 60 * time.Second
	// lookEvery is how often the output is looked at: often enough not to be
	// noticed beside a model, seldom enough to cost nothing.
	lookEvery = 10 * time.Millisecond
)

// A Config is what a [Spawner] needs.
type Config struct {
	// Command is the CLI: a path, or a name on the PATH.
	Command string
	// Idle is how long a run may print nothing; 5 minutes when zero.
	Idle time.Duration
	Log  *slog.Logger
}

// A Spawner is a [Runner] that starts the CLI anew for each request.
//
// The prompt goes to its standard input, never to its arguments, which every
// user of the machine can read. Its output goes to files that are read while
// they grow: the CLI exits without waiting for its output to be taken, so that
// a pipe loses the end of a long answer, and a file cannot be held open
// against us by what the CLI leaves running. The files are in a directory of
// the run's own, which is also the CLI's temporary directory, and are gone
// with it.
type Spawner struct {
	cfg  Config
	root string   // holds the runs' directories
	lock *os.File // in root, or nil

	mu     sync.Mutex
	closed bool
	runs   sync.WaitGroup
	stop   chan struct{} // closed by Close
	lookup *lookup       // the last one that was started
}

// A lookup is a search for the CLI, which all who need the CLI share.
type lookup struct {
	key  string        // of the file that it is for
	done chan struct{} // closed when the rest is set
	cli  agent.Program
	err  error
	at   time.Time // when it was done
}

// searchLoop is the one sign that the CLI repeats a web search without a pause
// and without end, which it does when the search's quota is used up: Node's
// warning of what piles up in it.
var searchLoop = regexp.MustCompile(`MaxListenersExceededWarning.*abort listeners`)

const rootPrefix = "pollux-bridge-"

// NewSpawner makes the directory that its runs need, and removes those of
// others that were killed.
func NewSpawner(cfg Config) (*Spawner, error) {
	if cfg.Idle == 0 {
		cfg.Idle = 5 * time.Minute
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	// The CLI splits a list of policies at its commas.
	if strings.Contains(os.TempDir(), ",") {
		return nil, fmt.Errorf("the temporary directory %s has a comma in its name: set TMPDIR to one without", os.TempDir())
	}
	removeStale()
	root, lock, err := makeRoot()
	if err != nil {
		return nil, fmt.Errorf("no temporary directory (%w): set TMPDIR to a directory of your own", err)
	}
	return &Spawner{cfg: cfg, root: root, lock: lock, stop: make(chan struct{})}, nil
}

// lockName is the file in a root that its process holds locked.
const lockName = "lock"

// makeRoot makes a directory for runs, and locks it. Where the file system knows
// no locks, there is none.
func makeRoot() (root string, lock *os.File, err error) {
	root, err = os.MkdirTemp("", fmt.Sprintf("%s%d-", rootPrefix, os.Getpid()))
	if err != nil {
		return "", nil, err
	}
	lock, _ = sys.Lock(filepath.Join(root, lockName))
	return root, lock, nil
}

// removeRoot removes the directory of [makeRoot].
func removeRoot(root string, lock *os.File) error {
	if lock != nil {
		lock.Close() // Windows removes no open file
	}
	return os.RemoveAll(root)
}

// staleAfter is how old a directory without a lock must be to be removed: older
// than a run can be, for its process may live where we do not see it, in a
// container with the same temporary directory.
const staleAfter = time.Hour

// removeStale removes the directories of processes that have ended.
func removeStale() {
	dirs, _ := filepath.Glob(filepath.Join(os.TempDir(), rootPrefix+"*"))
	for _, dir := range dirs {
		if info, err := os.Lstat(dir); err == nil && info.IsDir() && sys.Own(info) && stale(dir, info) {
			os.RemoveAll(dir)
		}
	}
}

func stale(dir string, info fs.FileInfo) bool {
	lock := filepath.Join(dir, lockName)
	if sys.Abandoned(lock) {
		return true
	}
	if held, err := os.Lstat(lock); err == nil && held.Size() > 0 {
		return false
	}
	pid, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(dir), rootPrefix), "-")
	n, err := strconv.Atoi(pid)
	return err == nil && !sys.Alive(n) && time.Since(info.ModTime()) > staleAfter
}

// Close implements [Runner].
func (s *Spawner) Close() error {
	s.mu.Lock()
	if !s.closed {
		s.closed = true
		close(s.stop)
	}
	s.mu.Unlock()
	s.runs.Wait()
	return removeRoot(s.root, s.lock)
}

// Forget implements [Runner]: there is nothing to let go of.
func (s *Spawner) Forget(string) {}

// Workers implements [Runner]: there are none.
func (s *Spawner) Workers() []agent.Worker { return nil }

// Check implements [Runner].
func (s *Spawner) Check(ctx context.Context) (agent.Program, error) {
	cli, err := s.find(ctx)
	if err != nil {
		return cli, err
	}
	return cli, ReadOnly(cli)
}

// askAgain is how long a CLI that did not say its version is not asked again.
const askAgain = 30 * time.Second

// find is [Find], once for each state of the program's file. A CLI that is asked
// for its version may take longer than a caller waits: the search then goes on for
// the next.
func (s *Spawner) find(ctx context.Context) (agent.Program, error) {
	key := fileKey(s.cfg.Command)
	s.mu.Lock()
	l := s.lookup
	due := l == nil || key == "" || l.key != key || l.stale()
	if due && s.closed {
		s.mu.Unlock()
		return Find(ctx, s.cfg.Command) // for what is still answered at the end
	}
	if due {
		l = &lookup{key: key, done: make(chan struct{})}
		s.lookup = l
		s.runs.Go(func() {
			defer close(l.done)
			ctx, cancel := context.WithCancelCause(context.Background())
			defer cancel(nil)
			go func() {
				select {
				case <-s.stop:
					cancel(agent.ErrClosed)
				case <-ctx.Done():
				}
			}()
			l.cli, l.err = Find(ctx, s.cfg.Command)
			l.at = time.Now()
		})
	}
	s.mu.Unlock()
	select {
	case <-l.done:
		return l.cli, l.err
	case <-ctx.Done():
		return agent.Program{}, context.Cause(ctx)
	}
}

// stale reports whether a lookup has ended and is to be made again.
func (l *lookup) stale() bool {
	select {
	case <-l.done:
		return l.err != nil || l.cli.Version == "" && time.Since(l.at) >= askAgain
	default:
		return false
	}
}

// fileKey names the file behind a command in the state it is in now.
func fileKey(command string) string {
	path, err := exec.LookPath(command)
	if err != nil {
		return ""
	}
	info, err := os.Stat(path)
	if err != nil {
		return ""
	}
	resolved, _ := filepath.EvalSymlinks(path)
	changed, id := sys.Stamp(info)
	return fmt.Sprint(resolved, info.Size(), info.ModTime().UnixNano(), changed, id)
}

// Run implements [Runner].
func (s *Spawner) Run(ctx context.Context, req agent.Request, emit func(agent.Event)) (agent.Result, error) {
	released := req.Released
	if released == nil {
		released = func() {}
	}
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		released()
		return agent.Result{}, agent.ErrClosed
	}
	s.runs.Add(1)
	s.mu.Unlock()
	r := &run{s: s, req: req, emit: emit, transcript: transcript{emit: emit}}
	defer func() {
		go func() {
			defer s.runs.Done()
			r.end()
			released()
		}()
	}()
	if req.Replay != "" {
		r.req.Prompt = req.Replay
	}
	if req.Pace != nil {
		if err := req.Pace(ctx); err != nil {
			return agent.Result{}, err
		}
	}
	if err := r.start(ctx); err != nil {
		return agent.Result{Runner: agent.Spawned}, err
	}
	result, err := r.follow(ctx)
	result.Runner = agent.Spawned
	if r.unguard {
		result.Answer, result.Narration = Unguard(result.Answer), Unguard(result.Narration)
	}
	return result, err
}

// A run is one process and what it prints.
type run struct {
	s    *Spawner
	req  agent.Request
	emit func(agent.Event)

	dir            string
	stdin          *os.File // our end; nil when the prompt is written
	stdout, stderr *os.File // opened for reading
	child          *sys.Child
	unguard        bool

	buf        []byte
	transcript transcript
	errText    []byte
	retry      retryReader
	printed    int64
}

func (r *run) start(ctx context.Context) error {
	cli, err := r.s.Check(ctx)
	if err != nil {
		return err
	}
	prompt := Guard(r.req.Prompt)
	// What the model quotes of the prompt has the backslashes too.
	r.unguard = !r.req.Verbatim && Guarded(r.req.Prompt) && !strings.Contains(r.req.Prompt, `\@`)
	for _, image := range r.req.Images {
		prompt += "\n\n" + Mention(image)
	}
	if len(prompt) > MaxPrompt {
		return &agent.Error{Kind: agent.TooLong, Message: fmt.Sprintf("%d bytes; Gemini CLI takes %d", len(prompt), MaxPrompt)}
	}
	// It may be gone, by whatever cleans up old temporary files.
	if err := sys.PrivateDir(r.s.root); err != nil {
		return r.noRoom(err)
	}
	if r.dir, err = os.MkdirTemp(r.s.root, "run-"); err != nil {
		return r.noRoom(err)
	}
	tmp := filepath.Join(r.dir, "tmp")
	if err := os.Mkdir(tmp, 0o700); err != nil {
		return r.noRoom(err)
	}
	// Each run has the policy anew: the CLI takes a missing one for none.
	if err := os.WriteFile(r.policy(), policy(r.req.Dir, false), 0o600); err != nil {
		return r.noRoom(err)
	}
	cmd := exec.Command(cli.Argv[0], append(cli.Argv[1:], r.args()...)...)
	cmd.Dir = r.req.Dir
	cmd.Env = childEnv(os.Environ(), tmp)
	var theirs []*os.File
	defer func() {
		for _, f := range theirs {
			f.Close()
		}
	}()
	for name, f := range map[string]**os.File{"stdout": &r.stdout, "stderr": &r.stderr} {
		path := filepath.Join(r.dir, name)
		w, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY|os.O_APPEND, 0o600)
		if err != nil {
			return r.noRoom(err)
		}
		theirs = append(theirs, w)
		if *f, err = os.Open(path); err != nil {
			return r.noRoom(err)
		}
		if name == "stdout" {
			cmd.Stdout = w
		} else {
			cmd.Stderr = w
		}
	}
	in, out, err := os.Pipe()
	if err != nil {
		return err
	}
	theirs = append(theirs, in)
	cmd.Stdin, r.stdin = in, out
	if r.child, err = sys.StartChild(cmd); err != nil {
		return &agent.Error{Kind: agent.NotInstalled, Message: tidy(err.Error())}
	}
	// Where open files can be removed, nothing of the answer is left by a
	// process that is killed.
	os.Remove(r.stdout.Name())
	os.Remove(r.stderr.Name())
	// The CLI may end before it has read all, which it then never does; end
	// closes the pipe, so that this ends too.
	go func() {
		io.WriteString(out, prompt)
		out.Close()
	}()
	return nil
}

func (r *run) noRoom(err error) error {
	return fmt.Errorf("no room for a run (%w): check the disk of %s", err, r.s.root)
}

func (r *run) policy() string { return filepath.Join(r.dir, "readonly.toml") }

func (r *run) args() []string {
	args := append([]string{"--output-format=stream-json"}, enforce(r.policy())...)
	if r.req.Model != "" {
		args = append(args, "--model="+r.req.Model)
	}
	return args
}

// enforce are the arguments that hold the CLI to a policy. Each value is held
// to its flag with an equals sign, so that none is taken for a flag.
func enforce(policy string) []string {
	return []string{
		"--approval-mode=default",
		"--admin-policy=" + policy,
		// Should the first be ignored, the rules still hold as the user's.
		"--policy=" + policy,
		"--sandbox=false",
		"--extensions=none",
		// A name that no server has.
		"--allowed-mcp-server-names=" + rand.Text(),
	}
}

// follow reads the output until the child has ended, or the context has, or
// something has gone wrong with it.
func (r *run) follow(ctx context.Context) (agent.Result, error) {
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	last := time.Now()
	var ended time.Time // when the result came
	exited := false
	for {
		n, err := r.read()
		if n > 0 {
			last = time.Now()
		}
		if exited || err != nil {
			break
		}
		if r.transcript.ended && ended.IsZero() {
			ended = time.Now()
		}
		var fault *agent.Error
		if n > 0 {
			fault = r.fault()
		}
		switch now := time.Now(); {
		case fault != nil:
		case !ended.IsZero() && now.Sub(ended) > exitWait:
			exited = true // for us
			continue
		case r.printed > maxOutput:
			fault = &agent.Error{Kind: agent.TooMuchOutput, Message: fmt.Sprintf("over %d MiB", maxOutput>>20)}
		case now.Sub(last) > r.s.cfg.Idle:
			fault = &agent.Error{Kind: agent.Stalled, Message: fmt.Sprintf("no output for %s", r.s.cfg.Idle)}
		default:
			if longest, _ := r.transcript.searched(now); longest > searchWait {
				fault = &agent.Error{Kind: agent.Stalled, Message: fmt.Sprintf("a web search had no answer for %s", searchWait)}
			}
		}
		if fault != nil {
			return r.transcript.result(), fault
		}
		select {
		case <-r.child.Done():
			exited = true
		case <-ctx.Done():
			r.read()
			r.transcript.finish(nil)
			return r.transcript.result(), context.Cause(ctx)
		case <-r.s.stop:
			return r.transcript.result(), agent.ErrClosed
		case <-look.C:
		}
	}
	r.transcript.finish(r.errText)
	return r.conclude()
}

// fault is what the output shows that no run may go on after, or count as an
// answer.
func (r *run) fault() *agent.Error {
	_, searching := r.transcript.searched(time.Now())
	switch {
	case policyIgnored.Match(r.errText):
		return &agent.Error{Kind: agent.Unenforceable, Message: "it does not follow the policy that it is given"}
	case r.transcript.strayed != "":
		return &agent.Error{Kind: agent.Strayed, Message: r.transcript.strayed}
	case searching && searchLoop.Match(r.errText):
		return &agent.Error{Kind: agent.SearchQuota}
	}
	return nil
}

// conclude tells whether a child that has ended has answered: exit code 0, a
// result that says success, and a text.
func (r *run) conclude() (agent.Result, error) {
	t, exit := &r.transcript, 0
	select {
	case <-r.child.Done():
		exit = r.child.ExitCode()
	default: // it printed its result and lingers
	}
	result := t.result()
	if fault := r.fault(); fault != nil {
		return result, fault
	}
	switch {
	case exit == 0 && t.ended && t.status == "success" && result.Answer != "":
		return result, nil
	case exit == 0 && t.ended && t.status == "success":
		message := t.message
		if result.Narration != "" {
			message = "it ended after a tool use"
		}
		return result, &agent.Error{Kind: agent.Empty, Message: tidy(message)}
	case exit == 0 && !t.ended && t.message == "":
		return result, &agent.Error{Kind: agent.Crashed, Message: "no result came"}
	}
	return result, classify(exit, t.message, string(r.errText))
}

// read takes what has been printed since the last time.
func (r *run) read() (int, error) {
	if r.buf == nil {
		r.buf = make([]byte, 64<<10)
	}
	buf, total := r.buf, 0
	for _, stream := range []struct {
		f *os.File
		w io.Writer
	}{{r.stderr, errWriter{r}}, {r.stdout, &r.transcript}} {
		for r.printed <= maxOutput {
			n, err := stream.f.Read(buf)
			total += n
			r.printed += int64(n)
			stream.w.Write(buf[:n])
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

// An errWriter keeps the first and the last of standard error and watches it
// for retries.
type errWriter struct{ *run }

func (w errWriter) Write(b []byte) (int, error) {
	w.retry.read(b, w.emit)
	w.errText = append(w.errText, b...)
	if over := len(w.errText) - maxStderr; over > 0 {
		w.errText = append(w.errText[:maxStderr/2], w.errText[maxStderr/2+over:]...)
	}
	return len(b), nil
}

// end ends the child, if it still runs, and removes what the run left.
func (r *run) end() {
	if r.child != nil {
		select {
		case <-r.child.Done():
		default:
			r.child.Stop(grace)
		}
	}
	for _, f := range []*os.File{r.stdin, r.stdout, r.stderr} {
		if f != nil {
			f.Close()
		}
	}
	if r.dir != "" {
		if err := os.RemoveAll(r.dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
			r.s.cfg.Log.Warn("a run's files stay", "error", err)
		}
	}
}

// A retryReader finds the CLI's announcements of retries in standard error:
// "Attempt 1 failed: ... Retrying after 5971ms...", whose message may have
// several lines, or "Attempt 1 failed with status 503. Retrying with
// backoff...".
type retryReader struct{ pending []byte }

var (
	attempt  = regexp.MustCompile(`(?s)Attempt (\d+) failed(.*?)(?:Retrying after (\d+)ms|(Retrying with backoff))`)
	maxRetry = 16 << 10
)

// backoff is about what the CLI waits after the first attempt where it does
// not say so; it doubles from there.
const backoff = 5 * time.Second

func (r *retryReader) read(b []byte, emit func(agent.Event)) {
	r.pending = append(r.pending, b...)
	for {
		m := attempt.FindSubmatchIndex(r.pending)
		if m == nil {
			break
		}
		text := func(i int) string {
			if m[2*i] < 0 {
				return ""
			}
			return string(r.pending[m[2*i]:m[2*i+1]])
		}
		n, _ := strconv.Atoi(text(1))
		wait := backoff << min(max(n, 1)-1, 10)
		if ms, err := strconv.Atoi(text(3)); err == nil {
			wait = time.Duration(ms) * time.Millisecond
		}
		message := strings.Trim(text(2), ": \n")
		kind := kindOf(message)
		if kind == "" {
			kind = agent.Capacity
		}
		emit(agent.Retry{Attempt: n, Wait: wait, Kind: kind, Message: tidy(message)})
		r.pending = r.pending[m[1]:]
	}
	if over := len(r.pending) - maxRetry; over > 0 {
		r.pending = append(r.pending[:0], r.pending[over:]...)
	}
}
