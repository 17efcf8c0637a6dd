package companion

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pollux/internal/editor"
	"pollux/internal/inputline"
	"pollux/internal/sys/systest"
)

var kinds = []AgentKind{kind("fake", "Fake"), kind("other", "Other"), kind("loner", "Loner")}

func kind(command, name string) AgentKind {
	return AgentKind{
		AgentKind: editor.AgentKind{Command: command, Name: name},
		Prompt: func(p editor.PromptParams, _ []string) editor.Prompt {
			return editor.Prompt{Text: "of " + command + ": " + filepath.Base(p.Path) + p.Question, Submit: p.Question != ""}
		},
		InputLine: func(inputline.Screen) inputline.Line { return inputline.Line{Text: command + " in "} },
	}
}

// A mentioner is an agent that takes mentions.
type mentioner struct {
	*fakeSession
	err error
	got []string
}

func (m *mentioner) Mention(_ context.Context, path string, line, endLine int) error {
	if m.err == nil {
		m.got = append(m.got, strings.Repeat("#", line)+filepath.Base(path)+strings.Repeat("-", endLine))
	}
	return m.err
}

// fakePanes are the panes of tmux, by PID or by command.
type fakePanes struct {
	byPID     map[int]string
	byCommand map[string]string
	err       error // of a paste
	pasted    []string
	left      []string // what each call was given, and so allowed to find
}

type fakePane struct {
	panes         *fakePanes
	name, command string
}

func (p *fakePanes) find(_ context.Context, pid int, commands, _ []string) (Pane, error) {
	if name, ok := p.byPID[pid]; ok {
		return fakePane{p, name, ""}, nil
	}
	for _, c := range commands {
		if name, ok := p.byCommand[c]; ok {
			return fakePane{p, name, c}, nil
		}
	}
	return nil, ErrNoPane
}

func (p fakePane) Name() string    { return p.name }
func (p fakePane) Command() string { return p.command }

func (p fakePane) PID() int { return 7 }

func (p fakePane) Paste(_ context.Context, prompt editor.Prompt, find inputline.Finder, left string) (string, error) {
	p.panes.left = append(p.panes.left, left)
	if p.panes.err == nil {
		p.panes.pasted = append(p.panes.pasted, find.Find(inputline.Screen{}).Text+p.name+" "+prompt.Text)
	}
	if prompt.Submit {
		return "", p.panes.err
	}
	return left + prompt.Text, p.panes.err
}

func (p fakePane) Mention(_ context.Context, send func() error, _ inputline.Finder, left string) (string, error) {
	p.panes.left = append(p.panes.left, left)
	if p.panes.err != nil {
		return "", p.panes.err
	}
	return left + "@", send()
}

