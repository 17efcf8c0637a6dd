package config

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"

	"pollux/internal/agent"
	"pollux/internal/sys/systest"
)

var update = flag.Bool("update", false, "write the table of settings to docs/CONFIG.md")

// load reads a file with that text, in an environment.
func load(t *testing.T, text string, env map[string]string, known ...string) *Values {
	t.Helper()
	dir := t.TempDir()
	t.Setenv("HOME", dir)
	path := filepath.Join(dir, "config.toml")
	systest.WriteFile(t, path, text)
	return Load(func(name string) string {
		if name == EnvFile {
			return path
		}
		return env[name]
	}, known...)
}

// Err returns the problems as one error, or nil.
func (v *Values) Err() error { return v.ErrFor(func(Setting) bool { return true }) }

// The rows of the table are complete, and no two share a name.
func TestTable(t *testing.T) {
	seen := make(map[string]string)
	for _, s := range Settings {
		if got, want := Defaults().Value(s.Key), s.Value(); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: the default is %v, want %v", s.Key, got, want)
		}
		for _, name := range []string{"key " + s.Key, "variable " + s.Variable} {
			if other := seen[name]; other != "" && name != "variable " {
				t.Errorf("%s and %s have the %s", other, s.Key, name)
			}
			seen[name] = s.Key
		}
		if strings.Count(s.Key, ".") != 1 || s.Help == "" || (s.Flag == "") != (len(s.Commands) == 0) ||
			s.Kind == Choice && len(s.Choices) < 2 || (s.Kind == Number || s.Kind == Duration) && s.Most <= s.Least {
			t.Errorf("%s is incomplete: %+v", s.Key, s)
		}
	}
}

// A flag wins over the environment, the environment over the file, and the file over the
// default.
func TestOrder(t *testing.T) {
	const file = "[bridge]\nmodel = \"of-file\"\nrunner = \"spawn\"\n\n[run]\nreview = \"split\"\nno-browser = true\n"
	v := load(t, file, map[string]string{"GEMINI_DEFAULT_MODEL": " of-environment ", "POLLUX_POOL": "", "GEMINI_MAX_CONCURRENT": "5"})
	if err := v.Err(); err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]struct {
		value  any
		origin string
	}{
		"bridge.model":          {"of-environment", "$GEMINI_DEFAULT_MODEL"},
		"bridge.max-concurrent": {5, "$GEMINI_MAX_CONCURRENT"},
		"bridge.runner":         {"spawn", v.Path + ":3"},
		"run.review":            {"split", v.Path + ":6"},
		"run.no-browser":        {true, v.Path + ":7"},
		"pool.enabled":          {true, "default"},
		"pool.idle":             {10 * time.Minute, "default"},
	} {
		if got := v.Value(key); got != want.value || v.Origin(key).String() != want.origin {
			t.Errorf("%s is %v, from %s; want %v", key, got, v.Origin(key), want)
		}
	}
	// A flag decides about its whole group: --review browser means that a browser opens.
	v.SetFlags(map[string]any{"run.review": "browser"})
	if v.Text("run.review") != "browser" || v.Origin("run.review").String() != "--review" || v.Switch("run.no-browser") ||
		v.Text("bridge.runner") != "spawn" {
		t.Errorf("with --review browser:\n%s", v)
	}
}

// Each kind of value, in the file and in the environment.
func TestValues(t *testing.T) {
	x, a := systest.Abs("/x"), systest.Abs("/a")
	v := load(t, fmt.Sprintf(`
pool.enabled = false
[companion]
root = ["~/src", '%s']
listen = "10.0.0.1"
[bridge]
command = '~%cbin/gemini'
warm-wait = "1m30s"
warm-memory-mb = 2_048
prompts-dir = '''%s'''
`, x, filepath.Separator, a), map[string]string{"GEMINI_WARM_AHEAD": "YES", "GEMINI_IDLE_TIMEOUT_MS": "1000"})
	if err := v.Err(); err != nil {
		t.Fatal(err)
	}
	home, _ := os.UserHomeDir()
	for key, want := range map[string]any{
		"pool.enabled": false, "companion.root": []string{filepath.Join(home, "src"), x}, "companion.listen": "10.0.0.1",
		"bridge.command": filepath.Join(home, "bin", "gemini"), "bridge.warm-wait": 90 * time.Second, "bridge.warm-memory-mb": 2048,
		"bridge.prompts-dir": a, "bridge.warm-ahead": true, "bridge.idle-timeout": time.Second,
	} {
		if got := v.Value(key); !reflect.DeepEqual(got, want) {
			t.Errorf("%s is %#v, want %#v", key, got, want)
		}
	}
	t.Chdir(t.TempDir())
	wd, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for value, want := range map[string]string{"other": "other", "./bin/gemini": filepath.Join(wd, "bin/gemini")} {
		if got := load(t, "", map[string]string{"GEMINI_CLI_PATH": value}).Text("bridge.command"); got != want {
			t.Errorf("the program %q is %q, want %q", value, got, want)
		}
	}
}

