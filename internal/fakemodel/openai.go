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

// The paths of OpenAI's API. Codex CLI uses the second one, with the first part as its
// base_url; opencode and others use the first one.
const (
	chatPath      = "/v1/chat/completions"
	responsesPath = "/v1/responses"
	modelsPath    = "/v1/models"
)

// An openAIRequest is a request to either API of OpenAI.
type openAIRequest struct {
	Request
	stream bool
	// custom are the tools that take text instead of JSON: the argument "input".
	custom map[string]bool
}

// An item is a part of a conversation: a text, a tool's call or its result.
type item struct {
	role   string // of a text: user, assistant, system, developer
	text   string
	call   string // the name of the tool, in a call
	id     string // of the call, in a call and in a result
	result json.RawMessage
}

// converse fills in what the request says about the conversation.
func (r *openAIRequest) converse(items []item) {
	names := make(map[string]string) // of calls, by ID
	for _, i := range items {
		switch {
		case i.call != "":
			names[i.id] = i.call
		case i.role == "system" || i.role == "developer":
			r.System += i.text + "\n"
		default:
			r.Text += i.text + "\n"
		}
	}
	inResults := false // results of calls at the same time are one step
	for _, i := range slices.Backward(items) {
		if i.role == "user" {
			r.Prompt = i.text
			break
		}
		if i.result != nil {
			if !inResults {
				r.Step++
			}
			if r.Step == 1 {
				r.Results = slices.Insert(r.Results, 0, Result{names[i.id], i.result})
			}
		}
		inResults = i.result != nil
	}
}

// contentText returns the text of content that is a string or a list of parts.
func contentText(content json.RawMessage) string {
	var text string
	if json.Unmarshal(content, &text) == nil {
		return text
	}
	var parts []struct {
		Text string `json:"text"`
	}
	json.Unmarshal(content, &parts)
	var texts []string
	for _, p := range parts {
		if p.Text != "" {
			texts = append(texts, p.Text)
		}
	}
	return strings.Join(texts, "\n")
}

func parseChat(body []byte) (r openAIRequest, err error) {
	var raw struct {
		Model    string `json:"model"`
		Messages []struct {
			Role      string          `json:"role"`
			Content   json.RawMessage `json:"content"`
			ToolCalls []struct {
				ID       string `json:"id"`
				Function struct {
					Name string `json:"name"`
				} `json:"function"`
			} `json:"tool_calls"`
			ToolCallID string `json:"tool_call_id"`
		} `json:"messages"`
		Tools []struct {
			Function struct {
				Name string `json:"name"`
			} `json:"function"`
		} `json:"tools"`
		Stream bool `json:"stream"`
	}
	if err := json.Unmarshal(body, &raw); err != nil {
		return r, err
	}
	r.Model, r.Method, r.stream = raw.Model, "chat/completions", raw.Stream
	var items []item
	for _, m := range raw.Messages {
		if m.Role == "tool" {
			items = append(items, item{id: m.ToolCallID, result: m.Content})
			continue
		}
		items = append(items, item{role: m.Role, text: contentText(m.Content)})
		for _, c := range m.ToolCalls {
			items = append(items, item{call: c.Function.Name, id: c.ID})
		}
	}
	r.converse(items)
	for _, t := range raw.Tools {
		r.Tools = append(r.Tools, t.Function.Name)
	}
	return r, nil
}

func parseResponses(body []byte) (r openAIRequest, err error) {
	var raw struct {
		Model        string `json:"model"`
		Instructions string `json:"instructions"`
		Input        []struct {
			Type    string          `json:"type"`
			Role    string          `json:"role"`
			Content json.RawMessage `json:"content"`
			Name    string          `json:"name"`
			CallID  string          `json:"call_id"`
			Output  json.RawMessage `json:"output"`
		} `json:"input"`
		Tools []struct {
			Type string `json:"type"`
			Name string `json:"name"`
		} `json:"tools"`
		Stream bool `json:"stream"`
		Text   struct {
			Format struct {
				Schema json.RawMessage `json:"schema"`
			} `json:"format"`
		} `json:"text"`
	}
	if err := json.Unmarshal(body, &raw); err != nil {
		return r, err
	}
	r.Model, r.Method, r.stream, r.JSON = raw.Model, "responses", raw.Stream, raw.Text.Format.Schema
	r.System, r.custom = raw.Instructions, make(map[string]bool)
	var items []item
	for _, i := range raw.Input {
		switch {
		case strings.HasSuffix(i.Type, "_call_output"):
			items = append(items, item{id: i.CallID, result: i.Output})
		case strings.HasSuffix(i.Type, "_call"):
			items = append(items, item{call: i.Name, id: i.CallID})
		case i.Role != "":
			items = append(items, item{role: i.Role, text: contentText(i.Content)})
		}
	}
	r.converse(items)
	for _, t := range raw.Tools {
		name := t.Name
		if name == "" { // one of the vendor's tools, such as a web search
			name = t.Type
		}
		r.Tools = append(r.Tools, name)
		r.custom[name] = t.Type == "custom"
	}
	return r, nil
}

// serveOpenAI serves OpenAI's chat completions and its responses.
func (s *Server) serveOpenAI(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == modelsPath {
		writeJSON(w, map[string]any{"object": "list", "data": []any{}, "models": []any{}})
		return
	}
	parse, write := parseChat, writeChat
	if r.URL.Path == responsesPath {
		parse, write = parseResponses, writeResponse
	}
	body, err := io.ReadAll(r.Body)
	var req openAIRequest
	if err == nil {
		req, err = parse(body)
	}
	if err != nil {
		failOpenAI(w, http.StatusBadRequest, err.Error(), false)
		return
	}
	reply := Say("ok")
	if len(req.Tools) > 0 { // otherwise the agent asks for itself, such as for a title
		reply = s.reply(req.Request)
	}
	switch {
	case reply.Hang:
		<-r.Context().Done()
	case reply.Status != 0:
		failOpenAI(w, reply.Status, reply.Message, reply.PerDay)
	default:
		write(w, r, req, reply)
	}
}

