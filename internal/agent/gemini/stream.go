package gemini

import (
	"bytes"
	"encoding/json"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"pollux/internal/agent"
)

const (
	// maxLine bounds a line of the CLI's output that is kept whole.
	maxLine = 16 << 20
	// maxLegacy bounds output that is not the stream's, kept for the case that
	// it is the JSON of an older CLI.
	maxLegacy = agent.MaxAnswer * 2
)

// A wireEvent is a line of the CLI's --output-format stream-json.
type wireEvent struct {
	Type       string          `json:"type"`
	Timestamp  json.RawMessage `json:"timestamp"`
	Model      string          `json:"model"`
	Role       string          `json:"role"`
	Content    string          `json:"content"`
	ToolName   string          `json:"tool_name"`
	ToolID     string          `json:"tool_id"`
	Parameters json.RawMessage `json:"parameters"`
	Status     string          `json:"status"`
	Severity   string          `json:"severity"`
	Message    string          `json:"message"`
	Error      *struct {
		Type    string `json:"type"`
		Message string `json:"message"`
	} `json:"error"`
	Stats *wireStats `json:"stats"`
}

type wireStats struct {
	Total  int `json:"total_tokens"`
	Input  int `json:"input_tokens"`
	Output int `json:"output_tokens"`
	Cached int `json:"cached"`
	Models map[string]struct {
		Output int `json:"output_tokens"`
		Total  int `json:"total_tokens"`
		// in the older JSON
		Tokens struct {
			Prompt     int `json:"prompt"`
			Candidates int `json:"candidates"`
			Total      int `json:"total"`
			Cached     int `json:"cached"`
		} `json:"tokens"`
	} `json:"models"`
}

// A transcript reads the CLI's output as it comes and keeps what the result
// needs: a bounded amount, whatever the CLI prints.
type transcript struct {
	emit    func(agent.Event)
	allowed []string // tools besides those that read

	line    []byte // an unfinished one
	cutLine bool   // it was longer than maxLine

	answer    strings.Builder
	narration strings.Builder
	truncated bool
	spoke     time.Time // when the last piece of the answer came
	restarts  []int     // where in the answer it went on after a pause

	streaming bool // the output is the stream's
	ended     bool // the result event has come
	status    string
	message   string // of the error and result events
	model     string
	tokens    agent.Tokens
	tools     int
	open      map[string]openTool // the tools that run, by their ID
	strayed   string              // a tool that ran though the policy denies it
	wrote     int                 // how many tool uses have written a file
	legacy    []byte
}

// An openTool is one that has no result yet.
type openTool struct {
	name  string
	since time.Time
}

// Write takes output in pieces of any size; a character may be cut between
// two of them. It never fails.
func (t *transcript) Write(b []byte) (int, error) {
	n := len(b)
	for len(b) > 0 {
		i := bytes.IndexByte(b, '\n')
		piece := b
		if i >= 0 {
			piece = b[:i]
		}
		if room := maxLine - len(t.line); len(piece) > room {
			piece, t.cutLine = piece[:room], true
		}
		if i >= 0 && len(t.line) == 0 && !t.cutLine {
			t.readLine(piece)
		} else {
			t.line = append(t.line, piece...)
			if i >= 0 {
				t.flush()
			}
		}
		if i < 0 {
			break
		}
		b = b[i+1:]
	}
	return n, nil
}

// flush ends the unfinished line.
func (t *transcript) flush() {
	line := t.line
	if t.cutLine {
		line = salvage(line)
		t.truncated = true
	}
	if len(line) > 0 {
		t.readLine(line)
	}
	t.line, t.cutLine = t.line[:0], false
	if cap(t.line) > 1<<20 {
		t.line = nil
	}
}

