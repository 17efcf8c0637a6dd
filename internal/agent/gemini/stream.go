package gemini

import (
	"bytes"
	"encoding/json"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"pollux/internal/agent"
)

// maxLine limits a line that the CLI prints. Longer lines are cut.
const maxLine = 16 << 20

// A wireEvent is a line of --output-format stream-json.
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
	} `json:"models"`
}

// A parser implements [agent.Parser] for --output-format stream-json. It keeps a
// limited amount, however much the CLI prints.
type parser struct {
	t *agent.Transcript

	line    []byte // the start of an unfinished line
	cutLine bool   // the unfinished line is longer than maxLine

	ended   bool // the result event has arrived
	status  string
	message string // from the error and result events
}

// Outcome implements [agent.Parser].
func (p *parser) Outcome() agent.Outcome {
	return agent.Outcome{Ended: p.ended, OK: p.ended && p.status == "success", Message: p.message}
}

// Write implements [agent.Parser]. A character may be split between two pieces.
func (p *parser) Write(b []byte) (int, error) {
	n := len(b)
	for len(b) > 0 {
		i := bytes.IndexByte(b, '\n')
		piece := b
		if i >= 0 {
			piece = b[:i]
		}
		if room := maxLine - len(p.line); len(piece) > room {
			piece, p.cutLine = piece[:room], true
		}
		if i >= 0 && len(p.line) == 0 && !p.cutLine {
			p.readLine(piece)
		} else {
			p.line = append(p.line, piece...)
			if i >= 0 {
				p.flush()
			}
		}
		if i < 0 {
			break
		}
		b = b[i+1:]
	}
	return n, nil
}

// flush handles the unfinished line.
func (p *parser) flush() {
	line := p.line
	if p.cutLine {
		line = salvage(line)
		p.t.Truncate()
	}
	if len(line) > 0 {
		p.readLine(line)
	}
	p.line, p.cutLine = p.line[:0], false
	if cap(p.line) > 1<<20 {
		p.line = nil
	}
}

// salvage returns an event with the start of a message from a line that was too
// long.
func salvage(line []byte) []byte {
	i := bytes.Index(line, []byte(`"content":"`))
	if i < 0 || !bytes.HasPrefix(line, []byte(`{"type":"message"`)) {
		return nil
	}
	// The cut may be inside an escape: \, \u, \u00, or the first half of a pair.
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

// readLine handles a line. The CLI also prints lines that are not events.
func (p *parser) readLine(line []byte) {
	var ev wireEvent
	if json.Unmarshal(line, &ev) != nil {
		return
	}
	switch ev.Type {
	case "init":
		p.t.SetModel(ev.Model) // the requested model; the statistics at the end may name others
		p.t.Emit(agent.Started{})
	case "message":
		if ev.Role == "assistant" && ev.Content != "" {
			var at time.Time
			json.Unmarshal(ev.Timestamp, &at) // zero without a timestamp
			p.t.Text(ev.Content, at)
		}
	case "tool_use":
		p.t.ToolStarted(ev.ToolID, ev.ToolName, summarize(ev.Parameters))
	case "tool_result":
		message := ""
		if ev.Error != nil {
			message = ev.Error.Message
		}
		p.t.ToolEnded(ev.ToolID, ev.Status == "success", message)
	case "error":
		if ev.Severity == "error" || p.message == "" {
			p.message = ev.Message
		}
	case "result":
		p.ended, p.status = true, ev.Status
		if ev.Error != nil && ev.Error.Message != "" {
			p.message = ev.Error.Message
			if ev.Error.Type != "" && ev.Error.Type != "unknown" {
				p.message = ev.Error.Type + ": " + p.message
			}
		}
		p.count(ev.Stats)
	}
}

// count records the statistics.
func (p *parser) count(s *wireStats) {
	if s == nil {
		return
	}
	tokens := agent.Tokens{Input: s.Input, Output: s.Output, Cached: s.Cached, Total: s.Total}
	model, most := "", -1
	for name, m := range s.Models {
		if m.Output > most || m.Output == most && name < model {
			model, most = name, m.Output
		}
	}
	p.t.SetUsage(model, tokens)
}

// Finish implements [agent.Parser].
func (p *parser) Finish() { p.flush() }

// summarize returns the most informative argument of a tool call.
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
		if filepath.IsAbs(s) || strings.HasPrefix(s, "/") {
			s = path.Base(filepath.ToSlash(s))
		}
		s = agent.Shorten(strings.Join(strings.Fields(s), " "), 60)
		if key == "query" || key == "pattern" {
			s = strconv.Quote(s)
		}
		return s
	}
	return ""
}
