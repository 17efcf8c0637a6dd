package sock

import (
	"context"
	"errors"
	"io"
	"net"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"pollux/internal/sys/systest"
)

// A scripted listener returns one error after the other; nil is a connection.
type scripted struct {
	net.Listener
	errs []error
}

func (l *scripted) Accept() (net.Conn, error) {
	err := l.errs[0]
	l.errs = l.errs[1:]
	return nil, err
}

// Accept continues after errors, with growing delays, until the listener is closed.
func TestAccept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		full := errors.New("too many open files")
		l := &scripted{errs: []error{full, full, full, nil, full, nil, net.ErrClosed}}
		var at []time.Duration
		start := time.Now()
		Accept(l, func(net.Conn) { at = append(at, time.Since(start)) })
		if len(at) != 2 || at[0] != 35*time.Millisecond || at[1] != 40*time.Millisecond {
			t.Errorf("connections were served at %v", at)
		}

		for range 100 {
			l.errs = append(l.errs, full)
		}
		l.errs = append(l.errs, net.ErrClosed)
		start = time.Now()
		Accept(l, nil)
		if took := time.Since(start); took < 90*time.Second || took > 100*maxAcceptDelay {
			t.Errorf("100 errors took %v", took)
		}
	})
}

// The end of the context ends the connections, and ServeConns waits for them.
func TestServeConns(t *testing.T) {
	path := filepath.Join(systest.ShortDir(t), "s")
	l, err := Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	reading, served, ended := make(chan bool), make(chan bool), make(chan bool)
	go func() {
		defer close(ended)
		ServeConns(ctx, l, func(conn net.Conn) {
			close(reading)
			io.Copy(io.Discard, conn) // until the connection is closed
			served <- true
		})
	}()
	conn, err := dialSocket(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	<-reading
	cancel()
	select {
	case <-served:
	case <-ended:
		t.Error("ServeConns did not wait")
	}
	<-ended
	if _, err := dialSocket(t.Context(), path); err == nil {
		t.Error("the listener is still open")
	}
}
