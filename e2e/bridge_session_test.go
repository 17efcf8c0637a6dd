package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"pollux/internal/agent"
	"pollux/internal/fakemodel"
	"pollux/internal/wall"
)

// A bridgeStory is a part of the session of one bridge.
type bridgeStory struct {
	name string
	mark string // in each of its prompts, and in none of a later story
	// model answers its prompts.
	model fakemodel.Script
	// run asks. The client and its world belong to the story's test.
	run func(t *testing.T, c *bridgeClient)
	// shared is set if the runner makes no difference: with -short, only warm processes do it.
	shared bool
	// own is set if it depends on how Pollux runs a process for each request, or the pool: with
	// -short, these are processes of a fake CLI.
	own bool
	// fake is set if the CLI makes no difference: with -short, it is always a fake one.
	fake bool
}

var bridgeStories = []bridgeStory{
	{name: "reads and answers", mark: "hello.txt say", model: readsThenAnswers, run: bridgeReadsAndAnswers},
	{name: "files and images", mark: "mail me", model: echo, run: bridgeFilesAndImages, shared: true},
	{name: "change mode", mark: "rename greet", model: func(fakemodel.Request) fakemodel.Reply {
		return fakemodel.Say("I rename it.\n\n**FILE: greet.py:1-2**\n===OLD===\ndef greet():\n    pass\n===NEW===\ndef hello():\n    pass\n===END===\n\n" +
			"**NEW FILE: docs/hello.md**\n===NEW===\n# Hello\n===END===\nDone!")
	}, run: bridgeChangeMode, shared: true, own: true},
	{name: "huge answer", mark: "tell everything", model: func(fakemodel.Request) fakemodel.Reply {
		return fakemodel.Reply{Parts: hugeAnswer()}
	}, run: bridgeHugeAnswer, shared: true, own: true, fake: true},
	{name: "conversation", mark: "my word", model: func(fakemodel.Request) fakemodel.Reply { return fakemodel.Say("Noted.") },
		run: bridgeConversation, own: true},
	{name: "search", mark: "newest Go", model: searches, run: bridgeSearches},
	{name: "cancelled", mark: "free or hang", model: func(r fakemodel.Request) fakemodel.Reply {
		if strings.Contains(r.Prompt, "hang now") {
			return fakemodel.Reply{Hang: true}
		}
		return fakemodel.Say("free again")
	}, run: bridgeCancels, own: true},
	{name: "fallback", mark: "fall back", model: refuses, run: bridgeFallsBack, shared: true},
	{name: "structured", mark: "date", model: answersInvalid, run: bridgeStructured, shared: true},
}

// What MCP clients ask, with each runner. One bridge answers all, because the start of an agent
// takes longer.
func TestBridgeSession(t *testing.T) {
	t.Parallel()
	type kind struct {
		name  string
		world func(*testing.T, fakemodel.Script) *world
		left  func(bridgeStory) bool // the stories that it does not do
	}
	none := func(bridgeStory) bool { return false }
	kinds := []kind{
		{agent.Warmed, newWorld, none}, {agent.Spawned, newWorld, none},
		{poolKind, newWorld, func(s bridgeStory) bool { return s.shared }},
	}
	if testing.Short() {
		fake := func(s bridgeStory) bool { return !s.own }
		kinds = []kind{
			{agent.Warmed, newWorld, func(s bridgeStory) bool { return s.fake }},
			{agent.Spawned, newWorld, func(s bridgeStory) bool { return s.shared || s.own }},
			{"fake/" + agent.Spawned, newFakeWorld, fake}, {"fake/" + poolKind, newFakeWorld, fake},
		}
	}
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) { bridgeSession(t, k.world, k.left) })
	}
}

func bridgeSession(t *testing.T, world func(*testing.T, fakemodel.Script) *world, left func(bridgeStory) bool) {
	w := world(t, func(r fakemodel.Request) fakemodel.Reply {
		for _, story := range bridgeStories {
			if strings.Contains(r.Prompt, story.mark) {
				return story.model(r)
			}
		}
		return fakemodel.Say("no story has this prompt: " + r.Prompt)
	})
	var env []string
	if wall.Available() == nil {
		env = append(env, "POLLUX_WALL=require")
	}
	c := w.bridge(env...)
	for _, story := range bridgeStories {
		if left(story) {
			continue
		}
		t.Run(story.name, func(t *testing.T) {
			own, client := *w, *c
			own.t, client.w = t, &own
			story.run(t, &client)
		})
	}
	w.wantNothingLeft(c)
}

// readsThenAnswers reads hello.txt and answers.
func readsThenAnswers(r fakemodel.Request) fakemodel.Reply {
	if r.Step == 0 {
		return fakemodel.Reply{Parts: []fakemodel.Part{
			{Text: "I will read it. "}, {Call: "read_file", Args: map[string]any{"file_path": "hello.txt"}},
		}}
	}
	return fakemodel.Say("It says: " + string(r.Results[0].Response))
}

