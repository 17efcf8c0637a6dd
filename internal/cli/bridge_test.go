package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"pollux/internal/agent/agents"
	"pollux/internal/bridge"
)

// After a signal, the bridge did not end if a call reported progress to a client
// that did not read.
func TestBridgeEndsForADeafClient(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	settings := map[string]string{"GEMINI_CLI_PATH": t.TempDir(), "GEMINI_RUNNER": "spawn"}
	synctest.Test(t, func(t *testing.T) {
		cfg, err := bridge.FromEnv(agents.Default(), func(name string) string { return settings[name] })
		if err != nil {
			t.Fatal(err)
		}
		runner, err := agents.Open(cfg.Agent, cfg.Runner)
		if err != nil {
			t.Fatal(err)
		}
		b, err := bridge.New(runner, cfg)
		if err != nil {
			t.Fatal(err)
		}
		theirs, in := io.Pipe()
		out, ours := io.Pipe()
		ctx, signal := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- errors.Join(serveBridge(ctx, b, IO{In: theirs, Out: ours}), b.Close()) }()
		fmt.Fprintln(in, `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18",`+
			`"capabilities":{},"clientInfo":{"name":"x","version":"1"}}}`)
		if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
			t.Error(err)
		}
		fmt.Fprintln(in, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"query",`+
			`"arguments":{"prompt":"x"},"_meta":{"progressToken":"x"}}}`)
		synctest.Wait()
		signalled := time.Now()
		signal()
		select {
		case err := <-ended:
			if took := time.Since(signalled); err != nil || took > lastAnswersTimeout+time.Second {
				t.Errorf("the bridge ended after %s: %v", took, err)
			}
		case <-time.After(time.Hour):
			t.Error("the bridge does not end")
		}
		in.Close()
		out.Close()
		<-time.After(time.Minute) // the server waits for the answer that cannot be written
	})
}
