package pool

import (
	"os"
	"sync"
	"time"
)

const (
	// logInterval is how often a log file is read.
	logInterval = 100 * time.Millisecond
	// maxLog is the size in bytes at which a log file is emptied.
	maxLog = 1 << 20
)

// A logFile is the file of [agent.Command.Log], or nil for a command without one.
type logFile struct {
	note func([]byte) // called with each part that was read

	mu   sync.Mutex
	f    *os.File
	buf  []byte
	size int64 // of what was read
}

// createLog creates the file, so that the agent appends to it.
func createLog(path string, note func([]byte)) (*logFile, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	return &logFile{note: note, f: f, buf: make([]byte, 32<<10)}, nil
}

// follow reads the file until done is closed, and then closes it.
func (l *logFile) follow(done <-chan struct{}) {
	defer l.close()
	tick := time.NewTicker(logInterval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			l.read()
		case <-done:
			l.read()
			return
		}
	}
}

func (l *logFile) close() {
	if l != nil {
		l.f.Close()
	}
}

// read reads what the agent has written. If the file is large, it then empties it. What
// the agent writes in between is lost.
func (l *logFile) read() {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for {
		n, err := l.f.Read(l.buf)
		l.size += int64(n)
		if n > 0 {
			l.note(l.buf[:n])
		}
		if err != nil || n == 0 {
			break
		}
	}
	if l.size > maxLog && l.f.Truncate(0) == nil {
		l.f.Seek(0, 0)
		l.size = 0
	}
}
