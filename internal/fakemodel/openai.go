package fakemodel

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
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

var (
	openAIChat      = dialect{parse: parseChat, fail: failOpenAI, write: writeChat, own: withoutTools}
	openAIResponses = dialect{parse: parseResponses, fail: failOpenAI, write: writeResponse, own: withoutTools}
)

// speak adds an item with a text to the request and to a conversation.
func (x *exchange) speak(items []item, role string, content json.RawMessage) []item {
	text := contentText(content)
	if role == "system" || role == "developer" {
		x.System += text + "\n"
	} else {
		x.Text += text + "\n"
	}
	return append(items, item{role: role, text: text})
}

// contentText returns the text of content that is a string or a list of blocks.
func contentText(content json.RawMessage) string {
	var texts []string
	for _, b := range blocks(content) {
		if b.Text != "" {
			texts = append(texts, b.Text)
		}
	}
	return strings.Join(texts, "\n")
}

func parseChat(_ *http.Request, body []byte) (x exchange, err error) {
	var raw struct {
		Model    string `json:"model"`
		Messages []struct {
			Role      string          `json:"role"`
			Content   json.RawMessage `json:"content"`
			ToolCalls []struct {
				ID       string `json:"id"`
				Function named  `json:"function"`
			} `json:"tool_calls"`
			ToolCallID string `json:"tool_call_id"`
		} `json:"messages"`
		Tools []struct {
			Function named `json:"function"`
		} `json:"tools"`
		Stream bool `json:"stream"`
	}
	if err := json.Unmarshal(body, &raw); err != nil {
		return x, err
	}
	x.Model, x.Method, x.stream = raw.Model, "chat/completions", raw.Stream
	var items []item
	for _, m := range raw.Messages {
		if m.Role == "tool" {
			items = append(items, item{id: m.ToolCallID, isResult: true, result: m.Content})
			continue
		}
		items = x.speak(items, m.Role, m.Content)
		for _, c := range m.ToolCalls {
			items = append(items, item{name: c.Function.Name, id: c.ID})
		}
	}
	x.converse(items)
	for _, t := range raw.Tools {
		x.Tools = append(x.Tools, t.Function.Name)
	}
	return x, nil
}

func parseResponses(_ *http.Request, body []byte) (x exchange, err error) {
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
			Type  string  `json:"type"`
			Name  string  `json:"name"`
			Tools []named `json:"tools"` // of a namespace: the tools of an MCP server
		} `json:"tools"`
		Stream bool `json:"stream"`
		Text   struct {
			Format struct {
				Schema json.RawMessage `json:"schema"`
			} `json:"format"`
		} `json:"text"`
	}
	if err := json.Unmarshal(body, &raw); err != nil {
		return x, err
	}
	x.Model, x.Method, x.stream, x.JSON = raw.Model, "responses", raw.Stream, raw.Text.Format.Schema
	x.System, x.custom = raw.Instructions, make(map[string]bool)
	var items []item
	for _, i := range raw.Input {
		switch {
		case strings.HasSuffix(i.Type, "_call_output"):
			items = append(items, item{id: i.CallID, isResult: true, result: i.Output})
		case strings.HasSuffix(i.Type, "_call"):
			items = append(items, item{name: i.Name, id: i.CallID})
		case i.Role != "":
			items = x.speak(items, i.Role, i.Content)
		}
	}
	x.converse(items)
	for _, t := range raw.Tools {
		name := cmp.Or(t.Name, t.Type) // a tool of the vendor, such as a web search, has no name
		x.Tools = append(x.Tools, name)
		x.custom[name] = t.Type == "custom"
		for _, inner := range t.Tools {
			x.Tools = append(x.Tools, name+"."+inner.Name)
		}
	}
	return x, nil
}

func failOpenAI(w http.ResponseWriter, r Reply) {
	code := "server_error"
	switch {
	case r.PerDay:
		code = "insufficient_quota"
	case r.Status == http.StatusTooManyRequests:
		code = "rate_limit_exceeded"
	case r.Status < http.StatusInternalServerError:
		code = "invalid_request_error" // clients repeat after a server error
	}
	writeError(w, r.Status, map[string]any{"error": map[string]any{"message": r.Message, "type": code, "code": code}})
}

func (p Part) arguments() string {
	text, _ := json.Marshal(p.args())
	return string(text)
}

// writeChat answers a request for a chat completion.
func writeChat(w http.ResponseWriter, r *http.Request, x exchange, reply Reply) {
	id, finish := fmt.Sprintf("chatcmpl_%d", time.Now().UnixNano()), "stop"
	if reply.stop() == "tool_use" {
		finish = "tool_calls"
	}
	usage := map[string]any{"prompt_tokens": len(x.Text)/4 + 1, "completion_tokens": 1, "total_tokens": len(x.Text)/4 + 2}
	body := func(object string, choice map[string]any) map[string]any {
		choice["index"] = 0
		return map[string]any{
			"id": id, "object": object, "created": time.Now().Unix(), "model": x.Model, "choices": []any{choice},
		}
	}
	message := map[string]any{"role": "assistant", "content": ""}
	if !x.stream {
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
func writeResponse(w http.ResponseWriter, r *http.Request, x exchange, reply Reply) {
	id := fmt.Sprintf("resp_%d", time.Now().UnixNano())
	response := map[string]any{"id": id, "object": "response", "status": "in_progress", "model": x.Model, "output": []any{}}
	var output []any
	finish := func() {
		response["status"], response["output"] = "completed", output
		response["usage"] = map[string]any{
			"input_tokens": len(x.Text)/4 + 1, "input_tokens_details": nil,
			"output_tokens": 1, "output_tokens_details": nil, "total_tokens": len(x.Text)/4 + 2,
		}
	}
	if !x.stream {
		for i, p := range reply.Parts {
			output = append(output, p.responseItem(x, id, i))
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
		it := p.responseItem(x, id, i)
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
func (p Part) responseItem(x exchange, id string, index int) map[string]any {
	call := fmt.Sprintf("call_%s_%d", id, index)
	switch {
	case p.Call == "":
		return map[string]any{
			"type": "message", "role": "assistant", "id": fmt.Sprintf("msg_%s_%d", id, index), "status": "completed",
			"content": []any{map[string]any{"type": "output_text", "text": p.Text, "annotations": []any{}}},
		}
	case x.custom[p.Call]:
		return map[string]any{"type": "custom_tool_call", "call_id": call, "name": p.Call, "input": p.Args["input"]}
	}
	function := map[string]any{"type": "function_call", "call_id": call, "name": p.Call, "arguments": p.arguments()}
	if space, name, ok := strings.Cut(p.Call, "."); ok {
		function["namespace"], function["name"] = space, name
	}
	return function
}
