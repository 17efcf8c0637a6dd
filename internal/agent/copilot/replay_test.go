package copilot

import (
	"os"
	"testing"

	"pollux/internal/agent/agenttest"
)

// A recorded session of the real agent: an answer, tools that read, tools that are denied, and
// errors.
func TestRecorded(t *testing.T) {
	recorded, err := os.ReadFile("testdata/session.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile("testdata/session.txt")
	if err != nil {
		t.Fatal(err)
	}
	if got := agenttest.Replay(t, row, t.TempDir(), string(recorded)); got != string(want) {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// Any text of an agent ends without a panic or a hang.
func FuzzMessages(f *testing.F) {
	recorded, err := os.ReadFile("testdata/session.jsonl")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(string(recorded))
	f.Add("{}\n[]\n" + `{"jsonrpc":"2.0","id":1,"result":null}`)
	f.Add(`{"id":1,"jsonrpc":"2.0","result":{"sessionId":"s"}}` + "\n" + `{"id":1,"jsonrpc":"2.0","result":null}`)
	f.Fuzz(func(t *testing.T, text string) { agenttest.Replay(t, row, t.TempDir(), text) })
}
