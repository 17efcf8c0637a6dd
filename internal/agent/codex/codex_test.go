package codex

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"pollux/internal/agent"
	"pollux/internal/agent/agenttest"
	"pollux/internal/jsontoml"
	"pollux/internal/sys/systest"
)

func TestFailure(t *testing.T) {
	for _, test := range []struct {
		info, message string
		kind          agent.Kind
		says          string
	}{
		{`"other"`, `{"error":{"message":"scripted bad request","type":"invalid_request_error"}}`, agent.BadRequest, "(scripted bad request)"},
		{`{"httpConnectionFailed":{"httpStatusCode":401}}`, "unexpected status 401 Unauthorized: Incorrect API key provided, url: http://127.0.0.1:1/v1/responses", agent.Auth, "Incorrect API key provided): run `codex login`"},
		{`"unauthorized"`, "", agent.Auth, "`codex login`"},
		{`"other"`, "Missing environment variable: `FAKE_KEY`.", agent.Auth, "`env_key`"},
		{`"modelNotFound"`, "The model `x` does not exist", agent.BadModel, "leave the model out"},
		{`{"responseTooManyFailedAttempts":{"httpStatusCode":429}}`, "exceeded retry limit, last status: 429 Too Many Requests", agent.QuotaMinute, "wait a minute"},
		{`"usageLimitExceeded"`, "You’ve hit your usage limit.", agent.QuotaDay, "buy credits"},
		{`"contextWindowExceeded"`, "too long", agent.TooLong, "send less"},
		{`"serverOverloaded"`, "busy", agent.Capacity, "try again later"},
		{`{"httpConnectionFailed":{"httpStatusCode":503}}`, "unexpected status 503", agent.Capacity, "try again later"},
		{`{"httpConnectionFailed":{"httpStatusCode":null}}`, "Connection failed: error sending request", agent.Network, "check the network"},
		{`"cyberPolicy"`, "no", agent.Blocked, "rephrase"},
		{`null`, "failed to load configuration: /home/.codex/config.toml:1:10: unclosed array", agent.Settings, "config.toml:1:10"},
		{`null`, "error creating thread: fs sandbox helper failed with status exit status: 1: bwrap: setting up uid map: Permission denied", agent.Unenforceable, "codex sandbox true"},
		{`"later"`, "something else", agent.Failed, "codex exec hello"},
	} {
		refused := (&turnError{Message: test.message, Info: []byte(test.info)}).refused()
		err := failure(nil, refused.Code, refused.Message, nil)
		if err.Kind != test.kind || !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s %s: %q, %v", test.info, test.message, err.Kind, err)
		}
	}
}

func TestResetAfter(t *testing.T) {
	now := time.Date(2026, time.November, 26, 14, 30, 0, 0, time.UTC)
	for message, want := range map[string]time.Duration{
		"You’ve hit your usage limit. Visit https://x or try again at 3:37 PM.":    67 * time.Minute,
		"You’ve hit your usage limit. Try again at 2:00 PM.":                       23*time.Hour + 30*time.Minute,
		"You’ve hit your usage limit. Try again at Nov 28th, 2026 2:30 PM.":        48 * time.Hour,
		"You’ve hit your usage limit. Try again in 2 days 3 hours 5 minutes.":      51*time.Hour + 5*time.Minute,
		"You’ve hit your usage limit. Try again in 1 hour.":                        time.Hour,
		"Rate limit reached. Please try again in 1.5s.":                            0,
		"exceeded retry limit, last status: 429 Too Many Requests":                 0,
		"You’ve hit your usage limit. Try again at Nov 2nd, 2026 2:30 PM.":         0,
		"You’ve hit your usage limit. Upgrade to Pro to continue using Codex CLI.": 0,
	} {
		if got := resetFrom(now, message); got != want {
			t.Errorf("%s: %s, not %s", message, got, want)
		}
	}
}

func TestCause(t *testing.T) {
	stderr := "\x1b[2m2026\x1b[0m \x1b[31mERROR\x1b[0m codex: could not find bubblewrap on PATH\nWARNING: x\nError: no such option\n"
	if got := cause(nil, stderr); got != "Error: no such option" {
		t.Errorf("got %q", got)
	}
}

