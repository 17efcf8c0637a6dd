package install

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/aymanbagabas/go-udiff"

	"pollux/internal/lazy"
)

// A Client is an MCP client: a program whose settings can name MCP servers.
type Client struct {
	Name  string // on the command line
	Title string // for people
	// file returns the path of the settings.
	file func(machine) (string, error)
	// key is the member of JSON settings that holds the servers. It is empty for
	// Codex, whose settings are TOML.
	key string
	// kind is the name of a server on standard input and output, in settings that name
	// the transport. tools are those that an entry must list to allow them.
	kind  string
	tools []string
	// words reports whether the command is a list with its arguments.
	words bool
	// desktop reports whether the program is not started from a shell, and so
	// lacks its PATH.
	desktop bool
	// withholds reports whether the program does not pass a variable with this name, in upper
	// case, on to its servers unless its settings name it. It may report others, too. It is
	// nil if the program passes on all variables, or cannot be told to.
	withholds func(name string) bool
}

// Clients lists the MCP clients that the bridge can be added to.
var Clients = []Client{
	{Name: "claude-code", Title: "Claude Code", file: claudeFile, key: "mcpServers", kind: "stdio"},
	{Name: "codex", Title: "Codex", file: homeFile("CODEX_HOME", ".codex", "config.toml"),
		withholds: func(name string) bool { return !slices.Contains(codexPasses, name) }},
	{Name: "cursor", Title: "Cursor", file: homeFile("", ".cursor", "mcp.json"), key: "mcpServers"},
	{Name: "vscode", Title: "VS Code", file: under(machine.desktop, "Code", "User", "mcp.json"),
		key: "servers", kind: "stdio", desktop: true},
	// The variable replaces the home directory.
	{Name: "gemini", Title: "Gemini CLI", file: homeFile("GEMINI_CLI_HOME", "", ".gemini", "settings.json"), key: "mcpServers",
		withholds: func(name string) bool { return geminiWithholds().MatchString(name) }},
	{Name: "qwen", Title: "Qwen Code", file: homeFile("QWEN_HOME", ".qwen", "settings.json"), key: "mcpServers"},
	{Name: "copilot", Title: "Copilot CLI", file: homeFile("COPILOT_HOME", ".copilot", "mcp-config.json"),
		key: "mcpServers", kind: "local", tools: []string{"*"}},
	{Name: "opencode", Title: "opencode", file: opencodeFile, key: "mcp", kind: "local", words: true},
	{Name: "claude-desktop", Title: "Claude Desktop", file: claudeDesktopFile,
		key: "mcpServers", desktop: true},
}

// codexPasses are the variables that Codex CLI passes on to all servers.
var codexPasses = []string{"HOME", "LANG", "LC_ALL", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "TZ", "USER"}

// geminiWithholds matches the names of variables that Gemini CLI takes for secrets, and of those
// whose values it may take for secrets: a proxy with a password, a header with a token.
var geminiWithholds = lazy.Regexp(`TOKEN|SECRET|PASSW|KEY|AUTH|CREDENTIAL|CREDS|PRIVATE|CERT|PROXY|HEADERS|` +
	`^(CLIENT_ID|AWS_DEFAULT_REGION|AZURE_CLIENT_ID|AZURE_TENANT_ID|GOOGLE_CLOUD_PROJECT|GOOGLE_CLOUD_ACCOUNT|FIREBASE_PROJECT_ID)$`)

// File returns the path of the settings.
func (c Client) File() (string, error) { return c.file(here()) }

func claudeFile(m machine) (string, error) {
	if dir := m.getenv("CLAUDE_CONFIG_DIR"); dir != "" {
		return filepath.Join(dir, ".claude.json"), nil
	}
	return homeFile("", ".claude.json")(m)
}

