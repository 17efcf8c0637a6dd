// Command bench measures the companion, the editors with its plugins, and the
// bridge, and prints a table of each: medians over several runs, with the
// range. `make bench` runs it.
package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"pollux/internal/agent/gemini/fakecli"
	"pollux/internal/editor"
	"pollux/internal/ide/geminiide/client"
)

func main() {
	fakecli.Main()
	binary := flag.String("pollux", "./pollux", "the `binary` to measure")
	runs := flag.Int("runs", 5, "how often to measure each figure")
	which := flag.String("of", "companion,agents,editors,bridge,warm,pool", "what to measure")
	peer := flag.String("peer", "", "the `command` of another bridge, to measure as well")
	cli := flag.String("cli", ".cache/npm/gemini-0.61.0/node_modules/.bin/gemini",
		"the real Gemini `CLI`, for the bridge")
	flag.Parse()
	err := error(nil)
	for of := range strings.SplitSeq(*which, ",") {
		switch {
		case err != nil:
		case of == "companion":
			err = run(*binary, *runs)
		case of == "agents":
			err = runAgents(*binary, *runs)
		case of == "editors":
			err = runEditors(*binary, *runs)
		case of == "bridge":
			err = runBridge(*binary, *peer, *cli, *runs)
		case of == "warm":
			err = runWarm(*binary, *peer, *cli, *runs)
		case of == "pool":
			err = runPool(*binary, *peer, *cli, *runs)
		default:
			err = fmt.Errorf("unknown -of %q", of)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// scratch creates a temporary directory and returns its real path.
func scratch() (string, error) {
	dir, err := os.MkdirTemp("", "pollux-bench-")
	if err != nil {
		return "", err
	}
	return filepath.EvalSymlinks(dir)
}

func run(binary string, runs int) error {
	binary, err := filepath.Abs(binary)
	if err != nil {
		return err
	}
	info, err := os.Stat(binary)
	if err != nil {
		return err
	}
	fmt.Printf("%s, %s/%s, %d cores, binary of %.1f MB; medians of %d runs (lowest to highest)\n\n",
		runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), float64(info.Size())/1e6, runs)
	for _, m := range []struct {
		name, unit string
		measure    func(*bench) (float64, error)
	}{
		{"start to published discovery file", "ms", startup},
		{"resident memory, idle", "MB", idleMemory},
		{"resident memory, 20 CLIs connected", "MB", connectedMemory},
		{"CPU, idle for 5 s with 20 CLIs connected", "%", idleCPU},
		{"editor's event to notification, beyond the 50 ms of debounce", "ms", latency},
		{"openDiff of 5 MB, until answered", "ms", bigDiff},
		{"10,000 events/s for 10 s: notifications sent", "", flood},
		{"10,000 events/s for 10 s: resident memory after it", "MB", floodMemory},
	} {
		values, err := measure(binary, runs, m.measure)
		if err != nil {
			return fmt.Errorf("%s: %w", m.name, err)
		}
		printRow(m.name, m.unit, values)
	}
	return nil
}

// measure measures a new companion in each run.
func measure(binary string, runs int, f func(*bench) (float64, error)) (values []float64, err error) {
	for range runs {
		b, err := startBench(binary)
		if err != nil {
			return nil, err
		}
		v, err := f(b)
		b.end()
		if err != nil {
			return nil, err
		}
		values = append(values, v)
	}
	return values, nil
}

// startBench starts a companion in a directory of its own.
func startBench(binary string) (*bench, error) {
	dir, err := scratch()
	if err != nil {
		return nil, err
	}
	b := &bench{binary: binary, dir: dir}
	if err := b.start(); err != nil {
		os.RemoveAll(dir)
		return nil, err
	}
	return b, nil
}

// A bench measures one companion.
type bench struct {
	binary, dir string
	cmd         *exec.Cmd
	editor      *editor.Client
	info        editor.InitializeResult
	project     string
	took        time.Duration // from exec to the answer to initialize
	opened      chan editor.Diff
	ends        []func()
}

type pipes struct {
	io.Reader
	io.WriteCloser
}

func (b *bench) start() error {
	b.project = filepath.Join(b.dir, "project")
	for _, dir := range []string{b.project, filepath.Join(b.dir, ".claude")} { // its user has Claude Code
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
	}
	b.cmd = exec.Command(b.binary, "ide")
	b.cmd.Dir = b.project
	b.cmd.Env = append(os.Environ(), "HOME="+b.dir, "TMPDIR="+b.dir,
		"POLLUX_RUNTIME_DIR="+b.dir+"/run", "POLLUX_STATE_DIR="+b.dir+"/state")
	in, err := b.cmd.StdinPipe()
	if err != nil {
		return err
	}
	out, err := b.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	b.opened = make(chan editor.Diff, 10)
	began := time.Now()
	if err := b.cmd.Start(); err != nil {
		return err
	}
	b.editor = editor.NewClient(pipes{out, in}, editor.Handler{
		DiffOpen: func(d editor.Diff) error { b.opened <- d; return nil },
	})
	b.info, err = b.editor.Initialize(context.Background(), editor.InitializeParams{
		Editor: editor.Info{Name: "bench", DisplayName: "Bench"}, Roots: []string{b.project}, Diff: true,
	})
	b.took = time.Since(began)
	if err != nil {
		return err
	}
	files, err := filepath.Glob(filepath.Join(b.dir, "gemini", "ide", "gemini-ide-server-*"))
	if err == nil && len(files) == 0 {
		err = fmt.Errorf("no discovery file")
	}
	return err
}

// end stops the companion and removes its directory.
func (b *bench) end() {
	defer os.RemoveAll(b.dir)
	for _, end := range b.ends {
		end()
	}
	b.editor.Close()
	b.cmd.Wait()
}

// connect returns a CLI that has received the first context.
func (b *bench) connect() (*client.CLI, error) {
	c, err := client.Dial(context.Background(), b.info.Port, b.info.Token)
	if err != nil {
		return nil, err
	}
	b.ends = append(b.ends, c.Close)
	<-c.Notifications
	return c, nil
}

func (b *bench) connectAll(n int) error {
	for range n {
		if _, err := b.connect(); err != nil {
			return err
		}
	}
	return nil
}

// memory returns the companion's resident memory in MB.
func (b *bench) memory() (float64, error) { return resident(b.cmd.Process.Pid) }

// resident returns a process's resident memory in MB.
func resident(pid int) (float64, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(data), "VmRSS:")
	fields := strings.Fields(rest)
	if len(fields) == 0 {
		return 0, fmt.Errorf("process %d has exited", pid)
	}
	kb, err := strconv.ParseFloat(fields[0], 64)
	return kb / 1024, err
}

// cpu returns the processor time that the companion has used, in seconds.
func (b *bench) cpu() (float64, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", b.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	fields := strings.Fields(string(data[bytes.LastIndexByte(data, ')')+1:]))
	user, err1 := strconv.ParseFloat(fields[11], 64)
	system, err2 := strconv.ParseFloat(fields[12], 64)
	if err1 != nil || err2 != nil {
		return 0, fmt.Errorf("unexpected stat: %s", data)
	}
	return (user + system) / 100, nil // clock ticks per second
}

func startup(b *bench) (float64, error) { return ms(b.took), nil }

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

func idleMemory(b *bench) (float64, error) {
	time.Sleep(time.Second)
	return b.memory()
}

func connectedMemory(b *bench) (float64, error) {
	if err := b.connectAll(20); err != nil {
		return 0, err
	}
	time.Sleep(time.Second)
	return b.memory()
}

func idleCPU(b *bench) (float64, error) {
	if err := b.connectAll(20); err != nil {
		return 0, err
	}
	before, err := b.cpu()
	if err != nil {
		return 0, err
	}
	const window = 5 * time.Second
	time.Sleep(window)
	after, err := b.cpu()
	return 100 * (after - before) / window.Seconds(), err
}

func (b *bench) open() (string, error) {
	path := filepath.Join(b.project, "file.go")
	return path, os.WriteFile(path, []byte("package p\n"), 0o600)
}

func (b *bench) move(path string, line int) error {
	return b.editor.Update(context.Background(), editor.Snapshot{Files: []editor.File{
		{Path: path, Active: true, Cursor: &editor.Cursor{Line: line, Character: 1}},
	}})
}

// debounce is how long the companion waits for more changes.
const debounce = 50 * time.Millisecond

func latency(b *bench) (float64, error) {
	path, err := b.open()
	if err != nil {
		return 0, err
	}
	cli, err := b.connect()
	if err != nil {
		return 0, err
	}
	var all []time.Duration
	for i := range 21 {
		began := time.Now()
		if err := b.move(path, i+1); err != nil {
			return 0, err
		}
		all = append(all, (<-cli.Notifications).At.Sub(began)-debounce)
	}
	slices.Sort(all)
	return ms(all[len(all)/2]), nil
}

// bigText has 5 MB.
var bigText = strings.Repeat("a line of some fifty characters, as code has them\n", 5<<20/50)

func bigDiff(b *bench) (float64, error) {
	path, err := b.open()
	if err != nil {
		return 0, err
	}
	cli, err := b.connect()
	if err != nil {
		return 0, err
	}
	began := time.Now()
	err = cli.OpenDiff(context.Background(), path, bigText)
	took := time.Since(began)
	<-b.opened
	return ms(took), err
}

func flood(b *bench) (float64, error) {
	path, err := b.open()
	if err != nil {
		return 0, err
	}
	cli, err := b.connect()
	if err != nil {
		return 0, err
	}
	const rate, length = 10000, 10 * time.Second
	began := time.Now()
	for sent := 0; time.Since(began) < length; time.Sleep(time.Millisecond) {
		for due := int(time.Since(began).Seconds() * rate); sent < due; sent++ {
			if err := b.move(path, sent+1); err != nil {
				return 0, err
			}
		}
	}
	time.Sleep(200 * time.Millisecond) // longer than the debounce
	return float64(len(cli.Notifications)), nil
}

func floodMemory(b *bench) (float64, error) {
	if _, err := flood(b); err != nil {
		return 0, err
	}
	return b.memory()
}
