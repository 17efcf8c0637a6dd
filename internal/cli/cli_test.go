package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"unicode"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"pollux/internal/editor"
	"pollux/internal/sys/disk"
	"pollux/internal/sys/proc"
	"pollux/internal/sys/shell"
	"pollux/internal/sys/systest"
)

func TestMain(m *testing.M) {
	if args, ok := asNode(); ok {
		os.Exit(stub(args))
	}
	testscript.Main(m, map[string]func(){
		"pollux": func() {
			systest.UseConsole()
			os.Exit(interruptibleMain())
		},
		"decide": func() { os.Exit(decide(os.Args[1])) },
		// ctrlc PID presses Ctrl-C.
		"ctrlc": func() {
			pid, err := strconv.Atoi(os.Args[1])
			if err == nil {
				err = systest.Interrupt(pid)
			}
			if err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
		},
		"stub": func() {
			systest.UseConsole()
			os.Exit(stub(os.Args[1:]))
		},
	})
}

func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata",
		RequireUniqueNames:  true,
		RequireExplicitExec: true,
		Setup: func(env *testscript.Env) error {
			for _, d := range []string{"home", "tmp", "run"} {
				if err := os.Mkdir(filepath.Join(env.WorkDir, d), 0o700); err != nil {
					return err
				}
			}
			home := filepath.Join(env.WorkDir, "home")
			for _, name := range []string{"HOME", "USERPROFILE"} {
				env.Setenv(name, home)
			}
			env.Setenv("APPDATA", filepath.Join(home, "AppData", "Roaming"))
			env.Setenv("LOCALAPPDATA", filepath.Join(home, "AppData", "Local"))
			for _, name := range []string{"TMPDIR", "TMP", "TEMP"} {
				env.Setenv(name, filepath.Join(env.WorkDir, "tmp"))
			}
			// A socket's path must be short.
			run, err := disk.ShortTempDir("px")
			if err != nil {
				return err
			}
			env.Defer(func() { os.RemoveAll(run) })
			env.Setenv("POLLUX_RUNTIME_DIR", run)
			env.Defer(func() { // a script that failed may leave a pool
				stop := exec.Command("pollux", "pool", "stop", "--now")
				stop.Env = env.Vars
				stop.Run()
			})
			env.Setenv("VOLUME", filepath.VolumeName(env.WorkDir))
			env.Setenv(envInterrupts, env.WorkDir)
			env.Setenv("GORACE", "atexit_sleep_ms=10")
			// The directory of pollux, for a PATH without this machine's agents.
			pollux, err := exec.LookPath("pollux")
			if err != nil {
				return err
			}
			env.Setenv("BIN", filepath.Dir(pollux))
			return nil
		},
		Condition: func(name string) (bool, error) {
			if name == "terminates" { // pollux can ask a process to end
				return proc.CanAskToEnd(), nil
			}
			return false, fmt.Errorf("unknown condition %q", name)
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			// fake PATH ARG... makes a program that is the stub with these arguments. On Windows
			// it has an extension.
			"fake": fakeCommand,
			// await FILE TEXT waits until a background command has written TEXT
			// to FILE.
			"await": func(ts *testscript.TestScript, neg bool, args []string) { awaitFile(ts, args[0], args[1]) },
			// interrupt sends an interrupt to all background commands, which are pollux.
			"interrupt": func(ts *testscript.TestScript, neg bool, args []string) { interrupt(ts) },
			// paths FILE... makes the paths in JSON files native: those that start with $WORK
			// or $VOLUME.
			"paths": func(ts *testscript.TestScript, neg bool, args []string) { nativePaths(ts, args) },
		},
	})
}

