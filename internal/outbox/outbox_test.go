package outbox

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pollux/internal/sys/systest"
)

func TestMain(m *testing.M) { systest.VerifyTestMain(m) }

func TestSignal(t *testing.T) {
	s := NewSignal()
	s.Set()
	s.Set()
	<-s
	select {
	case <-s:
		t.Error("two signals that nobody took are two")
	default:
	}
}

func TestEvery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		s, began := NewSignal(), time.Now()
		time.AfterFunc(300*time.Millisecond, s.Set)
		time.AfterFunc(2500*time.Millisecond, cancel)
		var calls []time.Duration
		s.Every(ctx, time.Second, func() { calls = append(calls, time.Since(began)) })
		if want := []time.Duration{300 * time.Millisecond, time.Second, 2 * time.Second}; !slices.Equal(calls, want) {
			t.Errorf("called after %v, want %v", calls, want)
		}
	})
}

func TestQueue(t *testing.T) {
	q := NewQueue(Limits[string]{Items: 3, Bytes: 10, Size: func(s string) int { return len(s) }})
	for _, test := range []struct {
		value string
		fits  bool
	}{
		{"a", true}, {"much more than ten bytes", true}, {"b", false},
	} {
		if got := q.Put(test.value); got != test.fits {
			t.Errorf("Put(%s) = %v", test.value, got)
		}
	}
	<-q.Ready()
	if v, ok := q.Take(); v != "a" || !ok {
		t.Errorf("Take = %q, %v", v, ok)
	}
	q.PutLatest("c") // the large one goes
	q.PutLatest("d")
	q.PutLatest("e")
	q.PutLatest("f")
	if got := q.TakeAll(); !slices.Equal(got, []string{"d", "e", "f"}) {
		t.Errorf("TakeAll = %q", got)
	}
	if v, ok := q.Take(); ok {
		t.Errorf("an empty queue gave %q", v)
	}
	if !q.Put("g") {
		t.Error("an empty queue is full")
	}
}

func TestOrder(t *testing.T) {
	var got []int
	o := New(Limits[int]{}, func(_ context.Context, v int) { got = append(got, v) }, nil)
	var want []int
	for i := range 10_000 {
		want = append(want, i)
		if !o.Put(i) {
			t.Fatal("an outbox without limits is full")
		}
	}
	if err := o.Drain(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(got, want) {
		t.Error("the values came in another order")
	}
	o.Close()
}

// Many goroutines put, drain and close at the same time.
func TestConcurrentUse(t *testing.T) {
	written := 0
	o := New(Limits[int]{}, func(context.Context, int) { written++ }, nil)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for i := range 200 {
				o.Put(i)
			}
			o.Drain(t.Context())
		})
	}
	all.Wait()
	all.Go(o.Close)
	all.Go(o.Close)
	all.Wait()
	if written != 1600 {
		t.Errorf("%d of 1600 values were written", written)
	}
}

func TestFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		free, calls := make(chan struct{}), 0
		var o *Outbox[int]
		o = New(Limits[int]{Items: 2}, func(context.Context, int) { <-free }, func() { calls++; o.Close() })
		o.Put(0)
		synctest.Wait() // it is being written
		drained := make(chan error, 1)
		if !o.Put(1) {
			t.Error("one value is too much")
		}
		go func() { drained <- o.Drain(t.Context()) }()
		synctest.Wait()
		for range 3 {
			o.Put(2)
		}
		if o.Put(3) {
			t.Error("a full outbox takes a value")
		}
		if err := <-drained; !errors.Is(err, ErrEnded) {
			t.Errorf("Drain of a full outbox: %v", err)
		}
		close(free)
		synctest.Wait()
		if calls != 1 {
			t.Errorf("full was called %d times", calls)
		}
		if err := o.Drain(t.Context()); !errors.Is(err, ErrEnded) {
			t.Errorf("Drain after Close: %v", err)
		}
	})
}

// Close waits for the write under way, whose context ends.
func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ended, values := false, 0
		o := New(Limits[int]{}, func(ctx context.Context, _ int) {
			values++
			<-ctx.Done()
			time.Sleep(time.Second)
			ended = true
		}, nil)
		o.Put(1)
		o.Put(2)
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := o.Drain(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Drain: %v", err)
		}
		o.Close()
		if !ended || values != 1 {
			t.Errorf("the write under way has ended: %v; %d values were written", ended, values)
		}
		if o.Put(3) {
			t.Error("a closed outbox takes a value")
		}
	})
}

// CloseWithin leaves a write that does not end.
func TestCloseWithin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		free := make(chan struct{})
		o := New(Limits[int]{}, func(context.Context, int) { <-free }, nil)
		o.Put(1)
		synctest.Wait()
		start := time.Now()
		o.CloseWithin(time.Minute)
		if waited := time.Since(start); waited != time.Minute {
			t.Errorf("it waited for %v", waited)
		}
		close(free)
		start = time.Now()
		o.CloseWithin(time.Minute)
		if time.Since(start) > 0 {
			t.Error("it waited for a goroutine that had ended")
		}
	})
}
