package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/BurntSushi/toml"
	"github.com/aymanbagabas/go-udiff"
	"github.com/spf13/cobra"
	"github.com/tailscale/hujson"

	"pollux/internal/agent/gemini/settings"
	"pollux/internal/sys"
)

// A mcpClient is a program whose settings can name MCP servers.
type mcpClient struct {
	name, title string
	// file is the user's settings.
	file func() (string, error)
	// key is the member of JSON settings that holds the servers; empty for
	// Codex, whose settings are TOML.
	key string
	// typed settings want the transport named.
	typed bool
	// desktop programs are not started from a shell and lack its PATH.
	desktop bool
}

var mcpClients = []mcpClient{
	{name: "claude-code", title: "Claude Code", file: claudeFile, key: "mcpServers", typed: true},
	{name: "codex", title: "Codex", file: homeFile("CODEX_HOME", ".codex", "config.toml")},
	{name: "cursor", title: "Cursor", file: homeFile("", ".cursor", "mcp.json"), key: "mcpServers"},
	{name: "vscode", title: "VS Code", file: appFile("Code", "User", "mcp.json"), key: "servers", typed: true, desktop: true},
	{name: "gemini", title: "Gemini CLI", file: settings.UserFile, key: "mcpServers"},
	{name: "claude-desktop", title: "Claude Desktop", file: appFile("Claude", "claude_desktop_config.json"), key: "mcpServers", desktop: true},
}

func claudeFile() (string, error) {
	if dir := os.Getenv("CLAUDE_CONFIG_DIR"); dir != "" {
		return filepath.Join(dir, ".claude.json"), nil
	}
	return homeFile("", ".claude.json")()
}

// homeFile is a file below the home directory, or below the directory that a
// variable names in place of the first element.
func homeFile(variable string, elem ...string) func() (string, error) {
	return func() (string, error) {
		if dir := os.Getenv(variable); variable != "" && dir != "" {
			return filepath.Join(append([]string{dir}, elem[1:]...)...), nil
		}
		home, err := os.UserHomeDir()
		return filepath.Join(append([]string{home}, elem...)...), err
	}
}

// appFile is a file of a desktop program's settings.
func appFile(elem ...string) func() (string, error) {
	return func() (string, error) {
		dir, err := os.UserConfigDir()
		return filepath.Join(append([]string{dir}, elem...)...), err
	}
}

func newInstall(streams IO) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "install",
		Short: "Write Pollux into another program's settings",
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	var remove, yes bool
	var names []string
	for _, c := range mcpClients {
		names = append(names, c.name)
	}
	bridge := &cobra.Command{
		Use:       "bridge CLIENT",
		Short:     "Make an MCP client start pollux bridge",
		ValidArgs: names,
		Long: `Writes pollux bridge into the settings of an MCP client, which then has Gemini
CLI as tools. The change is shown first and made when you agree; the rest of
the file stays as it is. The clients: ` + strings.Join(names, ", ") + `.

--remove takes it out again.`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 || !slices.Contains(names, args[0]) {
				return fmt.Errorf("name one client: %s", strings.Join(names, ", "))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			i := slices.Index(names, args[0])
			return installBridge(streams, mcpClients[i], remove, yes)
		},
	}
	bridge.Flags().BoolVar(&remove, "remove", false, "take Pollux out of the settings")
	bridge.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	cmd.AddCommand(bridge)
	for _, h := range editorHomes {
		cmd.AddCommand(newInstallEditor(streams, h))
	}
	return cmd
}

