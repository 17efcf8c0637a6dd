package pool

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"pollux/internal/sys/proc"
)

const (
	// maxOutput limits the total output of a [agent.Driver.OneShot] process, which goes to the
	// disk.
	maxOutput = 256 << 20
	// readInterval is the time between two reads of the output. It is short
	// compared with the model's time, and long enough to cost nothing.
	readInterval = 10 * time.Millisecond
)

var (
	errNotStarted = errors.New("it cannot be started")
	errNoRoom     = errors.New("no room for a run")
)

// noRoom returns the error for files of a process that cannot be written.
func noRoom(err error, dir string) error {
	return fmt.Errorf("%w (%w): check the disk of %s", errNoRoom, err, dir)
}

// spawnOnce starts a process whose output goes to files in its directory. A pipe would lose the
// end of a long answer, because agents exit before their output has been read. Also, processes
// that an agent leaves behind would keep a pipe open.
func (w *process) spawnOnce(cmd *exec.Cmd) (spawned, error) {
	stdout, err := w.createOutput("stdout")
	if err != nil {
		return spawned{}, err
	}
	defer stdout.w.Close()
	stderr, err := w.createOutput("stderr")
	if err != nil {
		stdout.Close()
		return spawned{}, err
	}
	defer stderr.w.Close()
	cmd.Stdout, cmd.Stderr = stdout.w, stderr.w
	c, err := proc.StartPiped(cmd, proc.Stdin)
	if err != nil {
		stdout.Close()
		stderr.Close()
		return spawned{}, fmt.Errorf("%w: %w", errNotStarted, err)
	}
	stdout.ended, stderr.ended = c.Done(), c.Done()
	// Where open files can be removed, a killed process leaves nothing of the
	// answer on the disk.
	os.Remove(stdout.r.Name())
	os.Remove(stderr.r.Name())
	return spawned{c.Child, c.Stdin, stdout, stderr}, nil
}

// An output is a file that a process writes. Reads wait for more until the process has ended.
type output struct {
	process *process
	w, r    *os.File
	ended   <-chan struct{}
}

func (w *process) createOutput(name string) (o *output, err error) {
	o = &output{process: w}
	path := filepath.Join(w.temp, name)
	if o.w, err = os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY|os.O_APPEND, 0o600); err != nil {
		return nil, noRoom(err, filepath.Dir(w.temp))
	}
	if o.r, err = os.Open(path); err != nil {
		o.w.Close()
		return nil, noRoom(err, filepath.Dir(w.temp))
	}
	return o, nil
}

// Read implements [io.Reader]. It reads no more than the process may print.
func (o *output) Read(b []byte) (int, error) {
	for {
		ended := isClosed(o.ended)
		if o.process.floods() {
			return 0, io.EOF
		}
		n, err := o.r.Read(b)
		o.process.printed.Add(int64(n))
		if n > 0 || ended || err != io.EOF {
			return n, err
		}
		select {
		case <-o.ended:
		case <-time.After(readInterval):
		}
	}
}

// Close implements [io.Closer].
func (o *output) Close() error { return o.r.Close() }
