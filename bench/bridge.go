package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"pollux/internal/agent/gemini/fakecli"
	"pollux/internal/fakemodel"
	"pollux/internal/realagents"
)

const (
	// laterCalls is the number of questions of each kind that follow the first, and
	// laterStarts that of a peer, which may start a CLI for each.
	laterCalls, laterStarts = 10, 1
	// callPause is a user's pause between questions.
	callPause = 200 * time.Millisecond
	// callsAtOnce is the number of concurrent questions.
	callsAtOnce = 4
)

// A subject is a bridge that is measured: ours or a peer's.
type subject struct {
	argv []string
	// real and fake are the environments of the bridge. In the first it runs
	// the real CLI on a model that answers at once, in the second a CLI that
	// only prints.
	real, fake []string
	bin        string // first in the PATH of both
	project    string // a small directory
	large      string // a repository of 100,000 files
	user       realagents.User
}

// hello is a model that answers at once.
func hello(fakemodel.Request) fakemodel.Reply { return fakemodel.Say("hello") }

// measureBridges measures our bridge and the peer.
func measureBridges(t *table, s setup) error {
	ours, end, err := newSubject(s, hello)
	if err != nil {
		return err
	}
	defer end()
	if err := ours.fill(); err != nil {
		return err
	}
	if _, err := ours.cliAlone(); err != nil { // a start that is not counted: it reads the CLI from the disk
		return err
	}
	if err := ours.bridge(t.ours()); err != nil {
		return err
	}
	return s.peer(t, ours, (*subject).bridge)
}

// peer measures the other bridge, if there is one, in our bridge's environment.
func (s setup) peer(t *table, ours *subject, measure func(*subject, column) error) error {
	if len(s.peerBridge) == 0 {
		return nil
	}
	other := *ours
	other.argv = s.peerBridge
	if err := measure(&other, t.peer(s.peerBridge)); err != nil {
		return fmt.Errorf("the peer: %w", err)
	}
	return nil
}

// bridge measures one bridge.
func (s *subject) bridge(col column) error {
	for range col.runs {
		for _, step := range []func(column) error{s.start, s.questions, s.changes} {
			if err := step(col); err != nil {
				return err
			}
		}
	}
	return nil
}

// newSubject returns our bridge, for a model that follows a script, and a function that
// removes what it left. The bridge keeps its own processes: a pool is measured alone.
func newSubject(of setup, script fakemodel.Script) (s *subject, end func(), err error) {
	dir, err := scratch()
	if err != nil {
		return nil, nil, err
	}
	model, err := fakemodel.Start(script)
	if err != nil {
		os.RemoveAll(dir)
		return nil, nil, err
	}
	end = func() {
		model.Close()
		os.RemoveAll(dir)
	}
	project := filepath.Join(dir, "project")
	s = &subject{
		argv: []string{of.binary, "bridge"}, bin: filepath.Join(dir, "bin"), project: project, large: filepath.Join(dir, "large"),
		user: realagents.User{Cache: of.cache, Home: filepath.Join(dir, "home"), Project: project, Model: model.URL},
	}
	if err := s.prepare(dir); err != nil {
		end()
		return nil, nil, err
	}
	return s, end, nil
}

// withEnv adds variables to the environment of a subject, whose last variable names the
// CLI.
func withEnv(env []string, more ...string) []string {
	return slices.Concat(env[:len(env)-1], more, env[len(env)-1:])
}

func (s *subject) prepare(dir string) error {
	tmp := filepath.Join(dir, "tmp")
	for _, d := range []string{s.bin, s.project, s.user.Home, tmp} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			return err
		}
	}
	cli, variables, err := s.install("gemini")
	if err != nil {
		return err
	}
	fake, err := fakecli.Install(filepath.Join(dir, "fake"), realagents.Version("gemini"))
	if err != nil {
		return err
	}
	// The agents do not start themselves again with a larger heap: Pollux starts them in the same way.
	env := slices.Concat([]string{
		"HOME=" + s.user.Home, "TMPDIR=" + tmp,
		"PATH=" + strings.Join([]string{s.bin, realagents.NodeDir(s.user.Cache), os.Getenv("PATH")}, ":"),
		"GEMINI_MIN_INVOCATION_GAP_MS=0", "GEMINI_SPAWN_JITTER_MAX_MS=0",
		"GEMINI_DEFAULT_MODEL=gemini-2.5-flash", "GEMINI_CLI_NO_RELAUNCH=true", "QWEN_CODE_NO_RELAUNCH=true", "POLLUX_POOL=off",
		"POLLUX_RUNTIME_DIR=" + filepath.Join(dir, "run"), "POLLUX_STATE_DIR=" + filepath.Join(dir, "state"),
	}, variables)
	s.real = append(slices.Clone(env), "GEMINI_CLI_PATH="+cli)
	s.fake = append(slices.Clone(env), "GEMINI_CLI_PATH="+fake)
	return nil
}

