package claudeide

import (
	"encoding/json"
	"fmt"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode/utf16"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"pollux/internal/companion"
	"pollux/internal/editor"
	"pollux/internal/paths"
)

// maxSelection bounds a selection in characters. The agent sends its model about
// 2,000.
const maxSelection = 16 << 10

// A selectionChanged is the only context that the agents take: one file and one
// selection. Without a file nothing is open.
type selectionChanged struct {
	Text      string    `json:"text"`
	FilePath  string    `json:"filePath"`
	FileURL   string    `json:"fileUrl"`
	Selection selection `json:"selection"`
}

// A selection has positions that count from 0.
type selection struct {
	Start   position `json:"start"`
	End     position `json:"end"`
	IsEmpty bool     `json:"isEmpty"`
}

type position struct {
	Line      int `json:"line"`
	Character int `json:"character"`
}

// newSelection returns the message for a context. shift is added to each line:
// opencode shows the numbers as they are, while Claude Code adds 1. The agents do not
// check the path, so newSelection leaves out a file outside the roots. It reads the
// disk.
func newSelection(c companion.Context, roots []string, shift int) selectionChanged {
	m := selectionChanged{Selection: selection{IsEmpty: true}}
	if len(c.Files) == 0 || !c.Files[0].Active {
		return m
	}
	f := c.Files[0]
	path, inside := pathIn(f.Path, roots)
	if !inside {
		return m
	}
	m.FilePath, m.FileURL = path, fileURL(path)
	if f.Cursor == nil {
		return m
	}
	at := position{f.Cursor.Line - 1 + shift, f.Cursor.Character - 1}
	m.Selection.Start, m.Selection.End = at, at
	if f.Selection == "" {
		return m
	}
	m.Text, m.Selection.IsEmpty = cut(f.Selection, maxSelection), false
	m.Selection.Start, m.Selection.End = span(f, at)
	return m
}

// pathIn returns the path that leads to a file inside the roots, in which the agent
// looks for it. It reports false if the file is outside. It reads the disk.
func pathIn(path string, roots []string) (string, bool) {
	inRoots := func(path string) bool {
		return slices.ContainsFunc(roots, func(root string) bool { return paths.Contains(root, path) })
	}
	actual := paths.Real(path)
	if !inRoots(path) { // the editor may have opened the folder through a symbolic link
		path = actual
	}
	return path, inRoots(actual)
}

// span returns where a file's selection starts and ends. The editor protocol does not
// say at which end the cursor is; it is taken for the end, if the text before it
// can have that many lines.
func span(f companion.File, at position) (start, end position) {
	if r := f.Range; r != nil {
		shift := at.Line - (f.Cursor.Line - 1)
		return position{r.Start.Line - 1 + shift, r.Start.Character - 1}, position{r.End.Line - 1 + shift, r.End.Character - 1}
	}
	lines := strings.Count(strings.TrimSuffix(f.Selection, "\n"), "\n")
	if f.Cursor.Line > lines {
		return position{Line: at.Line - lines}, at
	}
	return at, position{Line: at.Line + lines, Character: at.Character + 1}
}

// cut returns at most limit UTF-16 code units of a text.
func cut(text string, limit int) string {
	units := 0
	for i, r := range text {
		if units += utf16.RuneLen(r); units > limit {
			return text[:i]
		}
	}
	return text
}

func fileURL(path string) string {
	slashed := filepath.ToSlash(path)
	if !strings.HasPrefix(slashed, "/") {
		slashed = "/" + slashed
	}
	return (&url.URL{Scheme: "file", Path: slashed}).String()
}

// refreshDelays are the times after which the context is sent again. An agent that
// has just connected, or just sent a prompt, silently drops what comes too early.
var refreshDelays = []time.Duration{0, 400 * time.Millisecond, 1500 * time.Millisecond}

// write sends the context whenever it has changed, and again when the agent may have
// dropped it.
func (s *Session) write() {
	defer s.server.onPanic()
	timer := time.NewTimer(0)
	defer timer.Stop()
	refreshed := time.Now()
	left := refreshDelays
	var sent selectionChanged
	first := true
	for {
		again := false
		select {
		case <-s.wake:
		case m := <-s.mentions:
			m.sent <- s.notify("at_mentioned", m.atMentioned)
			continue
		case <-s.refresh:
			refreshed, left = time.Now(), refreshDelays
			timer.Reset(0)
			continue
		case <-timer.C:
			again = true
			if left = left[1:]; len(left) > 0 {
				timer.Reset(time.Until(refreshed.Add(left[0])))
			}
		case <-s.ctx.Done():
			return
		}
		m, ok := s.selection()
		if !ok {
			return
		}
		if m == sent && !again && !first {
			continue
		}
		if err := s.notify("selection_changed", m); err != nil {
			return // the session ends
		}
		sent, first = m, false
	}
}

// selection returns the message for the context as it is now. It reports false if the
// session ends while a disk does not answer.
func (s *Session) selection() (m selectionChanged, ok bool) {
	shift := s.shift()
	answer := make(chan selectionChanged, 1)
	go func() {
		defer s.server.onPanic()
		answer <- newSelection(s.server.cfg.Backend.Context(), s.server.cfg.Backend.Roots(), shift)
	}()
	select {
	case m = <-answer:
		return m, true
	case <-s.ctx.Done():
		return m, false
	}
}

// shift returns what is added to a line that counts from 0.
func (s *Session) shift() int {
	if s.clientInfo().Name == opencode {
		return 1
	}
	return 0
}

func (s *Session) notify(method string, params any) error {
	data, err := json.Marshal(params)
	if err != nil {
		return err
	}
	return conn{s}.Write(s.ctx, &jsonrpc.Request{Method: method, Params: data})
}

// What the agents show when they read their keyboard. Claude Code shows it in every
// permission mode, and only while its input line is empty; opencode shows it before the
// first question only.
const (
	claudeReady   = "\u2190 for agents"
	opencodeReady = "Ask anything"
)

// Prompt implements [companion.Session].
func (s *Session) Prompt(p editor.PromptParams, roots []string) editor.Prompt {
	if s.clientInfo().Name == opencode {
		return OpencodePrompt(p, roots)
	}
	return ClaudePrompt(p, roots)
}

// ClaudePrompt returns what to type into Claude Code's terminal to ask about a file. It
// names the file relative to the first of the roots, where editors start agents.
func ClaudePrompt(p editor.PromptParams, roots []string) editor.Prompt {
	prompt := companion.NewPrompt(p, about(p, roots), claudeReady)
	prompt.Empty = true
	return prompt
}

// OpencodePrompt is [ClaudePrompt] for opencode.
func OpencodePrompt(p editor.PromptParams, roots []string) editor.Prompt {
	return companion.NewPrompt(p, about(p, roots), opencodeReady)
}

// about names a file and its lines in the agents' @ syntax.
func about(p editor.PromptParams, roots []string) string {
	var b strings.Builder
	if p.Path != "" {
		b.WriteString(atPath(companion.NameIn(p.Path, roots)))
		switch {
		case p.Line > 0 && p.EndLine > p.Line:
			fmt.Fprintf(&b, "#L%d-%d", p.Line, p.EndLine)
		case p.Line > 0:
			fmt.Fprintf(&b, "#L%d", p.Line)
		}
	}
	return b.String()
}

// atPath returns the path in the agents' @ syntax.
func atPath(path string) string {
	if strings.ContainsAny(path, " \t") {
		return `@"` + path + `"`
	}
	return "@" + path
}
