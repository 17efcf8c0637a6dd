package tmux

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"pollux/internal/editor"
	"pollux/internal/paths"
	"pollux/internal/sys"
)

// ErrNoPane reports that no pane has the agent.
var ErrNoPane = errors.New("no tmux pane has the agent")

// A Pane is a pane in which an agent runs.
//
// Text is pasted only while the agent is in the pane's foreground: a shell would run it.
// A paste goes through a buffer with its own name, which tmux deletes, and never
// through a command line.
type Pane struct {
	server  string // the socket of the tmux server; empty for the default one
	id      string // such as "%3"
	tty     string // such as "pts/3"
	agent   int    // the agent's process
	command string // of the agent; empty if it was found by its process
}

// Name returns what tmux calls the pane.
func (p *Pane) Name() string { return p.id }

// Command returns the agent's command, if [FindPane] was to find one.
func (p *Pane) Command() string { return p.command }

// FindPane returns the pane in which a process runs. If pid is 0, it returns the one
// with one of the commands in the foreground, in a folder of one of the roots. It returns
// [ErrNoPane] if there is none.
func FindPane(ctx context.Context, pid int, commands, roots []string) (*Pane, error) {
	panes := listPanes(ctx)
	if len(panes) == 0 {
		return nil, ErrNoPane
	}
	table, err := processes(ctx)
	if err != nil {
		return nil, err
	}
	if pid > 0 {
		return paneOf(pid, panes, table)
	}
	var found []*Pane
	for _, p := range panes {
		for _, process := range table {
			if process.tty != p.tty || !process.foreground() {
				continue
			}
			command := commandOf(process.args, commands)
			if command != "" && inRoots(cmp.Or(sys.WorkingDir(process.pid), p.dir), roots) {
				found = append(found, &Pane{p.server, p.id, p.tty, process.pid, command})
				break
			}
		}
	}
	switch len(found) {
	case 0:
		return nil, ErrNoPane
	case 1:
		return found[0], nil
	}
	var list []string
	for _, p := range found {
		list = append(list, p.command+" in "+p.id)
	}
	return nil, fmt.Errorf("several agents run in tmux panes of this folder (%s): "+
		"name one, or connect the one that you mean", strings.Join(list, ", "))
}

// paneOf returns the pane of a process.
func paneOf(pid int, panes []pane, table []process) (*Pane, error) {
	i := slices.IndexFunc(table, func(p process) bool { return p.pid == pid })
	if i < 0 {
		return nil, ErrNoPane
	}
	for _, p := range panes {
		if p.tty == table[i].tty {
			return &Pane{p.server, p.id, p.tty, pid, ""}, nil
		}
	}
	return nil, ErrNoPane
}

func inRoots(dir string, roots []string) bool {
	return slices.ContainsFunc(roots, func(root string) bool { return paths.Contains(root, paths.Real(dir)) })
}

// A pane is a row of tmux's list.
type pane struct{ server, id, tty, dir string }

// listPanes returns the panes of the tmux servers in which the user's processes run, and
// of the default one.
func listPanes(ctx context.Context) (panes []pane) {
	servers := []string{""}
	for _, value := range append(sys.Environs("TMUX"), os.Getenv("TMUX")) {
		if socket, _, _ := strings.Cut(value, ","); !slices.Contains(servers, socket) {
			servers = append(servers, socket)
		}
	}
	seen := make(map[string]bool) // by terminal: a server may have two names
	for _, server := range servers {
		const format = "#{pane_id}\t#{pane_tty}\t#{pane_current_path}"
		out, err := command(ctx, server, "list-panes", "-a", "-F", format).Output()
		if err != nil {
			continue // it has ended, or tmux is not installed
		}
		for line := range strings.Lines(string(out)) {
			fields := strings.SplitN(strings.TrimSuffix(line, "\n"), "\t", 3)
			if len(fields) < 3 || seen[fields[1]] {
				continue
			}
			seen[fields[1]] = true
			panes = append(panes, pane{server, fields[0], strings.TrimPrefix(fields[1], "/dev/"), fields[2]})
		}
	}
	return panes
}

