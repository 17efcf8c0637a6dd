package agenttest

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"

	"pollux/internal/agent"
)

// A client records the updates of a connection as text.
type client struct {
	row *agent.Agent
	log strings.Builder
}

// Update implements [agent.Client].
func (c *client) Update(u agent.Update) {
	switch {
	case u.Kind == agent.MessageChunk && u.Text != "":
		notice := c.row.Warm.Notice != nil && c.row.Warm.Notice(u.Text)
		fmt.Fprintf(&c.log, "text %q, notice %v\n", u.Text, notice)
	case u.Kind == agent.RetryAnnounced:
		fmt.Fprintf(&c.log, "retry: %s\n", u.Retry.Kind)
	case u.Kind == agent.ToolCall || u.Kind == agent.ToolCallUpdate:
		name, summary := c.row.Warm.Tool(u)
		fmt.Fprintf(&c.log, "tool %q %q %s %q\n", name, summary, u.Status, u.Text)
	}
}

// ReadFile implements [agent.Client].
func (*client) ReadFile(string, string) (string, error) { return "", os.ErrPermission }

// WriteFile implements [agent.Client].
func (*client) WriteFile(string, string, string) error { return os.ErrPermission }

// Replay connects to an agent that answers each request with the next of the recorded lines, up
// to a response. It starts a session in dir, sends prompts until no line is left, at most one for
// each line, and returns what happened as text. The lines may be any text.
func Replay(t testing.TB, row *agent.Agent, dir, recorded string) string {
	t.Helper()
	fromClient, toAgent := io.Pipe()
	fromAgent, toClient := io.Pipe()
	lines := strings.Split(strings.TrimSpace(recorded), "\n")
	prompts := len(lines) // a connection may refuse a prompt, and use no line
	c := &client{row: row}
	conn := row.Warm.Connect(fromAgent, toAgent, false, c)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer io.Copy(io.Discard, fromClient)
		defer toClient.Close()
		in := bufio.NewScanner(fromClient)
		for in.Scan() {
			var request struct {
				ID     json.RawMessage
				Method string
			}
			if json.Unmarshal(in.Bytes(), &request) != nil || request.Method == "" {
				continue // a response
			}
			for answered := false; !answered; lines = lines[1:] {
				if len(lines) == 0 {
					return
				}
				var m map[string]json.RawMessage
				line := lines[0]
				if json.Unmarshal([]byte(line), &m) == nil && isResponse(m) {
					response := map[string]json.RawMessage{"jsonrpc": m["jsonrpc"], "id": request.ID}
					for _, name := range []string{"result", "error"} {
						if m[name] != nil {
							response[name] = m[name]
						}
					}
					changed, _ := json.Marshal(response)
					line, answered = string(changed), true
				}
				if _, err := io.WriteString(toClient, line+"\n"); err != nil {
					return
				}
			}
		}
	}()
	s, err := conn.NewSession(t.Context(), dir)
	fmt.Fprintf(&c.log, "session of %q: %v\n", s.Model, outcome(row, err))
	for range prompts {
		if err != nil && outcome(row, err) == "" {
			break
		}
		var result agent.PromptResult
		result, err = conn.Prompt(t.Context(), s.ID, []agent.Content{{Type: "text", Text: "hello"}})
		if err != nil && outcome(row, err) == "" { // no line is left
			break
		}
		_, tokens := row.Warm.Usage(result.Raw)
		fmt.Fprintf(&c.log, "%s %+v %s\n", result.StopReason, tokens, outcome(row, err))
	}
	conn.Close()
	<-ended
	return c.log.String()
}

// TestRecorded replays testdata/session.jsonl, a recorded session of the real agent: an answer,
// tools that read, tools that are denied, and errors. testdata/session.txt is the outcome.
func TestRecorded(t *testing.T, row *agent.Agent) {
	t.Helper()
	want, err := os.ReadFile("testdata/session.txt")
	if err != nil {
		t.Fatal(err)
	}
	if got := Replay(t, row, t.TempDir(), recording(t)); got != string(want) {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// FuzzMessages checks that any text of an agent ends without a panic or a hang.
func FuzzMessages(f *testing.F, row *agent.Agent) {
	f.Add(recording(f))
	f.Add("{}\n[]\n" + `{"jsonrpc":"2.0","id":1,"result":null}`)
	f.Add(`{"id":1,"jsonrpc":"2.0","result":{"sessionId":"s"}}` + "\n" + `{"id":1,"jsonrpc":"2.0","result":null}`)
	f.Fuzz(func(t *testing.T, text string) { Replay(t, row, t.TempDir(), text) })
}

func recording(t testing.TB) string {
	t.Helper()
	text, err := os.ReadFile("testdata/session.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// isResponse reports whether a message is a response of JSON-RPC.
func isResponse(m map[string]json.RawMessage) bool {
	return string(m["jsonrpc"]) == `"2.0"` && m["id"] != nil && m["method"] == nil && (m["result"] != nil || m["error"] != nil)
}

// outcome returns an error response as the failure that it means, or "".
func outcome(row *agent.Agent, err error) string {
	refused, ok := err.(*agent.Refused)
	if !ok {
		return ""
	}
	return row.Warm.Failure(agent.Env{}, refused.Code, refused.Message, nil).Error()
}

// Retries returns the retries that testdata/retries.log announces, which is a recorded log of the
// real agent with this name, or what it wrote to standard error. It reads the text in two pieces,
// and checks that the outcome does not depend on where they meet.
func Retries(t *testing.T, row *agent.Agent, log string) []agent.Retry {
	t.Helper()
	text, err := os.ReadFile("testdata/retries.log")
	if err != nil {
		t.Fatal(err)
	}
	var want []agent.Retry
	for cut := range len(text) {
		monitor := row.Warm.Monitor(agent.Env{}, log)
		got := append(monitor.Read(text[:cut]).Retries, monitor.Read(text[cut:]).Retries...)
		if cut == 0 {
			want = got
		}
		if !slices.Equal(got, want) {
			t.Fatalf("cut after %d bytes: got %+v, want %+v", cut, got, want)
		}
	}
	return want
}
