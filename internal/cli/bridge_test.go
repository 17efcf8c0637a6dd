package cli

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pollux/internal/agent/agents"
	"pollux/internal/bridge"
	"pollux/internal/config"
	"pollux/internal/sys/systest"
)

// After a signal, the bridge did not end if a call reported progress to a client
// that did not read. Nor did it when such a client closed its input.
func TestBridgeEndsForADeafClient(t *testing.T) {
	systest.SetTemp(t, t.TempDir())
	systest.SetHome(t, t.TempDir())
	settings := map[string]string{"GEMINI_CLI_PATH": t.TempDir(), "GEMINI_RUNNER": "spawn"}
	for name, end := range map[string]struct {
		of    func(signal func(), in io.Closer)
		limit time.Duration
	}{
		"a signal":             {func(signal func(), _ io.Closer) { signal() }, 6 * time.Second},
		"the end of its input": {func(_ func(), in io.Closer) { in.Close() }, 15 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				values := config.Load(func(name string) string { return settings[name] })
				if err := values.ErrFor(func(config.Setting) bool { return true }); err != nil {
					t.Fatal(err)
				}
				cfg := bridge.Configure(agents.Default(), values)
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
				began := time.Now()
				end.of(signal, in)
				select {
				case err := <-ended:
					if took := time.Since(began); err != nil || took > end.limit {
						t.Errorf("the bridge ended after %s: %v", took, err)
					}
				case <-time.After(time.Hour):
					t.Error("the bridge does not end")
				}
				signal()
				in.Close()
				out.Close()
			})
		})
	}
}

// With a broken file of settings, the bridge starts, and answers each call with the problem:
// clients show nothing of a server that does not start.
func TestBridgeReportsBrokenSettings(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config.toml")
	systest.WriteFile(t, path, "[bridge]\nmodle = 1\n\n[pool]\nidle = 5\n")
	systest.SetHome(t, t.TempDir())
	systest.SetTemp(t, t.TempDir())
	t.Setenv("POLLUX_CONFIG", path)
	theirs, in := io.Pipe()
	out, ours := io.Pipe()
	var errs bytes.Buffer
	ended := make(chan int, 1)
	go func() {
		ended <- Run(t.Context(), IO{In: theirs, Out: ours, Err: &errs}, []string{"bridge"})
		ours.Close()
	}()
	answers := bufio.NewReader(out)
	for i, request := range []string{
		`"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"x","version":"1"}}`,
		`"method":"tools/call","params":{"name":"query","arguments":{"prompt":"x"}}`,
		`"method":"tools/call","params":{"name":"search","arguments":{"query":"x"}}`,
		`"method":"tools/call","params":{"name":"ping","arguments":{}}`,
	} {
		fmt.Fprintf(in, `{"jsonrpc":"2.0","id":%d,%s}`+"\n", i, request)
		answer, err := answers.ReadString('\n')
		if err != nil {
			t.Fatalf("%s: %v", request, err)
		}
		if i == 0 {
			continue
		}
		inJSON := strings.ReplaceAll(path, `\`, `\\`)
		for _, want := range []string{
			"Pollux's settings are invalid (", inJSON + ":2: unknown key bridge.modle: did you mean bridge.model?",
			inJSON + ":5: pool.idle is 5", "correct the file, then restart this MCP server",
		} {
			if !strings.Contains(answer, want) {
				t.Errorf("%s: no %q in %s", request, want, answer)
			}
		}
	}
	in.Close()
	if code := <-ended; code != 0 || !strings.Contains(errs.String(), path+":2: ") {
		t.Errorf("the bridge ended with %d and said %q", code, errs.String())
	}
}