// isOpenAI reports whether a path is one of OpenAI's API.
func isOpenAI(path string) bool {
	return path == chatPath || path == responsesPath || path == modelsPath
}

func failOpenAI(w http.ResponseWriter, status int, text string, perDay bool) {
	if text == "" {
		text = "scripted error"
	}
	code := "server_error"
	switch {
	case perDay:
		code = "insufficient_quota"
	case status == http.StatusTooManyRequests:
		code = "rate_limit_exceeded"
	case status < http.StatusInternalServerError:
		code = "invalid_request_error" // clients repeat after a server error
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	writeJSON(w, map[string]any{"error": map[string]any{"message": text, "type": code, "code": code}})
}

func (p Part) arguments() string {
	if p.Args == nil {
		return "{}"
	}
	text, _ := json.Marshal(p.Args)
	return string(text)
}

// writeChat answers a request for a chat completion.
func writeChat(w http.ResponseWriter, r *http.Request, req openAIRequest, reply Reply) {
	id, finish := fmt.Sprintf("chatcmpl_%d", time.Now().UnixNano()), "stop"
	if reply.stop() == "tool_use" {
		finish = "tool_calls"
	}
	usage := map[string]any{"prompt_tokens": len(req.Text)/4 + 1, "completion_tokens": 1, "total_tokens": len(req.Text)/4 + 2}
	body := func(object string, choice map[string]any) map[string]any {
		choice["index"] = 0
		return map[string]any{
			"id": id, "object": object, "created": time.Now().Unix(), "model": req.Model, "choices": []any{choice},
		}
	}
	message := map[string]any{"role": "assistant", "content": ""}
	if !req.stream {
		var calls []any
		for i, p := range reply.Parts {
			if p.Call != "" {
				calls = append(calls, p.chatCall(id, i))
			}
			message["content"] = message["content"].(string) + p.Text
		}
		if len(calls) > 0 {
			message["tool_calls"] = calls
		}
		whole := body("chat.completion", map[string]any{"message": message, "finish_reason": finish})
		whole["usage"] = usage
		writeJSON(w, whole)
		return
	}
	e := newEvents(w, r)
	chunk := func(delta map[string]any, finish any) map[string]any {
		return body("chat.completion.chunk", map[string]any{"delta": delta, "finish_reason": finish})
	}
	e.send("", chunk(message, nil))
	for i, p := range reply.Parts {
		if !e.pause(p) {
			return
		}
		delta := map[string]any{"content": p.Text}
		if p.Call != "" {
			delta = map[string]any{"tool_calls": []any{p.chatCall(id, i)}}
		}
		e.send("", chunk(delta, nil))
	}
	last := chunk(map[string]any{}, finish)
	last["usage"] = usage
	e.send("", last)
	io.WriteString(w, "data: [DONE]\n\n")
}

func (p Part) chatCall(id string, index int) map[string]any {
	return map[string]any{
		"index": index, "id": fmt.Sprintf("call_%s_%d", id, index), "type": "function",
		"function": map[string]any{"name": p.Call, "arguments": p.arguments()},
	}
}

// writeResponse answers a request for a response.
func writeResponse(w http.ResponseWriter, r *http.Request, req openAIRequest, reply Reply) {
	id := fmt.Sprintf("resp_%d", time.Now().UnixNano())
	response := map[string]any{"id": id, "object": "response", "status": "in_progress", "model": req.Model, "output": []any{}}
	var output []any
	finish := func() {
		response["status"], response["output"] = "completed", output
		response["usage"] = map[string]any{
			"input_tokens": len(req.Text)/4 + 1, "input_tokens_details": nil,
			"output_tokens": 1, "output_tokens_details": nil, "total_tokens": len(req.Text)/4 + 2,
		}
	}
	if !req.stream {
		for i, p := range reply.Parts {
			output = append(output, p.responseItem(req, id, i))
		}
		finish()
		writeJSON(w, response)
		return
	}
	e := newEvents(w, r)
	send := func(kind string, fields map[string]any) {
		fields["type"] = kind
		e.send(kind, fields)
	}
	send("response.created", map[string]any{"response": response})
	for i, p := range reply.Parts {
		if !e.pause(p) {
			return
		}
		it := p.responseItem(req, id, i)
		output = append(output, it)
		send("response.output_item.added", map[string]any{"output_index": i, "item": it})
		if p.Call == "" {
			send("response.output_text.delta", map[string]any{
				"output_index": i, "item_id": it["id"], "content_index": 0, "delta": p.Text,
			})
		}
		send("response.output_item.done", map[string]any{"output_index": i, "item": it})
	}
	finish()
	send("response.completed", map[string]any{"response": response})
}

// responseItem returns the part as an item of a response.
func (p Part) responseItem(req openAIRequest, id string, index int) map[string]any {
	call := fmt.Sprintf("call_%s_%d", id, index)
	switch {
	case p.Call == "":
		return map[string]any{
			"type": "message", "role": "assistant", "id": fmt.Sprintf("msg_%s_%d", id, index), "status": "completed",
			"content": []any{map[string]any{"type": "output_text", "text": p.Text, "annotations": []any{}}},
		}
	case req.custom[p.Call]:
		return map[string]any{"type": "custom_tool_call", "call_id": call, "name": p.Call, "input": p.Args["input"]}
	}
	return map[string]any{"type": "function_call", "call_id": call, "name": p.Call, "arguments": p.arguments()}
}
