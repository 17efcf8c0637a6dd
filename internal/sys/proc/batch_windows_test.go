package proc

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pollux/internal/sys/systest"
)

// writeArguments is the program that batch files start: it writes its arguments after --.
func writeArguments() error {
	i := slices.Index(os.Args, "--")
	data, err := json.Marshal(os.Args[i+1:])
	if err != nil {
		return err
	}
	return os.WriteFile(os.Getenv("SYS_TEST_ARGUMENTS"), data, 0o600)
}

// A program receives the arguments unchanged, with any kind of launcher. `fix a & b` ran b.
func TestCommand(t *testing.T) {
	self := systest.Self(t)
	dir := filepath.Join(t.TempDir(), "a & b (c)")
	odd := filepath.Join(dir, "%TEMP% 50%")
	if err := os.MkdirAll(odd, 0o700); err != nil {
		t.Fatal(err)
	}
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(strings.ReplaceAll(text, "\n", "\r\n")), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	const run = ` --option -- `
	for _, name := range []string{"other.cmd", filepath.Join(filepath.Base(odd), "odd.cmd")} {
		write(name, "@echo off\nif 1==1 (\""+self+"\""+run+"%*)\n")
	}
	program, err := os.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	write("node.exe", "")
	if err := os.WriteFile(filepath.Join(dir, "node.exe"), program, 0o700); err != nil {
		t.Fatal(err)
	}
	write("npm.cmd", strings.Replace(npmShim, ` --no-warnings=DEP0040 "%dp0%\node_modules\@google\gemini-cli\bundle\gemini.js" `, run, 1))
	write("outer.cmd", "@\"%~dp0\\npm.cmd\" %*\n") // starts a batch file, so it is not read
	t.Setenv("PATH", dir+string(filepath.ListSeparator)+os.Getenv("PATH"))
	t.Setenv("SYS_TEST_VARIABLE", "its value")
	canary := filepath.Join(dir, "canary")
	for name, args := range map[string][]string{
		"none":      {},
		"plain":     {"a", "--b=c", `C:\d`},
		"empty":     {"", "a", ""},
		"ampersand": {"fix a & b", "a&b", "& echo x>" + canary},
		"special":   {"a|b", "a^b", "<a>", "(a)", "a!b", "a,b", "a;b", "a=b", "a'b", "a`b", "a~b", "{a}", "[a]", "*", "?"},
		"quotes":    {`"& echo x>` + canary, `say "x"`, `"`, `""`, `a"b c`, `\"`, `\\"`, `"a b" & "c"`},
		"backslash": {`C:\a b\`, `\`, `\\`, `a\\b c\\`, `a\`},
		"variables": {"%PATH%", "50%", "%", "%%", "%SYS_TEST_VARIABLE%", "%cd%", "!PATH!", "%1", "%*", "%~dp0"},
		"unicode":   {"Grüße, 世界", "🌍", "\u00a0"},
		"tab":       {"a\tb"},
	} {
		for _, program := range []string{self, "npm", filepath.Join(dir, "npm.cmd"), "other", filepath.Join(dir, "other.cmd"), filepath.Join(odd, "odd.cmd"), "outer"} {
			t.Run(name+"/"+filepath.Base(program), func(t *testing.T) {
				all := args
				if program == self {
					all = append(strings.Fields(run), args...)
				}
				cmd, err := Command(t.Context(), program, all...)
				if err != nil {
					t.Fatal(err)
				}
				out := filepath.Join(t.TempDir(), "out")
				cmd.Env = append(os.Environ(), systest.ProgramVar+"=arguments", "SYS_TEST_ARGUMENTS="+out)
				if text, err := cmd.CombinedOutput(); err != nil {
					t.Fatalf("%v: %s", err, text)
				}
				data, err := os.ReadFile(out)
				if err != nil {
					t.Fatal(err)
				}
				var got []string
				if err := json.Unmarshal(data, &got); err != nil {
					t.Fatal(err)
				}
				// Go ends a quoted part at a doubled quote, unlike Node.js and all that
				// Microsoft's compilers have made since 2008.
				differs := name == "quotes" && cmd.SysProcAttr != nil
				if !slices.Equal(got, args) && !differs {
					t.Errorf("it receives %q, want %q", got, args)
				}
				if _, err := os.Stat(canary); err == nil {
					t.Fatal("an argument ran as a command")
				}
			})
		}
	}
}

// No shell is between Pollux and an agent of npm.
func TestDirect(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "gemini.cmd")
	if err := os.WriteFile(path, []byte(npmShim), 0o600); err != nil {
		t.Fatal(err)
	}
	found := func(string) (string, error) { return `C:\node.exe`, nil }
	want := []string{`C:\node.exe`, "--no-warnings=DEP0040", filepath.Join(dir, `node_modules\@google\gemini-cli\bundle\gemini.js`)}
	if got, err := Direct(path, found); err != nil || !slices.Equal(got, want) {
		t.Errorf("got %q, %v; want %q", got, err, want)
	}
	wrapper := filepath.Join(dir, "node.cmd") // of a version manager
	if err := os.WriteFile(wrapper, []byte("@mise x -- node %*"), 0o600); err != nil {
		t.Fatal(err)
	}
	want[0] = wrapper
	if got, err := Direct(path, func(string) (string, error) { return wrapper, nil }); err != nil || !slices.Equal(got, want) {
		t.Errorf("got %q, %v; want %q", got, err, want)
	}
	if got, err := Direct(path, exec.LookPath); err == nil && len(got) < 3 {
		t.Errorf("got %q", got)
	}
}

// In a directory on a server, cmd.exe would run a batch file in the directory of Windows.
func TestSetDir(t *testing.T) {
	file := filepath.Join(t.TempDir(), "tool.cmd")
	if err := os.WriteFile(file, []byte("@echo %cd%\r\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	self := systest.Self(t)
	for _, tt := range []struct {
		program, dir string
		ok           bool
	}{
		{file, `\\server\share\project`, false},
		{file, `C:\`, true},
		{file, "", true},
		{self, `\\server\share\project`, true},
	} {
		cmd, err := Command(t.Context(), tt.program)
		if err != nil {
			t.Fatal(err)
		}
		if err := SetDir(cmd, tt.dir); (err == nil) != tt.ok || cmd.Dir != tt.dir {
			t.Errorf("%s in %q: %v, and the directory is %q", tt.program, tt.dir, err, cmd.Dir)
		}
	}
}
