package cli

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/BurntSushi/toml"
	"github.com/tailscale/hujson"
)

func TestInstallKeepsWhatIsThere(t *testing.T) {
	entry := serverEntry{Type: "stdio", Command: "/bin/pollux", Args: []string{"bridge"}}
	for name, test := range map[string][2]string{
		"none":    {"", "{\n  \"mcpServers\": {\n    \"pollux\": {\n      \"type\": \"stdio\",\n      \"command\": \"/bin/pollux\",\n      \"args\": [\n        \"bridge\"\n      ]\n    }\n  }\n}\n"},
		"others":  {"{\n    // mine\n    \"mcpServers\": {\n        \"x\": {\"command\": \"x\"}, // x\n    },\n    \"z\": 1.50\n}", "{\n    // mine\n    \"mcpServers\": {\n        \"x\": {\"command\": \"x\"}, // x\n        \"pollux\": {\n            \"type\": \"stdio\",\n            \"command\": \"/bin/pollux\",\n            \"args\": [\n                \"bridge\"\n            ]\n        },\n    },\n    \"z\": 1.50\n}"},
		"an old":  {`{"mcpServers": {"pollux": {"command": "old"}, "y": {}}}`, "{\"mcpServers\": {\"pollux\": {\n      \"type\": \"stdio\",\n      \"command\": \"/bin/pollux\",\n      \"args\": [\n        \"bridge\"\n      ]\n    }, \"y\": {}}}"},
		"in line": {`{"a":1}`, "{\"a\":1,\n  \"mcpServers\": {\n    \"pollux\": {\n      \"type\": \"stdio\",\n      \"command\": \"/bin/pollux\",\n      \"args\": [\n        \"bridge\"\n      ]\n    }\n  }\n}"},
	} {
		got, err := changeJSON(test[0], "mcpServers", entry, false)
		if err != nil || got != test[1] {
			t.Errorf("%s: %v\n%s\nwant\n%s", name, err, got, test[1])
		}
		if again, err := changeJSON(got, "mcpServers", entry, false); err != nil || again != got {
			t.Errorf("%s: a second time: %v\n%s", name, err, again)
		}
		gone, err := changeJSON(got, "mcpServers", entry, true)
		if err != nil || strings.Contains(gone, "pollux") {
			t.Errorf("%s: removed: %v\n%s", name, err, gone)
		}
		if std, err := hujson.Standardize([]byte(gone)); err != nil || !json.Valid(std) {
			t.Errorf("%s: removed, it is not JSON: %s", name, gone)
		}
	}
	for _, bad := range []string{"{", "[]", `{"mcpServers":[]}`} {
		if _, err := changeJSON(bad, "mcpServers", entry, false); err == nil || !strings.Contains(err.Error(), "correct it first") {
			t.Errorf("%s: %v", bad, err)
		}
	}
}

func TestInstallCodex(t *testing.T) {
	ours := "[mcp_servers.pollux]\ncommand = \"/bin/pollux\"\nargs = [\"bridge\"]\ntool_timeout_sec = 1800\n"
	for before, want := range map[string]string{
		"":                             ours,
		"# mine\nmodel = \"x\"\n":      "# mine\nmodel = \"x\"\n\n" + ours,
		"[mcp_servers.x]\na = 1 # x\n": "[mcp_servers.x]\na = 1 # x\n\n" + ours,
		"[mcp_servers.pollux]\ncommand = \"old\"\n[mcp_servers.pollux.env]\nA = \"1\"\n[z]\nb = 2\n": "[z]\nb = 2\n\n" + ours,
	} {
		got, err := changeTOML(before, "/bin/pollux", false)
		if err != nil || got != want {
			t.Errorf("%q becomes %q, %v; want %q", before, got, err, want)
		}
		gone, err := changeTOML(got, "/bin/pollux", true)
		if err != nil || strings.Contains(gone, "pollux") {
			t.Errorf("removed: %q, %v", gone, err)
		}
	}
	for before, want := range map[string]string{
		"a = ": "correct it first",
		"mcp_servers = { pollux = { command = \"x\" }, y = {} }\n": "by hand",
	} {
		if _, err := changeTOML(before, "/bin/pollux", false); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", before, err)
		}
	}
}

// The manual's blocks are what is installed.
func TestManualShowsWhatIsInstalled(t *testing.T) {
	manual, err := os.ReadFile("../../docs/BRIDGE.md")
	if err != nil {
		t.Fatal(err)
	}
	var blocks []string
	for i, part := range strings.Split(string(manual), "\n```") {
		if i%2 == 1 {
			_, text, _ := strings.Cut(part, "\n")
			blocks = append(blocks, text)
		}
	}
	t.Setenv("PATH", "/usr/local/bin:/usr/bin:/bin")
	for _, c := range mcpClients {
		text, err := c.change("", "pollux", false)
		if err != nil {
			t.Fatal(err)
		}
		found := false
		for _, b := range blocks {
			found = found || same(t, c, b, text)
		}
		if !found {
			t.Errorf("docs/BRIDGE.md does not show %s:\n%s", c.title, text)
		}
	}
}

// same compares settings by what they say.
func same(t *testing.T, c mcpClient, a, b string) bool {
	t.Helper()
	decode := func(s string) string {
		var v any
		var err error
		if c.key == "" {
			var m map[string]any
			_, err = toml.Decode(s, &m)
			v = m
		} else {
			err = json.Unmarshal([]byte(s), &v)
		}
		if err != nil {
			return ""
		}
		out, _ := json.Marshal(v)
		return string(out)
	}
	return decode(a) != "" && decode(a) == decode(b)
}
