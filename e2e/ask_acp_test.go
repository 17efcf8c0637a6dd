package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"pollux/internal/agent"
	"pollux/internal/agent/agents"
	"pollux/internal/agent/queue"
	"pollux/internal/fakemodel"
)

// An acpAgent is a real agent that the bridge asks over the Agent Client Protocol.
type acpAgent struct {
	row     *agent.Agent
	command string
	env     []string // that leads it to the model
	other   string   // a model that is not the default, or ""
	none    string   // no model, or "" if the agent accepts any name
	// writes are calls that change the file written.txt of the project, each by another tool.
	writes func(project string) []fakemodel.Part
	// read is a call that reads the file hello.txt of the project, and reading the tool's name.
	read    func(project string) fakemodel.Part
	reading string
	// then asks more of the same process, if it is set.
	then func(c *runnerClient)
	// unrestricted removes the restrictions from a command.
	unrestricted func(agent.Command) agent.Command
	// lock is a path in the home, or "". A process that has ended may leave it behind, and the
	// next one would wait for it.
	lock string
}

// acpScript answers what the prompts of these tests ask for.
func (w *world) acpScript(writes func(project string) []fakemodel.Part, read func(project string) fakemodel.Part) fakemodel.Script {
	return func(r fakemodel.Request) fakemodel.Reply {
		switch word := lastLine(r.Prompt); {
		case strings.HasPrefix(word, "fail "):
			return fakemodel.Reply{Status: map[string]int{"400": 400, "401": 401}[word[5:]], Message: "scripted error " + word[5:]}
		case word == "wait for ever":
			return fakemodel.Reply{Hang: true}
		case word == "read it" && r.Step == 0:
			return fakemodel.Reply{Parts: []fakemodel.Part{read(w.project)}}
		case word == "read a link" && r.Step == 0:
			return fakemodel.Reply{Parts: []fakemodel.Part{read(filepath.Join(w.project, "out"))}}
		case strings.HasPrefix(word, "write "):
			if calls := writes(w.project); r.Step == 0 {
				return fakemodel.Reply{Parts: []fakemodel.Part{calls[int(word[6]-'0')]}}
			}
		}
		return fakemodel.Reply{Parts: []fakemodel.Part{{Text: "The "}, {Text: "answer."}}}
	}
}

// lastLine returns the last line of a prompt. The agent may add something before it.
func lastLine(prompt string) string {
	prompt = strings.TrimSpace(prompt)
	return prompt[strings.LastIndexByte(prompt, '\n')+1:]
}

// A runnerClient asks a runner.
type runnerClient struct {
	*queue.Runner
	w      *world
	source agent.Source
}

// runner opens a runner for an agent. It ends with the test.
func (w *world) runner(row *agent.Agent, a *acpAgent) *runnerClient {
	w.t.Helper()
	if a.lock != "" {
		os.RemoveAll(filepath.Join(w.home, filepath.FromSlash(a.lock)))
	}
	r, err := agents.Open(row, agent.Options{Warm: agent.Limits{StartTimeout: startTimeout, WaitTimeout: startTimeout}})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { r.Close() })
	env := slices.DeleteFunc(append(slices.Clone(w.env), a.env...), func(kv string) bool { return strings.HasPrefix(kv, "GEMINI_") })
	return &runnerClient{r, w, agent.Source{Command: a.command, Env: env}}
}

// ask asks one question and returns the texts that arrived before the answer.
func (c *runnerClient) ask(ctx context.Context, prompt string, with func(*agent.Request)) (agent.Result, []agent.Event, error) {
	c.w.t.Helper()
	req := agent.Request{Prompt: prompt, Dir: c.w.project, Source: c.source}
	if with != nil {
		with(&req)
	}
	var events []agent.Event
	began := time.Now()
	defer func() { c.w.t.Logf("%s: %s", prompt, time.Since(began).Round(time.Millisecond)) }()
	result, err := c.Run(ctx, req, func(ev agent.Event) { events = append(events, ev) })
	return result, events, err
}

// answer asks a question that must be answered.
func (c *runnerClient) answer(prompt string, with func(*agent.Request)) (agent.Result, []agent.Event) {
	c.w.t.Helper()
	result, events, err := c.ask(c.w.context(), prompt, with)
	if err != nil || result.Answer != "The answer." {
		c.w.t.Fatalf("%s: %+v, %v", prompt, result, err)
	}
	return result, events
}

// fails asks a question that must fail in this way, in words that name the next step.
func (c *runnerClient) fails(prompt string, kind agent.Kind, words string, with func(*agent.Request)) {
	c.w.t.Helper()
	_, _, err := c.ask(c.w.context(), prompt, with)
	var fault *agent.Error
	if !errors.As(err, &fault) || fault.Kind != kind || !strings.Contains(err.Error(), words) {
		c.w.t.Errorf("%s: %v, want %s with %q", prompt, err, kind, words)
	}
}

