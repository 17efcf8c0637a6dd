package main

import (
	"container/heap"
	"time"
)

// A clock runs events in the order of their times. Its time has nothing to do
// with the machine's: it is counted from midnight and jumps from event to event.
type clock struct {
	now    time.Duration
	events events
	added  int
}

type event struct {
	at    time.Duration
	order int // decides between events of the same time
	do    func()
}

// at adds an event. The caller may stop it.
func (c *clock) at(t time.Duration, do func()) *event {
	e := &event{at: max(t, c.now), order: c.added, do: do}
	c.added++
	heap.Push(&c.events, e)
	return e
}

func (c *clock) after(d time.Duration, do func()) *event { return c.at(c.now+d, do) }

// run runs events until none is left.
func (c *clock) run() {
	for len(c.events) > 0 {
		e := heap.Pop(&c.events).(*event)
		if e.do != nil {
			c.now = e.at
			e.do()
		}
	}
}

// stop prevents an event. It accepts nil and events that have run.
func (e *event) stop() {
	if e != nil {
		e.do = nil
	}
}

type events []*event

func (h events) Len() int      { return len(h) }
func (h events) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h events) Less(i, j int) bool {
	return h[i].at < h[j].at || h[i].at == h[j].at && h[i].order < h[j].order
}
func (h *events) Push(e any) { *h = append(*h, e.(*event)) }
func (h *events) Pop() any {
	last := len(*h) - 1
	e := (*h)[last]
	*h = (*h)[:last]
	return e
}
