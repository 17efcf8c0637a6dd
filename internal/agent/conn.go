package agent

import (
	"context"
	"encoding/json"
	"time"
)

// A Conn is a connection to a process that serves many conversations. Its methods may be
// called from several goroutines. An error that the agent answers with is a [*Refused].
type Conn interface {
	// Initialize performs the handshake.
	Initialize(ctx context.Context) error
	// NewSession starts a conversation in dir.
	NewSession(ctx context.Context, dir string) (Session, error)
	// SetModel selects the model of a conversation.
	SetModel(ctx context.Context, session, model string) error
	// Prompt sends a prompt and waits until the agent has ended its work on it, or for the end of the
	// connection. When ctx ends, it asks the agent to end its work, and still waits.
	Prompt(ctx context.Context, session string, content []Content) (PromptResult, error)
	// Done returns a channel that is closed when the connection has ended.
	Done() <-chan struct{}
	// Close ends the connection. Calls in progress return an error.
	Close() error
}

// A Client receives the updates of a [Conn] and serves files to the agent. The connection
// calls it from one goroutine, in message order.
type Client interface {
	Update(Update)
	// ReadFile and WriteFile are called only in change mode.
	ReadFile(session, path string) (string, error)
	WriteFile(session, path, text string) error
}

// An Update is something that happened in a conversation.
type Update struct {
	Session string
	Kind    UpdateKind
	// Text is the text of a message, or the error message of a tool. At is when it was written;
	// zero is the time of the update.
	Text string
	At   time.Time
	// Model is the requested model, if Kind is [Begun] and the agent says it.
	Model string
	// ToolCall is the ID of a tool call. Title is its description, ToolKind what the tool
	// does, such as "read", and File the path of a file that it concerns, if the agent says so.
	ToolCall, Title, ToolKind, File string
	// Status is the state of a tool call: [ToolCompleted], [ToolFailed], or another
	// one of a running tool.
	Status string
	// Retry is set if Kind is [RetryAnnounced].
	Retry *Retry
	// Meta holds what the agent adds to the protocol; only its own package reads it.
	Meta json.RawMessage
}

// An UpdateKind is the kind of an [Update], as the Agent Client Protocol calls it. Others
// count as a sign of life.
type UpdateKind string

const (
	MessageChunk   UpdateKind = "agent_message_chunk"
	ToolCall       UpdateKind = "tool_call"
	ToolCallUpdate UpdateKind = "tool_call_update"
	RetryAnnounced UpdateKind = "retry"
	// Begun says that a [Driver.OneShot] process has the prompt.
	Begun UpdateKind = "begun"
	// Skipped says that a part of the agent's output was too long to read.
	Skipped UpdateKind = "skipped"
)

// States of tool calls, and reasons why the agent has ended its work on a prompt.
const (
	ToolCompleted = "completed"
	ToolFailed    = "failed"

	StoppedMaxTurns  = "max_turn_requests"
	StoppedRefusal   = "refusal"
	StoppedCancelled = "cancelled"
)

// A Session is a conversation and the model selected in it. Model is empty if the agent
// has not said it.
type Session struct{ ID, Model string }

// Content is a part of a prompt: a text, an image or, if [Process.TakesSchema], the [Request.Schema].
// Type is "text", "image" or "schema". Path is the path of an image, relative to the workspace.
type Content struct {
	Type     string `json:"type"`
	Path     string `json:"-"`
	Text     string `json:"text,omitempty"`
	Data     []byte `json:"data,omitempty"` // base64 on the wire
	MIMEType string `json:"mimeType,omitempty"`
}

// A PromptResult is an agent's answer to a prompt, after its last update.
type PromptResult struct {
	StopReason string
	// Message is an error that the agent has reported, although it has answered.
	Message string
	// Raw is the agent's whole message, which [Process.Usage] reads.
	Raw json.RawMessage
}

// A Refused is an agent's error response.
type Refused struct {
	Code    int
	Message string
}

func (e *Refused) Error() string { return e.Message }
