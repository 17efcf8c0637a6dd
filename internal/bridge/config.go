package bridge

import (
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"pollux/internal/agent"
)

// A Config configures a [Bridge]. [Configure] makes one from the user's settings.
type Config struct {
	// Asked is the first agent that the bridge can ask.
	Asked
	// Kind is [agent.Spawned] if each question gets its own process, and otherwise
	// [agent.Warmed].
	Kind string
	// Runner holds the settings of runners. The bridge does not open them.
	Runner agent.Options
	// Others are more agents that calls can name. Open opens a runner for one of them,
	// which the bridge closes. Usable, if set, replaces [agent.Agent.Usable].
	Others []Asked
	Open   func(Asked) (agent.Runner, error)
	Usable func(Asked) bool
	// Prefer is the name of the agent for calls that name none. If it is empty, the
	// bridge chooses.
	Prefer string
	// MaxConcurrent is how many calls run at the same time, from 1 to 64.
	MaxConcurrent int
	// StartInterval is the minimum time between two starts of the agent. A random
	// time of up to StartJitter is added to it.
	StartInterval, StartJitter time.Duration
	// AheadDir, if set, is a workspace for which a process is started when a client
	// connects.
	AheadDir string
	// Templates is a directory with the user's prompt templates. It may be
	// empty.
	Templates string
	// NoPool keeps processes in the bridge instead of sharing a pool.
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

// Settings are the user's settings, by their keys.
type Settings interface {
	Text(key string) string
	Switch(key string) bool
	Number(key string) int
	Duration(key string) time.Duration
}

// Configure returns the configuration of a bridge for an agent.
func Configure(row *agent.Agent, s Settings) Config {
	cfg := Config{
		NoPool:          !s.Switch("pool.enabled"),
		PoolIdleTimeout: s.Duration("pool.idle"),
		Asked: Asked{
			Agent:         row,
			Source:        agent.Source{Command: s.Text("bridge.command")},
			DefaultModel:  s.Text("bridge.model"),
			FallbackModel: s.Text("bridge.fallback-model"),
		},
		Prefer:        s.Text("bridge.agent"),
		MaxConcurrent: s.Number("bridge.max-concurrent"),
		StartInterval: s.Duration("bridge.start-interval"),
		StartJitter:   s.Duration("bridge.start-jitter"),
		Templates:     s.Text("bridge.prompts-dir"),
		Kind:          s.Text("bridge.runner"),
		Runner: agent.Options{
			IdleTimeout: s.Duration("bridge.idle-timeout"),
			Wall:        agent.Wall{Mode: s.Text("bridge.wall")},
			Warm: agent.Limits{
				Processes:   s.Number("bridge.warm-processes"),
				IdleTimeout: s.Duration("bridge.warm-idle"),
				WaitTimeout: s.Duration("bridge.warm-wait"),
				Memory:      int64(s.Number("bridge.warm-memory-mb")) << 20,
			},
		},
	}
	if strings.EqualFold(cfg.FallbackModel, "none") {
		cfg.FallbackModel = ""
	}
	if s.Switch("bridge.warm-ahead") {
		if dir, err := workingDirectory(""); err == nil {
			cfg.AheadDir = dir
		}
	}
	return cfg
}

// For returns the configuration of a bridge that asks the agent with a name only.
func (c Config) For(name string) (Config, error) {
	for _, a := range append([]Asked{c.Asked}, c.Others...) {
		if a.Agent.Name == name {
			c.Asked, c.Others = a, nil
			return c, nil
		}
	}
	return c, fmt.Errorf("there is no agent %q that can be asked", name)
}

// PoolSettings returns the settings that a pool takes when it starts, by the names of
// their variables.
func (c Config) PoolSettings() map[string]string {
	warm, own := c.Runner.Warm, c.Agent.VarPrefix
	milliseconds := func(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }
	return map[string]string{
		own + "IDLE_TIMEOUT_MS": milliseconds(c.Runner.IdleTimeout),
		own + "WARM_PROCESSES":  strconv.Itoa(warm.Processes),
		own + "WARM_IDLE_MS":    milliseconds(warm.IdleTimeout),
		own + "WARM_WAIT_MS":    milliseconds(warm.WaitTimeout),
		own + "WARM_MEMORY_MB":  strconv.FormatInt(warm.Memory>>20, 10),
		"POLLUX_WALL":           c.Runner.Wall.Mode,
		"POLLUX_POOL_IDLE_MS":   milliseconds(c.PoolIdleTimeout),
	}
}
