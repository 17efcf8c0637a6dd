package jsonrpc

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"testing"
)

// The other side answered and ended the connection before the call had noticed that it was
// written. The answer was lost.
func TestAnswerBeforeTheEnd(t *testing.T) {
	for range 2000 {
		ours, theirs := net.Pipe()
		go func() {
			defer theirs.Close()
			bufio.NewReader(theirs).ReadString('\n')
			fmt.Fprintf(theirs, `{"jsonrpc":"2.0","id":%d,"result":{}}`+"\n", firstID+1)
		}()
		c := NewConn(t.Context(), Lines(ours, ours, 1<<10), nil)
		if err := c.Call(t.Context(), "stop", nil, nil); err != nil {
			t.Fatal(err)
		}
		c.Close()
	}
}

// A call failed before the connection counted as ended, so that its caller used the connection
// again.
func TestEndBeforeTheCallFails(t *testing.T) {
	for range 2000 {
		ours, theirs := net.Pipe()
		go bufio.NewReader(theirs).ReadString('\n')
		c := NewConn(t.Context(), Lines(ours, ours, 1<<10), nil)
		call, err := c.Start("stop", nil)
		if err != nil {
			t.Fatal(err)
		}
		go c.Close()
		call.Wait(t.Context(), nil)
		select {
		case <-c.DisconnectNotify():
		default:
			t.Fatal("the call has failed, but the connection has not ended")
		}
		if _, err := c.Start("stop", nil); !errors.Is(err, ErrClosed) {
			t.Fatalf("a call after the end: %v", err)
		}
	}
}