// The CLI reads a file and answers, behind the wall where the kernel has one. It still keeps its own
// state.
func bridgeReadsAndAnswers(t *testing.T, c *bridgeClient) {
	w := c.w
	w.file("hello.txt", "good morning")
	o := c.call("query", map[string]any{"prompt": "what does hello.txt say?"})
	o.want(t, false, "It says", "good morning")
	if strings.Contains(o.text, "I will read it") {
		t.Errorf("the answer contains the narration: %q", o.text)
	}
	tokens, _ := o.Meta["tokens"].(map[string]any)
	input, _ := tokens["input"].(float64)
	output, _ := tokens["output"].(float64)
	if o.Meta["model"] != "gemini-2.5-flash" || o.Meta["partial"] != false || o.Meta["durationMs"].(float64) <= 0 || input == 0 || output == 0 {
		t.Errorf("_meta is %v", o.Meta)
	}
	for next(t, "report of the reading", c.reported) != "reading hello.txt" {
	}
	state := 0
	filepath.WalkDir(filepath.Join(w.home, ".gemini"), func(_ string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			state++
		}
		return err
	})
	if state < 2 { // more than the settings of newWorld
		t.Error("the CLI did not write its own files")
	}
	if w.runtime != "" && wall.Available() == nil {
		if status := w.pollux("pool", "status"); !strings.Contains(status, "the kernel keeps agents from changing files") {
			t.Errorf("the status is\n%s", status)
		}
	}
}

// echo is a model that repeats the prompt and names the images.
func echo(r fakemodel.Request) fakemodel.Reply {
	return fakemodel.Say(r.Prompt + strings.Join(r.Images, ","))
}

func bridgeFilesAndImages(t *testing.T, c *bridgeClient) {
	w := c.w
	w.file("a b.py", "@decorator\ndef f(): pass\n")
	w.file("it's (1), 2.png", "\x89PNG\r\n\x1a\n"+strings.Repeat("\x00", 64))
	w.file("secret.txt", "TOPSECRET")
	w.writeHome("outside.txt", "OUTSIDE")
	o := c.call("query", map[string]any{
		"prompt": "mail me@secret.txt and @secret.txt, @@secret.txt, @@@secret.txt",
		"files":  []string{"a b.py", "it's (1), 2.png", "../home/outside.txt", "missing.txt"},
	})
	o.want(t, false, "mail me@secret.txt and @secret.txt", "@decorator\ndef f(): pass", "image/png", "left out ../home/outside.txt: it is outside", "left out missing.txt: there is no such file")
	if strings.Contains(o.text, "TOPSECRET") || strings.Contains(o.text, "OUTSIDE") {
		t.Errorf("the CLI read a file that was not sent: %q", o.text)
	}
}

// answersInvalid is a model whose first answer does not fit the schema.
func answersInvalid(r fakemodel.Request) fakemodel.Reply {
	if strings.Contains(r.Prompt, "is not valid") {
		return fakemodel.Say("```json\n{ \"when\": \"2026-11-21\" }\n```")
	}
	return fakemodel.Say(`{"when": "tomorrow"}`)
}

func bridgeStructured(t *testing.T, c *bridgeClient) {
	schema := `{"$schema": "http://json-schema.org/draft-07/schema#", "type": "object",
		"properties": {"when": {"type": "string", "format": "date"}}, "required": ["when"]}`
	o := c.call("structured", map[string]any{"prompt": "which date?", "schema": schema})
	o.want(t, false)
	if o.text != `{"when":"2026-11-21"}` || len(o.Content) != 1 || o.Meta["repaired"] != true {
		t.Errorf("got %q, %v", o.text, o.Meta)
	}
	got, _ := json.Marshal(o.StructuredContent)
	if string(got) != o.text {
		t.Errorf("structuredContent is %s", got)
	}
}

// refused are the models that do not answer.
var refused = map[string]fakemodel.Reply{
	"gemini-2.5-pro":        {Status: 429, PerDay: true, Message: "You exceeded your current quota."},
	"gemini-2.5-flash-lite": {Status: 429, Message: "You exceeded your current quota. Please retry in 20s."},
	"gemini-2.0-flash":      {Status: 503, Message: "The model is overloaded. Please try again later."},
}

func refuses(r fakemodel.Request) fakemodel.Reply {
	if reply, ok := refused[r.Model]; ok {
		return reply
	}
	return fakemodel.Say("the other one's answer")
}

func bridgeFallsBack(t *testing.T, c *bridgeClient) {
	for model, reply := range refused {
		o := c.call("query", map[string]any{"prompt": "fall back", "model": model})
		o.want(t, false, "the other one's answer", "answered by gemini-2.5-flash, because "+model+" failed")
		fallback, _ := o.Meta["fallback"].(map[string]any)
		if o.Meta["model"] != "gemini-2.5-flash" || fallback["from"] != model || fallback["to"] != "gemini-2.5-flash" {
			t.Errorf("after %+v, _meta is %v", reply, o.Meta)
		}
	}
}

