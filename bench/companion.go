package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"pollux/internal/editor"
	"pollux/internal/ide/geminiide/client"
	"pollux/internal/sys/proc"
)

const (
	// publishTimeout limits how long a companion may take to publish its discovery file,
	// and pollInterval is the time between two looks.
	publishTimeout, pollInterval = 30 * time.Second, 200 * time.Microsecond
	// answerTimeout limits a proposal. A companion may wait for an editor that it does not have.
	answerTimeout = 60 * time.Second
	endTimeout    = 5 * time.Second
	// manyCLIs is how many CLIs connect.
	manyCLIs = 20
	// commandRuns is how often each run starts a command, and moves how often the cursor moves.
	// diffs is how many companions of each run show a big proposal.
	commandRuns, moves, diffs = 10, 20, 5
)

// bigText has 5 MB.
var bigText = strings.Repeat("a line of some fifty characters, as code has them\n", 5<<20/50)

// measureCompanions measures our companion as an editor and as CLIs, and a peer as CLIs.
func measureCompanions(t *table, s setup) error {
	steps := []func(*companion, column) error{measureIdle, measureMoves, measureClaudeMoves}
	for range diffs {
		steps = append(steps, measureDiff, measureClaudeDiff)
	}
	steps = append(steps, measureCommands)
	if err := t.ours().companions([]string{s.binary, "ide"}, steps...); err != nil {
		return err
	}
	if len(s.peerCompanion) == 0 {
		return nil
	}
	peer := t.peer(s.peerCompanion)
	for _, r := range t.rows {
		peer.skip(r.name, "needs its editor") // unless it is measured below
	}
	if err := peer.companions(s.peerCompanion, measureIdle, measureDiff); err != nil {
		return fmt.Errorf("the peer: %w", err)
	}
	return nil
}