// command returns a command of tmux for one server.
func command(ctx context.Context, server string, args ...string) *exec.Cmd {
	argv := []string{"-u"}
	if server != "" {
		argv = append(argv, "-S", server)
	}
	cmd := exec.CommandContext(ctx, "tmux", append(argv, args...)...)
	cmd.Env = slices.DeleteFunc(os.Environ(), func(kv string) bool { return strings.HasPrefix(kv, "TMUX=") })
	return cmd
}

// A process is a row of the process table.
type process struct {
	pid, group int
	front      int // the process group in the foreground of its terminal
	tty        string
	args       string
}

func (p process) foreground() bool { return p.group > 0 && p.group == p.front }

func processes(ctx context.Context) ([]process, error) {
	out, err := exec.CommandContext(ctx, "ps", "-A", "-ww", "-o", "pid=,pgid=,tpgid=,tty=,args=").Output()
	if err != nil {
		return nil, fmt.Errorf("cannot list the processes with ps (%w): install procps", err)
	}
	return parseProcesses(string(out)), nil
}

func parseProcesses(out string) (table []process) {
	for line := range strings.Lines(out) {
		fields := strings.Fields(line)
		if len(fields) < 5 {
			continue
		}
		p := process{tty: fields[3], args: strings.Join(fields[4:], " ")}
		var errs [3]error
		p.pid, errs[0] = strconv.Atoi(fields[0])
		p.group, errs[1] = strconv.Atoi(fields[1])
		p.front, errs[2] = strconv.Atoi(fields[2])
		if errors.Join(errs[:]...) == nil {
			table = append(table, p)
		}
	}
	return table
}

// interpreters run an agent that is a script.
var interpreters = []string{"node", "nodejs", "bun", "deno"}

// commandOf returns which of the commands a process runs, or "".
func commandOf(args string, commands []string) string {
	words := strings.Fields(args)
	if len(words) > 0 && slices.Contains(interpreters, filepath.Base(words[0])) {
		words = words[1:]
		for len(words) > 0 && strings.HasPrefix(words[0], "-") {
			words = words[1:]
		}
	}
	if len(words) == 0 {
		return ""
	}
	name := filepath.Base(words[0])
	if !slices.Contains(commands, name) {
		return ""
	}
	return name
}

const (
	// enterDelay is the time between a paste and Enter. The agent takes an earlier one
	// for a part of the pasted text: Gemini CLI within 40 ms, if the machine is not busy.
	enterDelay = 500 * time.Millisecond
	// pollInterval is the time between two looks at the pane.
	pollInterval = 50 * time.Millisecond
	// acceptTimeout is how long the agent may take to show the pasted text.
	acceptTimeout = 2500 * time.Millisecond
)

// Paste pastes a prompt, and presses Enter if the prompt asks for it. It pastes nothing
// unless the agent has the foreground and, as far as its screen tells, an empty input
// line: it may ask the user something, and take the text for the answer.
func (p *Pane) Paste(ctx context.Context, prompt editor.Prompt) error {
	if err := p.check(ctx); err != nil {
		return err
	}
	if prompt.Empty {
		waits, err := p.shows(ctx, prompt.Ready)
		if err != nil {
			return err
		}
		if !waits {
			return fmt.Errorf("its input line in tmux pane %s is not empty, or it asks you something: "+
				"finish that, then send again", p.id)
		}
	}
	if !prompt.Submit {
		return p.put(ctx, prompt.Text, "-p")
	}
	before, err := p.signs(ctx, prompt)
	if err != nil {
		return err
	}
	if err := p.put(ctx, prompt.Text, "-p"); err != nil {
		return err
	}
	if err := p.accepted(ctx, prompt, before); err != nil {
		return err
	}
	return p.put(ctx, "\r")
}

// accepted waits until the agent shows the pasted text, and then for [enterDelay]. A
// dialog that ignores the text would take Enter for an answer. before is what
// [Pane.signs] returned before the paste.
func (p *Pane) accepted(ctx context.Context, prompt editor.Prompt, before int) error {
	late := fmt.Errorf("it has not shown the pasted text yet: press Enter in tmux pane %s when it does", p.id)
	looking, cancel := context.WithTimeout(ctx, acceptTimeout)
	defer cancel()
	for {
		n, err := p.signs(looking, prompt)
		if err == nil && n > before {
			break
		}
		if err == nil {
			err = pause(looking, pollInterval)
		}
		if err != nil {
			return late
		}
	}
	if pause(ctx, enterDelay) != nil {
		return late
	}
	return nil
}

