// Command bench measures what users wait for and what Pollux costs them: its start, the companion,
// the editors with its plugins, the agents that it asks, the bridge and the pool. It prints a table
// of each: medians over several runs, with the range. With -write it also puts the tables into a
// document.
// `make bench` runs it.
package main

import (
	"cmp"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"pollux/internal/agent/gemini/fakecli"
	"pollux/internal/realagents"
	"pollux/internal/sys/disk"
)

// A setup names the programs to measure.
type setup struct {
	binary, cache string
	// peerCompanion and peerBridge are the commands of other programs, or empty.
	peerCompanion, peerBridge []string
}

// A measurement fills a table.
type measurement struct {
	name, title string
	runs        int // if -runs is not set: all tables together take less than ten minutes
	fill        func(*table, setup) error
}

var measurements = []measurement{
	{"start", "The start of the program", 50, measureStart},
	{"companion", "The companion", 3, measureCompanions},
	{"editors", "The editors", 3, measureEditors},
	{"agents", "The agents that can be asked; a model that answers immediately", 3, measureAgents},
	{"bridge", "The bridge; the real CLI, a model that answers immediately", 3, measureBridges},
	{"pool", "Sessions in one directory; the real CLI", 2, measurePool},
}

func main() {
	fakecli.Main()
	var names []string
	for _, m := range measurements {
		names = append(names, m.name)
	}
	var s setup
	flag.StringVar(&s.binary, "pollux", "./pollux", "the `binary` to measure")
	flag.StringVar(&s.cache, "cache", ".cache", "the `directory` where scripts/setup.sh installs the agents")
	command := func(argv *[]string) func(string) error {
		return func(text string) error {
			*argv = strings.Fields(text)
			return nil
		}
	}
	flag.Func("peer-companion", "the `command` of another companion, to measure as well: "+
		"it publishes a discovery file for Gemini CLI", command(&s.peerCompanion))
	flag.Func("peer-bridge", "the `command` of another bridge, to measure as well: "+
		"it has a tool query and reads GEMINI_CLI_PATH", command(&s.peerBridge))
	runs := flag.Int("runs", 0, "how often to measure each figure; 0 chooses for each table")
	of := flag.String("of", strings.Join(names, ","), "the `tables` to measure")
	document := flag.String("write", "", "put the tables into the blocks of this `file`")
	flag.Parse()
	if os.Getenv(offlineEnv) == "" {
		runOffline()
	}
	chosen, err := choose(strings.Split(*of, ","))
	if err == nil {
		err = s.run(chosen, *runs, *document)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// offlineEnv is set in the process that has no network.
const offlineEnv = "POLLUX_BENCH_OFFLINE"

// runOffline runs this program again without a network, where that is possible. It returns if it
// is not.
func runOffline() {
	self, err := os.Executable()
	var argv []string
	if err == nil {
		argv, err = realagents.Offline(slices.Concat([]string{self}, os.Args[1:])...)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench: agents may try to reach other hosts:", err)
		return
	}
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = append(os.Environ(), offlineEnv+"=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	err = cmd.Run()
	if cmd.ProcessState == nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
	os.Exit(cmd.ProcessState.ExitCode())
}

// choose returns the measurements with these names.
func choose(names []string) (chosen []measurement, err error) {
	for _, name := range names {
		i := slices.IndexFunc(measurements, func(m measurement) bool { return m.name == name })
		if i < 0 {
			return nil, fmt.Errorf("unknown table %q: see -help for the names", name)
		}
		chosen = append(chosen, measurements[i])
	}
	return chosen, nil
}

// run measures tables, prints each, and writes it to a document if there is one.
func (s setup) run(chosen []measurement, runs int, document string) (err error) {
	for _, path := range []*string{&s.binary, &s.cache} {
		if *path, err = filepath.Abs(*path); err != nil {
			return err
		}
	}
	if _, err := os.Stat(s.binary); err != nil {
		return fmt.Errorf("%w: run make build, or name another with -pollux", err)
	}
	if document != "" { // before minutes of work
		for _, m := range chosen {
			if _, err := inDocument(document, m.name, ""); err != nil {
				return err
			}
		}
	}
	for _, m := range chosen {
		fmt.Fprintln(os.Stderr, "bench: measuring", m.name)
		machine := describeMachine()
		t := &table{title: m.title, runs: cmp.Or(runs, m.runs)}
		if err := m.fill(t, s); err != nil {
			return fmt.Errorf("%s: %w", m.name, err)
		}
		text := t.text(time.Now(), machine)
		fmt.Println(text)
		if document == "" {
			continue
		}
		changed, err := inDocument(document, m.name, text)
		if err == nil {
			err = os.WriteFile(document, []byte(changed), 0o644)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// inDocument returns the text of a file with another table in the table's block.
func inDocument(file, name, text string) (string, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	changed, err := replaceBlock(string(data), name, text)
	if err != nil {
		return "", fmt.Errorf("cannot write to %s: %w", file, err)
	}
	return changed, nil
}

// describeMachine describes what all figures depend on. The load is the number of processes
// that wanted to run in the last minute: figures from a busy machine are too high.
func describeMachine() string {
	model := "unknown processor"
	data, _ := os.ReadFile("/proc/cpuinfo")
	for line := range strings.Lines(string(data)) {
		if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == "model name" {
			model = strings.TrimSpace(value)
			break
		}
	}
	data, _ = os.ReadFile("/proc/loadavg")
	load, _, _ := strings.Cut(string(data), " ")
	return fmt.Sprintf("%s, %s/%s, %d cores, %s, load %s",
		runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), model, load)
}

// scratch creates a temporary directory and returns its real path.
func scratch() (string, error) {
	dir, err := disk.MkdirTemp("", "pollux-bench-")
	if err != nil {
		return "", err
	}
	return filepath.EvalSymlinks(dir)
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