// Who receives what the user sends, and how.
func TestSend(t *testing.T) {
	self := os.Getpid() // a process that exists, in its own terminal
	for _, tt := range []struct {
		name     string
		agents   []string // connected, in this order; "+" takes mentions, "=" has this process
		panes    fakePanes
		send     editor.SendParams
		want     editor.SendResult
		prompt   string
		mentions string // what the last agent received
		pasted   string
		err      string
	}{
		{name: "mention", agents: []string{"Fake+"},
			send: editor.SendParams{PromptParams: editor.PromptParams{Line: 2, EndLine: 3}},
			want: editor.SendResult{Status: editor.SentMention, Agent: "Fake"}, mentions: "##a.txt---"},
		{name: "mention of one line", agents: []string{"Fake+"},
			send: editor.SendParams{PromptParams: editor.PromptParams{Line: 2}},
			want: editor.SendResult{Status: editor.SentMention, Agent: "Fake"}, mentions: "##a.txt--"},
		{name: "mention of the file", agents: []string{"Fake+"},
			want: editor.SendResult{Status: editor.SentMention, Agent: "Fake"}, mentions: "a.txt"},
		{name: "the last one", agents: []string{"Other+", "Fake+"},
			want: editor.SendResult{Status: editor.SentMention, Agent: "Fake"}, mentions: "a.txt"},
		{name: "named by command", agents: []string{"Fake+", "Other+"}, send: editor.SendParams{Agent: "FAKE"},
			want: editor.SendResult{Status: editor.SentMention, Agent: "Fake"}},
		{name: "named by name", agents: []string{"Stranger+", "Other+"}, send: editor.SendParams{Agent: "stranger"},
			want: editor.SendResult{Status: editor.SentMention, Agent: "Stranger"}},
		{name: "in the client's terminal", agents: []string{"Fake+=", "Other+"},
			send: editor.SendParams{Terminals: []editor.Terminal{{PID: self}}},
			want: editor.SendResult{Status: editor.SentMention, Agent: "Fake"}},
		{name: "a question in the client's terminal", agents: []string{"Fake+=", "Other+"},
			send: editor.SendParams{
				PromptParams: editor.PromptParams{Question: "why"}, Terminals: []editor.Terminal{{PID: self}},
			},
			want:   editor.SendResult{Status: editor.SendTerminal, Agent: "Fake", PID: self},
			prompt: "of fake: a.txtwhy"},
		{name: "the name decides without a process", agents: []string{"Fake", "Other"},
			send:   editor.SendParams{Terminals: []editor.Terminal{{PID: self, Agent: "fake"}}},
			want:   editor.SendResult{Status: editor.SendTerminal, Agent: "Fake", PID: self},
			prompt: "of fake: a.txt"},
		{name: "an agent in the client's terminal that is not connected", agents: []string{"Fake+"},
			send:   editor.SendParams{Terminals: []editor.Terminal{{PID: 1 << 30, Agent: "loner"}}},
			want:   editor.SendResult{Status: editor.SendTerminal, Agent: "Loner", PID: 1 << 30},
			prompt: "of loner: a.txt"},
		{name: "with an extension of Windows", agents: []string{"Fake+"},
			send:   editor.SendParams{Terminals: []editor.Terminal{{PID: 1 << 30, Agent: "Loner.EXE"}}},
			want:   editor.SendResult{Status: editor.SendTerminal, Agent: "Loner", PID: 1 << 30},
			prompt: "of loner: a.txt"},
		{name: "another one is named", agents: []string{"Fake+"},
			send: editor.SendParams{Agent: "fake", Terminals: []editor.Terminal{{PID: 1 << 30, Agent: "loner"}, {PID: 1 << 30}}},
			want: editor.SendResult{Status: editor.SentMention, Agent: "Fake"}, mentions: "a.txt"},
		{name: "an unknown agent in the client's terminal",
			send:   editor.SendParams{Terminals: []editor.Terminal{{PID: 1 << 30}}},
			want:   editor.SendResult{Status: editor.SendTerminal, Agent: "Other", PID: 1 << 30},
			prompt: "of other: a.txt"},
		{name: "in a pane", agents: []string{"Fake="}, panes: fakePanes{byPID: map[int]string{self: "%1"}},
			want: editor.SendResult{Status: editor.SentPane, Agent: "Fake", Pane: "%1"}, pasted: "fake in %1 of fake: a.txt"},
		{name: "in a pane, without a process", agents: []string{"Fake"},
			panes: fakePanes{byCommand: map[string]string{"fake": "%2"}},
			want:  editor.SendResult{Status: editor.SentPane, Agent: "Fake", Pane: "%2"}, pasted: "fake in %2 of fake: a.txt"},
		{name: "a question for an agent with mentions", agents: []string{"Fake+="},
			panes: fakePanes{byPID: map[int]string{self: "%1"}},
			send:  editor.SendParams{PromptParams: editor.PromptParams{Question: "why"}},
			want:  editor.SendResult{Status: editor.SentPane, Agent: "Fake", Pane: "%1"}, pasted: "fake in %1 of fake: a.txtwhy"},
		{name: "not connected, in a pane", panes: fakePanes{byCommand: map[string]string{"loner": "%3"}},
			want: editor.SendResult{Status: editor.SentPane, Agent: "Loner", Pane: "%3"}, pasted: "loner in %3 of loner: a.txt"},
		{name: "named, in a pane", agents: []string{"Fake+"},
			panes: fakePanes{byCommand: map[string]string{"loner": "%3", "other": "%4"}},
			send:  editor.SendParams{Agent: "loner"},
			want:  editor.SendResult{Status: editor.SentPane, Agent: "Loner", Pane: "%3"}, pasted: "loner in %3 of loner: a.txt"},
		{name: "start", send: editor.SendParams{Start: new("")},
			want: editor.SendResult{Status: editor.SendStart}, prompt: "of other: a.txt"},
		{name: "start what the client chooses", send: editor.SendParams{Start: new("loner")},
			want: editor.SendResult{Status: editor.SendStart}, prompt: "of loner: a.txt"},
		{name: "start a wrapper", send: editor.SendParams{Start: new("my-agent")},
			want: editor.SendResult{Status: editor.SendStart}, prompt: "of the host"},
		{name: "start what the user names", agents: []string{"Fake+"}, send: editor.SendParams{Agent: "Loner", Start: new("")},
			want: editor.SendResult{Status: editor.SendStart, Agent: "loner"}, prompt: "of loner: a.txt"},

		{name: "nobody", err: "no agent is connected, or runs in a tmux pane"},
		{name: "nobody of that name", agents: []string{"Fake+"}, send: editor.SendParams{Agent: "loner"},
			err: "no Loner is connected, or runs in a tmux pane in DIR: start it with `pollux run --attach -- loner`"},
		{name: "an unknown name", agents: []string{"Fake+"}, send: editor.SendParams{Agent: "x"},
			err: `no agent is called "x": name one of fake, other, loner`},
		{name: "no pane", agents: []string{"Fake="},
			err: "Fake runs in a terminal in which Pollux cannot type: start it in the editor's terminal, or in tmux"},
		{name: "the pane refuses", agents: []string{"Fake="},
			panes: fakePanes{byPID: map[int]string{self: "%1"}, err: errors.New("bash has the foreground: type fg")},
			err:   "Fake did not receive the file: bash has the foreground"},
		{name: "the pane refuses a question", agents: []string{"Fake="},
			panes: fakePanes{byPID: map[int]string{self: "%1"}, err: errors.New("it asks you something: answer that")},
			send:  editor.SendParams{PromptParams: editor.PromptParams{Question: "why"}},
			err:   "Fake: it asks you something"},
		{name: "a relative path", agents: []string{"Fake+"},
			send: editor.SendParams{PromptParams: editor.PromptParams{Path: "a.txt"}}, err: "pass an absolute path"},
		{name: "a file that does not exist", agents: []string{"Fake+"},
			send: editor.SendParams{PromptParams: editor.PromptParams{Path: systest.Abs("/x/y")}}, err: "is not a file on disk: save it first"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := newBare(t)
			c.cfg.FindPane = tt.panes.find
			c.cfg.Preferred = func() string { return "other" }
			var last *mentioner
			for _, name := range tt.agents {
				s := newFakeSession()
				m := &mentioner{fakeSession: s, err: ErrNoMention}
				if i := strings.Index(name, "+"); i >= 0 {
					m.err = nil
				}
				if strings.Contains(name, "=") {
					s.pid = self
				}
				s.name = strings.TrimRight(name, "+=")
				c.Connect(m)
				defer c.Disconnect(m)
				last = m
			}
			path := filepath.Join(c.dir, "a.txt")
			systest.WriteFile(t, path, "a\nb\nc\n")
			if tt.send.Path == "" {
				tt.send.Path = path
			}
			got, err := c.send(tt.send)
			if tt.err != "" {
				systest.WantError(t, err, strings.ReplaceAll(tt.err, "DIR", c.dir))
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			text := ""
			if got.Prompt != nil {
				text, got.Prompt = got.Prompt.Text, nil
			}
			if got != tt.want || text != tt.prompt {
				t.Errorf("%+v, prompt %q; want %+v, %q", got, text, tt.want, tt.prompt)
			}
			if pasted := strings.Join(tt.panes.pasted, ", "); pasted != tt.pasted {
				t.Errorf("pasted %q, want %q", pasted, tt.pasted)
			}
			if tt.mentions != "" && strings.Join(last.got, ", ") != tt.mentions {
				t.Errorf("the agent received %q, want %q", last.got, tt.mentions)
			}
		})
	}
}

