package install

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/aymanbagabas/go-udiff"

	"pollux/internal/agent/gemini/settings"
)

// A Client is an MCP client: a program whose settings can name MCP servers.
type Client struct {
	Name  string // on the command line
	Title string // for people
	// File returns the path of the user's settings.
	File func() (string, error)
	// key is the member of JSON settings that holds the servers. It is empty for
	// Codex, whose settings are TOML.
	key string
	// typed reports whether the settings name the transport.
	typed bool
	// desktop reports whether the program is not started from a shell, and so
	// lacks its PATH.
	desktop bool
}

// Clients lists the MCP clients to which the bridge can be added.
var Clients = []Client{
	{Name: "claude-code", Title: "Claude Code", File: claudeFile, key: "mcpServers", typed: true},
	{Name: "codex", Title: "Codex", File: homeFile("CODEX_HOME", ".codex", "config.toml")},
	{Name: "cursor", Title: "Cursor", File: homeFile("", ".cursor", "mcp.json"), key: "mcpServers"},
	{Name: "vscode", Title: "VS Code", File: appFile("Code", "User", "mcp.json"),
		key: "servers", typed: true, desktop: true},
	{Name: "gemini", Title: "Gemini CLI", File: settings.UserFile, key: "mcpServers"},
	{Name: "claude-desktop", Title: "Claude Desktop", File: appFile("Claude", "claude_desktop_config.json"),
		key: "mcpServers", desktop: true},
}

func claudeFile() (string, error) {
	if dir := os.Getenv("CLAUDE_CONFIG_DIR"); dir != "" {
		return filepath.Join(dir, ".claude.json"), nil
	}
	return homeFile("", ".claude.json")()
}

// homeFile returns the path of a file below the home directory. If the
// environment variable is set, its directory replaces the first element.
func homeFile(variable string, elem ...string) func() (string, error) {
	return func() (string, error) {
		if dir := os.Getenv(variable); variable != "" && dir != "" {
			return filepath.Join(append([]string{dir}, elem[1:]...)...), nil
		}
		home, err := os.UserHomeDir()
		return filepath.Join(append([]string{home}, elem...)...), err
	}
}

// appFile returns the path of a desktop program's settings.
func appFile(elem ...string) func() (string, error) {
	return func() (string, error) {
		dir, err := os.UserConfigDir()
		return filepath.Join(append([]string{dir}, elem...)...), err
	}
}

// serverName is the name of the bridge in settings.
const serverName = "pollux"

// A serverEntry is the bridge's entry in JSON settings.
type serverEntry struct {
	Type    string            `json:"type,omitempty"`
	Command string            `json:"command"`
	Args    []string          `json:"args"`
	Env     map[string]string `json:"env,omitempty"`
}

// Plan returns the change that adds the bridge to the client's settings, or
// removes it.
func (c Client) Plan(remove bool) (*Plan, error) {
	path, err := c.File()
	if err != nil {
		return nil, err
	}
	before, err := readSettings(path)
	if err != nil {
		return nil, err
	}
	command, err := ownCommand()
	if err != nil {
		return nil, err
	}
	after, err := c.change(before, command, remove)
	if err != nil {
		return nil, fmt.Errorf("%s was not changed: %w", path, err)
	}
	p := newPlan(0o600, 0o700) // the entries of other servers contain keys
	if after != before {
		p.writes(path, before, after)
		p.Text = udiff.Unified(path, path, before, after)
	}
	return p, nil
}

// change returns the settings with the bridge added or removed. It keeps a byte
// order mark and the line ends.
func (c Client) change(settings, command string, remove bool) (string, error) {
	text, mark := strings.CutPrefix(settings, "\ufeff")
	crlf := strings.Contains(text, "\r\n")
	after, err := c.changeText(strings.ReplaceAll(text, "\r\n", "\n"), command, remove)
	if err != nil {
		return "", err
	}
	if crlf {
		after = strings.ReplaceAll(after, "\n", "\r\n")
	}
	if mark {
		after = "\ufeff" + after
	}
	return after, nil
}

func (c Client) changeText(settings, command string, remove bool) (string, error) {
	if c.key == "" {
		return changeTOML(settings, command, remove)
	}
	e := serverEntry{Command: command, Args: []string{"bridge"}}
	if c.typed {
		e.Type = "stdio"
	}
	if c.desktop && runtime.GOOS != "windows" {
		e.Env = map[string]string{"PATH": os.Getenv("PATH")}
	}
	return changeJSON(settings, c.key, e, remove)
}