func bridgeChangeMode(t *testing.T, c *bridgeClient) {
	w := c.w
	w.file("greet.py", "def greet():\r\n    pass\r\n")
	o := c.call("query", map[string]any{"prompt": "rename greet to hello", "changeMode": true})
	o.want(t, false, "I rename it.", "+def hello():")
	w.wantFile(filepath.Join(w.project, "greet.py"), "def greet():\r\n    pass\r\n")
	o.apply(t, w.project)
	w.wantFile(filepath.Join(w.project, "greet.py"), "def hello():\r\n    pass\r\n")
	w.wantFile(filepath.Join(w.project, "docs", "hello.md"), "# Hello\n")
}

// hugeAnswer returns the parts of an answer of 9 MB, longer than [agent.MaxAnswer]. It does not repeat
// itself: the CLI would stop it.
func hugeAnswer() (parts []fakemodel.Part) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 9 {
		var b strings.Builder
		for b.Len() < 1<<20 {
			fmt.Fprintf(&b, "Grüße %d, 世界 %x!\n", random.Uint64(), random.Uint64())
		}
		parts = append(parts, fakemodel.Part{Text: b.String()})
	}
	return parts
}

// An answer of 9 MB is cut. The part that is kept is valid text and can be
// fetched in pages.
func bridgeHugeAnswer(t *testing.T, c *bridgeClient) {
	o := c.call("query", map[string]any{"prompt": "tell everything", "timeout": 80000})
	o.want(t, false, "[Part 1 of ", "was cut after")
	chunk := o.Meta["chunk"].(map[string]any)
	total := int(chunk["total"].(float64))
	if len(o.text) > 8<<10 || total < 900 {
		t.Errorf("a first part of %d bytes, of %d", len(o.text), total)
	}
	second := c.call("fetch-chunk", map[string]any{"cacheKey": chunk["cacheKey"], "chunkIndex": 2})
	if both := o.text + second.text; !strings.HasPrefix(hugeAnswer()[0].Text, both) {
		t.Error("the joined parts differ from the answer")
	}
}

// A query continues an earlier conversation: the model gets the earlier turns.
// In a new conversation it gets none of them.
func bridgeConversation(t *testing.T, c *bridgeClient) {
	first := c.call("query", map[string]any{"prompt": "my word is zebra"})
	first.want(t, false, "Noted.", "sessionId")
	id, _ := first.Meta["sessionId"].(string)
	if id == "" || first.Meta["runner"] != runner(t) {
		t.Fatalf("_meta is %v", first.Meta)
	}
	c.call("query", map[string]any{"prompt": "what is my word?", "sessionId": id}).want(t, false, "Noted.")
	c.call("query", map[string]any{"prompt": "what is my word then?"}).want(t, false, "Noted.")
	knew := map[string]bool{}
	for _, r := range c.w.model.Requests() {
		for _, q := range []string{"what is my word?", "what is my word then?"} {
			if strings.Contains(r.Prompt, q) {
				knew[q] = strings.Contains(r.Text, "zebra")
			}
		}
	}
	if !knew["what is my word?"] || knew["what is my word then?"] {
		t.Errorf("the model had the word: %v", knew)
	}
	c.call("list-sessions", nil).want(t, false, id, "my word is zebra")
	c.call("close-session", map[string]any{"sessionId": id}).want(t, false, "closed")
	c.call("query", map[string]any{"prompt": "my word", "sessionId": id}).want(t, true, "no session")
}

// searches is a model that searches the web, and is the service that searches.
func searches(r fakemodel.Request) fakemodel.Reply {
	switch {
	case slices.Contains(r.Tools, "googleSearch"):
		return fakemodel.Say("Go 1.26 is out.")
	case r.Step == 0:
		return fakemodel.CallTool("google_web_search", map[string]any{"query": "newest Go"})
	}
	return fakemodel.Say("Found: " + string(r.Results[0].Response))
}

func bridgeSearches(t *testing.T, c *bridgeClient) {
	c.call("search", map[string]any{"query": "newest Go"}).want(t, false, "Go 1.26 is out")
	for next(t, "report of the search", c.reported) != `searching the web for "newest Go"` {
	}
}

func bridgeCancels(t *testing.T, c *bridgeClient) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := c.CallTool(ctx, &mcp.CallToolParams{Name: "query", Arguments: map[string]any{"prompt": "free or hang: hang now"}})
		done <- err
	}()
	c.w.prompted("hang now")
	running := c.agents()
	if len(running) == 0 {
		t.Fatal("no CLI runs")
	}
	cancel()
	if err := next(t, "end of the call", done); err == nil {
		t.Error("a cancelled call has a result")
	}
	if runner(t) == agent.Spawned {
		waitGone(t, running...)
	}
	c.call("query", map[string]any{"prompt": "free or hang?"}).want(t, false, "free again")
}