// What Pollux has left in the input line of an agent may still be there for the next
// paste.
func TestSendAgain(t *testing.T) {
	self := os.Getpid()
	c := newBare(t)
	panes := &fakePanes{byPID: map[int]string{self: "%1"}}
	c.cfg.FindPane = panes.find
	m := &mentioner{fakeSession: newFakeSession()}
	m.name, m.pid = "Fake", self
	c.Connect(m)
	defer c.Disconnect(m)
	path := filepath.Join(c.dir, "a.txt")
	systest.WriteFile(t, path, "a\n")
	send := func(question string) error {
		_, err := c.send(editor.SendParams{PromptParams: editor.PromptParams{Path: path, Question: question}})
		return err
	}
	refused := errors.New("refused")
	for _, step := range []struct {
		takes    error // mentions
		question string
		err      error // of the pane
	}{{}, {takes: ErrNoMention}, {question: "why", err: refused}, {question: "why"}, {}} {
		m.err, panes.err = step.takes, step.err
		if err := send(step.question); !errors.Is(err, step.err) {
			t.Fatalf("%+v: %v", step, err)
		}
	}
	const pasted = "@of fake: a.txt"
	if got, want := strings.Join(panes.left, "|"), "|@|@|"+pasted+"|"+pasted+"|"; got != want {
		t.Errorf("the pane was given %q, want %q", got, want)
	}
}

