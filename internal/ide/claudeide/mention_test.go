package claudeide

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pollux/internal/companion"
	"pollux/internal/sys/sock"
	"pollux/internal/sys/systest"
)

// The lines of a mention count from 0, and opencode shows them as they are. It arrives
// when the agent is ready for it.
func TestMention(t *testing.T) {
	root := systest.Dir(t)
	file := filepath.Join(root, "a.txt")
	path, _ := json.Marshal(file)
	for _, tt := range []struct {
		name, agent, path string
		line, end         int
		want              string
	}{
		{"lines", "claude-code", file, 2, 3, `{"filePath":` + string(path) + `,"lineStart":1,"lineEnd":2}`},
		{"first line", "claude-code", file, 1, 1, `{"filePath":` + string(path) + `,"lineStart":0,"lineEnd":0}`},
		{"file", "claude-code", file, 0, 0, `{"filePath":` + string(path) + `}`},
		{"by another path", "claude-code", filepath.Join(systest.Alias(t, root), "a.txt"), 0, 0, `{"filePath":` + string(path) + `}`},
		{"opencode", "opencode", file, 2, 3, `{"filePath":` + string(path) + `,"lineStart":2,"lineEnd":3}`},
		{"opencode, file", "opencode", file, 0, 0, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, f *fixture) {
				f.backend.roots = []string{root}
				a := f.connect(tt.agent)
				begun := time.Now()
				err := a.session.Mention(t.Context(), tt.path, tt.line, tt.end)
				if tt.want == "" {
					if !errors.Is(err, companion.ErrNoMention) {
						t.Error(err)
					}
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				if got := a.mentioned(); got != tt.want {
					t.Errorf("received %s, want %s", got, tt.want)
				}
				if waited := time.Since(begun); waited < time.Second {
					t.Errorf("it was sent after %v, when the agent ignores it", waited)
				}
				begun = time.Now()
				if err := a.session.Mention(t.Context(), tt.path, tt.line, tt.end); err != nil {
					t.Fatal(err)
				}
				if waited := time.Since(begun); waited > 0 {
					t.Errorf("the second one waited %v", waited)
				}
			})
		})
	}
}

// The user learns that an agent does not read. It gets one mention when it reads again, however often
// the user has tried. An agent that has ended gets none.
func TestMentionFails(t *testing.T) {
	withClaude(t, func(t *testing.T, f *fixture, a *agent) {
		time.Sleep(2 * time.Second)
		a.stopReading()
		for range 3 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			if err := a.session.Mention(ctx, "/a", 0, 0); !errors.Is(err, errBusy) {
				t.Errorf("to an agent that does not read: %v", err)
			}
			cancel()
		}
		for range cap(a.answers) + 2 {
			systest.Receive(t, a.answers)
		}
		synctest.Wait()
		mentions := 0
		for len(a.notes) > 0 {
			if m := <-a.notes; m.Method == "at_mentioned" {
				mentions++
			}
		}
		if mentions != 1 {
			t.Errorf("received %d mentions", mentions)
		}
		a.ws.CloseNow()
		systest.Receive(t, f.backend.Gone)
		if err := a.session.Mention(t.Context(), "/a", 0, 0); !errors.Is(err, errEnded) {
			t.Errorf("to an agent that has ended: %v", err)
		}
	})
}

// mentioned returns the next mention that the agent receives.
func (a *agent) mentioned() string {
	a.f.t.Helper()
	for {
		if m := systest.Receive(a.f.t, a.notes); m.Method == "at_mentioned" {
			return string(m.Params)
		}
	}
}

// The folder of an agent whose process is not known is the one that it names.
func TestFolder(t *testing.T) {
	for answer, want := range map[string]string{
		`"result":{"roots":[{"uri":"file:///my%20project"},{"uri":"file:///other"}]}`: "/my project",
		`"result":{"roots":[{"uri":"file:///a%0Ab"}]}`:                                "/a b",
		`"result":{"roots":[{"uri":"https://x/y"}]}`:                                  "",
		`"result":{"roots":[{"uri":"file:relative"}]}`:                                "",
		`"result":{"roots":[{"uri":"%"}]}`:                                            "",
		`"result":{"roots":[]}`:                                                       "",
		`"error":{"code":-32601,"message":"no"}`:                                      "",
	} {
		t.Run(answer, func(t *testing.T) {
			if want != "" {
				want = systest.Abs(want)
			}
			if drive := filepath.VolumeName(want); drive != "" {
				answer = strings.ReplaceAll(answer, "file:///", "file:///"+drive+"/")
			}
			inBubble(t, func(t *testing.T, f *fixture) {
				a := f.dial(true)
				with := strings.Replace(initialize("claude-code"), "{}", `{"roots":{"listChanged":true}}`, 1)
				a.answer(a.request("initialize", with))
				a.send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
				a.session = systest.Receive(t, f.backend.Joined)
				asked := systest.Receive(t, a.answers)
				if asked.Method != "roots/list" {
					t.Fatalf("asked for %s", asked.Method)
				}
				a.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,%s}`, *asked.ID, answer))
				synctest.Wait()
				if dir := a.session.Process().Dir; dir != want {
					t.Errorf("the folder is %q, want %q", dir, want)
				}
				if announced := len(f.backend.changed) > 0; announced != (want != "") {
					t.Errorf("announced: %v", announced)
				}
			})
		})
	}
}

// On a system that cannot tell which process has connected, the agent's word counts.
func TestClaim(t *testing.T) {
	withClaude(t, func(t *testing.T, f *fixture, a *agent) {
		for params, want := range map[string]int{`{"pid":7}`: 7, `{"pid":"x"}`: 0, `[]`: 0, `{"pid":-1}`: 0} {
			if sock.KnowsPeers {
				want = 0
			}
			a.send(`{"jsonrpc":"2.0","method":"ide_connected","params":` + params + `}`)
			synctest.Wait()
			if pid := a.session.Process().PID; pid != want {
				t.Errorf("%s: process %d, want %d", params, pid, want)
			}
			a.session.mu.Lock()
			a.session.process.PID = 0
			a.session.mu.Unlock()
		}
	})
}

// A prompt makes the agent the last one that acted.
func TestPromptActs(t *testing.T) {
	withClaude(t, func(t *testing.T, f *fixture, a *agent) {
		a.want(a.call(toolCloseAll, "{}"), "CLOSED_0_DIFF_TABS")
		f.backend.mu.Lock()
		defer f.backend.mu.Unlock()
		if len(f.backend.acted) != 1 || f.backend.acted[0] != a.session {
			t.Errorf("acted: %v", f.backend.acted)
		}
	})
}