// fill creates the large repository.
func (s *subject) fill() error {
	if err := os.Mkdir(s.large, 0o700); err != nil {
		return err
	}
	for i := range 100_000 {
		path := filepath.Join(s.large, fmt.Sprintf("d%d", i/1000), fmt.Sprintf("f%d", i))
		if i%1000 == 0 {
			if err := os.Mkdir(filepath.Dir(path), 0o755); err != nil {
				return err
			}
		}
		if err := os.WriteFile(path, []byte("x\n"), 0o644); err != nil {
			return err
		}
	}
	if err := os.WriteFile(filepath.Join(s.large, "a.txt"), []byte("a\n"), 0o644); err != nil {
		return err
	}
	for _, args := range [][]string{
		{"init", "-q"}, {"add", "-A"},
		{"-c", "user.name=x", "-c", "user.email=x@example.org", "commit", "-qm", "x"},
	} {
		cmd := exec.Command("git", args...)
		cmd.Dir = s.large
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("git %v: %w: %s", args, err, out)
		}
	}
	return nil
}

// install writes the settings of a real agent. It returns its program, and its variables.
func (s *subject) install(name string) (program string, env []string, err error) {
	program = realagents.Program(s.user.Cache, name)
	if _, err := os.Stat(program); err != nil {
		return "", nil, fmt.Errorf("%w: run scripts/setup.sh agents, or name its directory with -cache", err)
	}
	env, err = s.user.Configure(name)
	return program, env, err
}

// cliAlone asks the real CLI a question without a bridge.
func (s *subject) cliAlone() (time.Duration, error) {
	return s.oneShot("gemini", "-p")
}

// oneShot asks an agent a question without a bridge, with a command that ends in it.
func (s *subject) oneShot(argv ...string) (time.Duration, error) {
	cmd := exec.Command(realagents.Program(s.user.Cache, argv[0]), append(slices.Clone(argv[1:]), "hi")...)
	cmd.Env, cmd.Dir = s.real, s.project
	began := time.Now()
	out, err := cmd.CombinedOutput()
	if err == nil && !bytes.Contains(out, []byte("hello")) {
		err = errors.New("no answer")
	}
	if err != nil {
		err = fmt.Errorf("%s: %w: %.2000s", strings.Join(argv, " "), err, out)
	}
	return time.Since(began), err
}

// serve starts a bridge for as long as a client uses it.
func (s *subject) serve(env []string, use func(*mcp.ClientSession, *exec.Cmd) error) error {
	session, cmd, err := s.open(env)
	if err != nil {
		return err
	}
	defer session.Close()
	return use(session, cmd)
}

// open starts a bridge and connects a client to it.
func (s *subject) open(env []string) (*mcp.ClientSession, *exec.Cmd, error) {
	cmd := exec.Command(s.argv[0], s.argv[1:]...)
	cmd.Env, cmd.Dir = env, s.project
	client := mcp.NewClient(&mcp.Implementation{Name: "bench", Version: "1"}, nil)
	session, err := client.Connect(context.Background(), &mcp.CommandTransport{Command: cmd},
		&mcp.ClientSessionOptions{ProtocolVersion: "2025-06-18"})
	if err != nil {
		return nil, nil, fmt.Errorf("%s does not answer to initialize: %w: start it by hand in another directory",
			strings.Join(s.argv, " "), err)
	}
	return session, cmd, nil
}

// start measures an idle bridge.
func (s *subject) start(col column) error {
	began := time.Now()
	return s.serve(s.fake, func(c *mcp.ClientSession, cmd *exec.Cmd) error {
		col.add(startName, "ms", ms(time.Since(began)))
		if _, err := c.ListTools(context.Background(), nil); err != nil {
			return err
		}
		if err := col.addMemory(idleName, func() []int { return family(cmd.Process.Pid) }); err != nil || col.isPeer {
			return err
		}
		return col.compareNode()
	})
}

// ask makes a call and returns how long it took.
func (s *subject) ask(env []string, args map[string]any) (took time.Duration, err error) {
	err = s.serve(env, func(c *mcp.ClientSession, _ *exec.Cmd) error {
		took, _, err = call(c, args)
		return err
	})
	return took, err
}

// call makes a call and returns how long it took.
func call(c *mcp.ClientSession, args map[string]any) (took time.Duration, r *mcp.CallToolResult, err error) {
	began := time.Now()
	r, err = c.CallTool(context.Background(), &mcp.CallToolParams{Name: "query", Arguments: args})
	took = time.Since(began)
	if err == nil && r.IsError {
		err = fmt.Errorf("the call failed: %+v", r.Content[0])
	}
	return took, r, err
}

// askTimes makes n calls with a pause after each, and adds how long they took. It returns the
// last result.
func askTimes(col column, name string, c *mcp.ClientSession, n int, pause time.Duration, args map[string]any) (
	last *mcp.CallToolResult, err error,
) {
	for range n {
		var took time.Duration
		if took, last, err = call(c, args); err != nil {
			return nil, err
		}
		col.add(name, "ms", ms(took))
		time.Sleep(pause)
	}
	return last, nil
}