// opencodeFile returns the user's file of settings, or the usual path if there is none.
func opencodeFile(m machine) (string, error) {
	dir, err := m.dir("XDG_CONFIG_HOME", ".config")
	if err != nil {
		return "", err
	}
	for _, name := range []string{"opencode.jsonc", "opencode.json"} {
		if own := m.glob(filepath.Join(dir, "opencode", name)); len(own) > 0 {
			return own[0], nil
		}
	}
	return filepath.Join(dir, "opencode", "opencode.json"), nil
}

// claudeDesktopFile returns the settings of Claude Desktop. On Windows, a version that was
// installed as a package (MSIX), as most are, reads a directory of that package.
func claudeDesktopFile(m machine) (string, error) {
	if local, err := m.local(); m.goos == "windows" && err == nil {
		if own := m.glob(filepath.Join(local, "Packages", "Claude_*", "LocalCache", "Roaming", "Claude")); len(own) > 0 {
			return filepath.Join(own[0], "claude_desktop_config.json"), nil
		}
	}
	return under(machine.desktop, "Claude", "claude_desktop_config.json")(m)
}

// homeFile returns the path of a file below the home directory. If the
// environment variable is set, its directory replaces the first element.
func homeFile(variable string, elem ...string) func(machine) (string, error) {
	return func(m machine) (string, error) {
		if variable != "" {
			if dir := m.getenv(variable); dir != "" {
				return below(dir, nil, elem[1:]...)
			}
		}
		home, err := m.home()
		return below(home, err, elem...)
	}
}

// serverName is the name of the bridge in settings.
const serverName = "pollux"

// A serverEntry is the bridge's entry in JSON settings.
type serverEntry struct {
	Type    string            `json:"type,omitempty"`
	Command any               `json:"command"` // a string, or a list of strings with the arguments
	Args    []string          `json:"args,omitempty"`
	Tools   []string          `json:"tools,omitempty"`
	Env     map[string]string `json:"env,omitempty"`
}

// Plan returns the change that adds the bridge to the client's settings, or
// removes it. The variables are the names of those that the bridge needs from the user's
// shell: the settings name them, without their values, if the client would not pass them on.
func (c Client) Plan(remove bool, variables ...string) (*Plan, error) {
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
	after, err := c.change(runtime.GOOS, before, command, remove, variables...)
	if err != nil {
		return nil, fmt.Errorf("%s was not changed: %w", path, err)
	}
	p := &Plan{fileMode: 0o600, dirMode: 0o700} // the entries of other servers contain keys
	if after != before {
		p.changes = []fileChange{{path: path, before: before, after: after}}
		p.Text = udiff.Unified(path, path, before, after)
	}
	return p, nil
}

// change returns the settings with the bridge added or removed. It keeps a byte
// order mark and the line endings.
func (c Client) change(goos, settings, command string, remove bool, variables ...string) (string, error) {
	text, mark := strings.CutPrefix(settings, "\ufeff")
	crlf := strings.Contains(text, "\r\n")
	after, err := c.changeText(goos, strings.ReplaceAll(text, "\r\n", "\n"), command, remove, c.withheld(variables))
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

// withheld returns the variables that the client does not pass on.
func (c Client) withheld(variables []string) (names []string) {
	for _, name := range variables {
		if c.withholds != nil && c.withholds(strings.ToUpper(name)) {
			names = append(names, name)
		}
	}
	return names
}

func (c Client) changeText(goos, settings, command string, remove bool, variables []string) (string, error) {
	if c.key == "" {
		return changeTOML(settings, command, variables, remove)
	}
	e := serverEntry{Type: c.kind, Command: command, Args: []string{"bridge"}, Tools: c.tools}
	if c.words {
		e.Command, e.Args = []string{command, "bridge"}, nil
	}
	if c.desktop && goos != "windows" {
		e.Env = map[string]string{"PATH": os.Getenv("PATH")}
	}
	for _, name := range variables {
		if e.Env == nil {
			e.Env = make(map[string]string)
		}
		e.Env[name] = "$" + name // which the client replaces with the value
	}
	return changeJSON(settings, c.key, e, remove)
}
