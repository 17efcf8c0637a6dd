package blockingtest

import (
	"encoding/json"
	"strings"
)

// A Message is a request, a notification or an answer that a server sends to its agent.
type Message struct {
	ID     *int            `json:"id"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
	Error  *struct {
		Message string `json:"message"`
	} `json:"error"`
	Result struct {
		IsError bool `json:"isError"`
		Content []struct {
			Text string `json:"text"`
		} `json:"content"`
		Tools []struct {
			Name string `json:"name"`
		} `json:"tools"`
		ProtocolVersion string `json:"protocolVersion"`
	} `json:"result"`
}

// String returns an answer in one line.
func (m Message) String() string {
	if m.Error != nil {
		return "error: " + m.Error.Message
	}
	var texts []string
	for _, c := range m.Result.Content {
		texts = append(texts, c.Text)
	}
	s := strings.Join(texts, "|")
	if m.Result.IsError {
		s = "isError: " + s
	}
	return s
}