func TestItems(t *testing.T) {
	read, list := action{Type: "read", Path: "/p/a.go", Command: "cat a.go"}, action{Type: "listFiles", Command: "ls"}
	for _, test := range []struct {
		item        item
		name, title string
	}{
		{item{Type: "commandExecution", Actions: []action{read, read}}, "read", "/p/a.go, /p/a.go"},
		{item{Type: "commandExecution", Actions: []action{list}}, "list", "ls"},
		{item{Type: "commandExecution", Actions: []action{{Type: "search", Query: "x", Path: "/p"}}}, "search", "x"},
		{item{Type: "commandExecution", Actions: []action{read, list}}, "shell", "cat a.go, ls"},
		{item{Type: "commandExecution", Actions: []action{{Type: "unknown", Command: "make"}}}, "shell", "make"},
		{item{Type: "commandExecution", Command: "make"}, "shell", "make"},
		{item{Type: "imageView", Path: "/p/a.png"}, "view_image", "/p/a.png"},
		{item{Type: "fileChange", Status: "declined"}, "apply_patch", ""},
		{item{Type: "mcpToolCall", Server: "s", Tool: "t", Status: "completed"}, "s.t", ""},
		{item{Type: "somethingNew", Status: "completed"}, "somethingNew", ""},
		{item{Type: "reasoning"}, "", ""},
		{item{Type: "plan"}, "", ""},
	} {
		test.item.ID = "call__1"
		u, used := test.item.update(true)
		name, title := tool(u)
		if name != test.name || title != test.title || used != (name != "") {
			t.Errorf("%+v: %q, %q", test.item, name, title)
		}
		if failed := u.Status == agent.ToolFailed; failed != (test.item.Status == "declined") {
			t.Errorf("%+v: %s", test.item, u.Status)
		}
	}
}

// A world is a home and a project.
type world struct {
	home, project string
	env           agent.Env
}

func newWorld(t *testing.T) world {
	t.Helper()
	dir := systest.Dir(t)
	w := world{home: filepath.Join(dir, "home"), project: filepath.Join(dir, "project", "sub")}
	w.env = agent.Env{"HOME=" + w.home, "USERPROFILE=" + w.home}
	w.write(t, w.project, "a.txt", "a")
	return w
}

func (w world) write(t *testing.T, dir, name, text string) {
	t.Helper()
	path := filepath.Join(dir, name)
	systest.WriteFile(t, path, text)
}

func TestEnvironment(t *testing.T) {
	w := newWorld(t)
	w.write(t, w.home, ".codex/config.toml", "[model_providers.mine]\nenv_key = \"MY_KEY\"\nenv_http_headers = {X = \"MY_HEADER\"}\n")
	env := append(w.env, "MY_KEY=1", "MY_HEADER=2", "OTHER=3", "CODEX_ACCESS_TOKEN=4", "AWS_REGION=5",
		"CODEX_SANDBOX=x", "CODEX_THREAD_ID=x", "CODEX_EXEC_SERVER_URL=x", "CODEX_PATH=x", "RUST_LOG=trace")
	got := environment(env)
	got = slices.DeleteFunc(got, func(kv string) bool { return strings.HasPrefix(kv, "HOME=") || strings.HasPrefix(kv, "USERPROFILE=") })
	if want := []string{"AWS_REGION=5", "CODEX_ACCESS_TOKEN=4", "MY_HEADER=2", "MY_KEY=1"}; !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
}

func TestAccount(t *testing.T) {
	w := newWorld(t)
	seen := make(map[string]string)
	differs := func(what string, env agent.Env) {
		t.Helper()
		id := account(env, w.project)
		if same, ok := seen[id]; ok {
			t.Errorf("%s has the account of %s", what, same)
		}
		if strings.Contains(id, "secret") || len(id) != 32 {
			t.Errorf("the account is %q", id)
		}
		seen[id] = what
	}
	differs("no login", w.env)
	login := func(account, token string) {
		w.write(t, w.home, ".codex/auth.json", `{"tokens":{"account_id":"`+account+`","access_token":"`+token+`"}}`)
	}
	login("one", "secret1")
	differs("a login", w.env)
	before := account(w.env, w.project)
	login("one", "secret2")
	if account(w.env, w.project) != before {
		t.Error("a renewed token is another account")
	}
	login("two", "secret2")
	differs("another login", w.env)
	differs("a key", append(w.env, "OPENAI_API_KEY=secret"))
	differs("another home", append(w.env, "CODEX_HOME="+w.project))
	w.write(t, w.home, ".codex/config.toml", "model_provider = \"mine\"\n[model_providers.mine]\nbase_url = \"http://a\"\nenv_key = \"MY_KEY\"\n")
	differs("a provider", w.env)
	differs("the provider's key", append(w.env, "MY_KEY=secret"))
	if got, want := Writable(append(w.env, "CODEX_SQLITE_HOME=/db")), []string{filepath.Join(w.home, ".codex"), "/db"}; !slices.Equal(got, want) {
		t.Errorf("writable: %q", got)
	}
}