// askACP runs what all these agents share. The project and the user's settings may be
// hostile: nothing of it may run, and nothing may change.
func (w *world) askACP(a acpAgent) {
	t := w.t
	hello := w.file("hello.txt", "hello\n")
	written := filepath.Join(w.project, "written.txt")
	c := w.runner(a.row, &a)

	// The answer streams, and the model and the tokens are known.
	result, events := c.answer("first question", nil)
	texts := 0
	for _, ev := range events {
		if _, ok := ev.(agent.Text); ok {
			texts++
		}
	}
	if texts < 2 || result.Tokens.Output == 0 || result.Runner != agent.Warmed {
		t.Errorf("%d texts, %+v", texts, result)
	}
	model := result.Model
	// Another question has nothing of the first, and takes no more tokens.
	before := result.Tokens
	result, _ = c.answer("second question", nil)
	if result.Tokens.Output > before.Output {
		t.Errorf("first %+v, then %+v", before, result.Tokens)
	}
	for _, r := range w.model.Requests() {
		if strings.Contains(r.Prompt, "second question") && strings.Contains(r.Text, "first question") {
			t.Error("the second question has the first one")
		}
	}
	// A conversation continues, and counts its tokens for each question.
	inConversation := func(req *agent.Request) { req.Conversation = "one" }
	result, _ = c.answer("my number is 4711", inConversation)
	before = result.Tokens
	result, _ = c.answer("which number", inConversation)
	if result.Tokens.Output != before.Output {
		t.Errorf("first %+v, then %+v", before, result.Tokens)
	}
	if r := w.asked1(t, "which number"); !strings.Contains(r.Text, "4711") {
		t.Errorf("the model got %s", r.Text)
	}
	// Another model.
	if a.other != "" {
		result, _ = c.answer("of another", func(req *agent.Request) { req.Model = a.other })
		if result.Model != a.other || result.Model == model || w.asked1(t, "of another").Model == w.asked1(t, "which number").Model {
			t.Errorf("%+v; the model was %s", result, model)
		}
	}
	if a.none != "" {
		c.fails("of none", agent.BadModel, "model", func(req *agent.Request) { req.Model = a.none })
	}
	// A cancelled question ends, and the next one works.
	ctx, cancel := context.WithCancelCause(w.context())
	ended := make(chan error, 1)
	go func() {
		_, _, err := c.ask(ctx, "wait for ever", nil)
		ended <- err
	}()
	w.asked1(t, "wait for ever")
	cancel(errors.New("enough"))
	if err := <-ended; err == nil || err.Error() != "enough" {
		t.Errorf("cancelled: %v", err)
	}
	c.answer("after that", nil)
	// What would be a command is a question.
	for _, prompt := range []string{"/help", "/model other", "!touch written.txt", "$x", "@hello.txt"} {
		c.answer(prompt, nil)
		if r := w.asked1(t, prompt); strings.Contains(r.Prompt, "hello\n") {
			t.Errorf("%s: the model got %s", prompt, r.Prompt)
		}
	}
	// Errors.
	c.fails("fail 400", agent.BadRequest, "400", nil)
	c.fails("fail 401", agent.Auth, "401", nil)
	// It reads, and it does not write.
	_, events = c.answer("read it", nil)
	if r := w.asked1(t, "read it"); len(r.Results) > 0 {
		t.Errorf("%+v", r)
	}
	if !slices.ContainsFunc(events, func(ev agent.Event) bool {
		r, ok := ev.(agent.ToolResult)
		return ok && r.OK && r.Name == a.reading
	}) {
		t.Errorf("it did not read: %+v", events)
	}
	// It does not follow a link out of the project.
	outside := filepath.Join(filepath.Dir(w.home), "outside")
	if err := errors.Join(os.Mkdir(outside, 0o700), os.WriteFile(filepath.Join(outside, "hello.txt"), []byte("the secret"), 0o600),
		os.Symlink(outside, filepath.Join(w.project, "out"))); err != nil {
		t.Fatal(err)
	}
	c.fails("read a link", agent.Failed, "outside of the workspace", nil)
	for _, r := range w.model.Requests() {
		if strings.Contains(r.Text, "the secret") || strings.Contains(fmt.Sprintf("%s", r.Results), "the secret") {
			t.Fatalf("it read a file outside of the project: %s", r.Results)
		}
	}
	for i := range a.writes(w.project) {
		c.answer("write "+string(rune('0'+i)), nil)
		if _, err := os.Stat(written); err == nil {
			t.Errorf("call %d wrote", i)
		}
	}
	w.wantFile(hello, "hello\n")
	for _, r := range w.model.Requests() {
		for _, tool := range r.Tools {
			if !slices.Contains(a.row.ReadTools, tool) {
				t.Fatalf("the model is offered %q", r.Tools)
			}
		}
	}
	if a.then != nil {
		a.then(c)
	}
	pids := workers(c)
	c.Close()
	for _, pid := range pids {
		waitGone(t, pid)
	}
	if planted, _ := filepath.Glob(filepath.Join(w.project, "PWNED*")); len(planted) > 0 {
		t.Errorf("the project ran %v", planted)
	}
	// Without the restrictions, the same calls do write. Nothing of Pollux takes part in that.
	if testing.Short() {
		return
	}
	row, warm := *a.row, *a.row.Warm
	row.Warm = &warm
	warm.Command = func(l agent.Launch) (agent.Command, error) {
		command, err := a.row.Warm.Command(l)
		return a.unrestricted(command), err
	}
	c = w.runner(&row, &a)
	c.ask(w.context(), "write 0", nil)
	if _, err := os.Stat(written); err != nil {
		t.Error("without the restrictions, it writes nothing either: this test proves nothing")
	}
	os.Remove(written)
	c.Close()
}

func workers(c *runnerClient) (pids []int) {
	for _, worker := range c.Workers() {
		pids = append(pids, worker.PID)
	}
	return pids
}

// asked1 returns the first request that a prompt leads to.
func (w *world) asked1(t *testing.T, prompt string) fakemodel.Request {
	t.Helper()
	r, err := w.model.Wait(w.context(), func(r fakemodel.Request) bool { return lastLine(r.Prompt) == prompt })
	if err != nil {
		t.Fatal(err)
	}
	return r
}
