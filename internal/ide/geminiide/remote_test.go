package geminiide

import (
	"strings"
	"testing"

	"pollux/internal/remote"
)

// translate returns a translator's functions for pairs HERE=THERE, whose
// directories need not exist.
func translate(pairs ...string) (outgoing, incoming func([]byte) []byte) {
	var p remote.Paths
	for _, pair := range pairs {
		here, there, _ := strings.Cut(pair, "=")
		p = append(p, remote.Pair{Here: here, There: there})
	}
	return Remote{}.Translate(p.ToThere, p.ToHere)
}

// How the relay changes messages.
func TestTranslate(t *testing.T) {
	for _, tt := range []struct {
		name        string
		pairs       []string
		there       bool // from the CLI to the companion
		line, wants string
	}{
		{name: "openDiff", there: true, pairs: []string{"/w=/app"},
			line:  `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"openDiff","arguments":{"filePath":"/w/a.go","newContent":"/w/a.go <b>"}}}`,
			wants: `{"id":7,"jsonrpc":"2.0","method":"tools/call","params":{"arguments":{"filePath":"/app/a.go","newContent":"/w/a.go <b>"},"name":"openDiff"}}`},
		{name: "a path without a name there stays", there: true, pairs: []string{"/w=/app"},
			line:  `{"id":7,"method":"tools/call","params":{"name":"closeDiff","arguments":{"filePath":"/etc/x","suppressNotification":true}}}`,
			wants: `{"id":7,"method":"tools/call","params":{"arguments":{"filePath":"/etc/x","suppressNotification":true},"name":"closeDiff"}}`},
		{name: "not a call", there: true, pairs: []string{"/w=/app"},
			line: `{"id": 1, "method":"initialize","params":{"filePath":"/w/a"}}`, wants: `{"id": 1, "method":"initialize","params":{"filePath":"/w/a"}}`},
		{name: "not JSON", there: true, pairs: []string{"/w=/app"}, line: `filePath`, wants: `filePath`},
		{name: "accepted", pairs: []string{"/w=/app"},
			line:  `{"method":"ide/diffAccepted","params":{"filePath":"/app/a.go","content":"<x> /app/a.go"}}`,
			wants: `{"method":"ide/diffAccepted","params":{"content":"<x> /app/a.go","filePath":"/w/a.go"}}`},
		{name: "rejected", pairs: []string{"/w=/app"},
			line: `{"method":"ide/diffRejected","params":{"filePath":"/app/a.go"}}`, wants: `{"method":"ide/diffRejected","params":{"filePath":"/w/a.go"}}`},
		{name: "context", pairs: []string{"/w=/app"},
			line:  `{"method":"ide/contextUpdate","params":{"workspaceState":{"openFiles":[{"path":"/app/a","timestamp":5,"isActive":true,"cursor":{"line":1,"character":2}},{"path":"/home/me/notes","timestamp":4}],"isTrusted":true}}}`,
			wants: `{"method":"ide/contextUpdate","params":{"workspaceState":{"isTrusted":true,"openFiles":[{"cursor":{"line":1,"character":2},"isActive":true,"path":"/w/a","timestamp":5}]}}}`},
		{name: "an empty context", pairs: []string{"/w=/app"},
			line:  `{"method":"ide/contextUpdate","params":{"workspaceState":{"openFiles":[{"path":"/home/me/notes","timestamp":4}]}}}`,
			wants: `{"method":"ide/contextUpdate","params":{"workspaceState":{"openFiles":[]}}}`},
		{name: "an answer", pairs: []string{"/w=/app"},
			line: `{"id":7,"result":{"content":[{"type":"text","text":"{\"content\":\"/app\"}"}]}}`, wants: `{"id":7,"result":{"content":[{"type":"text","text":"{\"content\":\"/app\"}"}]}}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			outgoing, f := translate(tt.pairs...)
			if tt.there {
				f = outgoing
			}
			if got := strings.TrimRight(string(f([]byte(tt.line))), "\n"); got != tt.wants {
				t.Errorf("became\n%s\nwant\n%s", got, tt.wants)
			}
		})
	}
}

// A path comes back as the CLI sent it, even if its name there is also the name of
// another file here.
func TestPathsComeBackAsTheyWere(t *testing.T) {
	outgoing, incoming := translate("/a=/b")
	outgoing([]byte(`{"method":"tools/call","params":{"name":"openDiff","arguments":{"filePath":"/b/x","newContent":""}}}`))
	got := string(incoming([]byte(`{"method":"ide/diffRejected","params":{"filePath":"/b/x"}}`)))
	if !strings.Contains(got, `"filePath":"/b/x"`) {
		t.Errorf("came back as %s", got)
	}
}

func FuzzTranslate(f *testing.F) {
	f.Add(`{"method":"tools/call","params":{"name":"openDiff","arguments":{"filePath":"/w/a"}}}`)
	f.Add(`{"method":"ide/contextUpdate","params":{"workspaceState":{"openFiles":[{"path":null}]}}}`)
	f.Add(`{"method":"ide/diffAccepted","params":null}`)
	f.Fuzz(func(t *testing.T, line string) {
		outgoing, incoming := translate("/w=/app")
		outgoing([]byte(line))
		incoming([]byte(line))
	})
}
