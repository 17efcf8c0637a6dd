package gemini

import (
	"encoding/json"
	"errors"
	"io"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"pollux/internal/agent"
	"pollux/internal/jsonl"
)

// maxLine limits a line that the CLI prints, in bytes.
const maxLine = 64 << 20

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
	Stats json.RawMessage `json:"stats"`
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

// A parser reads --output-format stream-json.
type parser struct {
	update func(agent.Update)
	ended  chan struct{} // closed when the result event has arrived

	// Nothing after the result event changes these.
	status  string
	message string // from the error and result events
	stats   json.RawMessage
}

// read reads to the end.
func (p *parser) read(r io.Reader) {
	lines := jsonl.NewReader(r, maxLine)
	for {
		line, err := lines.ReadLine()
		p.update(agent.Update{Kind: "line"})
		p.readLine(line)
		_, skipped := errors.AsType[*jsonl.TooLongError](err)
		switch {
		case skipped && !p.hasEnded():
			p.update(agent.Update{Kind: agent.Skipped})
		case err != nil && !skipped:
			return
		}
	}
}

// readLine handles a line. The CLI also prints lines that are not events.
func (p *parser) readLine(line []byte) {
	var ev wireEvent
	if p.hasEnded() || json.Unmarshal(line, &ev) != nil {
		return
	}
	switch ev.Type {
	case "init":
		p.update(agent.Update{Kind: agent.Begun, Model: ev.Model}) // the statistics at the end may name others
	case "message":
		if ev.Role == "assistant" {
			var at time.Time
			json.Unmarshal(ev.Timestamp, &at) // zero without a timestamp
			p.update(agent.Update{Kind: agent.MessageChunk, Text: ev.Content, At: at})
		}
	case "tool_use":
		p.update(agent.Update{Kind: agent.ToolCall, ToolCall: ev.ToolID, ToolKind: ev.ToolName, Title: summarize(ev.Parameters)})
	case "tool_result":
		u := agent.Update{Kind: agent.ToolCallUpdate, ToolCall: ev.ToolID, ToolKind: ev.ToolName, Status: agent.ToolFailed}
		if ev.Status == "success" {
			u.Status = agent.ToolCompleted
		}
		if ev.Error != nil {
			u.Text = ev.Error.Message
		}
		p.update(u)
	case "error":
		if ev.Severity == "error" || p.message == "" {
			p.message = ev.Message
		}
	case "result":
		p.status, p.stats = ev.Status, ev.Stats
		if ev.Error != nil && ev.Error.Message != "" {
			p.message = ev.Error.Message
			if ev.Error.Type != "" && ev.Error.Type != "unknown" {
				p.message = ev.Error.Type + ": " + p.message
			}
		}
		close(p.ended)
	}
}

func (p *parser) hasEnded() bool {
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}

// oneShotTool implements [agent.Process.Tool].
func oneShotTool(u agent.Update) (name, summary string) { return u.ToolKind, u.Title }

// oneShotUsage implements [agent.Process.Usage], for the statistics in the result event.
func oneShotUsage(stats json.RawMessage) (model string, tokens agent.Tokens) {
	var s wireStats
	if json.Unmarshal(stats, &s) != nil {
		return "", tokens
	}
	most := -1
	for name, m := range s.Models {
		if m.Output > most || m.Output == most && name < model {
			model, most = name, m.Output
		}
	}
	return model, agent.Tokens{Input: s.Input, Output: s.Output, Cached: s.Cached, Total: s.Total}
}

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
		s = agent.Summary(s)
		if key == "query" || key == "pattern" {
			s = strconv.Quote(s)
		}
		return s
	}
	return ""
}
