package config

import (
	"fmt"
	"strings"
	"time"

	"pollux/internal/jsontoml"
)

// A Kind is the type of a setting's value.
type Kind int

const (
	Text     Kind = iota // any string
	Choice               // a word in Choices
	Switch               // a bool
	Number               // an int
	Duration             // a [time.Duration]; environment variables hold milliseconds
	List                 // a []string
	Path                 // an absolute path; in the file it may start with ~/
	Program              // the name of a program on the PATH, or a path
	Model                // the name of a model
)

// A Setting is a row of the table of settings.
type Setting struct {
	// Key is the table and the key in the file, joined with a dot.
	Key  string
	Kind Kind
	// Default is written as in an environment variable.
	Default string
	// Choices are the words of a Choice. For a Switch, they are the words for true and for
	// false in its environment variable, in that order; without them, true and false.
	Choices []string
	// Least and Most limit a Number, or the milliseconds of a Duration.
	Least, Most int
	// Variable is the environment variable; empty for a setting without one.
	Variable string
	// Flag is the flag of Commands; empty for a setting without one.
	Flag     string
	Commands []string
	// Group, if set, names settings that exclude each other. A flag for one of them
	// sets the others to their defaults.
	Group string
	// Help says what the setting does, in a few words. The word in backquotes stands for
	// the value in the help of a flag.
	Help string
	// check checks the value of a List in the file. Its error continues the sentence
	// "KEY is VALUE".
	check func([]string) error
}

// Commands that have the flags of a companion, and those that have a log.
var (
	run        = []string{"run"}
	reviewing  = []string{"run", "demo"}
	companions = []string{"run", "demo", "ide", "lsp"}
	logging    = []string{"run", "demo", "ide", "lsp", "bridge", "ask", "pool"}
)

