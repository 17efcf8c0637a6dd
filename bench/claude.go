package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"time"

	"github.com/coder/websocket"

	"pollux/internal/ide/claudeide"
)

// A claude is a client of Claude Code's protocol.
type claude struct{ ws *websocket.Conn }

// openClaude writes a file of the project and connects a client.
func (c *companion) openClaude() (path string, agent *claude, err error) {
	if path, err = c.writeFile(); err != nil {
		return "", nil, err
	}
	agent, err = c.dialClaude()
	return path, agent, err
}

// dialClaude connects as Claude Code does, and has received the first context.
func (c *companion) dialClaude() (*claude, error) {
	dir := filepath.Join(c.dir, ".claude", "ide")
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
	c.ends = append(c.ends, func() { ws.CloseNow() })
	agent := &claude{ws}
	for _, message := range []string{
		`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},` +
			`"clientInfo":{"name":"claude-code","version":"1"}}}`,
		`{"jsonrpc":"2.0","method":"notifications/initialized"}`,
	} {
		if err := agent.write([]byte(message)); err != nil {
			return nil, err
		}
	}
	_, err = agent.selected(0)
	return agent, err
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

// measureClaudeDiff measures a big proposal.
func measureClaudeDiff(c *companion, col column) error {
	path, agent, err := c.openClaude()
	if err != nil {
		return err
	}
	began := time.Now()
	if err := agent.openDiff(path, bigText); err != nil {
		return err
	}
	<-c.opened
	col.add("Claude Code: openDiff of 5 MB, until the editor has it", "ms", ms(time.Since(began)))
	return nil
}

// measureClaudeMoves measures how long moves of the cursor take to reach Claude Code.
func measureClaudeMoves(c *companion, col column) error {
	path, agent, err := c.openClaude()
	if err != nil {
		return err
	}
	for i := range moves {
		began := time.Now()
		if err := c.move(path, i+2); err != nil {
			return err
		}
		at, err := agent.selected(i + 1)
		if err != nil {
			return err
		}
		col.add("Claude Code: cursor moves, until it has the context", "ms", ms(at.Sub(began)))
	}
	return nil
}