// Every error that a user can see ends with the next step to take.
func TestErrorsNameTheNextStep(t *testing.T) {
	quiet(t)
	t.Setenv("PATH", t.TempDir())
	t.Setenv("TMUX", "")
	needsTmux := "run this command in tmux"
	if runtime.GOOS == "windows" {
		needsTmux = "which Windows does not have: use --review browser"
	}
	for _, tt := range []struct {
		args string
		code int
		says string
	}{
		{"nosuch", 2, "`pollux --help`"},
		{"instal nvim", 2, "did you mean `pollux install`?"},
		{"claude", 2, "did you mean `pollux run -- claude`?"},
		{"install neovm", 2, "did you mean `pollux install nvim`?"},
		{"install claude-code", 2, "did you mean `pollux install bridge claude-code`?"},
		{"install claude", 2, "did you mean `pollux run -- claude` or `pollux install bridge claude-code`?"},
		{"install bridge claude", 2, "did you mean `claude-code` or `claude-desktop`?"},
		{"doctor gemni", 2, "did you mean `gemini`?"},
		{"run -- claud", 127, "did you mean `pollux run -- claude`?"},
		{"status extra", 2, "`pollux status --help`"},
		{"status --nosuch", 2, "`pollux status --help`"},
		{"status --jsn", 2, "did you mean `--json`?\nRun `pollux status --help`"},
		{"status --json=maybe", 2, "--json maybe: use true or false\nRun `pollux status --help`"},
		{"status -x", 2, `unknown flag "-x"`},
		{"status --=x", 2, `unknown flag "--=x"`},
		{"completion bsh", 2, "did you mean `pollux completion bash`"},
		{"completion bash x", 2, "unexpected argument \"x\"\nUsage: pollux completion bash\n"},
		{"log --lines", 2, "--lines has no value: add the lines"},
		{"log --lines many", 2, "--lines many: use a whole number"},
		{"ask --timeout soon hi", 2, "use a time such as 90s or 5m"},
		{"journal shwo", 2, "did you mean `pollux journal show`?\nRun `pollux journal --help`"},
		{"journal --state reject", 2, "unknown --state reject: use unwritten, not written, edited, open, accepted, "},
		{"journal show", 2, "name one entry by its ID, or @ for the latest: `pollux journal` lists them\nUsage: pollux journal show ID [flags]\nRun `pollux journal show --help`"},
		{"send", 2, "no file given: name the file"},
		{"send main.go:0", 2, "\"main.go:0\" has no lines: write FILE:LINE or FILE:LINE-END"},
		{"notify f g", 2, "name one file"},
		{"journal show x", 1, "`pollux journal`"},
		{"journal restore x", 1, "`pollux journal`"},
		{"notify", 2, "name the file"},
		{"notify f --event jump", 2, "use focus, close, save or quit"},
		{"notify f --line 1 --unit miles", 2, "use char, byte, utf16 or grapheme"},
		{"notify f --line 1 --selection x --anchor 1", 2, "write LINE.COLUMN"},
		{"notify f --selection x --anchor 1.1", 2, "add --line and --column"},
		{"notify f", 1, "`pollux run`"},
		{"connect", 1, "`pollux run`"},
		{"connect --socket a --ssh b", 2, "use one"},
		{"connect --via a --dir b", 2, "pass it to pollux connect"},
		{"connect --map nonsense", 2, "`pollux connect --help`"},
		{"ide --attach", 1, "`pollux run`"},
		{"ide --standalone --attach", 2, "`pollux ide --help`"},
		{"ide --log loud", 2, "debug, info, warn or error\nRun `pollux ide --help`"},
		{"ide --root /no/such", 2, "not a directory: name an existing one\nRun `pollux ide --help`"},
		{"ide --listen 0.0.0.0", 2, "name one IP address"},
		{"lsp --listen localhost", 2, "name one IP address"},
		{"review", 1, "`pollux open`"},
		{"run gemini", 127, "`npm install -g @google/gemini-cli`"},
		{"run gemni", 2, "did you mean `pollux run gemini`?"},
		{"run bash", 2, "as in `pollux run " + shell.EndOfFlags() + " bash`"},
		{"run claude --model x", 2, "as in `pollux run " + shell.EndOfFlags() + " claude --model`"},
		{"run", 1, "npm install"},
		{"run -- nosuchprogram", 127, "check the command after --"},
		{"run -- claude", 127, "`npm install -g @anthropic-ai/claude-code`"},
		{"run -- /no/such/claude", 127, "check the command after --"},
		{"run --socket s", 2, "need --attach"},
		{"run --ssh host -- true", 2, "need --attach"},
		{"run --review popup", 2, needsTmux},
		{"run --review paper", 2, "use browser, split, popup or none"},
		{"demo", 1, "npm install"},
		{"demo --agent claude", 1, "npm install -g @anthropic-ai/claude-code"},
		{"demo --agent none", 2, "--agent gemini or --agent claude"},
		{"ask", 2, "no question given: pass it as an argument or on standard input"},
		{"ask --timeout 0 hi", 2, "use 1ms to 30m0s"},
		{"ask --timeout 31m hi", 2, "--timeout is 31m0s: use 1ms to 30m0s"},
		{"ask --words 0 hi", 2, "--words is 0: use a number from 1"},
		{"ask --words 100001 hi", 2, "--words is 100001: use a number from 1 to 100000"},
		{"ask --search --file f hi", 2, "`pollux ask --help`"},
		{"ask --search --changes hi", 2, "--search cannot be combined with --changes or --file"},
		{"ask --session none --continue hi", 2, "--continue cannot be combined with --session"},
		{"ask --continue --search hi", 2, "--continue and --session cannot be combined with --search or --json-schema"},
		{"ask -C none hi", 2, "--dir none does not exist: name an existing directory\nRun `pollux ask --help`"},
		{"ask -m --yolo hi", 2, "--model is \"--yolo\", which is not a valid model name"},
		{"ask -f /no/such hi", 2, "attach UTF-8 text or image files from this directory\nRun `pollux ask --help`"},
		{"ask --agent codex --agent gemini -C /no/such hi", 2, "name an existing directory\nRun `pollux ask --help`"},
		{"ask --json-schema s --changes hi", 2, "`pollux ask --help`"},
		{"ask --json-schema none.json hi", 2, "none.json"},
		{"ask --json-schema cli.go hi", 2, "--json-schema cli.go: the schema is not JSON"},
		{"doctor nobody", 2, "use gemini, qwen, claude, opencode, copilot, codex"},
		{"doctor --yes", 2, "`pollux doctor --help`"},
		{"doctor --report --json", 2, "neither --fix nor --json"},
		{"install bridge", 2, "name one client: claude-code, codex"},
		{"install bridge emacs", 2, "name one client: claude-code"},
		{"install ed", 2, "`pollux install --help`"},
		{"usage --days 0", 2, `--days is "0": use a whole number from 1 to 400`},
		{"usage --days many", 2, `--days is "many": use a whole number from 1 to 400`},
		{"usage --days 401", 2, "`pollux usage --help`"},
		{"usage gemini", 2, `unexpected argument "gemini"`},
		{"pool nosuch", 2, "`pollux pool --help`"},
		{"pool status extra", 2, "`pollux pool status --help`"},
		{"pool --log loud", 2, "debug, info, warn or error\nRun `pollux pool --help`"},
		{"conformance", 2, "name the command that starts the companion, after --"},
		{"conformance pollux", 2, "after --"},
		{"conformance --interactive -- true", 2, "needs a terminal"},
	} {
		var out, errs bytes.Buffer
		code := Run(t.Context(), IO{strings.NewReader(""), &out, &errs}, strings.Fields(tt.args))
		if code != tt.code || !strings.Contains(errs.String(), tt.says) || out.Len() > 0 {
			t.Errorf("pollux %s: exit code %d, output %q, errors %q; want %d and %q", tt.args, code, out.String(),
				errs.String(), tt.code, tt.says)
		}
	}
}