// salvage makes an event of the start of a message whose line is too long.
func salvage(line []byte) []byte {
	i := bytes.Index(line, []byte(`"content":"`))
	if i < 0 || !bytes.HasPrefix(line, []byte(`{"type":"message"`)) {
		return nil
	}
	// An escape may be cut: \, \u, \u00, or the first half of a pair.
	cut := len(line)
	if j := bytes.LastIndexByte(line[:cut], '\\'); j >= cut-12 {
		for cut = j; cut > 0 && line[cut-1] == '\\'; cut-- {
		}
	}
	for !utf8.Valid(line[max(0, cut-utf8.UTFMax):cut]) && cut > len(line)-2*utf8.UTFMax {
		cut--
	}
	return append(line[:cut:cut], `"}`...)
}

func (t *transcript) readLine(line []byte) {
	line = bytes.TrimSpace(line)
	if len(line) == 0 {
		return
	}
	var ev wireEvent
	if line[0] != '{' || json.Unmarshal(line, &ev) != nil || !t.apply(&ev) {
		// Other lines are nothing of ours, unless there never are ours.
		if !t.streaming && len(t.legacy)+len(line) < maxLegacy {
			t.legacy = append(append(t.legacy, line...), '\n')
		}
		return
	}
	t.streaming, t.legacy = true, nil
}

// apply takes one event and reports whether it is one of the stream's.
func (t *transcript) apply(ev *wireEvent) bool {
	switch ev.Type {
	case "init":
		t.model = ev.Model // as asked for; the figures at the end know better
		t.emit(agent.Started{})
	case "message":
		if ev.Role == "assistant" && ev.Content != "" {
			var at time.Time
			json.Unmarshal(ev.Timestamp, &at) // zero where there is none
			t.hear(ev.Content, at)
		}
	case "tool_use":
		t.use(ev.ToolID, ev.ToolName, summarize(ev.Parameters))
	case "tool_result":
		message := ""
		if ev.Error != nil {
			message = ev.Error.Message
		}
		t.used(ev.ToolID, ev.Status == "success", message)
	case "error":
		if ev.Severity == "error" || t.message == "" {
			t.message = ev.Message
		}
		t.emit(agent.Warning{Message: tidy(ev.Message)})
	case "result":
		t.ended, t.status = true, ev.Status
		if ev.Error != nil && ev.Error.Message != "" {
			t.message = ev.Error.Message
			if ev.Error.Type != "" && ev.Error.Type != "unknown" {
				t.message = ev.Error.Type + ": " + t.message
			}
		}
		t.count(ev.Stats)
	default:
		return false
	}
	return true
}

// hear takes a piece of what the model says, and when it came.
func (t *transcript) hear(text string, at time.Time) {
	if t.answer.Len() > 0 && at.Sub(t.spoke) >= restartPause {
		t.restarts = append(t.restarts, t.answer.Len())
	}
	t.spoke = at
	t.say(text)
}

// use takes the start of a tool use, used its end.
func (t *transcript) use(id, name, summary string) {
	t.turn()
	t.tools++
	if t.open == nil {
		t.open = make(map[string]openTool)
	}
	t.open[id] = openTool{name, time.Now()}
	t.emit(agent.ToolUse{Name: name, Summary: summary})
}

func (t *transcript) used(id string, ok bool, message string) {
	t.turn()
	name := t.open[id].name
	delete(t.open, id)
	if ok && name != "" && !slices.Contains(ReadTools, name) && !slices.Contains(readAliases, name) && !slices.Contains(t.allowed, name) {
		t.strayed = name
	}
	if ok && slices.Contains(writeTools, name) {
		t.wrote++
	}
	t.emit(agent.ToolResult{Name: name, OK: ok, Message: tidy(message)})
}

// searched is how long the oldest web search has run that still does, if one
// does.
func (t *transcript) searched(now time.Time) (longest time.Duration, any bool) {
	for _, tool := range t.open {
		if tool.name == "google_web_search" {
			longest, any = max(longest, now.Sub(tool.since)), true
		}
	}
	return longest, any
}

// say adds to the answer, as much as there is room for.
func (t *transcript) say(text string) {
	if room := agent.MaxAnswer - t.answer.Len(); len(text) > room {
		for room > 0 && !utf8.RuneStart(text[room]) {
			room--
		}
		text, t.truncated = text[:max(room, 0)], true
	}
	if text != "" {
		t.answer.WriteString(text)
		t.emit(agent.Text{Text: text})
	}
}

