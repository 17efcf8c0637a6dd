package editor

import (
	"context"
	"testing"
	"testing/synctest"
)

// The queue of a client that does not read is limited, in messages and in bytes.
// A client that reads receives messages of any size.
func TestOutbox(t *testing.T) {
	for name, tt := range map[string]struct {
		size, n int
		full    bool
	}{
		"many":             {0, maxOutbox, false},
		"too many":         {0, maxOutbox + 1, true},
		"one large":        {10 * maxOutboxSize, 1, false},
		"after one large":  {10 * maxOutboxSize, 2, true},
		"large in all":     {maxOutboxSize / 4, 5, false},
		"too large in all": {maxOutboxSize / 4, 6, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				full, written, reads := 0, 0, make(chan struct{})
				o := NewOutbox(func() { full++ })
				o.Put(0, func(context.Context) { <-reads })
				synctest.Wait() // it is being written
				for range tt.n {
					o.Put(tt.size, func(context.Context) { written++ })
				}
				synctest.Wait()
				close(reads)
				synctest.Wait()
				o.Close()
				if tt.full && (full != 1 || written > 0) || !tt.full && (full > 0 || written != tt.n) {
					t.Errorf("full %d times, %d of %d written", full, written, tt.n)
				}
			})
		})
	}
	synctest.Test(t, func(t *testing.T) { // a client that reads
		o := NewOutbox(func() { t.Error("full") })
		defer o.Close()
		for range 2 * maxOutbox {
			o.Put(10*maxOutboxSize, func(context.Context) {})
			synctest.Wait()
		}
	})
}
