package main

import (
	"context"
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
	name string
	argv []string
	// quit is the argument that makes the editor exit right after it has
	// started.
	quit []string
	down string // the key that moves the cursor
}

var editorBenches = []editorBench{
	{"nvim", []string{"nvim"}, []string{"-c", "autocmd VimEnter * call timer_start(0, {-> execute('qa!')})"}, "j"},
	{"vim", []string{"vim"}, []string{"-c", "autocmd VimEnter * call timer_start(0, {-> execute('qa!')})"}, "j"},
	{"emacs", []string{"emacs", "-nw"}, []string{"--eval", "(add-hook 'emacs-startup-hook (lambda () (run-at-time 0 nil #'kill-emacs)) t)"}, "\x0e"},
}

const heldFor = 10 * time.Second

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
	text := strings.Repeat("a line of text, as long as such lines are\n", 5000)
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
	for range bare.runs {
		for _, with := range []bool{false, true} {
			began := time.Now()
			t, err := open(env(with), project, append(append(slices.Clone(e.argv), e.quit...), file)...)
			if err != nil {
				return err
			}
			t.cmd.Wait()
			columns[with].add(e.name+": start and end", "ms", ms(time.Since(began)))
			t.close()
		}
	}
	if err := e.moves(env(true), project, file, tmp, plugin); err != nil {
		return err
	}
	for _, with := range []bool{false, true} {
		frames, err := e.held(env(with), project, file, with, tmp)
		if err != nil {
			return err
		}
		columns[with].add(e.name+": key held for 10 s, until the frame", "ms", frames...)
	}
	return nil
}

// moves measures how long a pressed key takes to reach a CLI.
func (e editorBench) moves(env []string, project, file, tmp string, plugin column) error {
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
	for range 4 * plugin.runs {
		time.Sleep(100 * time.Millisecond)
		began := time.Now()
		t.pty.WriteString(e.down)
		at, err := await(cli)
		if err != nil {
			return err
		}
		plugin.add(e.name+": key to notification, beyond the debounce", "ms", ms(at.Sub(began)-debounceDelay))
	}
	return nil
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
		t.drew.Lock()
		t.first = time.Time{}
		t.drew.Unlock()
		t.pty.WriteString(e.down)
		time.Sleep(time.Until(pressed.Add(time.Second / 30)))
		t.drew.Lock()
		if !t.first.IsZero() {
			frames = append(frames, ms(t.first.Sub(pressed)))
		}
		t.drew.Unlock()
	}
	if len(frames) == 0 {
		return nil, fmt.Errorf("nothing was drawn")
	}
	return frames, nil
}

// A screen reads the output of an editor.
type screen struct {
	cmd   *exec.Cmd
	pty   *os.File
	drew  sync.Mutex
	first time.Time // when the first output came after the last reset
}

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
			_, err := f.Read(buf)
			if err != nil {
				return
			}
			s.drew.Lock()
			if s.first.IsZero() {
				s.first = time.Now()
			}
			s.drew.Unlock()
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

// dialFile waits for a discovery file, connects to its companion and gets an
// answer.
func dialFile(tmp string) (*client.CLI, error) {
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		for _, d := range discoveries(tmp) {
			if cli, err := client.Dial(context.Background(), d.Port, d.AuthToken); err == nil {
				return cli, nil
			}
		}
	}
	return nil, fmt.Errorf("the plugin started no companion: run `pollux doctor` in the editor's directory")
}
