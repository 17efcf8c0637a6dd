package pool_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"pollux/internal/agent"
	"pollux/internal/agent/agenttest"
	"pollux/internal/agent/gemini/fakecli"
)

// environment returns the environment of a client with an API key.
func environment(key string, more ...string) agent.Env {
	return append(agent.Env{
		"HOME=" + os.Getenv("HOME"), "USERPROFILE=" + os.Getenv("USERPROFILE"), "PATH=" + os.Getenv("PATH"), "GEMINI_API_KEY=" + key,
	}, more...)
}

// Each client's requests are answered with its own environment, never with the
// one of another client or of this process.
func TestEnvironmentsDoNotMix(t *testing.T) {
	for _, kind := range kinds {
		t.Run(kind, func(t *testing.T) {
			t.Setenv("GEMINI_API_KEY", "key-of-this-process")
			t.Setenv("GOOGLE_CLOUD_PROJECT", "project-of-this-process")
			s := sit(t, kind, "0.61.0", nil)
			clients := []agent.Env{environment("key-1", "GOOGLE_CLOUD_PROJECT=p"), environment("key-2"), nil}
			ask := func(i int) {
				r, err := s.Ask(t.Context(), agent.Request{Prompt: "fake:env", Source: agent.Source{Env: clients[i]}})
				if err != nil {
					t.Error(err)
				}
				var own []string
				for _, kv := range strings.Fields(r.Answer) {
					if strings.HasPrefix(kv, "GEMINI_API_KEY=") || strings.HasPrefix(kv, "GOOGLE_CLOUD_") {
						own = append(own, kv)
					}
				}
				slices.Sort(own)
				want := [][]string{
					{"GEMINI_API_KEY=key-1", "GOOGLE_CLOUD_PROJECT=p"}, {"GEMINI_API_KEY=key-2"},
					{"GEMINI_API_KEY=key-of-this-process", "GOOGLE_CLOUD_PROJECT=project-of-this-process"},
				}[i]
				if !slices.Equal(own, want) {
					t.Errorf("the process of client %d has %q", i, own)
				}
			}
			var wg sync.WaitGroup
			for i := range 6 {
				wg.Go(func() { ask(i % len(clients)) })
			}
			wg.Wait()
			all := s.Workers()
			if kind == agent.Warmed && len(all) != len(clients) {
				t.Errorf("%d processes run", len(all))
			}
			if shown := fmt.Sprintf("%+v", all); strings.Contains(shown, "key-") {
				t.Errorf("the workers show a secret: %s", shown)
			}
		})
	}
}

// Clients share a process if their environments differ only in what the agent
// does not receive.
func TestSameSourceSharesAProcess(t *testing.T) {
	s := sit(t, agent.Warmed, "0.61.0", nil)
	env := environment("key", "LANG=C")
	ask := func(from agent.Source) int {
		t.Helper()
		if _, err := s.Ask(t.Context(), agent.Request{Prompt: "fake:echo", Source: from}); err != nil {
			t.Fatal(err)
		}
		return s.PID() // there is only one
	}
	pid := ask(agent.Source{Env: env})
	reversed := slices.Clone(env)
	slices.Reverse(reversed)
	for name, other := range map[string]agent.Env{
		"another order": reversed,
		"variables that the agent does not receive": append(slices.Clone(env), "TMUX=/tmp/tmux-0/default,1,0", "TERM=screen", "OLDPWD=/x",
			"GEMINI_MAX_CONCURRENT=5", "GEMINI_WARM_IDLE_MS=5000", "GEMINI_SESSION_ID=5"),
		"a variable that is set twice": append(agent.Env{"LANG=de"}, env...),
	} {
		t.Run(name, func(t *testing.T) {
			if ask(agent.Source{Env: other}) != pid {
				t.Error("it is another process")
			}
		})
	}
}

