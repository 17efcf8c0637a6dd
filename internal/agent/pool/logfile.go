package pool

import (
	"io"
	"os"
	"path"
	"path/filepath"
	"sync"
	"time"
)

const (
	// logInterval is how often the logs of a process are read during a request.
	logInterval = 100 * time.Millisecond
	// maxLog is the size in bytes at which a log is emptied.
	maxLog = 1 << 20
)

// logs are the files of [agent.Command.Logs], or nil for a command without any.
type logs struct {
	dir, pattern string
	// noter returns a function that is called with each part of the log with a name.
	noter func(name string) func([]byte)

	mu   sync.Mutex
	all  map[string]*logFile // by name
	part []byte
}

// A logFile is one of them.
type logFile struct {
	note func([]byte)
	size int64 // of what was read
}

// newLogs returns the logs that match a pattern.
func newLogs(pattern string, noter func(name string) func([]byte)) *logs {
	if pattern == "" {
		return nil
	}
	dir, last := filepath.Split(pattern)
	return &logs{dir: dir, pattern: last, noter: noter, all: make(map[string]*logFile), part: make([]byte, 32<<10)}
}

// read reads what the agent has written since the last call. It empties a large log. What the
// agent writes in between is lost.
func (l *logs) read() {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	entries, _ := os.ReadDir(l.dir) // the agent may not have made it yet
	for _, e := range entries {
		if matches, _ := path.Match(l.pattern, e.Name()); matches {
			l.readFile(e.Name())
		}
	}
}

func (l *logs) readFile(name string) {
	log := l.all[name]
	if log == nil {
		log = &logFile{note: l.noter(name)}
		l.all[name] = log
	}
	file := filepath.Join(l.dir, name)
	if info, err := os.Stat(file); err != nil || info.Size() == log.size {
		return
	}
	f, err := os.OpenFile(file, os.O_RDWR, 0)
	if err != nil {
		return
	}
	defer f.Close()
	for {
		n, err := f.ReadAt(l.part, log.size)
		log.size += int64(n)
		if n > 0 {
			log.note(l.part[:n])
		}
		if err != nil {
			if err != io.EOF {
				return
			}
			break
		}
	}
	if log.size > maxLog && f.Truncate(0) == nil {
		log.size = 0
	}
}