// Each problem of the file names the line, what is wrong and the next step. The valid
// settings still count.
func TestProblems(t *testing.T) {
	for text, want := range map[string]string{
		"a = ":                                   `1: not valid TOML: unexpected EOF`,
		"[run]\nreview = split":                  `2: not valid TOML: expected value but found "split" instead: correct it`,
		"\nmodel = \"x\"":                        "2: unknown key model: did you mean bridge.model?",
		"top = 1":                                "1: unknown key top: remove it; `pollux config` lists the known keys",
		"[bridge]\nmodle = 1":                    "2: unknown key bridge.modle: did you mean bridge.model?",
		"[bridge]\nreview = 1":                   "2: unknown key bridge.review: did you mean run.review?",
		"[pol]\nidle = 1":                        "1: unknown table [pol]: did you mean [pool]?",
		"[secrets]\nkey = 1":                     "1: unknown table [secrets]: remove it",
		"[bridge.model]\nx = 1":                  "1: bridge.model is a table: write a string, in quotes",
		"[[log]]\nlevel = \"x\"":                 "1: log is not a table: write [log] on its own line",
		"pool = 1":                               "1: pool is not a table",
		"[bridge]\nmax-concurrent = 65":          "2: bridge.max-concurrent is 65: write a whole number from 1 to 64",
		"[bridge]\nmax-concurrent = \"3\"":       `2: bridge.max-concurrent is "3": write a whole number from 1 to 64, without quotes`,
		"[pool]\nidle = 600000":                  `2: pool.idle is 600000: write a time from 1s to 24h with its unit, as in "10m"`,
		"[pool]\nidle = \"25h\"":                 `2: pool.idle is "25h": write a time from 1s to 24h`,
		"[pool]\nenabled = \"on\"":               `2: pool.enabled is "on": write true or false, without quotes`,
		"[run]\nreview = \"paper\"":              `2: run.review is "paper": set it to browser, split, popup or none`,
		"[companion]\nhost-name = [\"a\", 3]":    `2: companion.host-name is an array: write a list of strings, as in ["a", "b"]`,
		"[companion]\nroot = \"/x\"":             `2: companion.root is "/x": write a list of strings`,
		"[companion]\nlisten = true":             "2: companion.listen is true: write a string, in quotes",
		"[bridge]\nprompts-dir = \"x/y\"":        `2: bridge.prompts-dir is "x/y": write an absolute path, or one that starts with ~/`,
		"[bridge]\ncommand = \"./gemini\"":       `2: bridge.command is "./gemini": write an absolute path`,
		"[run]\ndir = \"C:\\Users\\me\"":         `2: not valid TOML: expected eight hexadecimal digits after '\U', but got "C:\\Us" instead: write a path with backslashes in single quotes`,
		"[bridge]\nprompts-dir = \"C:\\app\"":    `2: not valid TOML: invalid escape in string '\a': write a path with backslashes in single quotes`,
		"[bridge]\nprompts-dir = \"C:\\temp\"":   `2: bridge.prompts-dir is "C:\temp": write a path with backslashes in single quotes`,
		"[bridge]\nmodel = \"--yolo\"":           `2: bridge.model is "--yolo", which is not a valid model name: set it to one such as`,
		"[log]\nlevel = \"info\"\nlevel = \"x\"": `3: not valid TOML: Key 'log.level' has already been defined`,
	} {
		v := load(t, text, nil)
		if len(v.Problems) != 1 || !strings.HasPrefix(v.Problems[0].Error(), v.Path+":"+want) || v.Err() == nil || v.FileErr() == nil {
			t.Errorf("%q: got %v, want %q", text, v.Err(), want)
		}
	}
	v := load(t, "[bridge]\nmodel = \"gemini-x\"\nx = 1\n[pool]\ny = 2\nenabled = false", nil)
	if len(v.Problems) != 2 || v.Text("bridge.model") != "gemini-x" || v.Switch("pool.enabled") {
		t.Errorf("got %v and\n%s", v.Err(), v)
	}
}

