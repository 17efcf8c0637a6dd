package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/creack/pty"

	"pollux/internal/ide/geminiide/client"
)

// An editorBench measures one editor. This program is the editor's terminal.
type editorBench struct {
	name   string
	argv   []string
	down   string // the key that moves the cursor
	next   string // the keys that go to a change
	accept string // the keys that accept it
}

var editorBenches = []editorBench{
	{"nvim", []string{"nvim"}, "j", ":Pollux next\r", ":w\r"},
	{"vim", []string{"vim"}, "j", ":Pollux next\r", ":w\r"},
	{"emacs", []string{"emacs", "-nw"}, "\x0e", "\x1bxpollux-next\r", "\x03\x03"},
}

const (
	// seenTime is the user's time to look at a change. An editor refuses to accept one that
	// has not been in view.
	seenTime = 2 * time.Second
	// drawTimeout limits how long an editor may take to draw a text, or to do what a key says.
	drawTimeout = time.Minute
	// fileLine is a line of the file in the editor.
	fileLine = "a line of text, as long as such lines are\n"
)

// heldFor is how long a key is held down.
const heldFor = 5 * time.Second

func measureEditors(t *table, s setup) error {
	dir, err := scratch()
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	without, with := t.column("without the plugin"), t.column("with it")
	for _, e := range editorBenches {
		if _, err := exec.LookPath(e.argv[0]); err != nil {
			t.note("%s is not installed", e.name)
			continue
		}
		if err := e.run(s.binary, filepath.Join(dir, e.name), without, with); err != nil {
			return fmt.Errorf("%s: %w", e.name, err)
		}
	}
	return nil
}

// run measures one editor without the plugin and with it.
func (e editorBench) run(binary, dir string, bare, plugin column) error {
	project, tmp := filepath.Join(dir, "p"), filepath.Join(dir, "t")
	file := filepath.Join(project, "file.txt")
	homes := map[bool]string{false: filepath.Join(dir, "bare"), true: filepath.Join(dir, "home")}
	for _, d := range []string{project, homes[false], homes[true], tmp} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			return err
		}
	}
	text := strings.Repeat(fileLine, 5000)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return err
	}
	env := func(with bool) []string {
		plain := slices.DeleteFunc(os.Environ(), func(kv string) bool { return strings.HasPrefix(kv, "XDG_") })
		return append(plain, "HOME="+homes[with], "TERM=linux", "LANG=C.UTF-8",
			"TMPDIR="+tmp, "POLLUX_RUNTIME_DIR="+filepath.Join(tmp, "run"),
			"PATH="+filepath.Dir(binary)+":"+os.Getenv("PATH"))
	}
	if e.name == "emacs" { // without any package it does not load its package manager
		other := filepath.Join(homes[false], ".emacs.d", "elpa", "other-1.0")
		if err := os.MkdirAll(other, 0o700); err != nil {
			return err
		}
		for name, text := range map[string]string{
			"other-pkg.el": `(define-package "other" "1.0" "" nil)`, "other-autoloads.el": "",
		} {
			if err := os.WriteFile(filepath.Join(other, name), []byte(text), 0o600); err != nil {
				return err
			}
		}
	}
	install := exec.Command(binary, "install", e.name, "--yes")
	install.Env = env(true)
	if out, err := install.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}

	columns := map[bool]column{false: bare, true: plugin}
	for n := range 1 + bare.runs {
		for _, with := range []bool{false, true} {
			awaitEnd(tmp)
			began := time.Now()
			t, err := open(env(with), project, append(slices.Clone(e.argv), file)...)
			if err != nil {
				return err
			}
			drawn, err := until(t.expect(strings.TrimSpace(fileLine)))
			if err == nil && with { // or awaitEnd would miss a companion that has yet to start
				_, err = awaitStart(tmp)
			}
			t.close()
			if err != nil {
				return err
			}
			if n > 0 { // the first one reads the editor from the disk
				columns[with].add(e.name+": start until the file is on the screen", "ms", ms(drawn.Sub(began)))
			}
		}
	}
	if err := e.uses(env(true), project, file, tmp, plugin); err != nil {
		return err
	}
	for _, with := range []bool{false, true} {
		frames, err := e.held(env(with), project, file, with, tmp)
		if err != nil {
			return err
		}
		columns[with].add(fmt.Sprintf("%s: key held for %g s, until the frame", e.name, heldFor.Seconds()), "ms", frames...)
	}
	return nil
}