func installBridge(streams IO, c mcpClient, remove, yes bool) error {
	path, err := c.file()
	if err != nil {
		return err
	}
	before, err := readSettings(path)
	if err != nil {
		return err
	}
	command, err := ownCommand()
	if err != nil {
		return err
	}
	after, err := c.change(before, command, remove)
	if err != nil {
		return fmt.Errorf("%s is left as it is: %w", path, err)
	}
	if after == before {
		state := "is in"
		if remove {
			state = "is not in"
		}
		fmt.Fprintf(streams.Err, "pollux: nothing to do: Pollux %s %s\n", state, path)
		return nil
	}
	fmt.Fprint(streams.Out, udiff.Unified(path, path, before, after))
	if agreed, err := confirm(streams, "Write "+path+"?", yes); err != nil || !agreed {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	if err := sys.EditFile(path, before, after, 0o600); err != nil { // others' entries hold keys
		return err
	}
	fmt.Fprintf(streams.Err, "pollux: wrote %s; start %s anew\n", path, c.title)
	return nil
}

// maxSettings bounds a file of another program's settings in bytes.
const maxSettings = 64 << 20

// readSettings reads another program's settings. A missing file is empty.
func readSettings(path string) (string, error) {
	data, err := sys.ReadFile(path, maxSettings)
	switch {
	case errors.Is(err, sys.ErrNotRegular) || errors.Is(err, sys.ErrTooLarge):
		return "", fmt.Errorf("%w: move it away first", err)
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return "", err
	}
	return string(data), nil
}

// confirm asks the user, unless they said yes before.
func confirm(streams IO, question string, yes bool) (bool, error) {
	if yes {
		return true, nil
	}
	if !isTerminal(streams.In) {
		return false, errors.New("nothing is written: call it with --yes to write it without being asked")
	}
	fmt.Fprintf(streams.Err, "%s [Y/n] ", question)
	// The end of the input is no agreement.
	agreed, _ := agreed(streams.In)
	if !agreed {
		fmt.Fprintln(streams.Err, "pollux: nothing is written")
	}
	return agreed, nil
}

// ownCommand is the path to start Pollux by: the one on the PATH if it is this
// program, since that one stays when a package manager brings a new version.
func ownCommand() (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	real, err := filepath.EvalSymlinks(self)
	if err != nil {
		return self, nil
	}
	if found, err := exec.LookPath("pollux"); err == nil && filepath.IsAbs(found) {
		if r, err := filepath.EvalSymlinks(found); err == nil && r == real {
			return found, nil
		}
	}
	return real, nil
}

// serverName is what the bridge is called in settings.
const serverName = "pollux"

// A serverEntry is the bridge in JSON settings.
type serverEntry struct {
	Type    string            `json:"type,omitempty"`
	Command string            `json:"command"`
	Args    []string          `json:"args"`
	Env     map[string]string `json:"env,omitempty"`
}

// change is the settings with the bridge in or out. Its byte order mark and
// its line ends stay.
func (c mcpClient) change(settings, command string, remove bool) (string, error) {
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

func (c mcpClient) changeText(settings, command string, remove bool) (string, error) {
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

// changeJSON sets or removes one server. All else, comments included, stays.
func changeJSON(settings, key string, entry serverEntry, remove bool) (string, error) {
	if strings.TrimSpace(settings) == "" {
		settings = "{}\n"
	}
	root, err := parseJSON([]byte(settings))
	if err != nil {
		return "", fmt.Errorf("it is not valid JSON (%w): correct it first", err)
	}
	top := object(&root)
	if top == nil {
		return "", errors.New("it is not a JSON object: correct it first")
	}
	indent := "  "
	if m := regexp.MustCompile(`(?m)^([ \t]+)"`).FindStringSubmatch(settings); m != nil {
		indent = m[1]
	}
	servers := member(top, key)
	if servers == nil {
		if remove {
			return settings, nil
		}
		setMember(top, key, hujson.Value{Value: &hujson.Object{}}, indent, 0)
		servers = member(top, key)
	}
	list := object(servers)
	if list == nil {
		return "", fmt.Errorf("its %s is not an object: correct it first", key)
	}
	old := member(list, serverName)
	switch {
	case remove && old == nil:
		return settings, nil
	case remove:
		removeMember(list, serverName)
	case old != nil && hasURL(old):
		return "", fmt.Errorf("its %s has an entry %s with a url, which is another server: rename or remove that first", key, serverName)
	case old != nil && merge(old, entry, indent):
		return settings, nil
	case old == nil:
		value, err := valueOf(entry, indent, 2)
		if err != nil {
			return "", err
		}
		setMember(list, serverName, value, indent, 1)
	}
	after := string(root.Pack())
	if json.Valid([]byte(settings)) && !json.Valid([]byte(after)) {
		return "", fmt.Errorf("its %s is written in a way that Pollux does not change: change it by hand", key)
	}
	return after, nil
}

func parseJSON(text []byte) (hujson.Value, error) {
	if err := settings.CheckJSON(text); err != nil {
		return hujson.Value{}, err
	}
	return hujson.Parse(text)
}

// valueOf is a value as it is written depth levels deep.
func valueOf(v any, indent string, depth int) (hujson.Value, error) {
	text, err := json.MarshalIndent(v, strings.Repeat(indent, depth), indent)
	if err != nil {
		return hujson.Value{}, err
	}
	return hujson.Parse(text)
}

// merge brings the user's entry up to date, and leaves what else is in it. It
// reports whether there was nothing to do.
func merge(old *hujson.Value, entry serverEntry, indent string) (same bool) {
	o := object(old)
	if o == nil {
		value, err := valueOf(entry, indent, 2)
		if err == nil {
			old.Value = value.Value
		}
		return false
	}
	same = true
	set := func(name string, v any) {
		if value, err := valueOf(v, indent, 3); err == nil {
			setMember(o, name, value, indent, 2)
			same = false
		}
	}
	var has struct {
		Command string
		Args    []string
		Env     map[string]any
		Type    string
	}
	std := old.Clone()
	std.Standardize()
	json.Unmarshal(std.Pack(), &has)
	if has.Type != entry.Type && entry.Type != "" {
		set("type", entry.Type)
	}
	if has.Command != entry.Command {
		set("command", entry.Command)
	}
	if !slices.Contains(has.Args, "bridge") {
		set("args", entry.Args)
	}
	if path := entry.Env["PATH"]; path != "" {
		env := member(o, "env")
		switch list := object(env); {
		case env == nil:
			set("env", entry.Env)
		case list != nil && has.Env["PATH"] == nil:
			if value, err := valueOf(path, indent, 4); err == nil {
				setMember(list, "PATH", value, indent, 3)
				same = false
			}
		}
	}
	return same
}

func hasURL(v *hujson.Value) bool {
	o := object(v)
	return o != nil && member(o, "url") != nil
}

// object is the object that a value is; nil for another one, or none.
func object(v *hujson.Value) *hujson.Object {
	if v == nil {
		return nil
	}
	o, _ := v.Value.(*hujson.Object)
	return o
}

// removeMember takes a member out. Comments before it stay, and so does what
// follows the last one.
func removeMember(o *hujson.Object, name string) {
	i := slices.IndexFunc(o.Members, func(m hujson.ObjectMember) bool { return nameOf(m) == name })
	gone := o.Members[i]
	comment := strings.TrimRight(string(gone.Name.BeforeExtra), " \t\n")
	o.Members = slices.Delete(o.Members, i, i+1)
	if i < len(o.Members) {
		next := &o.Members[i].Name.BeforeExtra
		*next = before(comment, *next)
		return
	}
	if n := len(o.Members); n > 0 {
		// A comma stays behind the new last one only if there was one before.
		last := &o.Members[n-1].Value.AfterExtra
		if gone.Value.AfterExtra == nil {
			comment = strings.TrimRight(string(*last), " \t\n") + comment
			*last = nil
		} else if *last == nil {
			*last = hujson.Extra{}
		}
	}
	o.AfterExtra = before(comment, o.AfterExtra)
}

// before puts a comment, which may need a line's end, before what follows it.
func before(comment string, rest hujson.Extra) hujson.Extra {
	if strings.Contains(comment, "//") && !strings.HasPrefix(string(rest), "\n") {
		comment += "\n"
	}
	return append(hujson.Extra(comment), rest...)
}

func nameOf(m hujson.ObjectMember) string { return m.Name.Value.(hujson.Literal).String() }

func member(o *hujson.Object, name string) *hujson.Value {
	for i := range o.Members {
		if nameOf(o.Members[i]) == name {
			return &o.Members[i].Value
		}
	}
	return nil
}

// setMember sets a member of an object that is depth levels deep. A new one
// gets a line of its own, after what stands behind the last.
func setMember(o *hujson.Object, name string, value hujson.Value, indent string, depth int) {
	if v := member(o, name); v != nil {
		v.Value = value.Value
		return
	}
	behind, closing := string(o.AfterExtra), "\n"+strings.Repeat(indent, depth)
	if i := strings.LastIndexByte(behind, '\n'); i >= 0 {
		behind, closing = behind[:i], behind[i:]
	}
	line := strings.TrimRight(behind, " \t") + "\n" + strings.Repeat(indent, depth+1)
	m := hujson.ObjectMember{Name: hujson.Value{BeforeExtra: hujson.Extra(line), Value: hujson.String(name)}, Value: value}
	m.Value.BeforeExtra = hujson.Extra(" ")
	if n := len(o.Members); n > 0 && o.Members[n-1].Value.AfterExtra != nil {
		m.Value.AfterExtra = hujson.Extra{} // a trailing comma stays one
	}
	o.AfterExtra = hujson.Extra(closing)
	o.Members = append(o.Members, m)
}

var (
	ownTable   = regexp.MustCompile(`^\s*\[\s*mcp_servers\s*\.\s*"?` + serverName + `"?\s*(\.[^\]]*)?\]`)
	otherTable = regexp.MustCompile(`^\s*\[`)
)

// changeTOML sets or removes Codex's table of the bridge.
func changeTOML(settings, command string, remove bool) (string, error) {
	byHand := fmt.Errorf("its mcp_servers are written in a way that Pollux does not change: change %s by hand", serverName)
	before, err := servers(settings)
	if err != nil {
		return "", fmt.Errorf("it is not valid TOML (%w): correct it first", err)
	}
	had := before.ours()
	switch {
	case remove && had == nil, !remove && had != nil && had["command"] == command && startsBridge(had):
		return settings, nil
	case inlineServers.MatchString(settings):
		return "", byHand
	}
	var after string
	switch {
	case remove:
		after = withoutTables(settings)
	case had == nil:
		if after = strings.TrimRight(settings, "\n"); after != "" {
			after += "\n\n"
		}
		after += fmt.Sprintf("[mcp_servers.%s]\ncommand = %q\nargs = [\"bridge\"]\ntool_timeout_sec = 1800\n", serverName, command)
	default:
		after = withCommand(settings, command, startsBridge(had))
	}
	// Nothing but our table may differ, and that must be as it should.
	now, err := servers(after)
	if err != nil || !reflect.DeepEqual(withoutOurs(before), withoutOurs(now)) || (now.ours() == nil) != remove ||
		!remove && (now.ours()["command"] != command || !startsBridge(now.ours())) {
		return "", byHand
	}
	return after, nil
}

// inlineServers is a table that no other table can be added to.
var inlineServers = regexp.MustCompile(`(?m)^\s*mcp_servers\s*=`)

type tomlSettings map[string]any

func servers(settings string) (m tomlSettings, err error) {
	err = decodeTOML(settings, &m)
	return m, err
}

func decodeTOML(text string, to any) error {
	if err := settings.CheckTOML(text); err != nil {
		return err
	}
	_, err := toml.Decode(text, to)
	return err
}

// ours is the bridge's table, nil if there is none.
func (m tomlSettings) ours() map[string]any {
	all, _ := m["mcp_servers"].(map[string]any)
	table, _ := all[serverName].(map[string]any)
	return table
}

func startsBridge(table map[string]any) bool {
	args, _ := table["args"].([]any)
	return slices.Contains(args, any("bridge"))
}

// withoutTables takes our tables out. What stands between the last line of
// theirs and the next table, comments above all, stays.
func withoutTables(settings string) string {
	var kept, tail []string
	ours := false
	for line := range strings.Lines(settings) {
		if otherTable.MatchString(line) {
			if ours {
				kept = append(kept, tail...)
			}
			ours, tail = ownTable.MatchString(line), nil
		}
		blank := strings.TrimSpace(line) == "" || strings.HasPrefix(strings.TrimSpace(line), "#")
		switch {
		case !ours:
			kept = append(kept, line)
		case blank:
			tail = append(tail, line)
		default:
			tail = nil
		}
	}
	if ours {
		kept = append(kept, tail...)
	}
	after := strings.TrimRight(strings.Join(kept, ""), "\n")
	if after != "" {
		after += "\n"
	}
	return after
}

var (
	tomlCommand = regexp.MustCompile(`^(\s*command\s*=\s*)(?:"(?:[^"\\]|\\.)*"|'[^']*')`)
	tomlArgs    = regexp.MustCompile(`^(\s*args\s*=\s*)\[[^\]]*\]`)
)

// withCommand sets the command of our table, and its arguments unless they are
// right.
func withCommand(settings, command string, argsToo bool) string {
	var out []string
	ours, at := false, 0 // at is where our table's first line goes
	commandSet, argsSet := false, argsToo
	for line := range strings.Lines(settings) {
		if otherTable.MatchString(line) {
			m := ownTable.FindStringSubmatch(line)
			if ours = m != nil && m[1] == ""; ours {
				at = len(out) + 1
			}
		} else if m := tomlCommand.FindStringSubmatch(line); ours && m != nil {
			line, commandSet = m[1]+strconv.Quote(command)+line[len(m[0]):], true
		} else if m := tomlArgs.FindStringSubmatch(line); ours && m != nil && !argsToo {
			line, argsSet = m[1]+`["bridge"]`+line[len(m[0]):], true
		}
		out = append(out, line)
	}
	var missing []string
	if !commandSet {
		missing = append(missing, fmt.Sprintf("command = %q\n", command))
	}
	if !argsSet {
		missing = append(missing, "args = [\"bridge\"]\n")
	}
	return strings.Join(slices.Insert(out, at, missing...), "")
}

func withoutOurs(settings tomlSettings) map[string]any {
	out := make(map[string]any)
	for k, v := range settings {
		if servers, ok := v.(map[string]any); ok && k == "mcp_servers" {
			rest := make(map[string]any)
			for name, s := range servers {
				if name != serverName {
					rest[name] = s
				}
			}
			if len(rest) == 0 {
				continue
			}
			v = rest
		}
		out[k] = v
	}
	return out
}