// turn makes narration of what has been said: a tool is used after it.
func (t *transcript) turn() {
	if t.answer.Len() == 0 {
		return
	}
	if t.narration.Len() > 0 {
		t.narration.WriteString("\n")
	}
	if t.narration.Len() < agent.MaxAnswer {
		t.narration.WriteString(strings.TrimSpace(t.answer.String()))
	}
	t.answer.Reset()
	t.restarts = nil
}

func (t *transcript) count(s *wireStats) {
	if s == nil {
		return
	}
	t.tokens = agent.Tokens{Input: s.Input, Output: s.Output, Cached: s.Cached, Total: s.Total}
	most := -1
	if len(s.Models) > 0 {
		t.model = ""
	}
	for name, m := range s.Models {
		out := max(m.Output, m.Tokens.Candidates)
		if out > most || out == most && name < t.model {
			t.model, most = name, out
		}
		if s.Total == 0 {
			t.tokens.Input += m.Tokens.Prompt
			t.tokens.Output += m.Tokens.Candidates
			t.tokens.Cached += m.Tokens.Cached
			t.tokens.Total += m.Tokens.Total
		}
	}
	t.emit(agent.Stats{Model: t.model, Tokens: t.tokens})
}

// finish is called when there is no more output.
func (t *transcript) finish(stderr []byte) {
	t.flush()
	if t.streaming {
		return
	}
	// An older CLI prints one JSON value at the end, on standard error when it
	// fails.
	for _, out := range [][]byte{t.legacy, stderr} {
		i := bytes.IndexByte(out, '{')
		if i < 0 {
			continue
		}
		var v struct {
			Response *string `json:"response"`
			Error    *struct {
				Type    string `json:"type"`
				Message string `json:"message"`
			} `json:"error"`
			Stats *wireStats `json:"stats"`
		}
		if json.NewDecoder(bytes.NewReader(out[i:])).Decode(&v) != nil {
			continue
		}
		switch {
		case v.Error != nil:
			t.ended, t.status, t.message = true, "error", v.Error.Message
		case v.Response != nil:
			t.ended, t.status = true, "success"
			t.say(*v.Response)
		default:
			continue
		}
		t.count(v.Stats)
		return
	}
}

// restartPause is the least time between the parts of an answer of which the
// second may be the first once more.
const restartPause = 500 * time.Millisecond

// once is the answer without what a failed attempt had said of it: the CLI asks
// again after a stream that broke, and prints what comes as if it went on. It
// is seen where the new attempt starts with the words of the old, and those are
// more than an answer says twice by itself.
func (t *transcript) once() string {
	s, cut := t.answer.String(), 0
	for _, at := range t.restarts {
		if first := s[cut:at]; len(first) >= 32 && len(strings.Fields(first)) >= 5 && strings.HasPrefix(s[at:], first) {
			cut = at
		}
	}
	return s[cut:]
}

func (t *transcript) result() agent.Result {
	return agent.Result{
		Answer: strings.TrimSpace(t.once()), Narration: t.narration.String(),
		Model: t.model, Tokens: t.tokens, Tools: t.tools, Truncated: t.truncated,
	}
}

// summarize is the argument of a tool that tells most.
func summarize(parameters json.RawMessage) string {
	var args map[string]any
	if json.Unmarshal(parameters, &args) != nil {
		return ""
	}
	for _, key := range []string{"file_path", "absolute_path", "path", "dir_path", "query", "pattern", "command", "prompt", "url"} {
		s, ok := args[key].(string)
		if !ok || s == "" {
			continue
		}
		if filepath.IsAbs(s) {
			s = path.Base(filepath.ToSlash(s))
		}
		s = shorten(strings.Join(strings.Fields(s), " "), 60)
		if key == "query" || key == "pattern" {
			s = strconv.Quote(s)
		}
		return s
	}
	return ""
}