// Settings is the table of settings, in the order in which they are shown.
var Settings = []Setting{
	{Key: "run.review", Kind: Choice, Default: "browser", Choices: []string{"browser", "split", "popup", "none"},
		Variable: "POLLUX_REVIEW", Flag: "review", Commands: reviewing, Group: "review",
		Help: "`where` to review changes: browser; in tmux split or popup; none"},
	{Key: "run.no-browser", Kind: Switch, Default: "false",
		Variable: "POLLUX_NO_BROWSER", Flag: "no-browser", Commands: reviewing, Group: "review",
		Help: "print the review page's link without opening it"},
	{Key: "run.own-mode", Kind: Switch, Default: "false", Flag: "own-mode", Commands: run,
		Help: "start the agent in its own default mode, even if it then changes files without asking"},
	{Key: "run.agent", Default: "",
		Help: "the `agent` that pollux run starts if several are installed; \"ask\" asks each time. If it is empty, Pollux asks once"},
	{Key: "run.download", Kind: Choice, Default: "ask", Choices: []string{"ask", "yes", "no"},
		Help: "download Gemini CLI if it is not installed: yes, no, or ask once"},
	{Key: "run.attach", Kind: Switch, Default: "false", Flag: "attach", Commands: run,
		Help: "connect the agent to a running companion"},
	{Key: "run.socket", Flag: "socket", Commands: run, Group: "way",
		Help: "`path` of the companion's socket, or of a socket that is forwarded to it"},
	{Key: "run.ssh", Flag: "ssh", Commands: run, Group: "way",
		Help: "reach the companion on this `host` with ssh; pollux must be installed there"},
	{Key: "run.via", Flag: "via", Commands: run, Group: "way",
		Help: "reach the companion with this shell `command`, which runs pollux connect next to it"},
	{Key: "run.dir", Flag: "dir", Commands: run,
		Help: "workspace `directory` on the companion's side"},
	{Key: "run.map", Kind: List, Flag: "map", Commands: run,
		Help: "a directory's path here and on the companion's side, `HERE=THERE`; may be repeated"},

	{Key: "companion.root", Kind: List, Flag: "root", Commands: companions,
		Help: "workspace `directory`, instead of the working directory; may be repeated"},
	{Key: "companion.include-ignored", Kind: Switch, Default: "false",
		Variable: "POLLUX_INCLUDE_IGNORED", Flag: "include-ignored", Commands: companions,
		Help: "also tell the agent about open files that are ignored or look like secrets"},
	{Key: "companion.outside-changes", Kind: Switch, Default: "true", Variable: "POLLUX_OUTSIDE_CHANGES",
		Help: "list files that change while an agent is connected and that neither Pollux nor an editor wrote"},
	{Key: "companion.listen", Variable: "POLLUX_LISTEN", Flag: "listen", Commands: companions,
		Help: "also listen on this IP `address`, for an agent in a container"},
	{Key: "companion.host-name", Kind: List, Default: "host.docker.internal", Flag: "host-name", Commands: companions,
		Help: "host `name` that agents may use to reach --listen; may be repeated"},

	{Key: "log.level", Kind: Choice, Default: "warn", Choices: []string{"debug", "info", "warn", "error"},
		Variable: "POLLUX_LOG", Flag: "log", Commands: logging,
		Help: "log `level`: debug, info, warn or error"},
	{Key: "log.file", Kind: Path, Variable: "POLLUX_LOG_FILE", Flag: "log-file", Commands: logging,
		Help: "log to this `file` instead of pollux.log in the state directory"},

	{Key: "bridge.agent", Variable: "POLLUX_AGENT",
		Help: "`agent` to ask if a call names none; if empty, the first usable one that is not the calling client"},
	{Key: "bridge.command", Kind: Program, Default: "gemini", Variable: "GEMINI_CLI_PATH",
		Help: "path of Gemini CLI"},
	{Key: "bridge.model", Kind: Model, Variable: "GEMINI_DEFAULT_MODEL",
		Help: "model for calls that name none; if empty, the CLI's own default"},
	{Key: "bridge.fallback-model", Kind: Model, Default: "gemini-2.5-flash", Variable: "GEMINI_FALLBACK_MODEL",
		Help: "model to ask if that one is overloaded or over its quota; none turns it off"},
	{Key: "bridge.max-concurrent", Kind: Number, Default: "3", Least: 1, Most: 64, Variable: "GEMINI_MAX_CONCURRENT",
		Help: "maximum number of concurrent calls of all bridges with the same account; " +
			"others wait up to 30 s, and sessions take turns"},
	{Key: "bridge.start-interval", Kind: Duration, Default: "5000", Most: 600_000, Variable: "GEMINI_MIN_INVOCATION_GAP_MS",
		Help: "minimum time between two starts of the CLI for a call; warm processes need none"},
	{Key: "bridge.start-jitter", Kind: Duration, Default: "200", Most: 60_000, Variable: "GEMINI_SPAWN_JITTER_MAX_MS",
		Help: "maximum random time added to it"},
	{Key: "bridge.idle-timeout", Kind: Duration, Default: "300000", Least: 1000, Most: 1_800_000, Variable: "GEMINI_IDLE_TIMEOUT_MS",
		Help: "end a run that is silent for this time"},
	{Key: "bridge.prompts-dir", Kind: Path, Variable: "GEMINI_PROMPTS_DIR",
		Help: "directory with your prompt templates"},
	{Key: "bridge.runner", Kind: Choice, Default: "warm", Choices: []string{"warm", "spawn"}, Variable: "GEMINI_RUNNER",
		Help: "warm keeps processes running, spawn starts one for each call"},
	{Key: "bridge.warm-processes", Kind: Number, Default: "3", Least: 1, Most: 32, Variable: "GEMINI_WARM_PROCESSES",
		Help: "maximum number of warm processes"},
	{Key: "bridge.warm-idle", Kind: Duration, Default: "600000", Least: 1000, Most: 86_400_000, Variable: "GEMINI_WARM_IDLE_MS",
		Help: "end a warm process that is idle for this time"},
	{Key: "bridge.warm-wait", Kind: Duration, Default: "5000", Least: 100, Most: 120_000, Variable: "GEMINI_WARM_WAIT_MS",
		Help: "how long a call waits for a warm process of Gemini CLI to start before Pollux starts a CLI for it"},
	{Key: "bridge.warm-memory-mb", Kind: Number, Default: "1024", Least: 256, Most: 65536, Variable: "GEMINI_WARM_MEMORY_MB",
		Help: "replace a warm process that uses more memory, in MB"},
	{Key: "bridge.warm-ahead", Kind: Switch, Default: "false", Variable: "GEMINI_WARM_AHEAD",
		Help: "start a warm process for the bridge's own directory when a client connects"},
	{Key: "bridge.wall", Kind: Choice, Default: "auto", Choices: []string{"auto", "require", "off"}, Variable: "POLLUX_WALL",
		Help: "on Linux, let the kernel keep agents from changing files: auto does where the kernel can; require refuses calls elsewhere"},

	{Key: "pool.enabled", Kind: Switch, Default: "on", Choices: []string{"on", "off"}, Variable: "POLLUX_POOL",
		Help: "share warm processes between all bridges; off keeps them in each bridge"},
	{Key: "pool.idle", Kind: Duration, Default: "600000", Least: 1000, Most: 86_400_000, Variable: "POLLUX_POOL_IDLE_MS",
		Help: "end the pool after this time without a call"},

	{Key: "ask.history", Kind: Switch, Default: "on", Choices: []string{"on", "off"}, Variable: "POLLUX_ASK_HISTORY",
		Help: "keep the conversations of pollux ask, for --continue"},
}

// Find returns the setting with that key.
func Find(key string) (Setting, bool) {
	for _, s := range Settings {
		if s.Key == key {
			return s, true
		}
	}
	return Setting{}, false
}

// Row returns the setting with that key, which the table has.
func Row(key string) Setting {
	s, ok := Find(key)
	if !ok {
		panic("the table of settings has no " + key)
	}
	return s
}

// Table returns the table in the file, and Name the key in that table.
func (s Setting) Table() string { table, _, _ := strings.Cut(s.Key, "."); return table }
func (s Setting) Name() string  { _, name, _ := strings.Cut(s.Key, "."); return name }

// Usage says what the setting does, without the mark of a value.
func (s Setting) Usage() string { return strings.ReplaceAll(s.Help, "`", "") }

// Value returns the default.
func (s Setting) Value() any {
	v, err := s.parse(s.Default)
	if err != nil {
		panic(fmt.Sprintf("the default of %s is invalid: %v", s.Key, err))
	}
	return v
}

// literal returns a value as TOML.
func literal(v any) string {
	switch v := v.(type) {
	case time.Duration:
		return jsontoml.Literal(short(v))
	case []string:
		return jsontoml.Literal(append([]string{}, v...)) // not nil
	}
	return jsontoml.Literal(v)
}

// short returns a duration without units that are zero: 10m, not 10m0s.
func short(d time.Duration) string {
	text := d.String()
	if d == 0 {
		return "0"
	}
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}
