package pool_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"pollux/internal/agent"
	"pollux/internal/agent/agenttest"
)

// sitSingle returns a bench with an agent whose processes hold one conversation each.
func sitSingle(t *testing.T, processes int) *agenttest.Bench {
	t.Helper()
	return claudeDouble.sit(t, agent.Warmed, claudeDouble.version, func(o *agent.Options) { o.Warm.Processes = processes })
}

// Questions at the same time go to separate processes. If all are busy, a process is started
// for the request.
func TestSingleInParallel(t *testing.T) {
	s := sitSingle(t, 2)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for n := range 2 {
		wg.Go(func() { s.Ask(ctx, agent.Request{Prompt: "fake:hang"}) })
		s.Until("a busy process", func() bool {
			busy := 0
			for _, w := range s.Workers() {
				busy += w.Running
			}
			return busy == n+1
		})
	}
	if all := s.Workers(); len(all) != 2 || all[0].Running != 1 || all[1].Running != 1 {
		t.Errorf("the processes are %+v", all)
	}
	if r := s.Want("fake:echo x", "fake:echo x"); r.Runner != agent.Spawned {
		t.Errorf("the runner is %q", r.Runner)
	}
	cancel()
	wg.Wait()
	if r := s.Want("fake:remember", "fake:remember"); r.Runner != agent.Warmed || len(s.Workers()) != 2 {
		t.Errorf("the runner is %q; %+v", r.Runner, s.Workers())
	}
}

// A conversation continues in its process. If another question has used the process, or it has
// ended, the conversation is replayed.
func TestSingleConversation(t *testing.T) {
	s := sitSingle(t, 3)
	say := talk(t, s)
	say("fake:remember one", "", "fake:remember one")
	say("fake:remember two", "not needed", "fake:remember one | fake:remember two")
	pid := s.PID()
	s.Want("fake:remember stranger", "fake:remember stranger")
	say("fake:remember three", "fake:remember all of it", "fake:remember all of it")
	say("fake:remember four", "not needed", "fake:remember all of it | fake:remember four")
	if s.PID() != pid {
		t.Error("it is another process")
	}
	if p, err := os.FindProcess(pid); err != nil || p.Kill() != nil {
		t.Fatal("it cannot be killed")
	}
	s.Until("its end", func() bool { return len(s.Workers()) == 0 })
	say("fake:remember five", "fake:remember again", "fake:remember again")
}

// The next conversation is prepared after an answer, unless the present one may continue.
func TestSinglePreparesTheNext(t *testing.T) {
	s := sitSingle(t, 1)
	prepared := func(sessions int) {
		t.Helper()
		s.Until(fmt.Sprint(sessions, " sessions"), func() bool { all := s.Workers(); return len(all) == 1 && all[0].Sessions == sessions })
	}
	s.Want("fake:remember one", "fake:remember one")
	prepared(2)
	s.Want("fake:remember two", "fake:remember two")
	prepared(3)
	for _, want := range []string{"fake:remember a", "fake:remember a | fake:remember b"} {
		prompt := want[strings.LastIndex(want, "fake"):]
		if r, err := s.Ask(t.Context(), agent.Request{Prompt: prompt, Conversation: "mine", Replay: prompt}); err != nil || r.Answer != want {
			t.Errorf("got %+v, %v", r, err)
		}
		prepared(3)
	}
	s.Want("fake:remember three", "fake:remember three")
	prepared(5)
}

// A question uses an idle process, whatever its place, before it starts another one.
func TestSingleUsesAnIdleProcess(t *testing.T) {
	s := sitSingle(t, 3)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { s.Ask(ctx, agent.Request{Prompt: "fake:hang"}) })
	s.Until("a busy process", func() bool { all := s.Workers(); return len(all) == 1 && all[0].Running == 1 })
	first := s.PID()
	s.Want("fake:echo x", "fake:echo x")
	cancel()
	wg.Wait()
	if p, err := os.FindProcess(first); err != nil || p.Kill() != nil {
		t.Fatal("it cannot be killed")
	}
	s.Until("its end", func() bool { return len(s.Workers()) == 1 })
	second := s.PID()
	s.Want("fake:echo x", "fake:echo x")
	if all := s.Workers(); len(all) != 1 || all[0].PID != second {
		t.Errorf("the processes are %+v", all)
	}
}

// An agent without a login says how to log in.
func TestSingleNoLogin(t *testing.T) {
	s := sitSingle(t, 1)
	_, err := s.Ask(t.Context(), agent.Request{Prompt: "fake:no-login"})
	agenttest.WantKind(t, err, agent.Auth, "run `claude` and type /login")
	s.Want("fake:remember", "fake:remember")
}

// A request waits for a process that takes long to start if the agent has no other way to
// answer: a second start would only slow down both.
func TestSlowStartWithoutAnotherWay(t *testing.T) {
	s := claudeDouble.sit(t, agent.Warmed, claudeDouble.version, func(o *agent.Options) { o.Warm.WaitTimeout = time.Nanosecond })
	if r := s.Want("fake:echo x", "fake:echo x"); r.Runner != agent.Warmed {
		t.Errorf("the runner is %q", r.Runner)
	}
}
