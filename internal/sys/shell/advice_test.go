package shell

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"pollux/internal/sys/disk"
	"pollux/internal/sys/systest"
)

// Doctor told Windows users to type rm, unset, export, kill and fg.
func TestAdvice(t *testing.T) {
	for _, tt := range []struct{ unix, wantUnix, windows, wantWindows string }{
		{quote("linux", "/a/b-c.json"), `/a/b-c.json`, quote("windows", `C:\a\b-c.json`), `C:\a\b-c.json`},
		{quote("linux", "/a b/it's"), `'/a b/it'\''s'`, quote("windows", `C:\Users\Jo Ann\x (1).json`), `"C:\Users\Jo Ann\x (1).json"`},
		{quote("linux", "/ä"), `'/ä'`, quote("windows", `C:\Jürgen~1`), `"C:\Jürgen~1"`},
		{quote("linux", ""), `''`, quote("windows", `\\host\share\a,b&c`), `"\\host\share\a,b&c"`},

		{endOfFlags("linux"), "--", endOfFlags("windows"), `"--"`},

		{removeCommand("linux", "/a b"), `rm '/a b'`, removeCommand("windows", `C:\a b`), `remove "C:\a b"`},
		{removeCommand("linux", "/$a"), `rm '/$a'`, removeCommand("windows", `C:\a`), `remove C:\a`},
		{enterCommand("linux", "/a b"), `cd '/a b'`, enterCommand("windows", `C:\a b`), `pushd "C:\a b"`},

		{unsetCommand("linux", []string{"A"}), "unset A", unsetCommand("windows", []string{"A"}), "remove A from the environment"},
		{unsetCommand("linux", []string{"A", "B"}), "unset A B",
			unsetCommand("windows", []string{"A", "B"}), "remove A, B from the environment"},

		{resumeOrKill("linux", 7), "run `kill -CONT 7` if it is stopped, else `kill -KILL 7`",
			resumeOrKill("windows", 7), "run `taskkill /F /PID 7`"},
		{resumeOrKill("linux", 0), "continue it if it is stopped, else end it and start it again",
			resumeOrKill("windows", 0), "continue it if it is stopped, else end it and start it again"},
	} {
		if tt.unix != tt.wantUnix {
			t.Errorf("on Linux: %s, want %s", tt.unix, tt.wantUnix)
		}
		if tt.windows != tt.wantWindows {
			t.Errorf("on Windows: %s, want %s", tt.windows, tt.wantWindows)
		}
	}
}

// The command for a file works in the user's shell, also if its path has a space.
func TestRemoveCommandRemoves(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("on Windows it is not a command")
	}
	path := filepath.Join(t.TempDir(), "a b.json")
	systest.WriteFile(t, path, "")
	command := RemoveCommand(path)
	if out, err := Command(command).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", command, err, out)
	}
	if _, err := os.Lstat(path); !os.IsNotExist(err) {
		t.Errorf("%s: the file is still there (%v)", command, err)
	}
}

// The command that the error names makes a file writable.
func TestReadOnlyFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a b.txt")
	if err := os.WriteFile(path, nil, 0o400); err != nil {
		t.Fatal(err)
	}
	err := disk.ReplaceFile(path, "new")
	if err == nil || !strings.HasSuffix(err.Error(), " with "+disk.MakeWritable) {
		t.Fatalf("ReplaceFile of a read-only file: %v", err)
	}
	command := disk.MakeWritable + ` "` + path + `"`
	if out, err := Command(command).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", command, err, out)
	}
	if err := disk.ReplaceFile(path, "new"); err != nil {
		t.Error(err)
	}
}
