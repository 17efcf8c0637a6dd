package shell

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"pollux/internal/sys/systest"
)

// The key `e` and `pollux config edit` ran `sh` on Windows, or a program named C:\Program.
func TestSplitWindows(t *testing.T) {
	installed := []string{"notepad", "code", `C:\Program Files\Notepad++\notepad++.exe`}
	for line, want := range map[string][]string{
		"":                     nil,
		"notepad":              {"notepad"},
		" code  --wait ":       {"code", "--wait"},
		`"C:\a b\x.exe" -n`:    {`C:\a b\x.exe`, "-n"},
		`vim -c "set tw=0"`:    {"vim", "-c", "set tw=0"},
		`vim --cmd=""`:         {"vim", "--cmd="},
		`x ""`:                 {"x", ""},
		`C:\none such\x.exe y`: {`C:\none`, `such\x.exe`, "y"},
		`C:\Program Files\Notepad++\notepad++.exe`:                             {`C:\Program Files\Notepad++\notepad++.exe`},
		`C:\Program Files\Notepad++\notepad++.exe -multiInst "a b" -nosession`: {`C:\Program Files\Notepad++\notepad++.exe`, "-multiInst", "a b", "-nosession"},
	} {
		if got := splitWindows(line, func(p string) bool { return slices.Contains(installed, p) }); !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", line, got, want)
		}
	}
}

func TestEditArgs(t *testing.T) {
	for editor, want := range map[string][]string{
		"vi":               {"+7", "f"},
		"/usr/bin/nvim -f": {"+7", "f"},
		"code --wait":      {"f"}, // it would open a file with the name +7
		"sh nano":          {"f"},
		"":                 {"f"},
	} {
		if got := EditArgs(editor, "f", 7); !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", editor, got, want)
		}
	}
}

// On Windows, the user's editor was killed when the terminal closed, with the text in it.
func TestLetSave(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	saved := filepath.Join(t.TempDir(), "saved")
	t.Setenv("SYS_TEST_SAVED", saved)
	p := systest.Program(t, "editor")
	cmd := exec.CommandContext(ctx, p.Path)
	cmd.Env = p.Env
	LetSave(cmd)
	asked := make(chan struct{})
	ask := cmd.Cancel
	cmd.Cancel = func() error {
		defer close(asked)
		return ask()
	}
	in, out := systest.Start(t, cmd)
	lines := bufio.NewScanner(out)
	for lines.Scan() && lines.Text() != "listens" {
		t.Log(lines.Text())
	}
	cancel()
	<-asked
	in.Close() // the user closes the editor
	if err := cmd.Wait(); err == nil {
		t.Error("the end of the context is not reported")
	}
	if _, err := os.Stat(saved); err != nil {
		t.Error("the editor was killed:", err)
	}
}
