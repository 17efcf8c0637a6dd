package gemini

import (
	"cmp"
	"encoding/json"
	"strings"

	"pollux/internal/agent"
)

// isNotice reports whether a message comes from the CLI itself. It announces a
// change of its mode as if the model said so.
func isNotice(text string) bool { return strings.HasPrefix(text, "[MODE_UPDATE] ") }

// toolCall returns the name of a tool, from an ID such as "read_file__1", and a
// summary of its arguments, from the title.
func toolCall(u agent.Update) (name, summary string) {
	name, _, _ = strings.Cut(u.ToolCall, "__")
	return name, agent.Summary(strings.TrimPrefix(strings.TrimSpace(u.Title), "Searching the web for: "))
}

// usage reads the quota in the _meta field of a prompt's result.
func usage(result json.RawMessage) (model string, tokens agent.Tokens) {
	type count struct {
		Input  int `json:"input_tokens"`
		Output int `json:"output_tokens"`
	}
	var m struct {
		Meta struct {
			Quota struct {
				Count  count `json:"token_count"`
				Models []struct {
					Model string `json:"model"`
					Count count  `json:"token_count"`
				} `json:"model_usage"`
			} `json:"quota"`
		} `json:"_meta"`
	}
	if json.Unmarshal(result, &m) != nil {
		return "", agent.Tokens{}
	}
	most := -1
	for _, u := range m.Meta.Quota.Models {
		if u.Count.Output > most {
			model, most = u.Model, u.Count.Output
		}
	}
	in, out := m.Meta.Quota.Count.Input, m.Meta.Quota.Count.Output
	return model, agent.Tokens{Input: in, Output: out, Total: in + out}
}

// rpcKinds are the error codes that have a meaning: HTTP statuses, and codes of
// the protocol.
var rpcKinds = map[int]agent.Kind{
	-32000: agent.Auth, 400: agent.BadRequest, 401: agent.Auth, 403: agent.Auth, 404: agent.BadModel, 429: agent.QuotaMinute,
	500: agent.Capacity, 502: agent.Capacity, 503: agent.Capacity, 504: agent.Capacity,
}

// classifyRPC classifies an error response by its words, then by its code.
func classifyRPC(env agent.Env, code int, message string, unlinked []string) *agent.Error {
	kind := cmp.Or(kindOf(message), rpcKinds[code], agent.Failed)
	message = tidy(env, message)
	if kind == agent.Auth && len(unlinked) > 0 {
		kind = agent.Unlinked
		message += "; left out: " + agent.Shorten(strings.Join(unlinked, ", "), 200)
	}
	return fault(kind, message)
}
