package e2e

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"pollux/internal/agent"
	"pollux/internal/agent/shared"
	"pollux/internal/fakemodel"
	"pollux/internal/sys/systest"
)

// usePool lets the bridges of the world share a pool. At the end of the test, no process,
// socket or file of it may be left.
func (w *world) usePool() {
	w.t.Helper()
	if w.runtime != "" {
		return
	}
	dir, err := os.MkdirTemp("", "px") // paths of sockets are short
	if err != nil {
		w.t.Fatal(err)
	}
	w.runtime = dir
	races := filepath.Join(w.home, "race")
	w.env = append(w.env, "POLLUX_POOL=on", "POLLUX_RUNTIME_DIR="+dir, "GORACE=atexit_sleep_ms=10 log_path="+races)
	w.t.Cleanup(func() {
		defer os.RemoveAll(dir)
		w.pollux("pool", "stop")
		waitEnded(w.t, w.processes()...)
		for _, pattern := range []string{
			filepath.Join(dir, "pool-*"), filepath.Join(dir, "*lock*"), filepath.Join(w.tmp(), "pollux-bridge-*"), races + ".*",
		} {
			if left, err := filepath.Glob(pattern); err != nil || len(left) > 0 {
				w.t.Errorf("left: %v, %v", left, err)
			}
		}
	})
}

// processes returns the processes with the world's home.
func (w *world) processes() (all []int) {
	w.t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		w.t.Fatal(err)
	}
	for _, f := range files {
		if data, _ := os.ReadFile(f); strings.Contains("\x00"+string(data), "\x00HOME="+w.home+"\x00") {
			var pid int
			fmt.Sscanf(f, "/proc/%d/", &pid)
			all = append(all, pid)
		}
	}
	return all
}

// warm returns the warm agents below a process. An agent's own processes have its command
// line for a moment, and do not count.
func warm(t *testing.T, pid int) (all []int) {
	t.Helper()
	own := make(map[int]bool)
	for _, pid := range children(t, pid) {
		data, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if own[pid] || !strings.Contains(string(data), "\x00--acp\x00") {
			continue
		}
		all = append(all, pid)
		for _, below := range children(t, pid) {
			own[below] = true
		}
	}
	return all
}

// pools returns the running pools.
func (w *world) pools() []shared.Status {
	w.t.Helper()
	cmd := exec.Command(polluxBinary, "pool", "status", "--json")
	cmd.Env, cmd.Dir = w.env, w.project
	out, err := cmd.Output() // a pool that was killed is named in standard error
	var all []shared.Status
	if err = cmp.Or(err, json.Unmarshal(out, &all)); err != nil {
		w.t.Fatalf("%v\n%s", err, out)
	}
	return all
}

// onlyPool returns the only running pool.
func (w *world) onlyPool() shared.Status {
	w.t.Helper()
	all := w.pools()
	if len(all) != 1 {
		w.t.Fatalf("pools: %+v", all)
	}
	return all[0]
}

// ask calls query in the background.
func (c *bridgeClient) ask(prompt string) <-chan outcome {
	answer := make(chan outcome, 1)
	go func() { answer <- c.call("query", map[string]any{"prompt": prompt, "timeout": 80000}) }()
	return answer
}

// asked waits until the model has received a prompt n times.
func (w *world) asked(prompt string, n int) {
	w.t.Helper()
	waitFor(w.t, "the prompt "+prompt, func() bool { return w.timesAsked(prompt) >= n })
}

func (w *world) timesAsked(prompt string) (n int) {
	for _, r := range w.model.Requests() {
		if strings.Contains(r.Prompt, prompt) {
			n++
		}
	}
	return n
}

// A gate is a model that answers prompts with the word "wait" once it is open.
type gate struct{ open chan struct{} }

func newGate() *gate { return &gate{make(chan struct{})} }

func (g *gate) script(r fakemodel.Request) fakemodel.Reply {
	if strings.Contains(r.Prompt, "wait") {
		<-g.open
	}
	return says(r)
}

// says repeats the prompt.
func says(r fakemodel.Request) fakemodel.Reply { return fakemodel.Say("The answer to: " + r.Prompt) }

