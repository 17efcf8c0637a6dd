// Package checks contains doctor's checks of the pool.
package checks

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"time"

	"pollux/internal/agent/shared"
	"pollux/internal/doctor"
	"pollux/internal/sys/shell"
	"pollux/internal/sys/sock"
)

// name is the name of the check.
const name = "pool"

// alone describes the effect of a missing pool. No call fails.
const alone = "each bridge runs processes of its own: "

// startTimeout limits the start of a pool, and its end.
const startTimeout = 20 * time.Second

// A Pool is the pool that bridges which start in this environment use.
type Pool struct {
	// Err is why a bridge does not start in this environment, or nil.
	Err error
	// Off reports whether a setting turns the pool off. OffLine is the line of the file
	// that does; empty if the environment does.
	Off     bool
	OffLine string
	// Socket returns the path of a pool's socket.
	Socket func() (string, error)
	// Connect connects to the pool, and starts one if necessary.
	Connect func(context.Context) (io.ReadWriteCloser, error)
	// Settings are those that a pool takes from this environment.
	Settings map[string]string
}

// Check examines the running pools. If this environment has none, it starts one and ends
// it again.
func (p *Pool) Check(ctx context.Context, c *doctor.Checker) {
	if p.Err != nil {
		c.Fail("variables", "", "a bridge does not start here: %s", doctor.Short(p.Err.Error()))
		return
	}
	if p.Off {
		next, text := shell.UnsetCommand("POLLUX_POOL"), "POLLUX_POOL=off: bridges that are started here share no processes"
		if p.OffLine != "" {
			next, text = "remove pool.enabled", "bridges that are started here share no processes: pool.enabled is false in "+p.OffLine
		}
		c.Add(doctor.Finding{Check: name, Status: doctor.OK, Text: text, Next: next + " to share them", Rule: "the pool is turned off"})
		return
	}
	if c.Failed("disk") {
		return
	}
	var running []shared.Status
	var unreachable []*shared.UnreachableError
	own, err := p.Socket()
	if err == nil {
		running, unreachable, err = shared.List(ctx)
	}
	if err != nil {
		c.Warn(name, "set POLLUX_RUNTIME_DIR to a short path of a directory you own", alone+"%s", doctor.Reason(err))
		return
	}
	found := false
	for _, s := range running {
		if s.Socket == own {
			found = true
			p.checkRunning(c, s)
		} else {
			reportOther(c, s.PID, s.Version)
		}
	}
	for _, u := range unreachable {
		found = found || u.Socket == own
		reportUnreachable(c, u)
	}
	if !found {
		p.start(ctx, c, own)
	}
}

// checkRunning examines the pool that bridges which start here use.
func (p *Pool) checkRunning(c *doctor.Checker, s shared.Status) {
	var other []string
	for _, variable := range slices.Sorted(maps.Keys(p.Settings)) {
		if value, ok := s.Settings[variable]; ok && value != p.Settings[variable] {
			other = append(other, fmt.Sprintf("%s is %s there and %s here", variable, value, p.Settings[variable]))
		}
	}
	if len(other) > 0 {
		c.Warn(name, "run `pollux pool stop`; the next bridge starts a pool with its own settings",
			"the pool (process %d) was started with other settings: %s", s.PID, doctor.Short(strings.Join(other, ", ")))
		return
	}
	c.OK(name, "the pool (process %d) answers: %d sessions, %d agents", s.PID, len(s.Sessions), len(s.Workers))
}

// reportOther reports a pool that bridges which start here do not use.
func reportOther(c *doctor.Checker, pid int, version string) {
	c.Add(doctor.Finding{
		Check: name, Status: doctor.OK, Next: "run `pollux pool stop`, or restart the MCP clients that still use it",
		Text: fmt.Sprintf("another build of Pollux (%s) has a pool (process %d) too; it ends when it is idle", doctor.Short(version), pid),
	})
}

// reportUnreachable reports a pool that runs, but cannot be asked.
func reportUnreachable(c *doctor.Checker, u *shared.UnreachableError) {
	if !errors.Is(u, shared.ErrSilent) {
		c.Warn(name, "wait until it ends, or end it yourself", "%s", doctor.Short(u.Error()))
		return
	}
	pool, next := "the pool at "+u.Socket, "end the process that serves it"
	if u.PID != 0 {
		pool = fmt.Sprintf("the pool (process %d)", u.PID)
		next = shell.ResumeOrKill(u.PID)
	}
	c.Warn(name, next, "%s does not answer: the next call replaces it after some seconds, but its agents keep running until it ends", pool)
}

// start starts a pool as a bridge does, and ends it if no bridge uses it.
func (p *Pool) start(ctx context.Context, c *doctor.Checker, socket string) {
	if is, err := sock.IsSocket(socket); err == nil && is {
		c.OK(name, "a pool that was killed has left its socket %s; the next pool replaces it", socket)
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	began := time.Now()
	conn, err := p.Connect(ctx)
	if err != nil {
		next := "run `pollux pool` in a terminal to see more"
		if errors.Is(err, fs.ErrNotExist) {
			next = "Pollux has been moved or removed: install it again and restart the MCP clients"
		}
		c.Warn(name, next, alone+"%s", doctor.Short(err.Error()))
		return
	}
	took := time.Since(began)
	conn.Close()
	s, err := shared.AskStatus(ctx, socket)
	if err == nil && len(s.Sessions) == 0 {
		err = shared.Stop(ctx, s, false)
	}
	if err != nil {
		c.Warn(name, "run `pollux pool stop`", "the pool that doctor has started does not end: %s", doctor.Short(err.Error()))
		return
	}
	c.OK(name, "a pool was ready in %.1f s", took.Seconds())
}
