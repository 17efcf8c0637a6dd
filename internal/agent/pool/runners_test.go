package pool_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"pollux/internal/agent"
	"pollux/internal/agent/agenttest"
)

// overSocket is the kind of a warm runner that is reached through a pool's socket.
const overSocket = "pool"

// kinds are the kinds of runners.
var kinds = []string{agent.Spawned, agent.Warmed, overSocket}

// runnerOf returns the name in a result of a kind of runner.
func runnerOf(kind string) string {
	if kind == overSocket {
		return agent.Warmed
	}
	return kind
}

// All runners keep these promises for each agent. A fake agent follows the same
// instructions as the fake Gemini CLI, such as fake:echo.
func TestRunners(t *testing.T) {
	for _, d := range []double{geminiDouble, claudeDouble} {
		for _, kind := range kinds {
			t.Run(d.row.Name+"/"+kind, func(t *testing.T) { testRunner(t, d, kind) })
		}
	}
}

func testRunner(t *testing.T, d double, kind string) {
	for name, scenario := range map[string]func(t *testing.T, s *agenttest.Bench){
		"an answer": func(t *testing.T, s *agenttest.Bench) {
			r := s.Want("fake:echo hello", "fake:echo hello")
			if r.Model != d.model || r.Tokens.Total != 10 || r.Runner != runnerOf(kind) {
				t.Errorf("got %+v", r)
			}
		},
		"narration is not the answer": func(t *testing.T, s *agenttest.Bench) {
			r := s.Want("fake:narrate", "The answer.")
			if !strings.HasPrefix(r.Narration, "I will read it.") || r.Tools == 0 {
				t.Errorf("got %+v", r)
			}
			if !slices.Contains(s.Events(), "agent.ToolUse{Name:"+d.readTool+" Summary:hello.txt}") {
				t.Errorf("events %q", s.Events())
			}
		},
		"noise":   func(t *testing.T, s *agenttest.Bench) { s.Want("fake:noise", "through the noise") },
		"a flood": func(t *testing.T, s *agenttest.Bench) { s.Want("fake:flood=2", "after the flood") },
		"a big answer": func(t *testing.T, s *agenttest.Bench) {
			s.Want("fake:big=320000", strings.Repeat("0123456789abcdef", 20000)) // more than a pipe holds
		},
		"a retry": func(t *testing.T, s *agenttest.Bench) {
			s.Want("fake:retry=500", "after a retry") // the CLI waits at least a second
			s.WantEvent("agent.Retry{Attempt:1")
		},
		"empty": func(t *testing.T, s *agenttest.Bench) {
			_, err := s.Ask(t.Context(), agent.Request{Prompt: "fake:empty"})
			agenttest.WantKind(t, err, agent.Empty)
		},
		"a crash": func(t *testing.T, s *agenttest.Bench) {
			r, err := s.Ask(t.Context(), agent.Request{Prompt: "fake:crash"})
			agenttest.WantKind(t, err, agent.Crashed)
			if r.Partial() != "half of" {
				t.Errorf("got %+v", r)
			}
		},
		"a crash before a word": func(t *testing.T, s *agenttest.Bench) {
			_, err := s.Ask(t.Context(), agent.Request{Prompt: "fake:silent"})
			agenttest.WantKind(t, err, agent.Crashed)
			s.Want("fake:echo again", "fake:echo again")
		},
		"a tool that the policy denies": func(t *testing.T, s *agenttest.Bench) {
			_, err := s.Ask(t.Context(), agent.Request{Prompt: "fake:stray"})
			agenttest.WantKind(t, err, agent.Strayed, d.shellTool)
		},
		"a policy that is not followed": func(t *testing.T, s *agenttest.Bench) {
			_, err := s.Ask(t.Context(), agent.Request{Prompt: "fake:no-policy"})
			agenttest.WantKind(t, err, agent.Unenforceable)
			s.Want("fake:echo after it", "fake:echo after it")
		},
		"a search without end": func(t *testing.T, s *agenttest.Bench) {
			if d.row.SearchTool == "" {
				t.Skip("it does not search the web")
			}
			_, err := s.Ask(t.Context(), agent.Request{Prompt: "fake:search-loop"})
			agenttest.WantKind(t, err, agent.SearchQuota)
		},
		"a grandchild": func(t *testing.T, s *agenttest.Bench) { s.Want("fake:grandchild=1", "I have a child") },
		"a deadline": func(t *testing.T, s *agenttest.Bench) {
			ctx, cancel := context.WithCancelCause(t.Context())
			late := errors.New("late")
			var r agent.Result
			var err error
			asked := make(chan struct{})
			go func() {
				defer close(asked)
				r, err = s.Ask(ctx, agent.Request{Prompt: "fake:say-and-hang"})
			}()
			s.Until("a word", func() bool {
				return slices.Contains(s.Events(), "agent.Text{Text:as far as I came}")
			})
			cancel(late)
			<-asked
			if !errors.Is(err, late) || r.Partial() != "as far as I came" {
				t.Errorf("got %+v, %v", r, err)
			}
			s.Want("fake:echo after it", "fake:echo after it")
		},
		"a process that does not stop": func(t *testing.T, s *agenttest.Bench) {
			if kind != agent.Warmed || d.row == claudeDouble.row {
				// It takes some seconds each time. TestCancelIsAnsweredAtOnce holds the same for a
				// process that runs once, TestReleasedWithTheConnection for a pool's socket, and
				// TestProperty for a process that holds one conversation.
				t.Skip("the pool ends all its processes in the same way")
			}
			ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			defer cancel()
			if _, err := s.Ask(ctx, agent.Request{Prompt: "fake:stubborn"}); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("got %v", err)
			}
			s.Want("fake:echo after it", "fake:echo after it")
		},
		"many at once": func(t *testing.T, s *agenttest.Bench) {
			var wg sync.WaitGroup
			for i := range 8 {
				wg.Go(func() {
					prompt := fmt.Sprintf("fake:echo number %d", i)
					s.Want(prompt, prompt)
				})
			}
			wg.Wait()
		},
		"closed": func(t *testing.T, s *agenttest.Bench) {
			s.Close()
			if _, err := s.Ask(t.Context(), agent.Request{Prompt: "fake:echo"}); !errors.Is(err, agent.ErrClosed) {
				t.Errorf("got %v", err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) { scenario(t, d.sit(t, kind, d.version, nil)) })
	}
}

