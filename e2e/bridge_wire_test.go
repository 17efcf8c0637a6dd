package e2e

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"pollux/internal/agent/agenttest"
	"pollux/internal/agent/gemini/fakecli"
	"pollux/internal/fakemodel"
)

// newFakeWorld is [newWorld] for a test of Pollux's own processes: bridges ask a fake Gemini CLI,
// which asks the model, and starts fast.
func newFakeWorld(t *testing.T, script fakemodel.Script) *world {
	t.Helper()
	w := newWorld(t, script)
	w.useFake()
	return w
}

func (w *world) useFake() {
	w.t.Helper()
	w.fake = agenttest.Install(w.t, fakecli.InstallAsking, filepath.Join(w.home, "fake"), current)
}

// askedCLI returns the path of the Gemini CLI that bridges ask.
func (w *world) askedCLI() string {
	w.t.Helper()
	if w.fake != "" {
		return w.fake
	}
	return geminiCLI(w.t)
}

// bridgeEnv returns the environment of bridges. They run their own processes, unless
// the test is about the pool.
func (w *world) bridgeEnv() []string {
	w.t.Helper()
	if pooled(w.t) {
		w.usePool()
	}
	return append(slices.Clone(w.env),
		"GEMINI_CLI_PATH="+w.askedCLI(),
		"GEMINI_MIN_INVOCATION_GAP_MS=0", "GEMINI_MAX_CONCURRENT=1", "GEMINI_RUNNER="+runner(w.t), "GEMINI_WARM_WAIT_MS=60000")
}

// The npm MCP client SDK, on which Claude Code, Cursor and VS Code are built.
func TestBridgeNpmSDK(t *testing.T) {
	sdk := installed(t, "mcp-sdk", "node_modules", "@modelcontextprotocol", "sdk")
	w := newFakeWorld(t, func(r fakemodel.Request) fakemodel.Reply {
		switch {
		case strings.Contains(r.Prompt, "edit it"):
			return fakemodel.Say("I changed it.\n\n**FILE: hello.txt:1-1**\n===OLD===\ngood morning\n===NEW===\ngood evening\n===END===\n")
		case strings.Contains(r.Prompt, "change nothing"):
			return fakemodel.Say("Nothing needs to change.")
		case strings.Contains(r.Prompt, "long"):
			var words []string // all different, or the CLI stops the answer
			for i := range 4000 {
				words = append(words, fmt.Sprint(i*7919%10007))
			}
			return fakemodel.Say(strings.Join(words, " "))
		case strings.Contains(r.Prompt, "json"):
			return fakemodel.Say(`{"a": [1, 2]}`)
		case strings.Contains(r.Prompt, "hang"):
			return fakemodel.Reply{Hang: true}
		}
		// The client receives words while the model writes.
		return fakemodel.Reply{Parts: []fakemodel.Part{{Text: "It says: "}, {Text: "good morning", Delay: 1500 * time.Millisecond}}}
	})
	w.file("hello.txt", "good morning")
	cmd := exec.CommandContext(w.context(), "node", filepath.Join(repo, "e2e", "testdata", "bridge.mjs"), filepath.Join(sdk, "..", "..", ".."), polluxBinary)
	cmd.Env, cmd.Dir = w.bridgeEnv(), w.project
	out, err := cmd.CombinedOutput()
	want := `tools cancel-job,change,close-session,fetch-chunk,list-jobs,list-sessions,ping,query,search,start-job,structured,wait-job
query It says: good morning gemini-2.5-flash false
progress true
long true true
structured {"a":[1,2]} {"a":[1,2]} 1
change false 1 "good evening"
change false 0 undefined
error true timeout is 0: give milliseconds from 1 to 1800000
ping false true
cancelled
again It says: good morning
`
	if err != nil || string(out) != want {
		t.Errorf("%v\n%s\nwant\n%s", err, out, want)
	}
}