// A conversation belongs to the source that started it. Another source with the
// same name for its conversation neither continues it nor ends it.
func TestConversationsBelongToTheirSource(t *testing.T) {
	s := sit(t, agent.Warmed, "0.61.0", nil)
	ask := func(env agent.Env, prompt, answer string) {
		t.Helper()
		req := agent.Request{Prompt: prompt, Conversation: "name", Replay: "fake:remember replayed", Source: agent.Source{Env: env}}
		if r, err := s.Ask(t.Context(), req); err != nil || r.Answer != answer {
			t.Errorf("%q is answered by %q, %v; want %q", prompt, r.Answer, err, answer)
		}
	}
	one, two := environment("key-1"), environment("key-2")
	ask(one, "fake:remember one", "fake:remember replayed")
	ask(one, "fake:remember two", "fake:remember replayed | fake:remember two")
	ask(two, "fake:remember three", "fake:remember replayed")
	ask(one, "fake:remember four", "fake:remember replayed | fake:remember two | fake:remember four")
	s.Forget("name")
	ask(one, "fake:remember five", "fake:remember replayed")
	ask(two, "fake:remember six", "fake:remember replayed")
}

// A program's name is looked up on the client's own PATH.
func TestProgramOfASource(t *testing.T) {
	for _, kind := range kinds {
		t.Run(kind, func(t *testing.T) {
			s := sit(t, kind, "0.61.0", nil)
			s.Source.Command = "gemini"
			for _, version := range []string{"0.50.0", "0.60.0", "0.50.0"} {
				dir := filepath.Join(t.TempDir(), version)
				path := agenttest.Install(t, fakecli.Install, dir, version)
				from := agent.Source{Command: "gemini", Env: agent.Env{
					"HOME=" + os.Getenv("HOME"), "USERPROFILE=" + os.Getenv("USERPROFILE"),
					"PATH=" + filepath.Dir(dir) + string(filepath.ListSeparator) + filepath.Dir(path),
				}}
				if program, err := s.Check(t.Context(), from); err != nil || program.Path != path || program.Version != version {
					t.Errorf("got %+v, %v; want %s", program, err, path)
				}
				r, err := s.Ask(t.Context(), agent.Request{Prompt: "fake:env", Source: from})
				if err != nil || !strings.Contains(r.Answer, filepath.Dir(path)) {
					t.Errorf("%v: %s", err, r.Answer)
				}
			}
			_, err := s.Check(t.Context(), agent.Source{Command: "gemini", Env: agent.Env{"PATH=/none"}})
			agenttest.WantKind(t, err, agent.NotInstalled)
			_, err = s.Check(t.Context(), agent.Source{Command: "./gemini", Env: agent.Env{"PATH=/none"}})
			agenttest.WantKind(t, err, agent.NotInstalled, "not an absolute path")
		})
	}
}

// What a failing agent prints about a client's key reaches neither the log nor
// the error. A failure delays only the starts for the same client.
func TestFailuresOfASource(t *testing.T) {
	fake := agenttest.Install(t, fakecli.Install, t.TempDir(), "0.61.0")
	path := agenttest.WriteProgram(t, filepath.Dir(fake), "picky",
		fmt.Sprintf("if [ $GEMINI_API_KEY = bad-secret ]; then\n\techo Error: key $GEMINI_API_KEY is bad >&2\n\texit 1\nfi\nexec %s \"$@\"", fake),
		fmt.Sprintf("if %%GEMINI_API_KEY%%==bad-secret (\n\techo Error: key %%GEMINI_API_KEY%% is bad >&2\n\texit /b 1\n)\n\"%s\" %%*", fake))
	var log bytes.Buffer
	s := sit(t, agent.Warmed, "0.61.0", func(o *agent.Options) {
		o.Log = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	})
	s.Source.Command = path
	_, failure := s.Ask(t.Context(), agent.Request{Prompt: "fake:echo", Source: agent.Source{Env: environment("bad-secret")}})
	if failure == nil || !strings.Contains(failure.Error(), "key *** is bad") {
		t.Errorf("got %v", failure)
	}
	r, err := s.Ask(t.Context(), agent.Request{Prompt: "fake:echo", Source: agent.Source{Env: environment("good-secret")}})
	if err != nil || r.Runner != agent.Warmed {
		t.Errorf("got %+v, %v", r, err)
	}
	s.Close()
	if !strings.Contains(log.String(), "key *** is bad") || strings.Contains(log.String(), "secret") {
		t.Errorf("the log is\n%s", log.String())
	}
}