// The settings of a directory above the workspace are turned off, and the user's own not.
func TestCommand(t *testing.T) {
	w := newWorld(t)
	launch := func() string {
		t.Helper()
		c, err := serverCommand(agent.Launch{Dir: w.project, TempDir: t.TempDir(), Env: w.env})
		if err != nil || c.Args[len(c.Args)-1] != "app-server" {
			t.Fatalf("%q, %v", c.Args, err)
		}
		return strings.Join(c.Args, "\n")
	}
	if c, err := serverCommand(agent.Launch{Dir: w.project, TempDir: t.TempDir(), Env: w.env}); err != nil || agent.Env(c.Env).Get("GIT_CONFIG_PARAMETERS") == "" {
		t.Errorf("its git runs the filters of the repository: %q, %v", c.Env, err)
	}
	if args := launch(); !strings.Contains(args, "shell_environment_policy.ignore_default_excludes=false") {
		t.Errorf("the model's commands receive keys: %s", args)
	}
	if args := launch(); strings.Contains(args, "projects=") || strings.Contains(args, "sandbox") || strings.Contains(args, "deny") {
		t.Errorf("the arguments are %s", args)
	}
	w.write(t, w.home, ".codex/rules/default.rules", `prefix_rule(pattern=["touch"], decision="allow")`)
	if args, login := launch(), filepath.Join(w.home, ".codex", "auth.json"); !strings.Contains(args, jsontoml.Literal(login)+`="deny"`) {
		t.Errorf("the arguments are %s", args)
	}
	above := filepath.Dir(w.project)
	w.write(t, above, ".codex/config.toml", "")
	if args := launch(); !strings.Contains(args, `projects={`+jsontoml.Literal(above)+`={trust_level="untrusted"}}`) {
		t.Errorf("the arguments are %s", args)
	}
	if files := inputs(agent.Source{Env: w.env}, agent.Program{Path: "/codex"}, w.project); !slices.Contains(files, filepath.Join(above, ".codex", "config.toml")) || !slices.Contains(files, filepath.Join(w.home, ".codex", "rules", "default.rules")) {
		t.Errorf("the inputs are %q", files)
	}
	if args := launch(); strings.Contains(args, "project_doc_max_bytes") {
		t.Errorf("the arguments are %s", args)
	}
	if args := launch(); !strings.Contains(args, "project_doc_fallback_filenames=[]") {
		t.Errorf("it follows links of other names: %s", args)
	}
	w.write(t, w.home, "secret", "x")
	instructions := filepath.Join(w.project, "AGENTS.md")
	if systest.TryLink(filepath.Join(w.home, "secret"), instructions) == nil { // not on Windows without Developer Mode
		if args := launch(); !strings.Contains(args, "project_doc_max_bytes=0") {
			t.Errorf("it follows a link to instructions from outside: %s", args)
		}
		os.Remove(instructions)
	}
	w.env = append(w.env, "CODEX_HOME="+filepath.Join(above, ".codex"))
	if args := launch(); strings.Contains(args, "projects=") {
		t.Errorf("the arguments are %s", args)
	}
}

func TestVersions(t *testing.T) {
	agenttest.WantVersions(t, row, map[string]agent.Kind{
		"0.160.0": "", "0.160.0-linux-x64": "", "1.0.0": "", "0.159.9": agent.TooOld, "": agent.NoVersion,
	})
	_, err := row.Locate(agent.Source{Env: agent.Env{"PATH=" + t.TempDir()}})
	agenttest.WantKind(t, err, agent.NotInstalled, "npm install -g @openai/codex")
}

// The CLI gets the schemas that the service takes in its strict mode, and no other.
func TestStrictSchemas(t *testing.T) {
	const of = `"type":"object","additionalProperties":false`
	for schema, want := range map[string]bool{
		`{` + of + `,"properties":{"a":{"type":"string","enum":["x"]},"b":{"type":["integer","null"],"minimum":1}},"required":["b","a"]}`: true,
		`{"$schema":"https://json-schema.org/draft/2020-12/schema",` + of + `,"properties":{}}`:                                           true,
		`{` + of + `,"properties":{"a":{"type":"array","items":{"$ref":"#/$defs/n"}}},"required":["a"],"$defs":{"n":{"type":"integer"}}}`: true,
		`{` + of + `,"properties":{"a":{"anyOf":[{"type":"string"},{"type":"null"}]}},"required":["a"]}`:                                  true,
		`{` + of + `,"properties":{"a":{"type":"string"}}}`:                                                                               false,
		`{"type":"object","properties":{}}`: false,
		`{` + of + `}`:                      false,
		`{` + of + `,"properties":{"a":{"type":"object"}},"required":["a"]}`:                                    false,
		`{` + of + `,"properties":{"a":{"type":"array","items":{"not":{}}}},"required":["a"]}`:                  false,
		`{` + of + `,"properties":{"a":{"anyOf":[{"type":"string"},true]}},"required":["a"]}`:                   false,
		`{` + of + `,"properties":{"a":{"$ref":"#/$defs/n"}},"required":["a"],"$defs":{"n":{"type":"object"}}}`: false,
		`{` + of + `,"properties":{},"patternProperties":{}}`:                                                   false,
		`{"type":"array","items":{"type":"integer"}}`:                                                           false,
		`{"anyOf":[{` + of + `,"properties":{}}]}`:                                                              false,
		`true`: false,
		`{`:    false,
	} {
		got := strict(schema)
		if (got != nil) != want || got["$schema"] != nil {
			t.Errorf("%s: %v", schema, got)
		}
	}
}