// Five sessions in one directory start a pool at the same instant, and share one pool and
// one process. One session learns that the quota of the day is used up, and when it is renewed. The
// next session asks the fallback model immediately.
func TestPoolIsShared(t *testing.T) {
	quotas := map[string]struct {
		reply fakemodel.Reply
		until time.Duration
	}{
		// As a user who has signed in.
		"gemini-2.5-pro": {fakemodel.Reply{Status: 429, Reset: 2 * time.Hour}, 2 * time.Hour},
		// With a key, the CLI replaces the message of the service, and so the time.
		"gemini-2.5-flash-lite": {fakemodel.Reply{Status: 429, PerDay: true, Message: "Your quota will reset after 2h0m0s."}, 15 * time.Minute},
	}
	w := newWorld(t, func(r fakemodel.Request) fakemodel.Reply {
		if quota, ok := quotas[r.Model]; ok {
			return quota.reply
		}
		return says(r)
	})
	w.usePool()
	var all []*bridgeClient
	for range 5 {
		all = append(all, w.bridge("GEMINI_MAX_CONCURRENT=3"))
	}
	var wg sync.WaitGroup
	for i, c := range all {
		wg.Go(func() {
			prompt := fmt.Sprintf("question %d.", i)
			o := c.call("query", map[string]any{"prompt": prompt})
			o.want(t, false, prompt)
			if o.Meta["runner"] != agent.Warmed {
				t.Errorf("_meta is %v", o.Meta)
			}
		})
	}
	wg.Wait()
	p := w.onlyPool()
	if len(p.Workers) != 1 || len(p.Sessions) != 5 || len(warm(t, p.PID)) != 1 {
		t.Errorf("the pool's state is %+v; its agents are %v", p, warm(t, p.PID))
	}
	for _, c := range all {
		for _, pid := range warm(t, c.cmd.Process.Pid) {
			if pid != p.Workers[0].PID { // the first bridge is the pool's parent
				t.Errorf("a bridge has a process of its own: %d", pid)
			}
		}
	}
	all[0].leave()
	waitFor(t, "the end of a session", func() bool { return len(w.onlyPool().Sessions) == 4 })
	// The next session finds the process warm, although its own settings differ.
	c := w.bridge("GEMINI_MAX_CONCURRENT=1", "GEMINI_WARM_IDLE_MS=5000")
	c.call("query", map[string]any{"prompt": "late"}).want(t, false, "late")
	if after := w.onlyPool(); after.PID != p.PID || len(after.Workers) != 1 || after.Workers[0].PID != p.Workers[0].PID {
		t.Errorf("the pool's state was %+v and is %+v", p, after)
	}
	if left, err := os.ReadDir(w.runtime); err != nil {
		t.Error(err)
	} else {
		for _, e := range left {
			if e.Type().IsRegular() && strings.Contains(e.Name(), "lock") {
				t.Errorf("a lock file is left: %s", e.Name())
			}
		}
	}

	for i, prompt := range []string{"the first", "the second"} {
		for model := range quotas {
			o := all[1+i].call("query", map[string]any{"prompt": prompt, "model": model})
			o.want(t, false, prompt, "answered by gemini-2.5-flash")
		}
	}
	for _, r := range w.model.Requests() {
		if _, used := quotas[r.Model]; used && strings.Contains(r.Prompt, "the second") {
			t.Errorf("the second session asked %s, whose quota is used up", r.Model)
		}
	}
	queues := w.onlyPool().Queues
	if len(queues) != 1 || len(queues[0].UsedUp) != len(quotas) {
		t.Fatalf("queues: %+v", queues)
	}
	for _, used := range queues[0].UsedUp {
		until, left := quotas[used.Model].until, time.Until(used.Until)
		if used.Kind != agent.QuotaDay || left > until || left < until-2*time.Minute {
			t.Errorf("%+v, for %s", used, left)
		}
	}
}

// The pool is stopped by a signal and does not answer. Bridges start another one. The
// first one ends when it continues.
func TestPoolDoesNotAnswer(t *testing.T) {
	g := newGate()
	w := newFakeWorld(t, g.script)
	w.usePool()
	c := w.bridge("POLLUX_POOL_IDLE_MS=20000")
	c.call("query", map[string]any{"prompt": "before"}).want(t, false, "before")
	waiting := c.ask("please wait")
	w.asked("please wait", 1)
	p := w.onlyPool()
	resume := suspend(t, p.PID)
	close(g.open)
	fresh := w.bridge("POLLUX_POOL_IDLE_MS=20000").ask("a new session")
	next(t, "answer", waiting).want(t, false, "please wait")
	next(t, "answer", fresh).want(t, false, "a new session")
	if after := w.onlyPool(); after.PID == p.PID {
		t.Errorf("the pool's state is %+v", after)
	}
	resume()
	waitGone(t, p.PID)
	if len(w.pools()) != 1 {
		t.Error("the first pool removed the socket of the second")
	}
}