// folded starts what agents show in place of a long paste: "[Pasted text #1]".
const folded = "[Past"

// signs counts the signs on the screen that the input line has the prompt. Text that was
// there before the paste, such as an earlier question, counts too: compare two counts.
func (p *Pane) signs(ctx context.Context, prompt editor.Prompt) (n int, err error) {
	if prompt.Empty {
		waits, err := p.shows(ctx, prompt.Ready)
		if err == nil && !waits {
			n = 1
		}
		return n, err
	}
	screen, err := p.screen(ctx)
	if err != nil {
		return 0, err
	}
	start, _, _ := strings.Cut(prompt.Text, "\n")
	if runes := []rune(start); len(runes) > 10 {
		start = string(runes[:10]) // the agent may wrap the line after it
	}
	return strings.Count(screen, start) + strings.Count(screen, folded), nil
}

// pause waits. It returns an error if ctx ends first.
func pause(ctx context.Context, delay time.Duration) error {
	select {
	case <-time.After(delay):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// shows reports whether the pane's screen has a text.
func (p *Pane) shows(ctx context.Context, text string) (bool, error) {
	screen, err := p.screen(ctx)
	return strings.Contains(screen, text), err
}

// screen returns the text on the pane's screen.
func (p *Pane) screen(ctx context.Context) (string, error) {
	return p.run(ctx, nil, "capture-pane", "-p", "-t", p.id)
}

// put pastes a text if the agent has the foreground. The options are those of
// paste-buffer.
func (p *Pane) put(ctx context.Context, text string, options ...string) error {
	buffer := "pollux-" + rand.Text()
	if _, err := p.run(ctx, []byte(text), "load-buffer", "-b", buffer, "-"); err != nil {
		return err
	}
	err := p.check(ctx)
	if err == nil {
		_, err = p.run(ctx, nil, append([]string{"paste-buffer", "-d", "-r", "-b", buffer, "-t", p.id}, options...)...)
	}
	if err != nil {
		p.run(context.WithoutCancel(ctx), nil, "delete-buffer", "-b", buffer)
	}
	return err
}

// check returns an error unless the agent has the pane's foreground.
func (p *Pane) check(ctx context.Context) error {
	const format = "#{pane_input_off} #{pane_in_mode} #{pane_tty}"
	state, err := p.run(ctx, nil, "display-message", "-p", "-t", p.id, format)
	if err != nil {
		return err
	}
	switch fields := strings.Fields(state); {
	case len(fields) != 3 || strings.TrimPrefix(fields[2], "/dev/") != p.tty:
		return fmt.Errorf("tmux pane %s has gone: start the agent again", p.id)
	case fields[0] != "0":
		return fmt.Errorf("tmux pane %s takes no input: turn it on with `tmux select-pane -e -t %s`", p.id, p.id)
	case fields[1] != "0": // tmux would drop the text
		return fmt.Errorf("tmux pane %s shows its history or a menu: press q there, then send again", p.id)
	}
	table, err := processes(ctx)
	if err != nil {
		return err
	}
	front := "another program"
	for _, process := range table {
		switch {
		case process.pid == p.agent && process.tty == p.tty && process.foreground():
			return nil
		case process.tty == p.tty && process.pid == process.front:
			name, _, _ := strings.Cut(process.args, " ")
			front = strings.TrimPrefix(filepath.Base(name), "-")
		}
	}
	return fmt.Errorf("%s has the foreground of tmux pane %s: go back to the agent there, for instance with `fg`, "+
		"then send again", front, p.id)
}

// run runs a command of tmux and returns what it prints.
func (p *Pane) run(ctx context.Context, stdin []byte, args ...string) (string, error) {
	cmd := command(ctx, p.server, args...)
	if stdin != nil {
		cmd.Stdin = bytes.NewReader(stdin)
	}
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("tmux cannot type in pane %s (%s): check that the pane still exists",
			p.id, cmp.Or(string(bytes.TrimSpace(said.Bytes())), err.Error()))
	}
	return string(out), nil
}
