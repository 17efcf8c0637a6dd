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

	"pollux/internal/agent"
	"pollux/internal/agent/agents"
	"pollux/internal/agent/agenttest"
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
	then func(c *questioner)
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
			return fakemodel.Reply{Status: map[string]int{"400": 400, "401": 401, "429": 429}[word[5:]], Message: "scripted error " + word[5:]}
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

// A questioner asks an agent as the bridge does.
type questioner struct {
	*queue.Runner
	w      *world
	source agent.Source
}

// questioner opens a runner of an agent. It ends with the test, and its processes with it.
func (w *world) questioner(row *agent.Agent, command string, env []string, opts agent.Options) *questioner {
	w.t.Helper()
	r, err := agents.Open(row, opts)
	if err != nil {
		w.t.Fatal(err)
	}
	q := &questioner{r, w, agent.Source{Command: command, Env: append(slices.Clone(w.env), env...)}}
	w.t.Cleanup(q.end)
	return q
}

// end closes the runner, and waits for the end of its processes.
func (q *questioner) end() {
	q.w.t.Helper()
	all := q.Workers()
	if err := q.Close(); err != nil {
		q.w.t.Error(err)
	}
	for _, worker := range all {
		waitGone(q.w.t, worker.PID)
	}
}

// ask waits until no process works on the request any more. seen, if it is not nil, is called
// for each event.
func (q *questioner) ask(ctx context.Context, req agent.Request, seen func(agent.Event)) (r agent.Result, events []agent.Event, err error) {
	if req.Dir == "" {
		req.Dir = q.w.project
	}
	req.Source = q.source
	released := make(chan struct{})
	req.Released = func() { close(released) }
	r, err = q.Run(ctx, req, func(ev agent.Event) {
		events = append(events, ev)
		if seen != nil {
			seen(ev)
		}
	})
	<-released
	return r, events, err
}

// answer asks a question, and checks the answer. It returns what happened, and the latest
// request to the model.
func (q *questioner) answer(req agent.Request, answer string) (r agent.Result, events []agent.Event, asked fakemodel.Request) {
	q.w.t.Helper()
	r, events, err := q.ask(q.w.context(), req, nil)
	if err != nil || r.Answer != answer {
		q.w.t.Fatalf("the answer to %q is %+v, %v", req.Prompt, r, err)
	}
	all := q.w.model.Requests()
	return r, events, all[len(all)-1]
}

// fails asks a question that must fail in this way, in words that name the next step.
func (q *questioner) fails(req agent.Request, kind agent.Kind, words ...string) {
	q.w.t.Helper()
	_, _, err := q.ask(q.w.context(), req, nil)
	agenttest.WantKind(q.w.t, err, kind, words...)
}

// open opens a runner without the variables of other agents.
func (a *acpAgent) open(w *world, row *agent.Agent) *questioner {
	w.t.Helper()
	if a.lock != "" {
		os.RemoveAll(filepath.Join(w.home, filepath.FromSlash(a.lock)))
	}
	q := w.questioner(row, a.command, a.env, agent.Options{Warm: agent.Limits{StartTimeout: startTimeout, WaitTimeout: startTimeout}})
	q.source.Env = slices.DeleteFunc(q.source.Env, func(kv string) bool { return strings.HasPrefix(kv, "GEMINI_") })
	return q
}