// A flag with a wrong value says which values it takes: users saw `strconv.ParseBool`.
func TestWrongValues(t *testing.T) {
	systest.SetHome(t, t.TempDir())
	n := 0
	eachCommand(Root(), func(cmd *cobra.Command) {
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if f.Value.Type() == "string" || strings.HasPrefix(f.Value.Type(), "string") {
				return
			}
			n++
			var errs bytes.Buffer
			args := append(strings.Fields(cmd.CommandPath())[1:], "--"+f.Name+"=nonsense")
			code := Run(t.Context(), IO{strings.NewReader(""), io.Discard, &errs}, args)
			if text := errs.String(); code != 2 || !strings.Contains(text, "--"+f.Name+" nonsense: use ") {
				t.Errorf("pollux %s: exit code %d, %q", strings.Join(args, " "), code, text)
			}
		})
	})
	if n < 10 {
		t.Errorf("%d flags", n)
	}
}

// The shell completes arguments and the values of flags, and shows descriptions
// without the marks of the help text.
func TestCompletion(t *testing.T) {
	quiet(t)
	for args, want := range map[string]string{
		"run --review":    "browser\nsplit\npopup\nnone\n:4\n",
		"run --log":       "debug\ninfo\nwarn\nerror\n:4\n",
		"run --root":      ":16\n", // directories
		"notify --event":  "focus\nclose\nsave\nquit\n:4\n",
		"notify --unit":   "char\nbyte\nutf16\ngrapheme\n:4\n",
		"demo --agent":    "gemini\nclaude\n:4\n",
		"send --agent":    "codex\t",
		"install bridge":  "claude-code\n",
		"run --re":        "--review\twhere to review changes",
		"connect --socke": "--socket\tpath of the companion's socket",
		"completion":      "fish\t",
	} {
		words := strings.Fields("__complete " + args)
		if !strings.HasSuffix(args, "-re") && !strings.HasSuffix(args, "-socke") {
			words = append(words, "")
		}
		var out, errs bytes.Buffer
		code := Run(t.Context(), IO{strings.NewReader(""), &out, &errs}, words)
		if code != 0 || !strings.Contains(out.String(), want) || strings.Contains(out.String(), "`") {
			t.Errorf("pollux %s: exit code %d, output %q; want %q", args, code, out.String(), want)
		}
	}
}