// companions measures a new companion in each step of each run.
func (col column) companions(argv []string, steps ...func(*companion, column) error) error {
	for range col.runs {
		for _, step := range steps {
			c, err := startCompanion(argv, !col.isPeer)
			if err != nil {
				return err
			}
			err = step(c, col)
			c.end()
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// A companion is a running companion with its own directories.
type companion struct {
	argv, env    []string
	dir, project string
	child        *proc.Child
	editor       *editor.Client // nil for a peer: only its CLIs are measured
	opened       chan editor.Diff
	file         discovery
	took         time.Duration // from the start to the discovery file
	ends         []func()
}

// A discovery is the content of a discovery file.
type discovery struct {
	Port      int
	AuthToken string
}

// discoveries returns the complete discovery files in a directory for temporary files,
// where Gemini CLI looks.
func discoveries(tmp string) (all []discovery) {
	files, _ := filepath.Glob(filepath.Join(tmp, "gemini", "ide", "gemini-ide-server-*"))
	for _, f := range files {
		var d discovery
		data, err := os.ReadFile(f)
		if err == nil && json.Unmarshal(data, &d) == nil && d.Port > 0 {
			all = append(all, d)
		}
	}
	return all
}

type pipes struct {
	io.Reader
	io.WriteCloser
}

// startCompanion starts a companion and waits for its discovery file. With an editor, this
// program is its editor.
func startCompanion(argv []string, withEditor bool) (*companion, error) {
	dir, err := scratch()
	if err != nil {
		return nil, err
	}
	c := &companion{
		argv: argv, dir: dir, project: filepath.Join(dir, "project"), opened: make(chan editor.Diff, 10),
		env: append(os.Environ(), "HOME="+dir, "TMPDIR="+dir,
			"POLLUX_RUNTIME_DIR="+dir+"/run", "POLLUX_STATE_DIR="+dir+"/state"),
	}
	if err := c.start(withEditor); err != nil {
		c.end()
		return nil, err
	}
	return c, nil
}

func (c *companion) start(withEditor bool) error {
	for _, dir := range []string{c.project, filepath.Join(c.dir, ".claude")} { // its user has Claude Code
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
	}
	printed, err := os.Create(c.printed())
	if err != nil {
		return err
	}
	defer printed.Close()
	cmd := exec.Command(c.argv[0], c.argv[1:]...)
	cmd.Env, cmd.Dir, cmd.Stderr = c.env, c.project, printed
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	c.ends = append(c.ends, func() { in.Close() })
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if !withEditor {
		out.Close()
		cmd.Stdout = printed
	}
	began := time.Now()
	if c.child, err = proc.StartChild(cmd); err != nil {
		return fmt.Errorf("cannot start %s: %w: check the command", c.argv[0], err)
	}
	greeted := make(chan error, 1)
	if withEditor {
		go func() { greeted <- c.connectEditor(pipes{out, in}) }()
	} else {
		greeted <- nil
	}
	if c.file, err = c.awaitFile(); err != nil {
		return err
	}
	c.took = time.Since(began)
	return <-greeted
}

func (c *companion) connectEditor(to io.ReadWriteCloser) error {
	c.editor = editor.NewClient(to, editor.Handler{
		DiffOpen: func(d editor.Diff) error { c.opened <- d; return nil },
	})
	_, err := c.editor.Initialize(context.Background(), editor.InitializeParams{
		Editor: editor.Info{Name: "bench", DisplayName: "Bench"}, Roots: []string{c.project}, Diff: true,
	})
	return err
}

// printed is the file with what the companion has printed.
func (c *companion) printed() string { return filepath.Join(c.dir, "printed") }

// awaitFile waits for the companion's discovery file.
func (c *companion) awaitFile() (discovery, error) {
	timeout := time.NewTimer(publishTimeout)
	defer timeout.Stop()
	for {
		if all := discoveries(c.dir); len(all) > 0 {
			return all[0], nil
		}
		var what string
		select {
		case <-time.After(pollInterval):
			continue
		case <-c.child.Done():
			what = fmt.Sprintf("%s ended with code %d before it published a discovery file",
				c.argv[0], c.child.ExitCode())
		case <-timeout.C:
			what = fmt.Sprintf("%s published no discovery file within %s", c.argv[0], publishTimeout)
		}
		printed, _ := os.ReadFile(c.printed())
		return discovery{}, fmt.Errorf("%s: start it by hand and look for $TMPDIR/gemini/ide/gemini-ide-server-*.json; "+
			"it must not need an editor\n%s", what, bytes.TrimSpace(printed[max(0, len(printed)-2000):]))
	}
}

// end stops the companion and removes its directory.
func (c *companion) end() {
	for _, end := range slices.Backward(c.ends) {
		end()
	}
	if c.child != nil {
		c.child.Stop(endTimeout)
	}
	os.RemoveAll(c.dir)
}

// pids returns the processes of the companion.
func (c *companion) pids() []int { return family(c.child.PID()) }

// connect connects a CLI. With an editor, the CLI has received the first context.
func (c *companion) connect() (*client.CLI, error) {
	cli, err := client.Dial(context.Background(), c.file.Port, c.file.AuthToken)
	if err != nil {
		return nil, err
	}
	c.ends = append(c.ends, cli.Close)
	if c.editor != nil {
		_, err = await(cli)
	}
	return cli, err
}

// await returns when the next notification arrived.
func await(cli *client.CLI) (time.Time, error) {
	n, ok := <-cli.Notifications
	if !ok {
		return time.Time{}, fmt.Errorf("the companion has closed the connection: %v", cli.Ended)
	}
	return n.At, nil
}

// writeFile writes a file of the project.
func (c *companion) writeFile() (path string, err error) {
	path = filepath.Join(c.project, "file.go")
	return path, os.WriteFile(path, []byte("package p\n"), 0o600)
}

// open writes a file of the project and connects a CLI.
func (c *companion) open() (path string, cli *client.CLI, err error) {
	if path, err = c.writeFile(); err != nil {
		return "", nil, err
	}
	cli, err = c.connect()
	return path, cli, err
}

// move moves the cursor to a line in the editor. Lines start at 1.
func (c *companion) move(path string, line int) error {
	return c.editor.Update(editor.Snapshot{Files: []editor.File{
		{Path: path, Active: true, Cursor: &editor.Cursor{Line: line, Character: 1}},
	}})
}

// settleTime is the time between the last call and a look at the memory.
const settleTime = 2 * time.Second

// addMemory adds the memory of processes that have just become idle.
func (c column) addMemory(name string, pids func() []int) error {
	time.Sleep(settleTime)
	mb, err := memoryOf(pids(), anonymous)
	if err != nil {
		return err
	}
	c.add(name, "MB", mb)
	return nil
}

// The rows of every program that is started and then idle.
const (
	startName = "start until it can be used [empty Node.js server]"
	idleName  = "memory, idle [empty Node.js server]"
)

// compareNode measures a server in Node.js that does nothing.
func (c column) compareNode() error {
	const script = `require("http").createServer().listen(0, "127.0.0.1", () => console.log("ready"))`
	cmd := exec.Command("node", "-e", script)
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	began := time.Now()
	if err := cmd.Start(); err != nil {
		return err
	}
	defer cmd.Wait()
	defer cmd.Process.Kill()
	if _, err := out.Read(make([]byte, 1)); err != nil {
		return fmt.Errorf("node: %w", err)
	}
	c.compare(startName, "ms", ms(time.Since(began)))
	time.Sleep(settleTime)
	mb, err := memoryOf([]int{cmd.Process.Pid}, anonymous)
	if err != nil {
		return err
	}
	c.compare(idleName, "MB", mb)
	return nil
}

func measureIdle(c *companion, col column) error {
	col.add(startName, "ms", ms(c.took))
	if err := col.addMemory(idleName, c.pids); err != nil {
		return err
	}
	if !col.isPeer {
		if err := col.compareNode(); err != nil {
			return err
		}
	}
	for range manyCLIs {
		if _, err := c.connect(); err != nil {
			return err
		}
	}
	if err := col.addMemory(fmt.Sprintf("memory, %d CLIs connected", manyCLIs), c.pids); err != nil {
		return err
	}
	const window = 5 * time.Second
	before, err := cpuOf(c.pids())
	if err != nil {
		return err
	}
	time.Sleep(window)
	after, err := cpuOf(c.pids())
	col.add(fmt.Sprintf("CPU, idle for 5 s with %d CLIs connected", manyCLIs), "%", 100*(after-before)/window.Seconds())
	return err
}

// measureMoves measures how long moves of the cursor take to reach Gemini CLI.
func measureMoves(c *companion, col column) error {
	path, cli, err := c.open()
	if err != nil {
		return err
	}
	for i := range moves {
		began := time.Now()
		if err := c.move(path, i+1); err != nil {
			return err
		}
		at, err := await(cli)
		if err != nil {
			return err
		}
		col.add("Gemini CLI: cursor moves, until it has the context", "ms", ms(at.Sub(began)))
	}
	return nil
}

// measureDiff measures a big proposal. A peer may be unable to take it without an editor.
func measureDiff(c *companion, col column) error {
	const name = "Gemini CLI: openDiff of 5 MB, until answered [json.Unmarshal]"
	path, cli, err := c.open()
	if err != nil {
		return err
	}
	if !slices.Contains(cli.Tools, "openDiff") {
		return col.fail(errors.New("it has no tool openDiff"), name)
	}
	ctx, cancel := context.WithTimeout(context.Background(), answerTimeout)
	defer cancel()
	began := time.Now()
	if err := cli.OpenDiff(ctx, path, bigText); err != nil {
		if ctx.Err() != nil {
			err = fmt.Errorf("no answer within %s", answerTimeout)
		}
		return col.fail(err, name)
	}
	col.add(name, "ms", ms(time.Since(began)))
	if col.isPeer {
		return nil
	}
	<-c.opened
	plain, err := decodeTime(path)
	col.compare(name, "ms", ms(plain))
	return err
}

// decodeTime returns how long a plain json.Unmarshal of the big proposal takes.
func decodeTime(path string) (time.Duration, error) {
	var request struct{ FilePath, NewContent string }
	data, err := json.Marshal(map[string]string{"filePath": path, "newContent": bigText})
	if err != nil {
		return 0, err
	}
	began := time.Now()
	err = json.Unmarshal(data, &request)
	return time.Since(began), err
}

// measureCommands measures commands that scripts and editors run often. Kakoune and Helix
// run `pollux notify` when the cursor moves.
func measureCommands(c *companion, col column) error {
	path, err := c.writeFile()
	if err != nil {
		return err
	}
	timed := func(argv ...string) (float64, error) {
		cmd := exec.Command(argv[0], argv[1:]...)
		cmd.Env, cmd.Dir = c.env, c.project
		began := time.Now()
		if out, err := cmd.CombinedOutput(); err != nil {
			return 0, fmt.Errorf("%s: %w: %s", strings.Join(argv, " "), err, out)
		}
		return ms(time.Since(began)), nil
	}
	for i := range commandRuns {
		for _, args := range [][]string{{"notify", path, "--line", "1", "--column", fmt.Sprint(i + 1)}, {"status"}} {
			name := "pollux " + args[0] + ", start to end [true]"
			took, err := timed(append([]string{c.argv[0]}, args...)...)
			if err != nil {
				return err
			}
			least, err := timed("true")
			if err != nil {
				return err
			}
			col.add(name, "ms", took)
			col.compare(name, "ms", least)
		}
	}
	return nil
}
