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
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"pollux/internal/agent/gemini/fakecli"
	"pollux/internal/fakemodel"
)

// A subject is a bridge that is measured: ours or a peer's.
type subject struct {
	argv []string
	// real and fake are the environments of the bridge. In the first it runs
	// the real CLI on a model that answers at once, in the second a CLI that
	// only prints.
	real, fake []string
	project    string // a small directory
	large      string // a repository of 100,000 files
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
	if err := ours.bridge(t.column("pollux")); err != nil {
		return err
	}
	return s.peer(t, ours, (*subject).bridge)
}

// peer measures the other bridge, if there is one, in the environment of ours.
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
		for _, step := range []func(column) error{s.start, s.calls, s.watch} {
			if err := step(col); err != nil {
				return err
			}
		}
	}
	return nil
}

// newSubject returns our bridge, for a model that follows a script, and a function that
// removes what it left. The bridge keeps its own processes: a pool is measured by itself.
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
	s = &subject{
		argv: []string{of.binary, "bridge"}, project: filepath.Join(dir, "project"), large: filepath.Join(dir, "large"),
	}
	if err := s.prepare(dir, of.cli, model.URL); err != nil {
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

func (s *subject) prepare(dir, cli, url string) error {
	cli, err := filepath.Abs(cli)
	if err != nil {
		return err
	}
	if _, err := os.Stat(cli); err != nil {
		return fmt.Errorf("%w: run scripts/setup.sh cli, or name another with -cli", err)
	}
	home := filepath.Join(dir, "home")
	for _, d := range []string{s.project, filepath.Join(home, ".gemini"), filepath.Join(dir, "tmp")} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			return err
		}
	}
	settings := `{"security": {"auth": {"selectedType": "gemini-api-key"}, "folderTrust": {"enabled": false}}}`
	if err := os.WriteFile(filepath.Join(home, ".gemini", "settings.json"), []byte(settings), 0o600); err != nil {
		return err
	}
	fake, err := fakecli.Install(filepath.Join(dir, "fake"), "0.61.0")
	if err != nil {
		return err
	}
	env := append(os.Environ(), "HOME="+home, "TMPDIR="+filepath.Join(dir, "tmp"),
		"GEMINI_MIN_INVOCATION_GAP_MS=0", "GEMINI_SPAWN_JITTER_MAX_MS=0", "GEMINI_DEFAULT_MODEL=gemini-2.5-flash",
		"GEMINI_API_KEY=none", "GOOGLE_GEMINI_BASE_URL="+url, "POLLUX_POOL=off",
		"POLLUX_RUNTIME_DIR="+filepath.Join(dir, "run"), "POLLUX_STATE_DIR="+filepath.Join(dir, "state"))
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

func (s *subject) gitStatus() (time.Duration, error) {
	cmd := exec.Command("git", "status", "--porcelain")
	cmd.Dir = s.large
	began := time.Now()
	err := cmd.Run()
	return time.Since(began), err
}

// cliCommand returns the command of a CLI without a bridge.
func (s *subject) cliCommand(env []string, args ...string) *exec.Cmd {
	cmd := exec.Command(strings.TrimPrefix(env[len(env)-1], "GEMINI_CLI_PATH="), args...)
	cmd.Env = append(slices.Clone(env), "GEMINI_CLI_NO_RELAUNCH=true", "NODE_OPTIONS=--max-old-space-size=8192")
	cmd.Dir = s.project
	return cmd
}

// cliAlone calls a CLI without a bridge. The last variable of env names it.
func (s *subject) cliAlone(env []string, want string) (time.Duration, error) {
	cmd := s.cliCommand(env, "--output-format=stream-json", "--model=gemini-2.5-flash")
	cmd.Stdin = strings.NewReader("fake:echo")
	began := time.Now()
	out, err := cmd.Output()
	if err == nil && !bytes.Contains(out, []byte(want)) {
		err = errors.New("the CLI did not answer: run scripts/setup.sh cli")
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

// start measures a bridge that nobody asks.
func (s *subject) start(col column) error {
	began := time.Now()
	return s.serve(s.fake, func(c *mcp.ClientSession, cmd *exec.Cmd) error {
		col.add("start to initialize answered", "ms", ms(time.Since(began)))
		if _, err := c.ListTools(context.Background(), nil); err != nil {
			return err
		}
		return col.addMemory("idle", func() []int { return family(cmd.Process.Pid) })
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

// asking returns the arguments of a call in the small directory.
func (s *subject) asking(prompt string) map[string]any {
	return map[string]any{"prompt": prompt, "workingDirectory": s.project}
}

// calls measures calls that each start a bridge and a CLI.
func (s *subject) calls(col column) error {
	if !col.isPeer {
		alone, err := s.cliAlone(s.real, "hello")
		if err != nil {
			return err
		}
		col.add("the real CLI alone, one question", "ms", ms(alone))
	}
	const name, echo, parse = "one call, with the real CLI",
		"one call beyond the time of a CLI that only echoes", "a stream of 200 MB, parsed"
	took, err := s.ask(s.real, s.asking("hi"))
	if err != nil {
		return col.fail(err, name, echo, parse)
	}
	col.add(name, "ms", ms(took))
	alone, err := s.cliAlone(s.fake, "fake:echo")
	if err != nil {
		return err
	}
	if took, err = s.ask(s.fake, s.asking("fake:echo")); err != nil {
		return col.fail(err, echo, parse)
	}
	col.add(echo, "ms", ms(took-alone))
	if took, err = s.ask(s.fake, s.asking("fake:flood=200")); err != nil {
		return col.fail(err, parse)
	}
	col.add(parse, "MB/s", 200/took.Seconds())
	return nil
}

// watch measures what change mode adds to a call in the large repository, and git status.
func (s *subject) watch(col column) error {
	status, err := s.gitStatus()
	if err != nil {
		return err
	}
	col.add("git status of 100,000 files", "ms", ms(status))
	const watch, beyond, multiple = "change mode's watch over 100,000 files",
		"  the same beyond two git status", "  ratio to one git status"
	args := map[string]any{"prompt": "fake:edit", "workingDirectory": s.large}
	without, err := s.ask(s.fake, args)
	if err != nil {
		return col.fail(err, watch, beyond, multiple)
	}
	args["changeMode"] = true
	with, err := s.ask(s.fake, args)
	if err != nil {
		return col.fail(err, watch, beyond, multiple)
	}
	took := with - without
	col.add(watch, "ms", ms(took))
	col.add(beyond, "ms", ms(took-2*status))
	col.add(multiple, times, took.Seconds()/status.Seconds())
	return nil
}
