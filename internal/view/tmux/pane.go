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
	"pollux/internal/inputline"
	"pollux/internal/paths"
	"pollux/internal/sys/proc"
)

// ErrNoPane reports that no pane has the agent.
var ErrNoPane = errors.New("no tmux pane has the agent")

// errLate reports that the machine is too busy to look for a pane.
var errLate = errors.New("the processes could not be listed in time: try again")

// A Pane is a pane in which an agent runs.
//
// Text is pasted only while the agent is in the pane's foreground and shows its input line:
// a shell would run it, and a question would take it for the answer.
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

// PID returns the agent's process.
func (p *Pane) PID() int { return p.agent }

// Command returns the agent's command, if [FindPane] was to find one.
func (p *Pane) Command() string { return p.command }

// FindPane returns the pane of a process. If pid is 0, it returns a pane with one of the
// commands in the foreground, in a folder of one of the roots. It returns [ErrNoPane] if
// no pane matches.
func FindPane(ctx context.Context, pid int, commands, roots []string) (*Pane, error) {
	panes := listPanes(ctx)
	if len(panes) == 0 && ctx.Err() == nil { // otherwise there was no time to ask tmux
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
			if command != "" && inRoots(cmp.Or(proc.WorkingDir(process.pid), p.dir), roots) {
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
	for _, value := range append(proc.Environs("TMUX"), os.Getenv("TMUX")) {
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
	switch {
	case ctx.Err() != nil:
		return nil, errLate
	case err != nil:
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
	// enterDelay is the time between a paste that the agent shows and Enter. The agent takes
	// an earlier one for a part of the pasted text: Gemini CLI within 40 ms. A busy agent
	// shows the paste late and needs longer, so twice the time until then is added, up to
	// maxEnterDelay.
	enterDelay, maxEnterDelay = 500 * time.Millisecond, 6 * time.Second
	// pollInterval is the time between two looks at the pane.
	pollInterval = 50 * time.Millisecond
	// acceptTimeout is how long the agent may take to show the pasted text. Gemini CLI and
	// Codex CLI need several seconds on a busy machine. With the delay and the search for the
	// pane, it must be within [editor.SendTimeout].
	acceptTimeout = 15 * time.Second
)

// Paste pastes a prompt, and presses Enter if the prompt asks for it. It pastes nothing
// unless the agent has the foreground, reads single keys, and shows its input line, which
// must be empty or hold what earlier calls have left there. It returns what the line then
// holds, for the next call. No error means that the line has shown the text.
func (p *Pane) Paste(ctx context.Context, prompt editor.Prompt, find inputline.Finder, left string) (string, error) {
	line, err := p.shown(ctx, find)
	switch {
	case err != nil:
		return "", err
	case line.Text == "":
		left = ""
	case !line.Is(left):
		return "", fmt.Errorf("its input line in tmux pane %s is not empty: send or delete that text there, then send again", p.id)
	}
	if err := p.put(ctx, prompt.Text, "-p"); err != nil {
		return "", err
	}
	left += prompt.Text
	// A long text may show only in part, and so may what the line held before.
	shows := func(l inputline.Line) bool { return l.Text != line.Text && l.Holds(left) }
	pasted := time.Now()
	if err := p.await(ctx, find, shows); err != nil {
		return "", p.unentered(ctx)
	}
	if !prompt.Submit {
		return left, nil
	}
	// A question that the agent asks meanwhile would take Enter for an answer.
	if pause(ctx, min(enterDelay+2*time.Since(pasted), maxEnterDelay)) != nil {
		return "", p.unentered(ctx)
	}
	if now, err := p.inputLine(ctx, find); err != nil || !shows(now) {
		return "", p.unentered(ctx)
	}
	if err := p.put(ctx, "\r"); err != nil {
		return "", fmt.Errorf("Pollux pasted the text, but did not press Enter: %w", err)
	}
	return "", nil
}

// Mention calls send, which brings something into the agent's input line, and waits until
// the line shows it. It does not call it unless the agent has the foreground and shows
// the line. It returns what the line then holds, or "" if the user has typed some of it.
func (p *Pane) Mention(ctx context.Context, send func() error, find inputline.Finder, left string) (string, error) {
	before, err := p.shown(ctx, find)
	if err != nil {
		return "", err
	}
	if err := send(); err != nil {
		return "", err
	}
	var after inputline.Line
	if p.await(ctx, find, func(l inputline.Line) bool { after = l; return l.Shown && l.Text != before.Text }) != nil {
		return "", fmt.Errorf("its input line in tmux pane %s does not show it: look there, then send again", p.id)
	}
	if before.Text != "" && !before.Is(left) {
		return "", nil
	}
	return after.Text, nil
}

// await waits until the agent's input line is as wanted.
func (p *Pane) await(ctx context.Context, find inputline.Finder, wanted func(inputline.Line) bool) error {
	ctx, cancel := context.WithTimeout(ctx, acceptTimeout)
	defer cancel()
	for {
		line, err := p.inputLine(ctx, find)
		if err != nil || wanted(line) {
			return err
		}
		if err := pause(ctx, pollInterval); err != nil {
			return err
		}
	}
}

// shown returns the agent's input line, or an error if the agent does not show it.
func (p *Pane) shown(ctx context.Context, find inputline.Finder) (inputline.Line, error) {
	line, err := p.inputLine(ctx, find)
	if err == nil && !line.Shown {
		err = fmt.Errorf("tmux pane %s does not show its input line: it may ask you something there. "+
			"Answer or close that, then send again", p.id)
	}
	return line, err
}

// unentered returns why Enter was not pressed after a paste.
func (p *Pane) unentered(ctx context.Context) error {
	why := p.check(context.WithoutCancel(ctx))
	if why == nil {
		why = errors.New("its input line there does not show the text. Look at the pane before you press Enter")
	}
	return fmt.Errorf("Pollux pasted the text into tmux pane %s, but did not press Enter: %w", p.id, why)
}

// inputLine looks for the agent's input line. It returns an error unless the agent has the
// foreground and reads single keys.
func (p *Pane) inputLine(ctx context.Context, find inputline.Finder) (inputline.Line, error) {
	if err := p.check(ctx); err != nil {
		return inputline.Line{}, err
	}
	const cursor = "#{cursor_x} #{cursor_y} #{cursor_flag}"
	// One command, so that the cursor is that of the screen.
	out, err := p.run(ctx, nil, "display-message", "-p", "-t", p.id, cursor, ";", "capture-pane", "-p", "-e", "-t", p.id)
	if err != nil {
		return inputline.Line{}, err
	}
	position, captured, _ := strings.Cut(out, "\n")
	s := inputline.Screen{Rows: inputline.Parse(captured)}
	if _, err := fmt.Sscanf(position, "%d %d %t", &s.X, &s.Y, &s.Visible); err != nil {
		return inputline.Line{}, fmt.Errorf("tmux gives no cursor for pane %s (%q): update tmux", p.id, position)
	}
	return find.Find(s), nil
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

// check returns an error unless the agent has the pane's foreground, and reads single
// keys. Otherwise the next program would read the text: the terminal keeps whole lines.
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
			if !proc.ReadsKeys("/dev/" + p.tty) {
				return fmt.Errorf("it starts or ends in tmux pane %s: wait until it shows its input line, or start it again", p.id)
			}
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
