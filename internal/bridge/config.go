package bridge

import (
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"pollux/internal/agent"
	"pollux/internal/agent/gemini"
)

// A Config is what a [Bridge] needs. [FromEnv] makes one.
type Config struct {
	// Command is the CLI: a path, or a name on the PATH.
	Command string
	// DefaultModel is asked for when a call names none; empty leaves it to the
	// CLI. FallbackModel is asked when the first is over its quota or
	// overloaded; empty for none.
	DefaultModel, FallbackModel string
	// MaxConcurrent is how many calls run at once, 1 to 64.
	MaxConcurrent int
	// Gap is the time between two starts, Jitter the most that is added to it.
	Gap, Jitter time.Duration
	// Idle is how long a run may print nothing.
	Idle time.Duration
	// Runner is [gemini.Warmed], which starts a CLI for a call only where it
	// cannot keep one, or [gemini.Spawned]. Warm bounds the CLIs that are kept.
	Runner string
	Warm   gemini.WarmConfig
	// Ahead keeps a CLI for the process's own directory from the start.
	Ahead bool
	// Templates is a directory with prompt templates of the user's.
	Templates string
	// Version is told to clients.
	Version string
	Log     *slog.Logger
}

// FromEnv reads the bridge's settings. A variable that is empty counts as not
// set; one that makes no sense is an error that says what it may be.
func FromEnv(getenv func(string) string) (Config, error) {
	get := func(name, fallback string) string {
		if v := strings.TrimSpace(getenv(name)); v != "" {
			return v
		}
		return fallback
	}
	number := func(name string, fallback, least, most int) (int, error) {
		v := get(name, strconv.Itoa(fallback))
		n, err := strconv.Atoi(v)
		if err != nil || n < least || n > most {
			return 0, fmt.Errorf("%s is %q: set it to a whole number from %d to %d, or leave it out for %d", name, v, least, most, fallback)
		}
		return n, nil
	}
	cfg := Config{
		Command:       get("GEMINI_CLI_PATH", "gemini"),
		DefaultModel:  get("GEMINI_DEFAULT_MODEL", ""),
		FallbackModel: get("GEMINI_FALLBACK_MODEL", "gemini-2.5-flash"),
		Templates:     get("GEMINI_PROMPTS_DIR", ""),
	}
	if strings.EqualFold(cfg.FallbackModel, "none") {
		cfg.FallbackModel = ""
	}
	for name, model := range map[string]string{"GEMINI_DEFAULT_MODEL": cfg.DefaultModel, "GEMINI_FALLBACK_MODEL": cfg.FallbackModel} {
		if model != "" && !modelName.MatchString(model) {
			return cfg, fmt.Errorf("%s is %q, which is no model's name: set it to one like gemini-2.5-pro", name, model)
		}
	}
	switch cfg.Runner = strings.ToLower(get("GEMINI_RUNNER", agent.Warmed)); cfg.Runner {
	case agent.Warmed, agent.Spawned:
	default:
		return cfg, fmt.Errorf("GEMINI_RUNNER is %q: set it to warm or spawn, or leave it out for warm", cfg.Runner)
	}
	switch ahead := strings.ToLower(get("GEMINI_WARM_AHEAD", "false")); ahead {
	case "true", "1", "yes":
		cfg.Ahead = true
	case "false", "0", "no":
	default:
		return cfg, fmt.Errorf("GEMINI_WARM_AHEAD is %q: set it to true or false, or leave it out for false", ahead)
	}
	var err error
	if cfg.Warm.Workers, err = number("GEMINI_WARM_PROCESSES", 3, 1, 32); err != nil {
		return cfg, err
	}
	mb, err := number("GEMINI_WARM_MEMORY_MB", 1024, 256, 65536)
	if err != nil {
		return cfg, err
	}
	cfg.Warm.Memory = int64(mb) << 20
	if cfg.MaxConcurrent, err = number("GEMINI_MAX_CONCURRENT", 3, 1, 64); err != nil {
		return cfg, err
	}
	for name, d := range map[string]struct {
		to                    *time.Duration
		fallback, least, most int
	}{
		"GEMINI_MIN_INVOCATION_GAP_MS": {&cfg.Gap, 5000, 0, 600_000},
		"GEMINI_SPAWN_JITTER_MAX_MS":   {&cfg.Jitter, 200, 0, 60_000},
		"GEMINI_IDLE_TIMEOUT_MS":       {&cfg.Idle, 300_000, 1000, 1_800_000},
		"GEMINI_WARM_IDLE_MS":          {&cfg.Warm.Idle, 600_000, 1000, 86_400_000},
		"GEMINI_WARM_WAIT_MS":          {&cfg.Warm.Wait, 5000, 100, 120_000},
	} {
		ms, err := number(name, d.fallback, d.least, d.most)
		if err != nil {
			return cfg, err
		}
		*d.to = time.Duration(ms) * time.Millisecond
	}
	return cfg, nil
}

func newRunner(cfg Config) (agent.Runner, error) {
	spawner, err := gemini.NewSpawner(gemini.Config{Command: cfg.Command, Idle: cfg.Idle, Log: cfg.Log})
	if err != nil || cfg.Runner == agent.Spawned {
		return spawner, err
	}
	warm := gemini.NewWarm(spawner, cfg.Warm)
	if dir, err := workingDirectory(""); err == nil && cfg.Ahead {
		warm.Warm(dir)
	}
	return warm, nil
}
