package cli

import (
	"testing"
	"testing/synctest"
)

// The user reads each time that an agent has lost its companion on another host: after the first
// time the agent may have connected again. A companion that ends is one loss.
func TestNoticeLosses(t *testing.T) {
	for name, tt := range map[string]struct {
		losses int
		gone   bool
		want   int
	}{
		"twice": {2, false, 2}, "the companion ended": {1, true, 1}, "it ended before the agent connected": {0, true, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				gone, lost := make(chan struct{}), make(chan struct{}, 1)
				said := 0
				stop := noticeLosses(published{gone: gone, lost: lost}, func() { said++ })
				defer stop()
				for range tt.losses {
					lost <- struct{}{}
					synctest.Wait()
				}
				if tt.gone {
					close(gone)
				}
				synctest.Wait()
				if said != tt.want {
					t.Errorf("said %d times, want %d", said, tt.want)
				}
			})
		})
	}
}
