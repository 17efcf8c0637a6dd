package proc

import (
	"os"
	"os/exec"
	"slices"
	"sync"
	"time"
)

// A Streams is a set of a process's standard streams.
type Streams int

const (
	Stdin Streams = 1 << iota
	Stdout
	Stderr
)

// A PipedChild is a [Child] with pipes for some of its standard streams. The
// fields are this process's ends, nil for the other streams. The owner of
// the child closes them, or calls ClosePipes.
type PipedChild struct {
	*Child
	Stdin  *os.File // to write
	Stdout *os.File // to read
	Stderr *os.File // to read
}

// StartPiped starts the command as a [Child] with pipes for the streams. The
// command sets the other streams, as for [StartChild].
//
// A process that the child leaves behind can hold its end of a pipe open, so
// the end of the child does not end a read. Close the pipe for that.
func StartPiped(cmd *exec.Cmd, streams Streams) (*PipedChild, error) {
	c := &PipedChild{}
	var theirs []*os.File
	defer func() {
		for _, f := range theirs {
			f.Close()
		}
	}()
	for stream := Stdin; stream <= Stderr; stream <<= 1 {
		if streams&stream == 0 {
			continue
		}
		r, w, err := os.Pipe()
		if err != nil {
			c.ClosePipes()
			return nil, err
		}
		switch stream {
		case Stdin:
			cmd.Stdin, c.Stdin, theirs = r, w, append(theirs, r)
		case Stdout:
			cmd.Stdout, c.Stdout, theirs = w, r, append(theirs, w)
		case Stderr:
			cmd.Stderr, c.Stderr, theirs = w, r, append(theirs, w)
		}
	}
	var err error
	if c.Child, err = StartChild(cmd); err != nil {
		c.ClosePipes()
		return nil, err
	}
	return c, nil
}

// ClosePipes closes this process's ends.
func (c *PipedChild) ClosePipes() {
	for _, f := range []*os.File{c.Stdin, c.Stdout, c.Stderr} {
		if f != nil {
			f.Close()
		}
	}
}

// A Tail reads a pipe to its end, on a goroutine, and keeps the last bytes.
type Tail struct {
	pipe  *os.File
	limit int
	done  chan struct{}

	mu   sync.Mutex
	last []byte
}

// KeepTail starts a [Tail] of at most limit bytes. It owns the pipe.
func KeepTail(pipe *os.File, limit int) *Tail {
	t := &Tail{pipe: pipe, limit: limit, done: make(chan struct{})}
	go t.read()
	return t
}

func (t *Tail) read() {
	defer close(t.done)
	buf := make([]byte, 4096)
	for {
		n, err := t.pipe.Read(buf)
		t.mu.Lock()
		t.last = append(t.last, buf[:n]...)
		t.last = t.last[max(0, len(t.last)-t.limit):]
		t.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// Bytes returns a copy of the last bytes so far.
func (t *Tail) Bytes() []byte {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.last)
}

// Close waits for the end of the pipe, at most for the timeout, and closes it.
func (t *Tail) Close(timeout time.Duration) {
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case <-t.done:
	case <-timer.C:
	}
	t.pipe.Close()
	<-t.done
}
