package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"time"

	"github.com/coder/websocket"

	"pollux/internal/ide/claudeide"
)

// runAgents measures the companion as agents other than Gemini CLI use it.
func runAgents(binary string, runs int) error {
	binary, err := filepath.Abs(binary)
	if err != nil {
		return err
	}
	fmt.Printf("Agents; medians of %d runs (lowest to highest)\n\n", runs)
	for _, m := range []struct {
		name    string
		unit    string
		measure func(*bench) (float64, error)
	}{
		{"Claude Code: openDiff until the editor has the diff", "ms", claudeDiff},
		{"Claude Code: openDiff of 5 MB until the editor has the diff", "ms", bigClaudeDiff},
	} {
		values, err := measure(binary, runs, m.measure)
		if err != nil {
			return fmt.Errorf("%s: %w", m.name, err)
		}
		printRow(m.name, m.unit, values)
	}
	b, err := startBench(binary)
	if err != nil {
		return err
	}
	defer b.end()
	all, err := claudeLatency(b)
	if err != nil {
		return err
	}
	fmt.Printf("%-62s %8.1f ms (99 of 100 below %.1f)\n", "Claude Code: cursor to selection_changed, beyond the debounce",
		ms(all[len(all)/2]), ms(all[len(all)*99/100]))
	return nil
}

// A claude is a client of Claude Code's protocol.
type claude struct{ ws *websocket.Conn }

// dialClaude connects as Claude Code does, and has received the first context.
func (b *bench) dialClaude() (*claude, error) {
	dir := filepath.Join(b.dir, ".claude", "ide")
	var locks []claudeide.Found
	for deadline := time.Now().Add(5 * time.Second); len(locks) == 0; time.Sleep(10 * time.Millisecond) {
		if locks = claudeide.Find(dir); time.Now().After(deadline) {
			return nil, fmt.Errorf("no lock file in %s", dir)
		}
	}
	ws, _, err := websocket.Dial(context.Background(), fmt.Sprintf("ws://127.0.0.1:%d", locks[0].Port),
		&websocket.DialOptions{
			Subprotocols: []string{"mcp"},
			HTTPHeader:   http.Header{"X-Claude-Code-Ide-Authorization": {locks[0].AuthToken}},
		})
	if err != nil {
		return nil, err
	}
	b.ends = append(b.ends, func() { ws.CloseNow() })
	c := &claude{ws}
	for _, message := range []string{
		`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},` +
			`"clientInfo":{"name":"claude-code","version":"1"}}}`,
		`{"jsonrpc":"2.0","method":"notifications/initialized"}`,
	} {
		if err := c.write([]byte(message)); err != nil {
			return nil, err
		}
	}
	_, err = c.selected(0)
	return c, err
}

func (c *claude) write(message []byte) error {
	return c.ws.Write(context.Background(), websocket.MessageText, message)
}

// selected waits for a selection_changed whose cursor is in the line, and returns when
// it arrived.
func (c *claude) selected(line int) (time.Time, error) {
	for {
		_, data, err := c.ws.Read(context.Background())
		now := time.Now()
		if err != nil {
			return now, err
		}
		var m struct {
			Method string
			Params struct {
				Selection struct{ Start struct{ Line int } }
			}
		}
		if err := json.Unmarshal(data, &m); err != nil {
			return now, err
		}
		if m.Method == "selection_changed" && m.Params.Selection.Start.Line == line {
			return now, nil
		}
	}
}

func (c *claude) openDiff(path, text string) error {
	args := map[string]string{"old_file_path": path, "new_file_path": path, "new_file_contents": text, "tab_name": "bench"}
	message, err := json.Marshal(map[string]any{
		"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": map[string]any{"name": "openDiff", "arguments": args},
	})
	if err != nil {
		return err
	}
	return c.write(message)
}

func claudeDiff(b *bench) (float64, error)    { return b.claudeDiff("package q\n") }
func bigClaudeDiff(b *bench) (float64, error) { return b.claudeDiff(bigText) }

func (b *bench) claudeDiff(text string) (float64, error) {
	path, err := b.open()
	if err != nil {
		return 0, err
	}
	c, err := b.dialClaude()
	if err != nil {
		return 0, err
	}
	began := time.Now()
	if err := c.openDiff(path, text); err != nil {
		return 0, err
	}
	<-b.opened
	return ms(time.Since(began)), nil
}

// claudeLatency returns how long 400 moves of the cursor took to arrive, beyond the
// debounce, in order.
func claudeLatency(b *bench) (all []time.Duration, err error) {
	path, err := b.open()
	if err != nil {
		return nil, err
	}
	c, err := b.dialClaude()
	if err != nil {
		return nil, err
	}
	for i := range 400 {
		began := time.Now()
		if err := b.move(path, i+2); err != nil {
			return nil, err
		}
		at, err := c.selected(i + 1)
		if err != nil {
			return nil, err
		}
		all = append(all, at.Sub(began)-debounce)
	}
	slices.Sort(all)
	return all, nil
}
