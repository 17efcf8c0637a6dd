package companion

import (
	"os"
	"sync"
	"time"

	"pollux/internal/sys"
)

// A watcher notices that files which the editors have open are written by
// somebody else: by a CLI, after its change was accepted or when it asks no
// longer. It looks instead of being told, which works on every file system; as
// long as no CLI is connected it does nothing.
type watcher struct {
	open    func() []string
	changed func(path string)
	wake    chan struct{} // capacity 1
	done    chan struct{}
	ended   chan struct{}

	mu     sync.Mutex
	on     bool
	urgent map[string]time.Time // files that a CLI is about to write, and until when that is likely
	known  map[string]fileState
}

// A fileState tells two states of a file apart.
type fileState struct {
	exists       bool
	size         int64
	modified, at int64
	id           uint64
}

func stateOf(path string) fileState {
	info, err := os.Stat(path)
	if err != nil {
		return fileState{}
	}
	at, id := sys.Stamp(info)
	return fileState{true, info.Size(), info.ModTime().UnixNano(), at, id}
}

const (
	lookEvery  = time.Second           // at what is open
	lookSoon   = 25 * time.Millisecond // at what a CLI is about to write
	urgentTime = 5 * time.Second
)

func newWatcher(open func() []string, changed func(string)) *watcher {
	w := &watcher{
		open: open, changed: changed, wake: make(chan struct{}, 1), done: make(chan struct{}), ended: make(chan struct{}),
		urgent: make(map[string]time.Time), known: make(map[string]fileState),
	}
	go w.run()
	return w
}

// look turns the watch over open files on or off.
func (w *watcher) look(on bool) {
	w.mu.Lock()
	changed := w.on != on
	w.on = on
	w.mu.Unlock()
	if changed {
		w.prod()
	}
}

// soon says that a file is about to be written.
func (w *watcher) soon(path string) {
	w.mu.Lock()
	w.urgent[path] = time.Now().Add(urgentTime)
	w.known[path] = stateOf(path)
	w.mu.Unlock()
	w.prod()
}

func (w *watcher) prod() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

func (w *watcher) close() {
	close(w.done)
	<-w.ended
}

func (w *watcher) run() {
	defer close(w.ended)
	unsettled := make(map[string]fileState) // seen once as they are now
	var looked time.Time
	for {
		w.mu.Lock()
		on, hurry := w.on, len(w.urgent) > 0 || len(unsettled) > 0
		w.mu.Unlock()
		var tick <-chan time.Time
		switch {
		case hurry:
			tick = time.After(lookSoon)
		case on:
			tick = time.After(lookEvery)
		}
		select {
		case <-tick:
		case <-w.wake:
			continue
		case <-w.done:
			return
		}
		var open []string
		if on && time.Since(looked) >= lookEvery {
			open, looked = w.open(), time.Now()
		}
		for _, path := range w.step(open, unsettled) {
			w.changed(path)
		}
	}
}

// step looks at the files once. A file has changed when it is twice the same,
// and not what it was: who reads it in the middle of a write gets half of it.
func (w *watcher) step(open []string, unsettled map[string]fileState) (changed []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	paths := make(map[string]bool)
	for _, p := range open {
		paths[p] = true
	}
	if len(open) > 0 {
		for p := range w.known {
			if _, urgent := w.urgent[p]; !paths[p] && !urgent {
				delete(w.known, p) // closed since
				delete(unsettled, p)
			}
		}
	}
	for p, until := range w.urgent {
		paths[p] = true
		if now.After(until) {
			delete(w.urgent, p)
		}
	}
	for p := range unsettled {
		paths[p] = true
	}
	for p := range paths {
		state := stateOf(p)
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
			changed = append(changed, p)
		default:
			unsettled[p] = state
		}
	}
	return changed
}
