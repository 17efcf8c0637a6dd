package main

import (
	"context"
	"encoding/json"
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

func runEditors(binary string, runs int) error {
	dir, err := scratch()
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if binary, err = filepath.Abs(binary); err != nil {
		return err
	}
	fmt.Printf("The editors; medians of %d runs\n\n", runs)
	for _, e := range editorBenches {
		if _, err := exec.LookPath(e.argv[0]); err != nil {
			fmt.Printf("%s is not installed\n", e.name)
			continue
		}
		if err := e.run(binary, filepath.Join(dir, e.name), runs); err != nil {
			return fmt.Errorf("%s: %w", e.name, err)
		}
	}
	return nil
}

func (e editorBench) run(binary, dir string, runs int) error {
	project := filepath.Join(dir, "p")
	file := filepath.Join(project, "file.txt")
	homes := map[bool]string{false: filepath.Join(dir, "bare"), true: filepath.Join(dir, "home")}
	for _, d := range []string{project, homes[false], homes[true], filepath.Join(dir, "t")} {
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
			"TMPDIR="+filepath.Join(dir, "t"), "POLLUX_RUNTIME_DIR="+filepath.Join(dir, "t", "run"),
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

	starts := map[bool][]float64{}
	for range runs {
		for _, with := range []bool{false, true} {
			began := time.Now()
			t, err := open(env(with), project, append(append(slices.Clone(e.argv), e.quit...), file)...)
			if err != nil {
				return err
			}
			t.cmd.Wait()
			starts[with] = append(starts[with], ms(time.Since(began)))
			t.close()
		}
	}
	printRow(e.name+": start and end, without the plugin", "ms", starts[false])
	printRow(e.name+": start and end, with it", "ms", starts[true])

	t, err := open(env(true), project, append(slices.Clone(e.argv), file)...)
	if err != nil {
		return err
	}
	defer t.close()
	cli, err := dialFile(filepath.Join(dir, "t", "gemini", "ide", "*"))
	if err != nil {
		return err
	}
	defer cli.Close()
	time.Sleep(time.Second) // until the output of the start has ended
	for len(cli.Notifications) > 0 {
		<-cli.Notifications
	}
	var moves []float64
	for range 4 * runs {
		time.Sleep(100 * time.Millisecond)
		began := time.Now()
		t.pty.WriteString(e.down)
		moves = append(moves, ms((<-cli.Notifications).At.Sub(began)-50*time.Millisecond))
	}
	printRow(e.name+": key to notification, beyond the 50 ms of debounce", "ms", moves)
	t.close()

	for _, with := range []bool{false, true} {
		frames, err := e.held(env(with), project, file, with, filepath.Join(dir, "t", "gemini", "ide", "*"))
		if err != nil {
			return err
		}
		slices.Sort(frames)
		what := "without the plugin"
		if with {
			what = "with it and a CLI"
		}
		fmt.Printf("%-62s %8.2f ms (95 of 100 below %.2f)\n", e.name+": key held for 10 s, to the frame, "+what,
			frames[len(frames)/2], frames[len(frames)*95/100])
	}
	fmt.Println()
	return nil
}

// held holds a key down, thirty presses a second, and measures the time from
// each press until the editor redraws.
func (e editorBench) held(env []string, project, file string, with bool, discovery string) ([]float64, error) {
	t, err := open(env, project, append(slices.Clone(e.argv), file)...)
	if err != nil {
		return nil, err
	}
	defer t.close()
	if with {
		cli, err := dialFile(discovery)
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

// dialFile waits for a discovery file, connects to its companion and gets an
// answer.
func dialFile(pattern string) (*client.CLI, error) {
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		files, _ := filepath.Glob(pattern)
		for _, f := range files {
			var v struct {
				Port      int
				AuthToken string
			}
			data, err := os.ReadFile(f)
			if err != nil || json.Unmarshal(data, &v) != nil {
				continue
			}
			if cli, err := client.Dial(context.Background(), v.Port, v.AuthToken); err == nil {
				return cli, nil
			}
		}
	}
	return nil, fmt.Errorf("no companion appeared")
}

func printRow(name, unit string, values []float64) {
	slices.Sort(values)
	fmt.Printf("%-62s %8.1f %-2s (%.1f to %.1f)\n", name, values[len(values)/2], unit, values[0], values[len(values)-1])
}