// Agents that Pollux does not know come from tables of the file.
func TestAgents(t *testing.T) {
	bin := systest.Abs("/opt/b/bin/b")
	file := "[agents.kimi]\nacp = [\"kimi\", \"acp\"]\n[agents.b-2]\nacp = ['" + bin + "']\nwritable = [\"~/.cache/b\"]\nvariables = [\"OPENAI_API_KEY\"]\n"
	v := load(t, file, nil)
	home, _ := os.UserHomeDir()
	want := []agent.Definition{
		{Name: "b-2", Command: []string{bin}, Writable: []string{filepath.Join(home, ".cache", "b")}, Variables: []string{"OPENAI_API_KEY"}},
		{Name: "kimi", Command: []string{"kimi", "acp"}},
	}
	if got := v.Agents(); v.Err() != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v", got, v.Err())
	}
	if got := v.Origin("agents.kimi.acp").String(); got != v.Path+":2" {
		t.Errorf("the command is of %s", got)
	}
	acp := "[agents.a]\nacp = [\"a\"]\n"
	for text, want := range map[string]string{
		"agents = 1":                                    "1: agents is not a table: write [agents.NAME]",
		"agents.a = 1":                                  "1: agents.a is not a table: write [agents.a]",
		"[agents.codex]\nacp = [\"x\"]":                 "1: [agents.codex]: Pollux knows this agent",
		"[agents.\"../x\"]\nacp = [\"x\"]":              "1: [agents.../x]: an agent cannot have this name",
		"[agents.ssh]\nacp = [\"x\"]":                   "1: [agents.ssh]: an agent cannot have this name",
		"[agents.a]\nwritable = []":                     `1: [agents.a] has no acp: write its command, as in acp = ["a", "acp"]`,
		"[agents.a]\nacp = []":                          "2: agents.a.acp is an array: start it with a program",
		"[agents.a]\nacp = \"a\"":                       `2: agents.a.acp is "a": write a list of strings`,
		"[agents.a]\nacp = [\"./a\"]":                   "2: agents.a.acp is an array: start it with a program on the PATH or an absolute path",
		acp + "writeable = []":                          "3: unknown key agents.a.writeable: did you mean writable?",
		acp + "model = \"x\"":                           "3: unknown key agents.a.model: remove it",
		acp + "writable = [\"~/\"]":                     `3: agents.a.writable is an array, with`,
		acp + "writable = [\"../a\"]":                   `3: agents.a.writable is an array, with "../a": write absolute paths`,
		acp + "writable = ['" + systest.Abs("/") + "']": `3: agents.a.writable is an array, with`,
		acp + "variables = [\"A=1\"]":                   `3: agents.a.variables is an array, with "A=1": write the names of variables`,
	} {
		v := load(t, text, nil, "codex")
		if len(v.Problems) != 1 || !strings.HasPrefix(v.Problems[0].Error(), v.Path+":"+want) {
			t.Errorf("%q: got %v, want %q", text, v.Err(), want)
		}
	}
}