// On Windows, which has no tmux, no error speaks of it.
func TestSendWithoutTmux(t *testing.T) {
	c := newBare(t)
	p := editor.SendParams{PromptParams: editor.PromptParams{Question: "why"}, Agent: "loner"}
	_, err := c.send(p)
	systest.WantError(t, err, "no Loner is connected in "+c.dir+": start it with `pollux run --attach -- loner`")
	s := newFakeSession()
	s.name, s.pid = "Fake", os.Getpid()
	c.Connect(s)
	defer c.Disconnect(s)
	p.Agent = ""
	if _, err = c.send(p); err == nil || !strings.HasSuffix(err.Error(), "Pollux cannot type: start it in the editor's terminal") {
		t.Errorf("the error is %v", err)
	}
}

// Files that agents do not receive are not sent, unless the user shares such files.
func TestSendExcluded(t *testing.T) {
	c := newBare(t)
	m := &mentioner{fakeSession: newFakeSession()}
	c.Connect(m)
	defer c.Disconnect(m)
	for name, text := range map[string]string{".gitignore": "*.log\n", "a.log": "a", ".env": "a", "ok": "a"} {
		systest.WriteFile(t, filepath.Join(c.dir, name), text)
	}
	send := func(name string) error {
		p := editor.SendParams{PromptParams: editor.PromptParams{Path: filepath.Join(c.dir, name)}}
		_, err := c.send(p)
		return err
	}
	systest.WantError(t, send("a.log"), "an ignore file excludes it: to share such files, turn on include_ignored")
	systest.WantError(t, send(".env"), "its name says that it holds secrets: to share such files")
	if err := send("ok"); err != nil {
		t.Error(err)
	}
	share := func(name string) {
		c.cfg.IncludeIgnored = true
		if err := send(name); err != nil {
			t.Error(err)
		}
		c.cfg.IncludeIgnored = false
	}
	share("a.log")
	share(".env")
	_, err := c.send(editor.SendParams{})
	systest.WantError(t, err, "name a file, or ask a question")
	t.Run("a link", func(t *testing.T) {
		systest.Link(t, ".env", filepath.Join(c.dir, "innocent"))
		systest.WantError(t, send("innocent"), "holds secrets")
		share("innocent")
	})
}

