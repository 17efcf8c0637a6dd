package bridge

import (
	"cmp"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"pollux/internal/agent"
)

// A Config configures a [Bridge]. [FromEnv] reads one from the environment.
type Config struct {
	// Agent is the agent that the bridge asks, a row of the table of agents.
	Agent *agent.Agent
	// Source says for whom the agent runs.
	Source agent.Source
	// Runner holds the settings of the agent's runner. The bridge does not open
	// the runner, but reports Runner.Kind.
	Runner agent.Options
	// DefaultModel is used for calls that name no model. If it is empty, the
	// agent chooses. FallbackModel is asked when that model is overloaded or
	// over its quota. It may be empty.
	DefaultModel, FallbackModel string
	// MaxConcurrent is how many calls run at once, from 1 to 64.
	MaxConcurrent int
	// StartInterval is the minimum time between two starts of the agent. A random
	// time of up to StartJitter is added to it.
	StartInterval, StartJitter time.Duration
	// AheadDir, if set, is a workspace for which a process is started before the
	// first call.
	AheadDir string
	// Templates is a directory with the user's prompt templates. It may be
	// empty.
	Templates string
	// NoPool keeps the processes in the bridge instead of sharing those of the pool.
	// PoolIdleTimeout is how long a pool runs without a call.
	NoPool          bool
	PoolIdleTimeout time.Duration
	// Version is the version of Pollux that clients receive.
	Version string
	// Names are the words of errors. The default are the names in the MCP tools.
	Names *Names
	// History, if set, keeps conversations on the disk, and continues those that it
	// has.
	History *History
	// Record, if set, is called once at the end of each call. It must not block.
	Record func(agent.Usage)
	// Log may be nil.
	Log *slog.Logger
}

// FromEnv reads the bridge's settings for an agent from environment variables.
// Their names start with the agent's prefix. An empty variable counts as unset.
// The error for an invalid value lists the valid ones.
func FromEnv(row *agent.Agent, getenv func(string) string) (Config, error) {
	env := env{getenv: getenv, prefix: row.VarPrefix}
	shared := env
	shared.prefix = "POLLUX_"
	cfg := Config{
		NoPool:          shared.choice("POOL", "on", "on", "off") == "off",
		PoolIdleTimeout: shared.milliseconds("POOL_IDLE_MS", 600_000, 1000, 86_400_000),
		Agent:           row,
		Source:          agent.Source{Command: env.program(row.CommandVar, row.Command)},
		DefaultModel:    env.model(row, "DEFAULT_MODEL", ""),
		FallbackModel:   env.model(row, "FALLBACK_MODEL", row.FallbackModel),
		MaxConcurrent:   env.number("MAX_CONCURRENT", 3, 1, 64),
		StartInterval:   env.milliseconds("MIN_INVOCATION_GAP_MS", 5000, 0, 600_000),
		StartJitter:     env.milliseconds("SPAWN_JITTER_MAX_MS", 200, 0, 60_000),
		Templates:       env.text("PROMPTS_DIR", ""),
		Runner: agent.Options{
			IdleTimeout: env.milliseconds("IDLE_TIMEOUT_MS", 300_000, 1000, 1_800_000),
			Kind:        env.choice("RUNNER", agent.Warmed, agent.Warmed, agent.Spawned),
			Warm: agent.Limits{
				Processes:   env.number("WARM_PROCESSES", 3, 1, 32),
				IdleTimeout: env.milliseconds("WARM_IDLE_MS", 600_000, 1000, 86_400_000),
				WaitTimeout: env.milliseconds("WARM_WAIT_MS", 5000, 100, 120_000),
				Memory:      int64(env.number("WARM_MEMORY_MB", 1024, 256, 65536)) << 20,
			},
		},
	}
	if strings.EqualFold(cfg.FallbackModel, "none") {
		cfg.FallbackModel = ""
	}
	switch env.choice("WARM_AHEAD", "false", "true", "false", "1", "0", "yes", "no") {
	case "true", "1", "yes":
		if dir, err := workingDirectory(""); err == nil {
			cfg.AheadDir = dir
		}
	}
	return cfg, cmp.Or(env.err, shared.err)
}

// PoolSettings returns the settings that a pool takes from its environment, by the names
// of their variables.
func (c Config) PoolSettings() map[string]string {
	warm, own := c.Runner.Warm, c.Agent.VarPrefix
	milliseconds := func(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }
	return map[string]string{
		own + "IDLE_TIMEOUT_MS": milliseconds(c.Runner.IdleTimeout),
		own + "WARM_PROCESSES":  strconv.Itoa(warm.Processes),
		own + "WARM_IDLE_MS":    milliseconds(warm.IdleTimeout),
		own + "WARM_WAIT_MS":    milliseconds(warm.WaitTimeout),
		own + "WARM_MEMORY_MB":  strconv.FormatInt(warm.Memory>>20, 10),
		"POLLUX_POOL_IDLE_MS":   milliseconds(c.PoolIdleTimeout),
	}
}

// An env reads settings from environment variables and keeps the first error.
type env struct {
	getenv func(string) string
	prefix string
	err    error
}

// fail records an error for a variable. Only the first one is kept.
func (e *env) fail(format string, args ...any) { e.err = cmp.Or(e.err, fmt.Errorf(format, args...)) }

// value returns the value of the variable with exactly that name.
func (e *env) value(name, fallback string) string {
	return cmp.Or(strings.TrimSpace(e.getenv(name)), fallback)
}

// program returns a program's name, or its absolute path. Another process may
// start it, in another directory.
func (e *env) program(name, fallback string) string {
	v := e.value(name, fallback)
	if filepath.Base(v) == v {
		return v
	}
	path, err := filepath.Abs(v)
	if err != nil {
		e.fail("%s is %q, and the working directory is gone (%w): set it to an absolute path", name, v, err)
	}
	return path
}

// text returns the value of the variable with the agent's prefix.
func (e *env) text(name, fallback string) string { return e.value(e.prefix+name, fallback) }

// model returns the name of a model.
func (e *env) model(row *agent.Agent, name, fallback string) string {
	v := e.text(name, fallback)
	if v != "" && !modelName.MatchString(v) {
		e.fail("%s%s is %q, which is not a valid model name: set it to one such as %s",
			e.prefix, name, v, row.ExampleModel)
	}
	return v
}

// choice returns one of several words, in lower case. Its error names the first
// two, which are the main ones.
func (e *env) choice(name, fallback string, words ...string) string {
	v := strings.ToLower(e.text(name, fallback))
	if !slices.Contains(words, v) {
		e.fail("%s%s is %q: set it to %s or %s, or leave it out for %s",
			e.prefix, name, v, words[0], words[1], fallback)
	}
	return v
}

// number returns an integer between least and most.
func (e *env) number(name string, fallback, least, most int) int {
	v := e.text(name, strconv.Itoa(fallback))
	n, err := strconv.Atoi(v)
	if err != nil || n < least || n > most {
		e.fail("%s%s is %q: set it to a whole number from %d to %d, or leave it out for %d",
			e.prefix, name, v, least, most, fallback)
	}
	return n
}

// milliseconds returns a duration between least and most milliseconds.
func (e *env) milliseconds(name string, fallback, least, most int) time.Duration {
	return time.Duration(e.number(name, fallback, least, most)) * time.Millisecond
}
