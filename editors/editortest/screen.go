// Package editortest drives real editors for tests and pictures. Each editor
// runs in its own tmux terminal and evaluates expressions that ask for its
// state.
package editortest

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"pollux/internal/sys/proc"
)

// A Screen is a program in its own terminal.
type Screen struct {
	socket string
	env    []string
	PID    int
}

// NewScreen starts a program. dir holds the terminal's files; cwd is the
// program's working directory.
func NewScreen(dir, cwd string, env []string, columns, lines int, argv ...string) (*Screen, error) {
	s := &Screen{socket: filepath.Join(dir, "tmux.sock"), env: env}
	args := append([]string{
		"-f", "/dev/null", "new-session", "-d", "-x", strconv.Itoa(columns), "-y", strconv.Itoa(lines), "-c", cwd,
	}, argv...)
	if out, err := s.tmux(args...); err != nil {
		return nil, fmt.Errorf("%w: %s", err, out)
	}
	for _, option := range [][]string{{"escape-time", "0"}, {"status", "off"}, {"default-terminal", "tmux-256color"}} {
		s.tmux(append([]string{"set-option", "-g"}, option...)...)
	}
	out, err := s.tmux("display-message", "-p", "#{pane_pid}")
	if err != nil {
		return nil, fmt.Errorf("%w: %s", err, out)
	}
	s.PID, err = strconv.Atoi(strings.TrimSpace(out))
	return s, err
}

func (s *Screen) tmux(args ...string) (string, error) {
	return s.tmuxContext(context.Background(), args...)
}

func (s *Screen) tmuxContext(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "tmux", append([]string{"-u", "-S", s.socket}, args...)...)
	cmd.Env = s.env
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// Socket returns the socket of the terminal's tmux server.
func (s *Screen) Socket() string { return s.socket }

// ReadsKeys reports whether the program in the terminal reads single keys.
func (s *Screen) ReadsKeys() bool {
	device, err := s.tmux("display-message", "-p", "#{pane_tty}")
	return err == nil && proc.ReadsKeys(strings.TrimSpace(device))
}

// Resize changes the size of the terminal.
func (s *Screen) Resize(columns, lines int) error {
	_, err := s.tmux("resize-window", "-x", strconv.Itoa(columns), "-y", strconv.Itoa(lines))
	return err
}

// Type types a text.
func (s *Screen) Type(text string) error {
	_, err := s.tmux("send-keys", "-l", "--", text)
	return err
}

// Keys presses keys, named as in tmux: Enter, Escape, C-c, M-x.
func (s *Screen) Keys(names ...string) error {
	_, err := s.tmux(append([]string{"send-keys", "--"}, names...)...)
	return err
}

// Hold presses keys several times, with an interval after each, until the end of
// ctx. The terminal measures the interval, so a busy machine does not stretch it.
func (s *Screen) Hold(ctx context.Context, times int, interval time.Duration, names ...string) error {
	press := append([]string{"send-keys", "--"}, names...)
	pause := []string{";", "run-shell", "-d", fmt.Sprint(interval.Seconds()), ";"}
	var args []string
	for range times {
		args = slices.Concat(args, press, pause)
	}
	out, err := s.tmuxContext(ctx, args...)
	if err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}

// Text returns the text on the screen.
func (s *Screen) Text() string {
	out, _ := s.tmux("capture-pane", "-p")
	return out
}

// Coloured returns the text on the screen with the escape sequences of its
// colours.
func (s *Screen) Coloured() string {
	out, _ := s.tmux("capture-pane", "-p", "-e", "-N")
	return out
}

// Wait waits until the screen shows a text.
func (s *Screen) Wait(ctx context.Context, text string) error {
	for start := time.Now(); !strings.Contains(s.Text(), text); {
		select {
		case <-ctx.Done():
			return fmt.Errorf("the screen never showed %q; it shows:\n%s", text, s.Text())
		case <-time.After(PollInterval(start)):
		}
	}
	return nil
}

// PollInterval returns the pause before the next look at a state, in a wait that began at
// start. Most looks run a program, so they become rarer in a long wait: otherwise they would
// use more of the processor than the program that they wait for.
func PollInterval(start time.Time) time.Duration {
	return min(max(20*time.Millisecond, time.Since(start)/8), 100*time.Millisecond)
}

// Close closes the terminal, which ends the program with a hangup.
func (s *Screen) Close() { s.tmux("kill-server") }
