package claude

import (
	"encoding/json"
	"path/filepath"
	"strings"

	"pollux/internal/agent"
)

// A header is the part of a message that says how to read the rest.
type header struct {
	Type    string `json:"type"`
	Subtype string `json:"subtype"`
}

type (
	// A controlResponse answers a request of [conn.call].
	controlResponse struct {
		Response struct {
			Subtype   string          `json:"subtype"`
			RequestID string          `json:"request_id"`
			Response  json.RawMessage `json:"response"`
			Error     string          `json:"error"`
		} `json:"response"`
	}
	// An initMessage precedes each answer. KeySource names the origin of an API key, or is
	// "none".
	initMessage struct {
		Tools     []string `json:"tools"`
		KeySource string   `json:"apiKeySource"`
	}
	retryMessage struct {
		Attempt int `json:"attempt"`
		Delay   int `json:"retry_delay_ms"` // in milliseconds
		Status  int `json:"error_status"`   // 0 without a response
	}
	// A limitMessage reports the state of a subscription's limit.
	limitMessage struct {
		Info struct {
			Status   string `json:"status"`
			ResetsAt int64  `json:"resetsAt"` // in seconds since 1970
		} `json:"rate_limit_info"`
	}
	// A streamEvent is a piece of a message of the model.
	streamEvent struct {
		Parent string `json:"parent_tool_use_id"`
		Event  struct {
			Type    string `json:"type"`
			Message struct {
				ID string `json:"id"`
			} `json:"message"`
			Delta struct {
				Type string `json:"type"`
				Text string `json:"text"`
			} `json:"delta"`
		} `json:"event"`
	}
	// A chatMessage is a message of the model ("assistant"), or one with the results of
	// tools ("user").
	chatMessage struct {
		Parent  string `json:"parent_tool_use_id"`
		Message struct {
			ID      string          `json:"id"`
			Model   string          `json:"model"`
			Content json.RawMessage `json:"content"` // a string or blocks
		} `json:"message"`
	}
	block struct {
		Type  string          `json:"type"`
		Text  string          `json:"text"`
		ID    string          `json:"id"`    // of a call
		Name  string          `json:"name"`  // of a tool
		Input json.RawMessage `json:"input"` // of a call
		// A tool's result:
		ToolUseID string          `json:"tool_use_id"`
		IsError   bool            `json:"is_error"`
		Content   json.RawMessage `json:"content"` // a string or blocks
	}
	// A resultMessage ends an answer. Only IsError says whether it is one: the subtype of
	// an error may be "success".
	resultMessage struct {
		IsError    bool              `json:"is_error"`
		Result     string            `json:"result"`
		Errors     []string          `json:"errors"`
		Status     int               `json:"api_error_status"`
		StopReason string            `json:"stop_reason"`
		Usage      map[string]counts `json:"modelUsage"` // since the start of the conversation
	}
	counts struct {
		Input      int `json:"inputTokens"` // without the cached ones
		Output     int `json:"outputTokens"`
		CacheRead  int `json:"cacheReadInputTokens"`
		CacheWrite int `json:"cacheCreationInputTokens"`
	}
)

// synthetic is the model of messages that the agent itself writes, such as errors.
const synthetic = "<synthetic>"

// blocks parses content that is a string or a list of blocks.
func blocks(content json.RawMessage) (list []block) {
	var text string
	if json.Unmarshal(content, &text) == nil {
		return []block{{Type: "text", Text: text}}
	}
	if json.Unmarshal(content, &list) != nil {
		return nil
	}
	return list
}

// textOf returns the text in content.
func textOf(content json.RawMessage) string {
	var b strings.Builder
	for _, one := range blocks(content) {
		b.WriteString(one.Text)
	}
	return b.String()
}

// message returns the message that sends a prompt. The agent runs commands, and reads the
// files after an @, in the last text only. So the last one is a space, which the agent does
// not send to the model.
func message(content []agent.Content) map[string]any {
	var list []any
	for _, c := range content {
		if c.Type == "image" {
			source := map[string]any{"type": "base64", "media_type": c.MIMEType, "data": c.Data}
			list = append(list, map[string]any{"type": "image", "source": source})
			continue
		}
		list = append(list, c)
	}
	return userMessage(append(list, agent.Content{Type: "text", Text: " "})...)
}

func userMessage(content ...any) map[string]any {
	return map[string]any{"type": "user", "message": map[string]any{"role": "user", "content": content}}
}

// title describes a call for [tool]: the tool's name, and its most informative argument.
// Paths are relative to dir.
func title(b block, dir string) string {
	var args struct {
		Path    string `json:"file_path"`
		Pattern string `json:"pattern"`
	}
	if json.Unmarshal(b.Input, &args) != nil {
		return b.Name
	}
	path := args.Path
	if rel, err := filepath.Rel(dir, path); err == nil && filepath.IsLocal(rel) {
		path = rel
	}
	return b.Name + " " + path + args.Pattern
}

// tool returns the name of a tool and a summary of its arguments, from a title.
func tool(u agent.Update) (name, summary string) {
	name, summary, _ = strings.Cut(u.Title, " ")
	return name, agent.Summary(summary)
}

// since returns the tokens of one answer: the difference of two counts in a conversation.
func since(now, before map[string]counts) map[string]counts {
	all := make(map[string]counts)
	for model, n := range now {
		b := before[model]
		n = counts{n.Input - b.Input, n.Output - b.Output, n.CacheRead - b.CacheRead, n.CacheWrite - b.CacheWrite}
		if n != (counts{}) {
			all[model] = n
		}
	}
	return all
}

// usage reads the counts of one answer, as [since] returns them.
func usage(raw json.RawMessage) (model string, tokens agent.Tokens) {
	var all map[string]counts
	if json.Unmarshal(raw, &all) != nil {
		return "", agent.Tokens{}
	}
	most := -1
	for name, n := range all {
		if n.Output > most || n.Output == most && name < model {
			model, most = name, n.Output
		}
		tokens.Input += n.Input + n.CacheRead + n.CacheWrite
		tokens.Output += n.Output
		tokens.Cached += n.CacheRead
	}
	tokens.Total = tokens.Input + tokens.Output
	return model, tokens
}
