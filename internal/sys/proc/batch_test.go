package proc

import (
	"errors"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pollux/internal/sys/systest"
)

var npmShim = systest.NPMShim(`--no-warnings=DEP0040 "%dp0%\node_modules\@google\gemini-cli\bundle\gemini.js"`)

// The program behind a batch file of npm is started directly. Other batch files, which
// may do anything, are not guessed at.
func TestShims(t *testing.T) {
	const dir = "/npm"
	found := func(name string) (string, error) { return "/path/" + name + ".exe", nil }
	for name, tt := range map[string]struct {
		text   string
		exists []string
		want   string // the arguments, separated by spaces; none if it stays a batch file
	}{
		"npm, Node.js on the PATH":          {text: npmShim, want: "/path/node.exe --no-warnings=DEP0040 /npm/node_modules/@google/gemini-cli/bundle/gemini.js"},
		"npm, Node.js next to it":           {text: npmShim, exists: []string{"/npm/node.exe"}, want: "/npm/node.exe --no-warnings=DEP0040 /npm/node_modules/@google/gemini-cli/bundle/gemini.js"},
		"Windows line endings":              {text: strings.ReplaceAll(npmShim, "\n", "\r\n"), want: "/path/node.exe --no-warnings=DEP0040 /npm/node_modules/@google/gemini-cli/bundle/gemini.js"},
		"of a project":                      {text: strings.ReplaceAll(npmShim, `node_modules\`, `..\`), want: "/path/node.exe --no-warnings=DEP0040 /@google/gemini-cli/bundle/gemini.js"},
		"spaces in the script":              {text: strings.ReplaceAll(npmShim, "gemini-cli", "gemini cli"), want: "/path/node.exe --no-warnings=DEP0040 /npm/node_modules/@google/gemini cli/bundle/gemini.js"},
		"another interpreter":               {text: strings.NewReplacer("node.exe", "bun.exe", `_prog=node"`, `_prog=bun"`).Replace(npmShim), want: "/path/bun.exe --no-warnings=DEP0040 /npm/node_modules/@google/gemini-cli/bundle/gemini.js"},
		"npm, a program":                    {text: "@ECHO off\nGOTO start\n:find_dp0\nSET dp0=%~dp0\nEXIT /b\n:start\nSETLOCAL\nCALL :find_dp0\n\"%dp0%\\node_modules\\@anthropic-ai\\claude-code\\bin\\claude.exe\"   %*\n", want: "/npm/node_modules/@anthropic-ai/claude-code/bin/claude.exe"},
		"npm 6":                             {text: "@ECHO off\nSETLOCAL\nCALL :find_dp0\n\nIF EXIST \"%dp0%\\node.exe\" (\n  SET \"_prog=%dp0%\\node.exe\"\n) ELSE (\n  SET \"_prog=node\"\n  SET PATHEXT=%PATHEXT:;.JS;=;%\n)\n\n\"%_prog%\"  \"%dp0%\\node_modules\\a\\b.js\" %*\nENDLOCAL\nEXIT /b %errorlevel%\n:find_dp0\nSET dp0=%~dp0\nEXIT /b\n", want: "/path/node.exe /npm/node_modules/a/b.js"},
		"npm 5, Yarn":                       {text: "@IF EXIST \"%~dp0\\node.exe\" (\n  \"%~dp0\\node.exe\"  \"%~dp0\\node_modules\\a\\b.js\" %*\n) ELSE (\n  @SETLOCAL\n  @SET PATHEXT=%PATHEXT:;.JS;=;%\n  node  \"%~dp0\\node_modules\\a\\b.js\" %*\n)", want: "/path/node.exe /npm/node_modules/a/b.js"},
		"npm 5, Node.js next to it":         {text: "@IF EXIST \"%~dp0\\node.exe\" (\n  \"%~dp0\\node.exe\"  \"%~dp0\\node_modules\\a\\b.js\" %*\n) ELSE (\n  @SETLOCAL\n  @SET PATHEXT=%PATHEXT:;.JS;=;%\n  node  \"%~dp0\\node_modules\\a\\b.js\" %*\n)", exists: []string{"/npm/node.exe"}, want: "/npm/node.exe /npm/node_modules/a/b.js"},
		"pnpm, which sets NODE_PATH":        {text: "@SETLOCAL\n@IF NOT DEFINED NODE_PATH (\n  @SET \"NODE_PATH=C:\\x\"\n)\n@IF EXIST \"%~dp0\\node.exe\" (\n  \"%~dp0\\node.exe\"  \"%~dp0\\a\\b.js\" %*\n) ELSE (\n  node  \"%~dp0\\a\\b.js\" %*\n)"},
		"a variable of the script":          {text: "@SET A=b\n" + npmShim},
		"another script in the second line": {text: "\"%~dp0\\node.exe\" \"%~dp0\\a.js\" %*\nnode \"%~dp0\\b.js\" %*"},
		"a command of cmd":                  {text: "@call %*"},
		"a pipe":                            {text: "\"%~dp0\\a.exe\" x|more %*"},
		"a variable":                        {text: "\"%~dp0\\a.exe\" %HOME% %*"},
		"a script without a program":        {text: "\"%~dp0\\a.js\" %*"},
		"not all arguments":                 {text: "\"%~dp0\\a.exe\" %1"},
		"a quote without an end":            {text: "\"%~dp0\\a.exe %*"},
		"empty":                             {},
	} {
		t.Run(name, func(t *testing.T) {
			s, ok := parseShim(tt.text)
			if !ok {
				if tt.want != "" {
					t.Error("it is not recognized")
				}
				return
			}
			exists := func(path string) bool { return slices.Contains(tt.exists, filepath.ToSlash(path)) }
			argv, err := s.argv(filepath.FromSlash(dir), exists, found)
			if got := filepath.ToSlash(strings.Join(argv, " ")); err != nil || got != tt.want {
				t.Errorf("got %s, %v; want %s", got, err, tt.want)
			}
		})
	}
	s, _ := parseShim(npmShim)
	missing := func(name string) (string, error) { return "", &exec.Error{Name: name, Err: exec.ErrNotFound} }
	if argv, err := s.argv(dir, func(string) bool { return false }, missing); !errors.Is(err, exec.ErrNotFound) {
		t.Errorf("without Node.js: %q, %v", argv, err)
	}
}

// `pollux run -- claude "fix a & b"` ran b.
func TestBatchLine(t *testing.T) {
	const shell, file = `C:\Windows\System32\cmd.exe`, `C:\a b\x.cmd`
	for _, tt := range []struct {
		args []string
		want string
	}{
		{nil, ``},
		{[]string{"plain", "--a.b:c/d@e_f", `C:\x`}, ` plain --a.b:c/d@e_f C:\x`},
		{[]string{""}, ` ""`},
		{[]string{"fix a & b"}, ` "fix a & b"`},
		{[]string{"a&calc"}, ` "a&calc"`},
		{[]string{"a^b", "c|d", "<e>", "(f)", "g!h", "i,j", "k;l", "m=n"}, ` "a^b" "c|d" "<e>" "(f)" "g!h" "i,j" "k;l" "m=n"`},
		{[]string{`say "x" & y`}, ` "say ""x"" & y"`},
		{[]string{`a\"b`}, ` "a\\""b"`},
		{[]string{`C:\a b\`, `C:\`}, ` "C:\a b\\" "C:\\"`},
		{[]string{"50%", "%PATH%"}, ` "50%%cd:~,%" "%%cd:~,%PATH%%cd:~,%"`},
		{[]string{"Grüße"}, ` Grüße`},
		{[]string{"tab\there", "c1\u0085"}, " \"tab\there\" \"c1\u0085\""},
	} {
		got, err := batchLine(shell, file, tt.args)
		if want := `"` + shell + `" /e:ON /v:OFF /d /c ""` + file + `"` + tt.want + `"`; err != nil || got != want {
			t.Errorf("%q\n got %s, %v\nwant %s", tt.args, got, err, want)
		}
	}
	if got, err := batchLine(shell, `C:\%TEMP%\x.cmd`, nil); err != nil || got != `"`+shell+`" /e:ON /v:OFF /d /c ""C:\%%cd:~,%TEMP%%cd:~,%\x.cmd""` {
		t.Errorf("a folder called %%TEMP%%: %s, %v", got, err)
	}
	for _, arg := range []string{"two\nlines", "two\r\nlines", "a\rb", "nul\x00"} {
		if line, err := batchLine(shell, file, []string{arg}); !errors.Is(err, errBatchArg) {
			t.Errorf("%q: %s, %v", arg, line, err)
		}
	}
	for _, bad := range []string{`a"b.cmd`, "a\nb.cmd", `a.cmd\`} {
		if line, err := batchLine(shell, bad, nil); err == nil {
			t.Errorf("%q: %s", bad, line)
		}
	}
}

func TestIsBatch(t *testing.T) {
	for path, want := range map[string]bool{
		"x.cmd": true, "x.BAT": true, "x.cmd. .": true, "a.cmd/x": false, "x.exe": false, "x": false, "x.cmd.exe": false, "": false,
	} {
		if isBatch(path) != want {
			t.Errorf("%q: %v", path, !want)
		}
	}
}
