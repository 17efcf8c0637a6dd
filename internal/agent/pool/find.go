package pool

import (
	"cmp"
	"context"
	"time"

	"pollux/internal/agent"
	"pollux/internal/sys/disk"
)

const (
	// versionInterval is the time before a program that did not print its
	// version is asked again.
	versionInterval = 30 * time.Second
	// maxLookups limits the sources whose program is remembered. At the limit, a new search forgets
	// all of them.
	maxLookups = 64
)

// A lookup is a search for the program that several requests share.
type lookup struct {
	file    string        // the state of its file
	asking  chan struct{} // closed when located is set, if the program is asked for its version
	located agent.Program
	done    chan struct{} // closed when the fields below are set
	program agent.Program
	err     error
	at      time.Time // when it ended
}

// Check implements [agent.Runner].
func (p *Pool) Check(ctx context.Context, from agent.Source) (agent.Program, error) {
	program, err := p.find(ctx, from)
	if err != nil {
		return program, err
	}
	if err := p.agent.ReadOnly(from, program); err != nil {
		return program, err
	}
	return program, p.wall.Check(p.agent)
}

// find returns the program of a source. It looks once for each state of the
// program's file. Asking a program for its version may take longer than the
// caller waits. The search then continues for the next caller.
func (p *Pool) find(ctx context.Context, from agent.Source) (agent.Program, error) {
	l := p.lookup(from)
	if l == nil {
		return p.agent.Find(ctx, from)
	}
	select {
	case <-l.done:
		return l.program, l.err
	case <-ctx.Done():
		return agent.Program{}, context.Cause(ctx)
	}
}

// asking returns the program of a source, without a version, if it is being asked for
// its version. [Pool.Check] then takes as long as a start of the program.
func (p *Pool) asking(ctx context.Context, from agent.Source) (program agent.Program, asking bool) {
	if l := p.lookup(from); l != nil {
		select {
		case <-l.done:
		case <-ctx.Done():
		case <-l.asking:
			return l.located, !isClosed(l.done)
		}
	}
	return agent.Program{}, false
}

// lookup returns the current search for the program of a source. It starts one if
// necessary. After Close it returns nil, for requests that are still being answered.
func (p *Pool) lookup(from agent.Source) *lookup {
	key, file := p.agent.SourceKey(from), p.fileKey(from)
	p.mu.Lock()
	defer p.mu.Unlock()
	l := p.lookups[key]
	due := l == nil || file == "" || l.file != file || l.stale()
	if due && p.closed {
		return nil
	}
	if due {
		if len(p.lookups) >= maxLookups {
			clear(p.lookups)
		}
		l = &lookup{file: file, asking: make(chan struct{}), done: make(chan struct{})}
		p.lookups[key] = l
		p.tasks.Go(func() { p.search(l, from) })
	}
	return l
}

// search does the work of a lookup.
func (p *Pool) search(l *lookup, from agent.Source) {
	defer close(l.done)
	l.program, l.err = p.agent.Locate(from)
	if l.err == nil && l.program.Version == "" {
		l.located = l.program
		close(l.asking)
		l.program, l.err = p.agent.AskVersion(p.ctx, from, l.located)
	}
	l.at = time.Now()
}

// stale reports whether a lookup has ended and must be repeated.
func (l *lookup) stale() bool {
	return isClosed(l.done) && (l.err != nil || l.program.Version == "" && time.Since(l.at) >= versionInterval)
}

// fileKey identifies the current state of the file of a source's program.
func (p *Pool) fileKey(from agent.Source) string {
	path, err := from.Env.LookPath(cmp.Or(from.Command, p.agent.Command))
	if err != nil {
		return ""
	}
	state := disk.StateOf(path)
	if state == "" {
		return ""
	}
	resolved, _ := disk.EvalSymlinks(path)
	return resolved + " " + state
}