// No pool can be started: the bridge runs the agent itself.
func TestPoolCannotStart(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name    string
		prepare func(w *world) (variable string)
		wrap    []string
	}{
		{name: "off", prepare: func(*world) string { return "POLLUX_POOL=off" }},
		{name: "a file in place of the directory", prepare: func(w *world) string {
			return "POLLUX_RUNTIME_DIR=" + filepath.Join(w.file("file", ""), "below")
		}},
		{name: "a file in place of the socket", prepare: func(w *world) string {
			w.bridge().call("query", map[string]any{"prompt": "hello"}).want(w.t, false, "hello")
			p := w.onlyPool()
			w.pollux("pool", "stop")
			systest.WriteFile(w.t, p.Socket, "mine")
			w.t.Cleanup(func() {
				w.wantFile(p.Socket, "mine")
				os.Remove(p.Socket)
			})
			return ""
		}},
		{
			name: "a full disk", prepare: func(*world) string { return "" },
			wrap: []string{"unshare", "--mount", "sh", "-c", `mount -t tmpfs -o nr_inodes=1,mode=700 none "$POLLUX_RUNTIME_DIR" && exec "$0" "$@"`},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.wrap != nil {
				if out, err := exec.Command("unshare", "--mount", "true").CombinedOutput(); err != nil {
					t.Skipf("no mount namespace: %v\n%s", err, out)
				}
			}
			w := newFakeWorld(t, says)
			w.usePool()
			variable := tt.prepare(w)
			c := w.connectWith(append(w.bridgeEnv(), variable), append(slices.Clone(tt.wrap), polluxBinary)...)
			o := c.call("query", map[string]any{"prompt": "hello"})
			o.want(t, false, "hello")
			if own := warm(t, c.cmd.Process.Pid); len(own) != 1 || o.Meta["runner"] != agent.Warmed {
				t.Errorf("the bridge's processes are %v, and _meta is %v", own, o.Meta)
			}
			if p := w.pools(); len(p) > 0 {
				t.Errorf("pools: %+v", p)
			}
		})
	}
}

// 64 bridges stay connected to one pool. Eight of them start at the same instant.
func TestPoolServesManyBridges(t *testing.T) {
	w := newLoneWorld(t, says)
	w.useFake()
	w.usePool()
	for n := 8; n <= 64; n += 8 {
		var all []*json.Decoder
		for range 8 {
			cmd := exec.Command(polluxBinary, "bridge")
			cmd.Env, cmd.Dir = append(w.bridgeEnv(), "GEMINI_WARM_AHEAD=true"), w.project
			stdin, stdout := w.start(cmd)
			all = append(all, json.NewDecoder(stdout))
			t.Cleanup(func() { stdin.Close(); cmd.Wait() })
			io.WriteString(stdin, `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},`+
				`"clientInfo":{"name":"x","version":"1"}}}`+"\n"+`{"jsonrpc":"2.0","method":"notifications/initialized"}`+"\n"+
				`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"ping","arguments":{}}}`+"\n")
		}
		for _, out := range all {
			var reply struct {
				ID     int
				Result struct {
					IsError bool
					Content []struct{ Text string }
				}
			}
			for reply.ID != 2 {
				if err := out.Decode(&reply); err != nil {
					t.Fatal(err)
				}
			}
			if reply.Result.IsError || !strings.Contains(reply.Result.Content[0].Text, current) {
				t.Errorf("ping: %+v", reply)
			}
		}
		waitFor(t, fmt.Sprintf("%d sessions", n), func() bool {
			all := w.pools()
			return len(all) == 1 && len(all[0].Sessions) == n
		})
	}
	if p := w.onlyPool(); len(p.Workers) > 1 {
		t.Errorf("workers: %+v", p.Workers)
	}
	w.bridge().call("query", map[string]any{"prompt": "one more"}).want(t, false, "one more")
}

// With --now, a call in progress is asked again with a new pool.
func TestPoolStopsNow(t *testing.T) {
	g := newGate()
	w := newFakeWorld(t, g.script)
	w.usePool()
	c := w.bridge()
	answer := c.ask("please wait")
	w.asked("please wait", 1)
	w.pollux("pool", "stop", "--now")
	w.asked("please wait", 2)
	close(g.open)
	next(t, "answer", answer).want(t, false, "please wait")
}
