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

// runBridge measures the bridge, and the peer if there is one, and prints
// medians and ratios.
func runBridge(binary, peer, cli string, runs int) error {
	us, end, err := newSubject(binary, cli, func(fakemodel.Request) fakemodel.Reply { return fakemodel.Say("hello") })
	if err != nil {
		return err
	}
	defer end()
	if err := us.fill(); err != nil {
		return err
	}
	subjects := []subject{*us}
	if peer != "" {
		subjects = append(subjects, *us.as(peer))
	}
	status, err := median(runs, us.gitStatus)
	if err != nil {
		return err
	}
	own, err := median(runs, func() (float64, error) { return us.cliAlone(us.real, "hello") })
	if err != nil {
		return err
	}
	nothing, err := median(runs, func() (float64, error) { return us.cliAlone(us.fake, "fake:echo") })
	if err != nil {
		return err
	}
	fmt.Printf("\nThe bridge; medians of %d runs%s", runs, ofPeer(peer))
	fmt.Printf("\nThe real CLI alone, one question: %.0f ms. git status of 100,000 files: %.0f ms.\n\n",
		own[1], status[1])
	for _, m := range []struct {
		name, unit string
		less       float64 // subtracted: the CLI's own share
		measure    func(subject) (float64, error)
	}{
		{"start to initialize answered", "ms", 0, initializeTime},
		{"resident memory, idle", "MB", 0, bridgeMemory},
		{"one call, with the real CLI", "ms", 0, callTime},
		{"one call beyond the time of a CLI that only echoes", "ms", nothing[1], echoTime},
		{"a stream of 200 MB, parsed", "MB/s", 0, parseThroughput},
		{"change mode's watch over 100,000 files", "ms", 0, guardTime},
		{"  the same beyond two plain git status", "ms", 2 * status[1], guardTime},
	} {
		fmt.Printf("%-52s", m.name)
		var first float64
		for i, s := range subjects {
			v, err := median(runs, func() (float64, error) { return m.measure(s) })
			if err != nil {
				return fmt.Errorf("%s, %s: %w", m.name, s.argv[0], err)
			}
			for j := range v {
				v[j] -= m.less
			}
			fmt.Printf(" %9.1f %-4s (%.1f to %.1f)", v[1], m.unit, v[0], v[2])
			if i == 0 {
				first = v[1]
			} else {
				fmt.Printf("  ratio %.2f", v[1]/first)
			}
		}
		fmt.Println()
	}
	return nil
}

// median formats the lowest, the median and the highest of several runs.
func median(runs int, measure func() (float64, error)) ([]float64, error) {
	var values []float64
	for range runs {
		v, err := measure()
		if err != nil {
			return nil, err
		}
		values = append(values, v)
	}
	slices.Sort(values)
	return []float64{values[0], values[len(values)/2], values[len(values)-1]}, nil
}

// newSubject returns our bridge, for a model that follows a script, and a function that
// removes what it left. The bridge keeps its own processes: a pool is measured by itself.
func newSubject(binary, cli string, script fakemodel.Script) (s *subject, end func(), err error) {
	if binary, err = filepath.Abs(binary); err != nil {
		return nil, nil, err
	}
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
		argv: []string{binary, "bridge"}, project: filepath.Join(dir, "project"), large: filepath.Join(dir, "large"),
	}
	if err := s.prepare(dir, cli, model.URL); err != nil {
		end()
		return nil, nil, err
	}
	return s, end, nil
}

// as returns a subject that runs another bridge in the same environment.
func (s *subject) as(command string) *subject {
	other := *s
	other.argv = strings.Fields(command)
	return &other
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

func (s *subject) gitStatus() (float64, error) {
	cmd := exec.Command("git", "status", "--porcelain")
	cmd.Dir = s.large
	start := time.Now()
	err := cmd.Run()
	return ms(time.Since(start)), err
}

// cliAlone calls a CLI without a bridge. The last variable of env names it.
func (s *subject) cliAlone(env []string, want string) (float64, error) {
	cli := strings.TrimPrefix(env[len(env)-1], "GEMINI_CLI_PATH=")
	cmd := exec.Command(cli, "--output-format=stream-json", "--model=gemini-2.5-flash")
	cmd.Env = append(slices.Clone(env), "GEMINI_CLI_NO_RELAUNCH=true", "NODE_OPTIONS=--max-old-space-size=8192")
	cmd.Dir, cmd.Stdin = s.project, strings.NewReader("fake:echo")
	start := time.Now()
	out, err := cmd.Output()
	if err == nil && !bytes.Contains(out, []byte(want)) {
		err = errors.New("the CLI did not answer")
	}
	return ms(time.Since(start)), err
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
	return session, cmd, err
}

func initializeTime(s subject) (took float64, err error) {
	start := time.Now()
	err = s.serve(s.fake, func(*mcp.ClientSession, *exec.Cmd) error {
		took = ms(time.Since(start))
		return nil
	})
	return took, err
}

func bridgeMemory(s subject) (mb float64, err error) {
	err = s.serve(s.fake, func(c *mcp.ClientSession, cmd *exec.Cmd) error {
		if _, err := c.ListTools(context.Background(), nil); err != nil {
			return err
		}
		time.Sleep(time.Second)
		mb, err = resident(cmd.Process.Pid)
		return err
	})
	return mb, err
}

// ask makes a call and returns how long it took.
func (s *subject) ask(env []string, args map[string]any) (took time.Duration, err error) {
	err = s.serve(env, func(c *mcp.ClientSession, _ *exec.Cmd) error {
		start := time.Now()
		r, err := c.CallTool(context.Background(), &mcp.CallToolParams{Name: "query", Arguments: args})
		took = time.Since(start)
		if err == nil && r.IsError {
			err = fmt.Errorf("the call failed: %+v", r.Content[0])
		}
		return err
	})
	return took, err
}

func callTime(s subject) (float64, error) {
	took, err := s.ask(s.real, map[string]any{"prompt": "hi", "workingDirectory": s.project})
	return ms(took), err
}

func echoTime(s subject) (float64, error) {
	took, err := s.ask(s.fake, map[string]any{"prompt": "fake:echo", "workingDirectory": s.project})
	return ms(took), err
}

func parseThroughput(s subject) (float64, error) {
	took, err := s.ask(s.fake, map[string]any{"prompt": "fake:flood=200", "workingDirectory": s.project})
	return 200 / took.Seconds(), err
}

func guardTime(s subject) (float64, error) {
	with, err := s.ask(s.fake, map[string]any{"prompt": "fake:edit", "changeMode": true, "workingDirectory": s.large})
	if err != nil {
		return 0, err
	}
	without, err := s.ask(s.fake, map[string]any{"prompt": "fake:edit", "workingDirectory": s.large})
	return ms(with - without), err
}