// askACP runs what all these agents share. The project and the user's settings may be
// hostile: nothing of it may run, and nothing may change.
func (w *world) askACP(a acpAgent) {
	t := w.t
	hello := w.file("hello.txt", "hello\n")
	written := filepath.Join(w.project, "written.txt")
	c := a.open(w, a.row)
	answer := func(prompt string) (agent.Result, []agent.Event) {
		t.Helper()
		r, events, _ := c.answer(agent.Request{Prompt: prompt}, "The answer.")
		return r, events
	}

	// The answer streams, and the model and the tokens are known.
	result, events := answer("first question")
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
	result, _ = answer("second question")
	if result.Tokens.Output > before.Output {
		t.Errorf("first %+v, then %+v", before, result.Tokens)
	}
	for _, r := range w.model.Requests() {
		if strings.Contains(r.Prompt, "second question") && strings.Contains(r.Text, "first question") {
			t.Error("the second question has the first one")
		}
	}
	// A conversation continues, and counts its tokens for each question.
	result, _, _ = c.answer(agent.Request{Prompt: "my word is zebra", Conversation: "one"}, "The answer.")
	before = result.Tokens
	result, _, _ = c.answer(agent.Request{Prompt: "which word", Conversation: "one"}, "The answer.")
	if result.Tokens.Output != before.Output {
		t.Errorf("first %+v, then %+v", before, result.Tokens)
	}
	if r := w.asked1("which word"); !strings.Contains(r.Text, "zebra") {
		t.Errorf("the model got %s", r.Text)
	}
	// Another model.
	if a.other != "" {
		result, _, _ = c.answer(agent.Request{Prompt: "of another", Model: a.other}, "The answer.")
		if result.Model != a.other || result.Model == model || w.asked1("of another").Model == w.asked1("which word").Model {
			t.Errorf("%+v; the model was %s", result, model)
		}
	}
	if a.none != "" {
		c.fails(agent.Request{Prompt: "of none", Model: a.none}, agent.BadModel, "model")
	}
	// A cancelled question ends, and the next one works.
	ctx, cancel := context.WithCancelCause(w.context())
	ended := make(chan error, 1)
	go func() {
		_, _, err := c.ask(ctx, agent.Request{Prompt: "wait for ever"}, nil)
		ended <- err
	}()
	w.asked1("wait for ever")
	cancel(errors.New("enough"))
	if err := <-ended; err == nil || err.Error() != "enough" {
		t.Errorf("cancelled: %v", err)
	}
	answer("after that")
	// What would be a command is a question.
	for _, prompt := range []string{"/help", "/model other", "!touch written.txt", "$x", "@hello.txt"} {
		answer(prompt)
		if r := w.asked1(prompt); strings.Contains(r.Prompt, "hello\n") {
			t.Errorf("%s: the model got %s", prompt, r.Prompt)
		}
	}
	// Errors.
	c.fails(agent.Request{Prompt: "fail 400"}, agent.BadRequest, "400")
	c.fails(agent.Request{Prompt: "fail 401"}, agent.Auth, "401")
	// The agent would try for a minute, or for ever.
	c.fails(agent.Request{Prompt: "fail 429"}, agent.QuotaMinute, "wait a minute")
	// It reads, and it does not write.
	_, events = answer("read it")
	if r := w.asked1("read it"); len(r.Results) > 0 {
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
	c.fails(agent.Request{Prompt: "read a link"}, agent.Failed, "outside of the workspace")
	for _, r := range w.model.Requests() {
		if strings.Contains(r.Text, "the secret") || strings.Contains(fmt.Sprintf("%s", r.Results), "the secret") {
			t.Fatalf("it read a file outside of the project: %s", r.Results)
		}
	}
	for i := range a.writes(w.project) {
		answer("write " + string(rune('0'+i)))
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
	waitFor(t, "the memory of whole agents, not of launchers", func() bool {
		return !slices.ContainsFunc(c.Workers(), func(w agent.Worker) bool { return w.Memory < 64<<20 })
	})
	c.end()
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
	c = a.open(w, &row)
	c.ask(w.context(), agent.Request{Prompt: "write 0"}, nil)
	if _, err := os.Stat(written); err != nil {
		t.Error("without the restrictions, it writes nothing either: this test proves nothing")
	}
	os.Remove(written)
	c.end()
}

// asked1 returns the first request that a prompt leads to.
func (w *world) asked1(prompt string) fakemodel.Request {
	w.t.Helper()
	return w.request(func(r fakemodel.Request) bool { return lastLine(r.Prompt) == prompt })
}
