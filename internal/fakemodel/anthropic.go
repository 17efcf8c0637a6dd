package fakemodel

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"
)

// anthropicPath starts the paths of Anthropic's API. ANTHROPIC_BASE_URL points the
// real Claude Code at it.
const anthropicPath = "/v1/"

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

func parseAnthropic(body []byte) (r Request, stream bool, err error) {
	var raw struct {
		Model    string          `json:"model"`
		System   json.RawMessage `json:"system"`
		Messages []struct {
			Role    string          `json:"role"`
			Content json.RawMessage `json:"content"`
		} `json:"messages"`
		Tools []struct {
			Name string `json:"name"`
		} `json:"tools"`
		Stream bool `json:"stream"`
	}
	if err := json.Unmarshal(body, &raw); err != nil {
		return r, false, err
	}
	r = Request{Model: raw.Model, Method: "messages", System: textOf(blocks(raw.System))}
	names := make(map[string]string) // of calls, by ID
	for _, m := range raw.Messages {
		list := blocks(m.Content)
		r.Text += textOf(list)
		for _, b := range list {
			if b.Type == "tool_use" {
				names[b.ID] = b.Name
			}
		}
	}
	for _, m := range slices.Backward(raw.Messages) {
		if m.Role != "user" {
			continue
		}
		list := blocks(m.Content)
		if prompt := promptOf(list); prompt != "" {
			r.Prompt = prompt
			break
		}
		if r.Step++; r.Step == 1 {
			for _, b := range list {
				if b.Type == "tool_result" {
					r.Results = append(r.Results, Result{names[b.ToolUseID], b.Content})
				}
			}
		}
	}
	for _, t := range raw.Tools {
		r.Tools = append(r.Tools, t.Name)
	}
	return r, raw.Stream, nil
}

// serveAnthropic serves Anthropic's Messages API.
func (s *Server) serveAnthropic(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/v1/messages":
	case "/v1/messages/count_tokens":
		writeJSON(w, map[string]any{"input_tokens": 100})
		return
	default:
		failAnthropic(w, http.StatusNotFound, "no such method "+r.URL.Path)
		return
	}
	body, err := io.ReadAll(r.Body)
	var req Request
	var streams bool
	if err == nil {
		req, streams, err = parseAnthropic(body)
	}
	if err != nil {
		failAnthropic(w, http.StatusBadRequest, err.Error())
		return
	}
	reply := Say("ok")
	if len(req.Tools) > 0 { // otherwise the CLI asks for itself, such as for a title
		reply = s.reply(req)
	}
	switch {
	case reply.Hang:
		<-r.Context().Done()
	case reply.Status != 0:
		failAnthropic(w, reply.Status, reply.Message)
	case streams:
		streamAnthropic(w, r, req, reply)
	default:
		var content []any
		for i, p := range reply.Parts {
			content = append(content, p.anthropic(i, true))
		}
		m := message(req, content)
		m["stop_reason"] = reply.stop()
		writeJSON(w, m)
	}
}

func (p Part) anthropic(index int, whole bool) map[string]any {
	if p.Call == "" {
		text := ""
		if whole {
			text = p.Text
		}
		return map[string]any{"type": "text", "text": text}
	}
	input := map[string]any{}
	if whole && p.Args != nil {
		input = p.Args
	}
	id := fmt.Sprintf("toolu_%d_%d", time.Now().UnixNano(), index)
	return map[string]any{"type": "tool_use", "id": id, "name": p.Call, "input": input}
}

func message(req Request, content []any) map[string]any {
	if content == nil {
		content = []any{}
	}
	return map[string]any{
		"id": fmt.Sprintf("msg_%d", time.Now().UnixNano()), "type": "message", "role": "assistant",
		"model": req.Model, "content": content, "stop_reason": nil, "stop_sequence": nil,
		"usage": map[string]any{"input_tokens": len(req.Text)/4 + 1, "output_tokens": 1},
	}
}

func (r Reply) stop() string {
	if slices.ContainsFunc(r.Parts, func(p Part) bool { return p.Call != "" }) {
		return "tool_use"
	}
	return "end_turn"
}

func streamAnthropic(w http.ResponseWriter, r *http.Request, req Request, reply Reply) {
	e := newEvents(w, r)
	send := func(kind string, fields map[string]any) {
		fields["type"] = kind
		e.send(kind, fields)
	}
	send("message_start", map[string]any{"message": message(req, nil)})
	for i, p := range reply.Parts {
		if !e.pause(p) {
			return
		}
		send("content_block_start", map[string]any{"index": i, "content_block": p.anthropic(i, false)})
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

func failAnthropic(w http.ResponseWriter, status int, text string) {
	if text == "" {
		text = "scripted error"
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	writeJSON(w, map[string]any{"type": "error", "error": map[string]any{"type": "api_error", "message": text}})
}
