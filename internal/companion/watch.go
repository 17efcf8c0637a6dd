package companion

import (
	"context"
	"io/fs"
	"os"
	"sync"
	"time"

	"pollux/internal/outbox"
	"pollux/internal/sys/disk"
)

// A watcher notices when another program writes files that the editors have
// open, such as an agent whose change was accepted or that no longer asks. It
// polls, which works on every file system. While no agent is connected it does
// nothing. It holds no lock while it looks at a file.
type watcher struct {
	open    func() []string
	changed func(path string, now fileState)
	states  prober[fileState]
	wake    outbox.Signal
	cancel  context.CancelFunc
	work    sync.WaitGroup

	mu     sync.Mutex
	on     bool
	urgent map[string]time.Time // files that an agent is about to write, and until when that is likely
	known  map[string]fileState
}

// A fileState identifies a state of a file.
type fileState struct {
	exists       bool
	size         int64
	modified, at int64
	id           uint64
}

func newFileState(info fs.FileInfo) fileState {
	at, id := disk.Stamp(info)
	return fileState{true, info.Size(), info.ModTime().UnixNano(), at, id}
}

func stateOf(path string) fileState {
	info, err := os.Stat(path)
	if err != nil {
		return fileState{}
	}
	return newFileState(info)
}

const (
	lookInterval     = time.Second           // at open files
	lookSoonInterval = 25 * time.Millisecond // at files that an agent is about to write
	urgentTimeout    = 5 * time.Second
)

func newWatcher(open func() []string, state func(path string) fileState, changed func(string, fileState)) *watcher {
	ctx, cancel := context.WithCancel(context.Background())
	w := &watcher{
		open: open, changed: changed, wake: outbox.NewSignal(), cancel: cancel,
		states: prober[fileState]{ask: state},
		urgent: make(map[string]time.Time), known: make(map[string]fileState),
	}
	w.work.Go(func() { w.run(ctx) })
	return w
}

// look turns the watching of open files on or off.
func (w *watcher) look(on bool) {
	w.mu.Lock()
	changed := w.on != on
	w.on = on
	w.mu.Unlock()
	if changed {
		w.wake.Set()
	}
}

// soon announces that a file is about to be written. now is its state. A change before that
// is still reported.
func (w *watcher) soon(path string, now fileState) {
	w.mu.Lock()
	w.urgent[path] = time.Now().Add(urgentTimeout)
	if _, seen := w.known[path]; !seen {
		w.known[path] = now
	}
	w.mu.Unlock()
	w.wake.Set()
}

func (w *watcher) close() {
	w.cancel()
	w.work.Wait()
}

func (w *watcher) run(ctx context.Context) {
	unsettled := make(map[string]fileState) // seen once as they are now
	var looked time.Time
	for {
		w.mu.Lock()
		on, hurry := w.on, len(w.urgent) > 0 || len(unsettled) > 0
		w.mu.Unlock()
		var tick <-chan time.Time
		switch {
		case hurry:
			tick = time.After(lookSoonInterval)
		case on:
			tick = time.After(lookInterval)
		}
		select {
		case <-tick:
		case <-w.wake:
			continue
		case <-ctx.Done():
			return
		}
		var open []string
		if on && time.Since(looked) >= lookInterval {
			open, looked = append([]string{}, w.open()...), time.Now()
		}
		for path, now := range w.step(open, unsettled) {
			w.changed(path, now)
		}
	}
}

// step looks at the files once and returns those that have changed, with their states. A
// file has changed when it looks the same twice and differs from what it was: a reader in
// the middle of a write would get half of it.
func (w *watcher) step(open []string, unsettled map[string]fileState) map[string]fileState {
	changed := make(map[string]fileState)
	states := make(map[string]fileState)
	left := newBudget()
	for path := range w.due(open, unsettled) {
		if state, ok := w.states.get(path, left); ok {
			states[path] = state
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for p, state := range states {
		was, seen := w.known[p]
		before, waits := unsettled[p]
		switch {
		case !seen:
			w.known[p] = state
		case state == was:
			delete(unsettled, p)
		case waits && before == state:
			delete(unsettled, p)
			w.known[p] = state
			changed[p] = state
		default:
			unsettled[p] = state
		}
	}
	return changed
}

// due returns the paths to look at now. If open is not nil, it forgets those that were closed.
func (w *watcher) due(open []string, unsettled map[string]fileState) map[string]bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	paths := make(map[string]bool)
	for _, p := range open {
		paths[p] = true
	}
	if open != nil {
		for p := range w.known {
			if _, urgent := w.urgent[p]; !paths[p] && !urgent {
				delete(w.known, p)
				delete(unsettled, p)
			}
		}
	}
	now := time.Now()
	for p, until := range w.urgent {
		paths[p] = true
		if now.After(until) {
			delete(w.urgent, p)
		}
	}
	for p := range unsettled {
		paths[p] = true
	}
	return paths
}
