package fakemodel

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
)

// anthropicPath is the path of Anthropic's Messages API.
const anthropicPath = "/v1/messages"

// anthropic is the API of Claude Code.
var anthropic = dialect{parse: parseAnthropic, fail: failAnthropic, write: writeAnthropic, own: withoutTools}

// A block is a part of a message: text, a tool's call, or its result.
type block struct {
	Type      string          `json:"type"`
	Text      string          `json:"text"`
	Name      string          `json:"name"`
	ToolUseID string          `json:"tool_use_id"`
	ID        string          `json:"id"`
	Content   json.RawMessage `json:"content"`
}

// blocks parses content that is a string or a list of blocks.
func blocks(data json.RawMessage) (list []block) {
	var text string
	if json.Unmarshal(data, &text) == nil {
		return []block{{Type: "text", Text: text}}
	}
	json.Unmarshal(data, &list)
	return list
}

func textOf(list []block) string {
	var b strings.Builder
	for _, one := range list {
		b.WriteString(one.Text)
		if one.Type == "text" {
			b.WriteString("\n")
		}
	}
	return b.String()
}

// promptOf returns what the user has typed in a message. After a rejected call Claude
// Code sends the next prompt in the same message as the call's result, and it adds
// its own remarks to results.
func promptOf(list []block) string {
	own := func(b block) bool {
		return strings.HasPrefix(b.Text, "<") || strings.HasPrefix(b.Text, "[Request interrupted")
	}
	i := len(list)
	for i > 0 && list[i-1].Type != "tool_result" {
		i--
	}
	if i == 0 {
		return textOf(list)
	}
	return textOf(slices.DeleteFunc(slices.Clone(list[i:]), own))
}

func parseAnthropic(r *http.Request, body []byte) (x exchange, err error) {
	var raw struct {
		Model    string          `json:"model"`
		System   json.RawMessage `json:"system"`
		Messages []struct {
			Role    string          `json:"role"`
			Content json.RawMessage `json:"content"`
		} `json:"messages"`
		Tools  []named `json:"tools"`
		Stream bool    `json:"stream"`
	}
	if r.URL.Path != anthropicPath {
		return x, fmt.Errorf("%w %s", errNoMethod, r.URL.Path)
	}
	if err := json.Unmarshal(body, &raw); err != nil {
		return x, err
	}
	x.Model, x.Method, x.System, x.stream = raw.Model, "messages", textOf(blocks(raw.System)), raw.Stream
	var items []item
	for _, m := range raw.Messages {
		list := blocks(m.Content)
		x.Text += textOf(list)
		for _, b := range list {
			switch b.Type {
			case "tool_use":
				items = append(items, item{name: b.Name, id: b.ID})
			case "tool_result":
				items = append(items, item{id: b.ToolUseID, isResult: true, result: b.Content})
			}
		}
		if prompt := promptOf(list); prompt != "" {
			items = append(items, item{role: m.Role, text: prompt})
		}
	}
	x.converse(items)
	for _, t := range raw.Tools {
		x.Tools = append(x.Tools, t.Name)
	}
	return x, nil
}

func (p Part) anthropic(index int) map[string]any {
	if p.Call == "" {
		return map[string]any{"type": "text", "text": p.Text}
	}
	id := fmt.Sprintf("toolu_%d_%d", time.Now().UnixNano(), index)
	return map[string]any{"type": "tool_use", "id": id, "name": p.Call, "input": p.args()}
}

func message(x exchange, content []any) map[string]any {
	if content == nil {
		content = []any{}
	}
	return map[string]any{
		"id": fmt.Sprintf("msg_%d", time.Now().UnixNano()), "type": "message", "role": "assistant",
		"model": x.Model, "content": content, "stop_reason": nil, "stop_sequence": nil,
		"usage": map[string]any{"input_tokens": len(x.Text)/4 + 1, "output_tokens": 1},
	}
}

func (r Reply) stop() string {
	if slices.ContainsFunc(r.Parts, func(p Part) bool { return p.Call != "" }) {
		return "tool_use"
	}
	return "end_turn"
}

func writeAnthropic(w http.ResponseWriter, r *http.Request, x exchange, reply Reply) {
	if !x.stream {
		var content []any
		for i, p := range reply.Parts {
			content = append(content, p.anthropic(i))
		}
		m := message(x, content)
		m["stop_reason"] = reply.stop()
		writeJSON(w, m)
		return
	}
	e := newEvents(w, r)
	send := func(kind string, fields map[string]any) {
		fields["type"] = kind
		e.send(kind, fields)
	}
	send("message_start", map[string]any{"message": message(x, nil)})
	for i, p := range reply.Parts {
		if !e.pause(p) {
			return
		}
		send("content_block_start", map[string]any{"index": i, "content_block": Part{Call: p.Call}.anthropic(i)})
		delta := map[string]any{"type": "text_delta", "text": p.Text}
		if p.Call != "" {
			args, _ := json.Marshal(p.Args)
			delta = map[string]any{"type": "input_json_delta", "partial_json": string(args)}
		}
		send("content_block_delta", map[string]any{"index": i, "delta": delta})
		send("content_block_stop", map[string]any{"index": i})
	}
	send("message_delta", map[string]any{
		"delta": map[string]any{"stop_reason": reply.stop()}, "usage": map[string]any{"output_tokens": 5},
	})
	send("message_stop", map[string]any{})
}

func failAnthropic(w http.ResponseWriter, r Reply) {
	writeError(w, r.Status, map[string]any{"type": "error", "error": map[string]any{"type": "api_error", "message": r.Message}})
}
