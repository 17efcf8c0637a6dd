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
// open, such as an agent that writes an accepted change or does not ask. It
// polls, which works on every file system. While no agent is connected it does
// nothing. It holds no lock while it looks at a file.
type watcher struct {
	open    func() []string
	changed func(path string, now fileState)
	states  prober[fileState]
	wake    outbox.Signal
	cancel  context.CancelFunc
	work    sync.WaitGroup

	mu    sync.Mutex
	on    bool
	files map[string]*watched
}

// A watched is a file as the watcher knows it.
type watched struct {
	known  *fileState // the last state that counts; nil before the first look
	next   *fileState // another state, seen once; nil without one
	urgent time.Time  // until when an agent is likely to write the file
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
		states: prober[fileState]{ask: state}, files: make(map[string]*watched),
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
	f := w.fileLocked(path)
	f.urgent = time.Now().Add(urgentTimeout)
	if f.known == nil {
		f.known = &now
	}
	w.mu.Unlock()
	w.wake.Set()
}

func (w *watcher) fileLocked(path string) *watched {
	f := w.files[path]
	if f == nil {
		f = &watched{}
		w.files[path] = f
	}
	return f
}

func (w *watcher) close() {
	w.cancel()
	w.work.Wait()
}

func (w *watcher) run(ctx context.Context) {
	var looked time.Time
	for {
		hurry := false
		w.mu.Lock()
		on := w.on
		for _, f := range w.files {
			hurry = hurry || f.soon()
		}
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
		left := newBudget()
		for _, path := range w.due(open) {
			if now, ok := w.states.get(path, left); ok && w.sees(path, now) {
				w.changed(path, now)
			}
		}
	}
}

// soon reports whether the file is looked at often.
func (f *watched) soon() bool { return f.next != nil || time.Now().Before(f.urgent) }

// due returns the files to look at now. If open is not nil, it forgets those that were closed.
func (w *watcher) due(open []string) (paths []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	isOpen := make(map[string]bool)
	for _, path := range open {
		isOpen[path] = true
		w.fileLocked(path)
	}
	for path, f := range w.files {
		switch {
		case isOpen[path] || f.soon():
			paths = append(paths, path)
		case open != nil:
			delete(w.files, path)
		}
	}
	return paths
}

// sees notes the state of a file, and reports whether the file has changed: it looks the same
// twice and differs from what it was. A reader in the middle of a write would get half of it.
func (w *watcher) sees(path string, now fileState) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	f := w.fileLocked(path)
	switch {
	case f.known == nil:
		f.known = &now
	case now == *f.known:
		f.next = nil
	case f.next != nil && now == *f.next:
		f.known, f.next = &now, nil
		return true
	default:
		f.next = &now
	}
	return false
}
