package companion

import (
	"testing"

	"pollux/internal/sys/systest"
)

func TestGroupMayGrowWhileSomebodyWaits(t *testing.T) {
	var g group
	first, second := make(chan bool), make(chan bool)
	g.start(func() {
		<-first
		g.start(func() { <-second })
	})
	waited := make(chan bool)
	go func() { g.wait(); close(waited) }()
	close(first)
	select {
	case <-waited:
		t.Error("wait returned while a goroutine ran")
	case second <- true:
	}
	systest.Receive(t, waited)
	g.wait()
}