// uses measures an editor while a CLI uses it.
func (e editorBench) uses(env []string, project, file, tmp string, col column) error {
	awaitEnd(tmp)
	t, err := open(env, project, append(slices.Clone(e.argv), file)...)
	if err != nil {
		return err
	}
	defer t.close()
	cli, err := dialFile(tmp)
	if err != nil {
		return err
	}
	defer cli.Close()
	time.Sleep(time.Second) // until the output of the start has ended
	for len(cli.Notifications) > 0 {
		<-cli.Notifications
	}
	for range 4 * col.runs {
		time.Sleep(100 * time.Millisecond)
		began := time.Now()
		t.pty.WriteString(e.down)
		at, err := await(cli)
		if err != nil {
			return err
		}
		col.add(e.name+": key until the agent has the context", "ms", ms(at.Sub(began)))
	}
	big := filepath.Join(project, "big.txt")
	if err := os.WriteFile(big, []byte(bigText), 0o600); err != nil {
		return err
	}
	for i := range col.runs {
		for _, diff := range []struct{ name, path, text string }{
			{"openDiff", file, strings.Repeat(fileLine, 5000)},
			{"openDiff of 5 MB", big, bigText},
		} {
			mark := strings.Repeat(string(rune('A'+i)), 5)
			began := time.Now()
			drawing := t.expect(mark)
			if err := cli.OpenDiff(context.Background(), diff.path, mark+"\n"+diff.text); err != nil {
				return err
			}
			drawn, err := until(drawing)
			if err != nil {
				return err
			}
			col.add(e.name+": "+diff.name+", until it is on the screen", "ms", ms(drawn.Sub(began)))
			t.pty.WriteString(e.next)
			time.Sleep(seenTime)
			began = time.Now()
			t.pty.WriteString(e.accept)
			if err := accepted(cli, diff.path); err != nil {
				return err
			}
			if diff.path == file {
				col.add(e.name+": accept, until the file is written", "ms", ms(time.Since(began)))
			}
			time.Sleep(time.Second) // until the output has ended
		}
	}
	return nil
}

// accepted waits until the user has accepted a change, and writes the file as the CLI does.
func accepted(cli *client.CLI, path string) error {
	for timeout := time.After(drawTimeout); ; {
		select {
		case n, ok := <-cli.Notifications:
			if !ok {
				return fmt.Errorf("the companion has closed the connection: %v", cli.Ended)
			}
			var diff struct{ Content string }
			if n.Method != "ide/diffAccepted" {
				continue
			}
			if err := json.Unmarshal(n.Params, &diff); err != nil {
				return err
			}
			return os.WriteFile(path, []byte(diff.Content), 0o600)
		case <-timeout:
			return fmt.Errorf("the editor accepted no change within %s", drawTimeout)
		}
	}
}

// held holds a key down, thirty presses a second, and measures the time from
// each press until the editor redraws.
func (e editorBench) held(env []string, project, file string, with bool, tmp string) ([]float64, error) {
	awaitEnd(tmp)
	t, err := open(env, project, append(slices.Clone(e.argv), file)...)
	if err != nil {
		return nil, err
	}
	defer t.close()
	if with {
		cli, err := dialFile(tmp)
		if err != nil {
			return nil, err
		}
		defer cli.Close()
		go func() {
			for range cli.Notifications {
			}
		}()
	}
	time.Sleep(time.Second)
	var frames []float64
	for began := time.Now(); time.Since(began) < heldFor; {
		pressed := time.Now()
		drawn := t.expect("")
		t.pty.WriteString(e.down)
		time.Sleep(time.Until(pressed.Add(time.Second / 30)))
		if len(drawn) > 0 {
			frames = append(frames, ms((<-drawn).Sub(pressed)))
		}
	}
	if len(frames) == 0 {
		return nil, fmt.Errorf("nothing was drawn")
	}
	return frames, nil
}

// A screen reads the output of an editor.
type screen struct {
	cmd *exec.Cmd
	pty *os.File

	mu     sync.Mutex
	want   string
	output []byte         // since the call of expect
	drawn  chan time.Time // receives when want was drawn
}

// expect returns a channel that receives when the next output contained a text for the first
// time.
func (s *screen) expect(text string) <-chan time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.want, s.output, s.drawn = text, nil, make(chan time.Time, 1)
	return s.drawn
}

// drew takes output of the editor.
func (s *screen) drew(output []byte, at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.drawn == nil {
		return
	}
	if s.output = append(s.output, output...); bytes.Contains(s.output, []byte(s.want)) {
		s.drawn <- at
		s.drawn, s.output = nil, nil
	}
}

// until returns when an expected text was drawn.
func until(drawn <-chan time.Time) (time.Time, error) {
	select {
	case at := <-drawn:
		return at, nil
	case <-time.After(drawTimeout):
		return time.Time{}, fmt.Errorf("the editor drew nothing within %s", drawTimeout)
	}
}

// open starts an editor.
func open(env []string, dir string, argv ...string) (*screen, error) {
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env, cmd.Dir = env, dir
	f, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: 40, Cols: 120})
	if err != nil {
		return nil, err
	}
	s := &screen{cmd: cmd, pty: f}
	go func() {
		buf := make([]byte, 64<<10)
		for {
			n, err := f.Read(buf)
			if err != nil {
				return
			}
			s.drew(buf[:n], time.Now())
		}
	}()
	return s, nil
}

func (s *screen) close() {
	if s.cmd.ProcessState == nil {
		s.cmd.Process.Kill() // its children end with the terminal
		s.cmd.Wait()
	}
	s.pty.Close()
}

// awaitEnd waits until the companion of the editor before has removed its discovery file.
func awaitEnd(tmp string) {
	for deadline := time.Now().Add(endTimeout); len(discoveries(tmp)) > 0 && time.Now().Before(deadline); {
		time.Sleep(10 * time.Millisecond)
	}
}

// awaitStart waits until the editor's companion has published its discovery file.
func awaitStart(tmp string) (discovery, error) {
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if all := discoveries(tmp); len(all) > 0 {
			return all[0], nil
		}
	}
	return discovery{}, errors.New("the plugin started no companion: run `pollux doctor` in the editor's directory")
}

// dialFile connects to the editor's companion.
func dialFile(tmp string) (*client.CLI, error) {
	d, err := awaitStart(tmp)
	if err != nil {
		return nil, err
	}
	return client.Dial(context.Background(), d.Port, d.AuthToken)
}