// A paste into the terminal of an agent that asks about a change could be its answer.
func TestSendWhileADiffIsOpen(t *testing.T) {
	c, v, s := newReview(t)
	path := filepath.Join(c.dir, "a.txt")
	systest.WriteFile(t, path, "a\n")
	d := c.propose(t, s, v, Proposal{Path: path, Text: "b\n"})
	p := editor.SendParams{
		PromptParams: editor.PromptParams{Path: path, Question: "why"}, Terminals: []editor.Terminal{{PID: 1, Agent: "fake"}},
	}
	systest.WantError(t, v.Call(t.Context(), editor.MethodSend, p, nil), "Fake waits for your answer about a.txt")
	v.Rejects(d)
	var res editor.SendResult
	if err := v.Call(t.Context(), editor.MethodSend, p, &res); err != nil || res.Status != editor.SendTerminal {
		t.Errorf("%+v, %v", res, err)
	}
}

// The agent that acted last is the one that receives: it connected, it proposed, or the
// user sent it something.
func TestActed(t *testing.T) {
	c := newBare(t)
	one, two := newFakeSession(), newFakeSession()
	one.name, two.name = "One", "Two"
	c.connect(t, one)
	c.connect(t, two)
	defer c.Disconnect(one)
	defer c.Disconnect(two)
	last := func() string {
		r, err := c.recipient(editor.SendParams{})
		if err != nil {
			t.Fatal(err)
		}
		return r.name
	}
	if got := last(); got != "Two" {
		t.Errorf("after it connected, the last one is %s", got)
	}
	if err := c.Propose(one, Proposal{Path: filepath.Join(c.dir, "a"), Text: "a"}); err == nil {
		t.Error("nothing shows the change")
	}
	if got := last(); got != "One" {
		t.Errorf("after a proposal, the last one is %s", got)
	}
	c.Acted(two)
	if got := last(); got != "Two" {
		t.Errorf("after it acted, the last one is %s", got)
	}
	c.Acted(newFakeSession())
	c.Acted(nil)
	if got := last(); got != "Two" || len(c.sessions) != 2 {
		t.Errorf("the last one is %s of %d", got, len(c.sessions))
	}
}

// Clients learn the process and the folder of an agent when the companion does.
func TestChanged(t *testing.T) {
	c := newBare(t)
	s := c.connect(t, newFakeSession())
	told := make(chan []editor.Agent, 10)
	_, res := attachClient(t, c.Attach, editor.InitializeParams{}, editor.Handler{Clients: func(all editor.Clients) { told <- all.Clients }})
	if len(res.Agents) != len(kinds) || res.Agents[0] != (editor.AgentKind{Command: "fake", Name: "Fake"}) {
		t.Errorf("the agents are %+v", res.Agents)
	}
	if got := systest.Receive(t, told); len(got) != 1 || got[0].PID != 0 {
		t.Errorf("%+v", got)
	}
	s.moved.Store(&Process{PID: 7, Dir: "/x"})
	c.Changed(newFakeSession()) // not connected
	c.Changed(s)
	if got := systest.Receive(t, told); len(got) != 1 || got[0].PID != 7 || got[0].Dir != "/x" {
		t.Errorf("%+v", got)
	}
}

// The review page cannot type into terminals.
func TestPageSendsNothing(t *testing.T) {
	c := newBare(t)
	page, _ := attachClient(t, c.AttachPage, editor.InitializeParams{}, editor.Handler{})
	systest.WantError(t, page.Call(t.Context(), editor.MethodSend, editor.SendParams{}, nil), "the review page")
}
