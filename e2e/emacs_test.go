package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"pollux/internal/editor"
)

// onePieceEnv makes the test binary a companion for [TestEmacsRequestWithAnswer].
const onePieceEnv = "POLLUX_E2E_ONE_PIECE"

// onePiece is a companion that writes each answer and a request in one piece, and then
// exits. It reports the answer to its request with a message.
func onePiece() {
	var piece bytes.Buffer
	stream := editor.NewStream(struct {
		io.Reader
		io.Writer
		io.Closer
	}{os.Stdin, &piece, os.Stdin})
	for {
		var m struct {
			ID     json.RawMessage `json:"id"`
			Method string          `json:"method"`
		}
		if stream.ReadObject(&m) != nil {
			os.Exit(0)
		}
		var out []map[string]any
		switch {
		case m.Method == "initialize":
			out = []map[string]any{{"id": m.ID, "result": map[string]any{"protocol": editor.ProtocolVersion}}}
		case m.Method == "":
			out = []map[string]any{{"method": "message", "params": map[string]any{"text": "answered"}}}
		case m.ID != nil:
			out = []map[string]any{
				{"id": m.ID, "result": map[string]any{}},
				{"id": 1, "method": "diagnostics", "params": map[string]any{}},
			}
		}
		for _, o := range out {
			o["jsonrpc"] = "2.0"
			stream.WriteObject(o)
		}
		os.Stdout.Write(piece.Bytes())
		piece.Reset()
	}
}

// Emacs answers a request that arrives together with the answer to its own.
func TestEmacsRequestWithAnswer(t *testing.T) {
	if _, err := exec.LookPath("emacs"); err != nil {
		if os.Getenv("POLLUX_E2E") == "require" {
			t.Fatalf("%v: run scripts/setup.sh", err)
		}
		t.Skip(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	emacs := exec.CommandContext(ctx, "emacs", "-Q", "--batch",
		"-l", filepath.Join(repo, "editors", "emacs", "pollux.el"), "--eval", fmt.Sprintf(`
		(progn
		  (defvar said nil)
		  (advice-add 'pollux--say :before (lambda (&rest args) (setq said args)))
		  (setq pollux-command %q)
		  (pollux-start)
		  (while (not (or said (pollux-ready-p))) (accept-process-output nil 1))
		  (pollux--call 'diff/accept '(:id "1"))
		  (with-timeout (20 (error "No message: %%S" said))
		    (while (not said) (accept-process-output nil 1))))`, self))
	emacs.Env = append(os.Environ(), onePieceEnv+"=1", "HOME="+t.TempDir())
	out, err := emacs.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "pollux: answered") {
		t.Errorf("%v\n%s", err, out)
	}
}