// An invalid variable is a problem, but not one of the file.
func TestInvalidVariables(t *testing.T) {
	for name, value := range map[string]string{
		"GEMINI_MAX_CONCURRENT": "abc", "GEMINI_MIN_INVOCATION_GAP_MS": "-1", "GEMINI_SPAWN_JITTER_MAX_MS": "1.5",
		"GEMINI_IDLE_TIMEOUT_MS": "99999999999", "GEMINI_DEFAULT_MODEL": "--yolo", "GEMINI_FALLBACK_MODEL": "a b",
		"GEMINI_RUNNER": "hot", "GEMINI_WARM_AHEAD": "perhaps", "GEMINI_WARM_PROCESSES": "0", "GEMINI_WARM_MEMORY_MB": "1",
		"POLLUX_POOL": "maybe", "POLLUX_REVIEW": "paper",
	} {
		v := load(t, "", map[string]string{name: value})
		if err := v.Err(); err == nil || !strings.Contains(err.Error(), name+` is "`+value+`"`) ||
			!strings.Contains(err.Error(), "set it to") || v.FileErr() != nil {
			t.Errorf("%s: got %v", name, err)
		}
	}
	err := load(t, "", map[string]string{"GEMINI_MAX_CONCURRENT": "0"}).Err()
	if want := `GEMINI_MAX_CONCURRENT is "0": set it to a whole number from 1 to 64, or leave it out for 3`; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestPath(t *testing.T) {
	home := t.TempDir()
	t.Setenv("HOME", home)
	xdg := filepath.Join(home, "xdg")
	for _, test := range []struct {
		env  map[string]string
		want string
	}{
		{map[string]string{"XDG_CONFIG_HOME": xdg}, filepath.Join(xdg, "pollux", "config.toml")},
		{map[string]string{"XDG_CONFIG_HOME": "relative"}, filepath.Join(home, ".config", "pollux", "config.toml")},
		{map[string]string{EnvFile: filepath.Join(home, "x"), "XDG_CONFIG_HOME": xdg}, filepath.Join(home, "x")},
	} {
		if runtime.GOOS == "windows" && test.env["XDG_CONFIG_HOME"] == "relative" {
			continue
		}
		if got, err := FilePath(func(name string) string { return test.env[name] }); err != nil || got != test.want {
			t.Errorf("%v: got %s, %v; want %s", test.env, got, err, test.want)
		}
	}
	if v := Load(func(string) string { return "" }); v.Err() != nil {
		t.Errorf("without a file: %v", v.Err())
	}
	for name, path := range map[string]string{"does not exist": filepath.Join(home, "none"), "not a regular file": home} {
		v := Load(func(key string) string { return map[string]string{EnvFile: path}[key] })
		if err := v.FileErr(); err == nil || !strings.Contains(err.Error(), path+": ") || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

// What `pollux config` prints is a file with the same settings, and so is the file that
// `pollux config edit` creates, with and without the marks of its comments.
func TestPrintedFile(t *testing.T) {
	text := "agents.mine = {acp = ['" + systest.Abs("/x/mine") + "', 'a\"b'], writable = ['~/x'], variables = []}\n[companion]\nroot = ['/a\"b\\c', \"tab\\tnew\\nline \\u0001\\u0085 \U0001F600\"]\n[bridge]\nwarm-idle = \"1h0m30s\"\nstart-jitter = \"1ms\"\n"
	v := load(t, text, nil)
	again := load(t, v.String(), nil)
	if v.Err() != nil || again.Err() != nil {
		t.Fatalf("%v, %v:\n%s", v.Err(), again.Err(), v)
	}
	for _, s := range v.rows() {
		if one, two := v.Value(s.Key), again.Value(s.Key); !reflect.DeepEqual(one, two) && len(literal(one)) > len("[]") {
			t.Errorf("%s is %#v and then %#v", s.Key, one, two)
		}
	}
	if !reflect.DeepEqual(v.Agents(), again.Agents()) {
		t.Errorf("the agents are %q and then %q", v.Agents(), again.Agents())
	}
	if v := load(t, Template(), nil); v.Err() != nil || len(v.values) != 0 {
		t.Errorf("the new file sets %v, %v", v.values, v.Err())
	}
	var lines []string
	for line := range strings.Lines(Template()) {
		if !strings.HasPrefix(line, "# ") {
			line = strings.TrimPrefix(line, "#")
		}
		lines = append(lines, line)
	}
	if v := load(t, strings.Join(lines, ""), nil); v.Err() != nil || len(v.values) != len(Settings)+1 || len(v.Agents()) != 1 { // an example
		t.Errorf("without the marks, the new file sets %d of %d settings: %v", len(v.values), len(Settings), v.Err())
	}
}

// docs/CONFIG.md has the table of settings. -update writes it.
func TestDocumentation(t *testing.T) {
	const path, begin, end = "../../docs/CONFIG.md", "<!-- settings -->\n", "<!-- end of settings -->"
	doc, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(doc), begin)
	table, after, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("%s has no place for the table", path)
	}
	if table == markdown() {
		return
	}
	if !*update {
		t.Fatalf("the table of %s is old: run `go test ./internal/config -update`", path)
	}
	systest.WriteFile(t, path, before+begin+markdown()+end+after)
}

func FuzzLoad(f *testing.F) {
	f.Add("[run]\nreview = \"split\"\n")
	f.Add("a.b.c = 1\n[[x]]\n")
	f.Add("[agents.a]\nacp = [\"a\"]\nwritable = [\"~/x\"]\n")
	path := filepath.Join(f.TempDir(), "config.toml")
	f.Fuzz(func(t *testing.T, text string) {
		v := Defaults()
		v.Path = path
		v.decode(text)
		for _, p := range v.Problems {
			if p.File == "" || p.Text == "" {
				t.Errorf("%q: %+v", text, p)
			}
		}
		again := Defaults()
		again.decode(v.String())
		if err := again.Err(); err != nil {
			t.Errorf("%q is printed as\n%s%v", text, v, err)
		}
	})
}

// markdown returns the table of all settings for the documentation.
func markdown() string {
	var out strings.Builder
	out.WriteString("| key | default | variable | flag | |\n| --- | --- | --- | --- | --- |\n")
	code := func(text string) string {
		if text == "" {
			return ""
		}
		return "`" + text + "`"
	}
	for _, s := range Settings {
		flag, limits := "", ""
		if s.Flag != "" {
			flag = code("--" + s.Flag)
		}
		switch s.Kind {
		case Number:
			limits = fmt.Sprintf(" (%d to %d)", s.Least, s.Most)
		case Duration:
			least, _ := s.parse(fmt.Sprint(s.Least))
			most, _ := s.parse(fmt.Sprint(s.Most))
			limits = fmt.Sprintf(" (%s to %s)", strings.Trim(literal(least), `"`), strings.Trim(literal(most), `"`))
		}
		fmt.Fprintf(&out, "| %s | %s | %s | %s | %s%s |\n",
			code(s.Key), code(literal(s.Value())), code(s.Variable), flag, s.Usage(), limits)
	}
	return out.String()
}