// asking returns the arguments of a call in the small directory.
func (s *subject) asking(prompt string) map[string]any {
	return map[string]any{"prompt": prompt, "workingDirectory": s.project}
}

// questions measures the questions of a client, one kind after the other.
func (s *subject) questions(col column) error {
	later := laterCalls
	if col.isPeer {
		later = laterStarts
	}
	env := withEnv(s.real, fmt.Sprintf("GEMINI_MAX_CONCURRENT=%d", callsAtOnce))
	const first, spaced = "the first question [gemini alone]", "a later question, another session [gemini alone]"
	err := s.serve(env, func(c *mcp.ClientSession, cmd *exec.Cmd) error {
		if _, err := askTimes(col, first, c, 1, 0, s.asking("hi")); err != nil {
			return err
		}
		pids := func() []int { return family(cmd.Process.Pid) }
		time.Sleep(settleTime)
		mb, err := memoryOf(pids(), proportional)
		if err != nil {
			return err
		}
		col.add("memory of all its processes, after a question", "MB", mb)
		if _, err := askTimes(col, spaced, c, later, callPause, s.asking("hi")); err != nil {
			return err
		}
		last, err := askTimes(col, "  right after the one before", c, later, 0, s.asking("hi"))
		if err != nil {
			return err
		}
		again := s.asking("hi")
		if id, _ := last.Meta["sessionId"].(string); id != "" {
			again["sessionId"] = id
		}
		if _, err := askTimes(col, "a later question, the same session", c, later, callPause, again); err != nil {
			return err
		}
		if !col.isPeer {
			alone, err := s.cliAlone()
			if err != nil {
				return err
			}
			col.compare(first, "ms", ms(alone))
			col.compare(spaced, "ms", ms(alone))
		}
		return s.atOnce(col, c, pids)
	})
	if err != nil {
		return col.fail(err, first, spaced)
	}
	return nil
}

// atOnce measures concurrent questions, and the memory meanwhile.
func (s *subject) atOnce(col column, c *mcp.ClientSession, pids func() []int) error {
	name := fmt.Sprintf("%d questions at the same time [%[1]d gemini]", callsAtOnce)
	most := fmt.Sprintf("  memory of all processes, at most [%d gemini]", callsAtOnce)
	took, mb, err := watched(pids, func() error {
		_, _, err := call(c, s.asking("hi"))
		return err
	})
	if err != nil {
		return err
	}
	col.add(name, "ms", ms(took))
	col.add(most, "MB", mb)
	if col.isPeer {
		return nil
	}
	before := family(os.Getpid())
	took, mb, err = watched(func() []int {
		return slices.DeleteFunc(family(os.Getpid()), func(pid int) bool { return slices.Contains(before, pid) })
	}, func() error {
		_, err := s.cliAlone()
		return err
	})
	col.compare(name, "ms", ms(took))
	col.compare(most, "MB", mb)
	return err
}

// watched makes calls at the same time. It returns how long they all took, and the most
// memory that processes had meanwhile, in MB.
func watched(pids func() []int, do func() error) (took time.Duration, most float64, err error) {
	done := make(chan struct{})
	var looking sync.WaitGroup
	looking.Go(func() {
		for {
			sum := 0.0
			for _, pid := range pids() {
				mb, _ := memoryOf([]int{pid}, proportional) // some end meanwhile
				sum += mb
			}
			most = max(most, sum)
			select {
			case <-done:
				return
			case <-time.After(100 * time.Millisecond):
			}
		}
	})
	took, failed := together(callsAtOnce, func(int) error { return do() })
	close(done)
	looking.Wait()
	return took, most, errors.Join(failed...)
}

// together makes n calls at the same time and returns how long they all took, and the errors.
func together(n int, do func(i int) error) (took time.Duration, failed []error) {
	errs := make(chan error)
	began := time.Now()
	for i := range n {
		go func() { errs <- do(i) }()
	}
	for range n {
		if err := <-errs; err != nil {
			failed = append(failed, err)
		}
	}
	return time.Since(began), failed
}

// changes measures a call in the large repository, in change mode and without it. The CLI
// edits a file immediately.
func (s *subject) changes(col column) error {
	const name = "a question in change mode, 100,000 files [without change mode]"
	args := map[string]any{"prompt": "fake:edit", "workingDirectory": s.large}
	without, err := s.ask(s.fake, args)
	if err != nil {
		return col.fail(err, name)
	}
	args["changeMode"] = true
	with, err := s.ask(s.fake, args)
	if err != nil {
		return col.fail(err, name)
	}
	col.add(name, "ms", ms(with))
	if !col.isPeer {
		col.compare(name, "ms", ms(without))
	}
	return nil
}
