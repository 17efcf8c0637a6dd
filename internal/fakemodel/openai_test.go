package fakemodel

import (
	"io"
	"net/http"
	"reflect"
	"strings"
	"testing"
)

const (
	chatBody = `{"model": "m", "messages": [
		{"role": "system", "content": "rules"},
		{"role": "user", "content": "before"},
		{"role": "assistant", "content": "said"},
		{"role": "user", "content": [{"type": "text", "text": "now"}]},
		{"role": "assistant", "content": null, "tool_calls": [{"id": "1", "type": "function", "function": {"name": "look"}}]},
		{"role": "tool", "tool_call_id": "1", "content": "first"},
		{"role": "assistant", "content": "", "tool_calls": [
			{"id": "2", "type": "function", "function": {"name": "look"}},
			{"id": "3", "type": "function", "function": {"name": "write"}}]},
		{"role": "tool", "tool_call_id": "2", "content": "second"},
		{"role": "tool", "tool_call_id": "3", "content": "third"}
	], "tools": [{"type": "function", "function": {"name": "look"}}, {"type": "function", "function": {"name": "write"}}]}`
	responsesBody = `{"model": "m", "instructions": "rules", "input": [
		{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "before"}]},
		{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "said"}]},
		{"role": "user", "content": "now"},
		{"type": "function_call", "call_id": "1", "name": "look", "arguments": "{}"},
		{"type": "function_call_output", "call_id": "1", "output": "first"},
		{"type": "function_call", "call_id": "2", "name": "look", "arguments": "{}"},
		{"type": "custom_tool_call", "call_id": "3", "name": "write", "input": "x"},
		{"type": "function_call_output", "call_id": "2", "output": "second"},
		{"type": "custom_tool_call_output", "call_id": "3", "output": "third"}
	], "tools": [{"type": "function", "name": "look"}, {"type": "custom", "name": "write"}, {"type": "namespace", "name": "server", "tools": [{"type": "function", "name": "ask"}]}]}`
)

// Both APIs of OpenAI become the same request, and the reply reaches the agent whole
// and as a stream.
func TestOpenAI(t *testing.T) {
	for _, tt := range []struct {
		path, body string
		tools      []string
		whole      []string // in the answer
		stream     []string // in the answer, in this order
	}{
		{
			chatPath, chatBody, []string{"look", "write"},
			[]string{`"content":"hello"`, `"name":"look"`, `"arguments":"{\"at\":1}"`, `"name":"write"`, `"finish_reason":"tool_calls"`},
			[]string{
				`"role":"assistant"`, `{"content":"hello"}`, `"name":"look"`, `"name":"write"`,
				`"finish_reason":"tool_calls"`, "data: [DONE]\n\n",
			},
		},
		{
			responsesPath, responsesBody, []string{"look", "write", "server", "server.ask"},
			[]string{`"text":"hello"`, `"arguments":"{\"at\":1}"`, `"input":"text"`, `"name":"ask","namespace":"server"`, `"status":"completed"`},
			[]string{
				"event: response.created\n", `"delta":"hello"`, "event: response.output_item.done\n",
				`"name":"look"`, `"input":"text"`, "event: response.completed\n",
			},
		},
	} {
		t.Run(tt.path, func(t *testing.T) {
			s, err := Start(func(Request) Reply {
				return Reply{Parts: []Part{
					{Text: "hello"}, {Call: "look", Args: map[string]any{"at": 1}}, {Call: "write", Args: map[string]any{"input": "text"}},
					{Call: "server.ask"},
				}}
			})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			whole := post(t, s.URL+tt.path, tt.body)
			for _, want := range tt.whole {
				if !strings.Contains(whole, want) {
					t.Errorf("the answer has no %s: %s", want, whole)
				}
			}
			stream := post(t, s.URL+tt.path, `{"stream": true,`+strings.TrimPrefix(tt.body, "{"))
			rest := stream
			for _, want := range tt.stream {
				_, after, ok := strings.Cut(rest, want)
				if !ok {
					t.Fatalf("the stream has no %s where it should: %s", want, stream)
				}
				rest = after
			}
			want := Request{
				Model: "m", Method: strings.TrimPrefix(tt.path, "/v1/"), Prompt: "now", System: "rules",
				Tools: tt.tools, Step: 2,
				Results: []Result{{"look", []byte(`"second"`)}, {"write", []byte(`"third"`)}},
			}
			for _, got := range s.Requests() {
				text := strings.Join(strings.Fields(got.Text), " ")
				got.Text, got.System = "", strings.TrimSpace(got.System)
				if !reflect.DeepEqual(got, want) || text != "before said now" {
					t.Errorf("the script got %+v, text %q", got, text)
				}
			}
		})
	}
}

// A request without tools is the agent's own, and does not reach the script.
func TestOpenAIOwnRequest(t *testing.T) {
	s, err := Start(func(Request) Reply { return Reply{Status: http.StatusTooManyRequests, PerDay: true} })
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if got := post(t, s.URL+chatPath, `{"messages": [{"role": "user", "content": "title"}]}`); !strings.Contains(got, `"ok"`) {
		t.Errorf("got %s", got)
	}
	if got := post(t, s.URL+responsesPath, responsesBody); !strings.Contains(got, "insufficient_quota") {
		t.Errorf("got %s", got)
	}
	if got := post(t, s.URL+chatPath, "not JSON"); !strings.Contains(got, "invalid_request_error") {
		t.Errorf("got %s", got)
	}
}

func post(t *testing.T, url, body string) string {
	t.Helper()
	res, err := http.Post(url, "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	data, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
