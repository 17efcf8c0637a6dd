package agent

import (
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// With a wall, the launcher precedes the agent's own command line. Without one, the agent starts
// as usual, unless the wall is required.
func TestWall(t *testing.T) {
	row, missing := &Agent{DisplayName: "Some CLI"}, errors.New("no such kernel")
	dir := t.TempDir()
	program := filepath.Join(dir, "agent")
	c := Command{Args: []string{"--acp"}, Env: []string{"A=1"}, Writable: []string{filepath.Join(dir, "state")}, Parents: []string{dir}}
	free := []string{program, "x", "--acp"}
	walled := []string{"pollux", "wall", filepath.Join(dir, "tmp"), filepath.Join(dir, "state"), "--", dir, "--", program, "x", "--acp"}
	for _, tt := range []struct {
		wall   Wall
		argv   []string // nil if the start is refused
		stands bool
		says   string
	}{
		{Wall{}, free, false, "bridge.wall is off"},
		{Wall{Mode: WallOff}, free, false, "bridge.wall is off, except for agents that config.toml adds"},
		{Wall{Mode: WallOff, Missing: missing}, free, false, "bridge.wall is off"},
		{Wall{Mode: WallAuto}, walled, true, "the kernel keeps"},
		{Wall{Mode: WallAuto, Missing: missing}, free, false, "no such kernel"},
		{Wall{Mode: WallRequired}, walled, true, "the kernel keeps"},
		{Wall{Mode: WallRequired, Missing: missing}, nil, false, "no such kernel"},
	} {
		tt.wall.Launcher = filepath.Join(dir, "pollux")
		cmd, err := tt.wall.Cmd(row, c, Program{Argv: []string{program, "x"}}, Launch{Dir: dir, TempDir: filepath.Join(dir, "tmp")})
		if tt.wall.Stands() != tt.stands || !strings.Contains(tt.wall.String(), tt.says) {
			t.Errorf("%+v stands: %v, %q", tt.wall, tt.wall.Stands(), tt.wall)
		}
		if tt.argv == nil {
			var fault *Error
			if !errors.As(err, &fault) || fault.Kind != Unenforceable || !strings.Contains(err.Error(), "Some CLI") ||
				!strings.Contains(err.Error(), "no such kernel") || !strings.Contains(err.Error(), "bridge.wall") {
				t.Errorf("%+v: %v", tt.wall, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%+v: %v", tt.wall, err)
			continue
		}
		path := program
		if tt.stands {
			path = tt.wall.Launcher
		}
		if !slices.Equal(cmd.Args, tt.argv) || cmd.Path != path || cmd.Dir != dir || !slices.Equal(cmd.Env, append(slices.Clone(c.Env), DepthVar+"=1")) {
			t.Errorf("%+v: %q in %s, %q, %q", tt.wall, cmd.Args, cmd.Dir, cmd.Path, cmd.Env)
		}

		// An agent with its own sandbox starts without the wall, unless one is required.
		sandboxed := *row
		sandboxed.Sandboxed = true
		cmd, err = tt.wall.Cmd(&sandboxed, c, Program{Argv: []string{program, "x"}}, Launch{Dir: dir})
		var fault *Error
		if refused := errors.As(err, &fault) && fault.Kind == Unenforceable; refused != (tt.wall.Mode == WallRequired) || !refused && !slices.Equal(cmd.Args, free) {
			t.Errorf("%+v: %v, %v", tt.wall, cmd, err)
		}
	}
}

// An agent that Pollux does not know starts only behind the wall, whatever the setting says.
func TestWallOfAnUnknownAgent(t *testing.T) {
	dir := t.TempDir()
	launcher, program := filepath.Join(dir, "pollux"), Program{Argv: []string{filepath.Join(dir, "kimi")}}
	row := &Agent{DisplayName: "kimi", Driver: Driver{Custom: true}}
	for _, mode := range []string{"", WallOff, WallAuto, WallRequired} {
		for _, w := range []Wall{{Missing: errors.New("no such kernel"), Launcher: launcher}, {Missing: nil}} {
			w.Mode = mode
			_, err := w.Cmd(row, Command{Env: []string{"A=1"}}, program, Launch{Dir: dir, TempDir: dir})
			var fault *Error
			if !errors.As(err, &fault) || fault.Kind != Unenforceable || !strings.Contains(err.Error(), "ask another agent") {
				t.Errorf("%+v: %v", w, err)
			}
		}
		w := Wall{Mode: mode, Launcher: launcher}
		cmd, err := w.Cmd(row, Command{Env: []string{"A=1"}}, program, Launch{Dir: dir, TempDir: dir})
		if err != nil || cmd.Path != launcher {
			t.Errorf("%+v: %v, %v", w, cmd, err)
		}
	}
}

// A process without an environment would inherit Pollux's environment, with all its secrets.
func TestEnvironmentIsRequired(t *testing.T) {
	for _, mode := range []string{WallOff, WallAuto} {
		wall := Wall{Mode: mode, Launcher: "pollux"}
		_, err := wall.Cmd(new(Agent), Command{}, Program{Argv: []string{"agent"}}, Launch{Dir: t.TempDir()})
		if err == nil || !strings.Contains(err.Error(), "no environment") {
			t.Errorf("wall %s: %v", mode, err)
		}
	}
}
