package acp

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log"
	"sync"

	"github.com/sourcegraph/jsonrpc2"
)

// The Agent Client Protocol, as far as the CLI and we use it: JSON-RPC, a
// message a line. github.com/coder/acp-go-sdk has all of it, but ends the
// connection at a line of 10 MB, which a proposal of two whole files reaches,
// and at 1024 updates that wait, which a fast model reaches while a client is
// slow; and a line that is no JSON, which the CLI prints at times, ends it too.

const AcpVersion = 1

type (
	AcpInitialize struct {
		ProtocolVersion    int             `json:"protocolVersion"`
		ClientCapabilities acpCapabilities `json:"clientCapabilities"`
		ClientInfo         AcpInfo         `json:"clientInfo"`
	}
	acpCapabilities struct {
		FS struct {
			ReadTextFile  bool `json:"readTextFile"`
			WriteTextFile bool `json:"writeTextFile"`
		} `json:"fs"`
		Terminal bool `json:"terminal"`
	}
	AcpInfo struct {
		Name    string `json:"name"`
		Version string `json:"version"`
	}
	AcpNewSession struct {
		CWD        string `json:"cwd"`
		MCPServers []any  `json:"mcpServers"`
	}
	AcpSessionRef struct {
		SessionID string `json:"sessionId"`
	}
	AcpNewSessionResult struct {
		SessionID string `json:"sessionId"`
		Models    struct {
			Current string `json:"currentModelId"`
		} `json:"models"`
	}
	AcpSetModel struct {
		SessionID string `json:"sessionId"`
		ModelID   string `json:"modelId"`
	}
	AcpPrompt struct {
		SessionID string       `json:"sessionId"`
		Prompt    []AcpContent `json:"prompt"`
	}
	AcpContent struct {
		Type     string `json:"type"`
		Text     string `json:"text,omitempty"`
		Data     []byte `json:"data,omitempty"` // base64 on the wire
		MIMEType string `json:"mimeType,omitempty"`
	}
	AcpPromptResult struct {
		StopReason string `json:"stopReason"`
		Meta       struct {
			Quota struct {
				Count  acpTokens `json:"token_count"`
				Models []struct {
					Model string    `json:"model"`
					Count acpTokens `json:"token_count"`
				} `json:"model_usage"`
			} `json:"quota"`
		} `json:"_meta"`
	}
	acpTokens struct {
		Input  int `json:"input_tokens"`
		Output int `json:"output_tokens"`
	}
	AcpUpdate struct {
		SessionID string `json:"sessionId"`
		Update    struct {
			Kind       string          `json:"sessionUpdate"`
			Content    json.RawMessage `json:"content"`
			ToolCallID string          `json:"toolCallId"`
			Status     string          `json:"status"`
			Title      string          `json:"title"`
		} `json:"update"`
	}
	AcpPermission struct {
		Options []struct {
			ID   string `json:"optionId"`
			Kind string `json:"kind"`
		} `json:"options"`
	}
	AcpFile struct {
		SessionID string `json:"sessionId"`
		Path      string `json:"path"`
		Content   string `json:"content"`
		Line      *int   `json:"line"` // from 1
		Limit     *int   `json:"limit"`
	}
)

// maxACPLine bounds a message of the CLI's.
const maxACPLine = 64 << 20

var errLongLine = errors.New("a line of Gemini CLI's is too long")

// An acpStream is the lines of a CLI. What is no message is passed over.
type AcpStream struct {
	r io.ReadCloser
	b *bufio.Reader

	mu sync.Mutex
	w  io.WriteCloser
}

func NewACPStream(r io.ReadCloser, w io.WriteCloser) *AcpStream {
	return &AcpStream{r: r, b: bufio.NewReaderSize(r, 64<<10), w: w}
}

func (s *AcpStream) ReadObject(v any) error {
	for {
		line, err := s.line()
		if isMessage(line) {
			return json.Unmarshal(line, v)
		}
		if err != nil {
			return err
		}
	}
}

// isMessage tells messages from what else the CLI, its hooks and its libraries
// print, which may be JSON too.
func isMessage(line []byte) bool {
	if line = bytes.TrimSpace(line); len(line) == 0 || line[0] != '{' {
		return false
	}
	var m struct {
		JSONRPC string          `json:"jsonrpc"`
		Method  *string         `json:"method"`
		ID      json.RawMessage `json:"id"`
		Result  json.RawMessage `json:"result"`
		Error   json.RawMessage `json:"error"`
	}
	if json.Unmarshal(line, &m) != nil || m.JSONRPC != "2.0" {
		return false
	}
	return m.Method != nil || len(m.ID) > 0 && (len(m.Result) > 0 || len(m.Error) > 0)
}

func (s *AcpStream) line() (line []byte, err error) {
	for {
		piece, err := s.b.ReadSlice('\n')
		line = append(line, piece...)
		if len(line) > maxACPLine {
			return nil, errLongLine
		}
		if err != bufio.ErrBufferFull {
			return line, err
		}
	}
}

func (s *AcpStream) WriteObject(v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	_, err = s.w.Write(append(data, '\n'))
	return err
}

func (s *AcpStream) Close() error { return errors.Join(s.w.Close(), s.r.Close()) }

// acpHandler answers what the CLI asks and takes its updates, in order.
type acpHandler func(method string, params json.RawMessage) (any, error)

func NewACPConn(s *AcpStream, h acpHandler) *jsonrpc2.Conn {
	return jsonrpc2.NewConn(context.Background(), s, h, jsonrpc2.SetLogger(log.New(io.Discard, "", 0)))
}

// Handle implements [jsonrpc2.Handler]. Answers are written by a goroutine of
// their own: the CLI does not read while it writes, and must not find us doing
// the same.
func (h acpHandler) Handle(ctx context.Context, conn *jsonrpc2.Conn, req *jsonrpc2.Request) {
	var params json.RawMessage
	if req.Params != nil {
		params = *req.Params
	}
	result, err := h(req.Method, params)
	if req.Notif {
		return
	}
	go func() {
		if err == nil {
			conn.Reply(ctx, req.ID, result)
			return
		}
		var rpc *jsonrpc2.Error
		if !errors.As(err, &rpc) {
			rpc = &jsonrpc2.Error{Code: jsonrpc2.CodeInternalError, Message: err.Error()}
		}
		conn.ReplyWithError(ctx, req.ID, rpc)
	}()
}