// People know some editors by another name.
func TestAliases(t *testing.T) {
	for alias, name := range map[string]string{"neovim": "nvim", "kak": "kakoune", "hx": "helix"} {
		cmd, _, err := Root().Find([]string{"install", alias})
		if err != nil || cmd.Name() != name {
			t.Errorf("%s is %s, %v", alias, cmd.Name(), err)
		}
	}
}

// The former command prints the same as the flag, and names the flag.
func TestVersion(t *testing.T) {
	var out [2]bytes.Buffer
	for i, arg := range []string{"version", "--version"} {
		var errs bytes.Buffer
		code := Run(t.Context(), IO{strings.NewReader(""), &out[i], &errs}, []string{arg})
		if named := strings.Contains(errs.String(), "`pollux --version`"); code != 0 || named != (arg == "version") {
			t.Errorf("%s: exit code %d, errors %q", arg, code, errs.String())
		}
	}
	if out[0].String() != out[1].String() || !strings.HasPrefix(out[0].String(), "pollux ") {
		t.Errorf("%q and %q", out[0].String(), out[1].String())
	}
}

// Foreign text, such as a file name, cannot control the terminal: errors leave
// out control characters, and JSON escapes them.
func TestOutputSteersNoTerminal(t *testing.T) {
	quiet(t)
	name := "x\x1b]0;title\a\u009b31m\u202e"
	var out, errs bytes.Buffer
	code := Run(t.Context(), IO{strings.NewReader(""), &out, &errs}, []string{"notify", name})
	if code != 1 || !strings.Contains(errs.String(), "no companion") {
		t.Errorf("exit code %d, %q", code, errs.String())
	}
	status := editor.Status{Roots: []string{name}}
	if err := printJSON(&out, status); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{errs.String(), out.String()} {
		for _, r := range text {
			if r != '\n' && !unicode.IsGraphic(r) {
				t.Errorf("%q holds %U", text, r)
			}
		}
	}
	var got editor.Status
	if err := json.Unmarshal(out.Bytes(), &got); err != nil || got.Roots[0] != name {
		t.Errorf("the JSON says %q, %v", got.Roots, err)
	}
}

func TestSelectionRange(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	systest.WriteFile(t, path, "plain\n\tä😀b\n")
	for _, tt := range []struct {
		text, anchor string
		line, column int
		want         string
	}{
		{"lai", "1.2", 1, 4, "1:2-1:5"},
		{"lai", "1.4", 1, 2, "1:2-1:5"}, // from right to left
		{"ä😀", "2.2", 2, 4, "2:2-2:5"},
		{"b", "2.8", 2, 8, "2:5-2:6"},
		{"in\n", "1.4", 1, 6, "1:4-2:1"}, // with the end of the line
		{"in\n\tä", "2.2", 1, 4, "1:4-2:3"},
		{"x\xff", "9.1", 9, 2, "9:1-9:3"},
	} {
		r, err := selectionRange(path, tt.text, tt.anchor, tt.line, tt.column, "byte")
		if err != nil {
			t.Errorf("%+v: %v", tt, err)
		} else if got := fmt.Sprintf("%d:%d-%d:%d", r.Start.Line, r.Start.Character, r.End.Line, r.End.Character); got != tt.want {
			t.Errorf("%q from %s to %d.%d: %s, want %s", tt.text, tt.anchor, tt.line, tt.column, got, tt.want)
		}
	}
}

func TestUTF16Column(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	systest.WriteFile(t, path, "plain\nä😀b\r\n")
	for _, tt := range []struct {
		line, column int
		unit         string
		want         int
	}{
		{1, 3, "char", 3}, {2, 1, "char", 1}, {2, 2, "char", 2}, {2, 3, "char", 4}, {2, 4, "char", 5},
		{2, 3, "byte", 2}, {2, 7, "byte", 4}, {2, 8, "byte", 5}, {2, 4, "utf16", 4},
		{2, 9, "char", 10}, {99, 5, "char", 5}, // longer than the line on disk
	} {
		if got, err := utf16Column(path, tt.line, tt.column, tt.unit); err != nil || got != tt.want {
			t.Errorf("line %d, %s %d: %d, %v; want %d", tt.line, tt.unit, tt.column, got, err, tt.want)
		}
	}
}
