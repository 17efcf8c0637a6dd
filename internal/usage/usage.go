// Package usage counts calls: how many there were, how long they took, how many
// tokens they used and how they ended, per day, agent and model. It keeps nothing
// of a prompt, a path or an answer.
//
// A [Recorder] appends one line per call to a file per month. Several processes can
// do so at the same time, and nothing has to be merged. [Read] adds the lines up.
package usage

import (
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"pollux/internal/agent"
	"pollux/internal/lazy"
	"pollux/internal/outbox"
	"pollux/internal/sys/disk"
)

const (
	// MaxDays is how many days of calls are kept at least.
	MaxDays = 400
	// maxFiles is the number of files that cover MaxDays, one for each month.
	maxFiles = 15
	// maxLine limits a line, in bytes, so that a write is atomic.
	maxLine = 4 << 10
	// maxName limits the name of an agent, a model or an error, in bytes.
	maxName = 200
	// maxWaiting limits the calls that wait to be written.
	maxWaiting = 1000
	// closeTimeout limits how long Close waits for a disk that does not answer.
	closeTimeout = time.Second
)

// Dir returns the directory for the files.
func Dir() (string, error) {
	dir, err := disk.StateDir()
	return filepath.Join(dir, "usage"), err
}

// A line is a call in a file. The local day of the call is the date in Start.
type line struct {
	Version    int       `json:"v"`
	Start      time.Time `json:"start"`
	Agent      string    `json:"agent"`
	Model      string    `json:"model,omitempty"`
	DurationMs int64     `json:"durationMs"`
	QueuedMs   int64     `json:"queuedMs,omitempty"`
	Input      int64     `json:"input,omitempty"`
	Output     int64     `json:"output,omitempty"`
	Cached     int64     `json:"cached,omitempty"`
	Fallback   bool      `json:"fallback,omitempty"`
	Error      string    `json:"error,omitempty"`
	NotAsked   bool      `json:"notAsked,omitempty"`
}

const lineVersion = 1

// encode returns the line of a call, with its line feed.
func encode(c agent.Usage) ([]byte, error) {
	data, err := json.Marshal(line{
		Version: lineVersion, Start: c.Start.Truncate(time.Second),
		Agent: shorten(c.Agent), Model: shorten(c.Model), Error: shorten(c.Error), Fallback: c.Fallback, NotAsked: c.NotAsked,
		DurationMs: c.Duration.Milliseconds(), QueuedMs: c.Queued.Milliseconds(),
		Input: int64(c.Tokens.Input), Output: int64(c.Tokens.Output), Cached: int64(c.Tokens.Cached),
	})
	return append(data, '\n'), err
}

// shorten returns at most maxName bytes of a name.
func shorten(name string) string { return strings.ToValidUTF8(name[:min(len(name), maxName)], "") }

// decode returns the call in a line. It reports false for a line that Pollux did
// not write, or did not write completely.
func decode(data []byte) (line, bool) {
	var l line
	if json.Unmarshal(data, &l) != nil || l.Version != lineVersion {
		return line{}, false
	}
	for _, n := range []int64{l.DurationMs, l.QueuedMs, l.Input, l.Output, l.Cached} {
		if n < 0 || n > maxCount {
			return line{}, false
		}
	}
	for _, name := range []string{l.Agent, l.Model, l.Error} {
		if len(name) > maxName {
			return line{}, false
		}
	}
	return l, l.Agent != "" && l.Start.Year() >= 2000 && l.Start.Year() < 10_000
}

// maxCount is more than a call uses, and so little that sums do not overflow.
const maxCount = 1 << 40

// A Recorder appends calls to the files in a directory. Its methods may be called
// from several goroutines.
type Recorder struct {
	dir     string
	log     *slog.Logger
	calls   *outbox.Outbox[agent.Usage]
	warning sync.Once
}

// NewRecorder returns a recorder for a directory, which the first call creates.
func NewRecorder(dir string, log *slog.Logger) *Recorder {
	r := &Recorder{dir: dir, log: log}
	r.calls = outbox.New(outbox.Limits[agent.Usage]{Items: maxWaiting}, r.write, r.warn)
	return r
}

// Record records a call. It never blocks.
func (r *Recorder) Record(c agent.Usage) { r.calls.Put(c) }

// Close writes the calls that wait. It stops waiting for a disk that does not
// answer.
func (r *Recorder) Close() {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	if r.calls.Drain(ctx) != nil {
		r.warn()
		r.calls.CloseWithin(0)
		return
	}
	r.calls.Close()
}

func (r *Recorder) write(_ context.Context, c agent.Usage) {
	if err := r.append(c); err != nil {
		r.log.Debug("cannot record a call", "err", err)
		r.warn()
	}
}

// warn reports once that calls are not recorded.
func (r *Recorder) warn() {
	r.warning.Do(func() {
		r.log.Warn("`pollux usage` misses calls: check that the state directory can be written and has free space")
	})
}

// append appends a call to the file of its month.
func (r *Recorder) append(c agent.Usage) error {
	data, err := encode(c)
	if err != nil {
		return err
	}
	if err := disk.PrivateDir(r.dir); err != nil {
		return err
	}
	path := filepath.Join(r.dir, month(c.Start))
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_RDWR|disk.NonBlock, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		return err
	case !info.Mode().IsRegular():
		return disk.ErrNotRegular
	case info.Size() == 0:
		prune(r.dir)
	case torn(f, info.Size()):
		data = append([]byte{'\n'}, data...)
	}
	_, err = f.Write(data)
	return err
}

// torn reports whether the last line of a file is incomplete, because the disk
// was full or the process was killed.
func torn(f *os.File, size int64) bool {
	last := make([]byte, 1)
	_, err := f.ReadAt(last, size-1)
	return err == nil && last[0] != '\n'
}

// month returns the name of the file for calls at that time.
func month(t time.Time) string { return t.Format("2006-01") + ".jsonl" }

var monthName = lazy.Regexp(`^\d{4}-\d{2}\.jsonl$`)

// months returns the names of all files, the oldest first.
func months(dir string) ([]string, error) {
	entries, err := disk.ReadDir(dir)
	var names []string
	for _, e := range entries {
		if monthName().MatchString(e.Name()) {
			names = append(names, e.Name())
		}
	}
	slices.Sort(names)
	return names, err
}

// prune deletes the oldest files. It counts files instead of comparing dates, so
// that a wrong clock deletes nothing.
func prune(dir string) {
	names, err := months(dir)
	if err != nil {
		return
	}
	for _, name := range names[:max(0, len(names)-maxFiles)] {
		os.Remove(filepath.Join(dir, name))
	}
}