// All runners use what Gemini CLI's row says.
func TestGeminiRunners(t *testing.T) {
	for _, kind := range kinds {
		for name, scenario := range map[string]func(t *testing.T, s *agenttest.Bench){
			"a plain slash": func(t *testing.T, s *agenttest.Bench) { s.Want("/fake:echo x", "The request:\n\n/fake:echo x") },
			"a byte order mark and a slash": func(t *testing.T, s *agenttest.Bench) {
				s.Want("\ufeff/init fake:echo x", "The request:\n\n\ufeff/init fake:echo x")
			},
			"a dollar": func(t *testing.T, s *agenttest.Bench) {
				s.Want("$init fake:echo x", "The request:\n\n$init fake:echo x")
			},
			"the environment": func(t *testing.T, s *agenttest.Bench) {
				t.Setenv("GITHUB_TOKEN", "secret-of-ours")
				t.Setenv("GEMINI_CLI_IDE_SERVER_PORT", "1")
				t.Setenv("GOOGLE_API_KEY", "theirs")
				r, err := s.Ask(t.Context(), agent.Request{Prompt: "fake:env"})
				if err != nil || strings.Contains(r.Answer, "secret-of-ours") || strings.Contains(r.Answer, "GEMINI_CLI_IDE_") || !strings.Contains(r.Answer, "GOOGLE_API_KEY=theirs") {
					t.Errorf("%v: %s", err, r.Answer)
				}
			},
			"the policy": func(t *testing.T, s *agenttest.Bench) {
				r, err := s.Ask(t.Context(), agent.Request{Prompt: "fake:args"})
				for _, arg := range []string{"--approval-mode=default", "--admin-policy=" + os.TempDir(), "--policy=" + os.TempDir(), "--extensions=none", "--allowed-mcp-server-names="} {
					if err != nil || !strings.Contains(r.Answer, arg) {
						t.Errorf("no %s in %q, %v", arg, r.Answer, err)
					}
				}
			},
		} {
			t.Run(kind+"/"+name, func(t *testing.T) { scenario(t, sit(t, kind, "0.61.0", nil)) })
		}
	}
}
