package sys

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Doctor told Windows users to type rm, unset, export, kill and fg.
func TestAdvice(t *testing.T) {
	for _, tt := range []struct{ unix, wantUnix, windows, wantWindows string }{
		{quote("linux", "/a/b-c.json"), `/a/b-c.json`, quote("windows", `C:\a\b-c.json`), `C:\a\b-c.json`},
		{quote("linux", "/a b/it's"), `'/a b/it'\''s'`, quote("windows", `C:\Users\Jo Ann\x (1).json`), `"C:\Users\Jo Ann\x (1).json"`},
		{quote("linux", "/ä"), `'/ä'`, quote("windows", `C:\Jürgen~1`), `"C:\Jürgen~1"`},
		{quote("linux", ""), `''`, quote("windows", `\\host\share\a,b&c`), `"\\host\share\a,b&c"`},

		{explained("linux", "pollux open", "a"), "pollux open  # a", explained("windows", "pollux open", "a"), "a: pollux open"},
		{endOfFlags("linux"), "--", endOfFlags("windows"), `"--"`},

		{removeCommand("linux", "/a b", true), `rm '/a b'`, removeCommand("windows", `C:\a b`, true), `del "C:\a b"`},
		{removeCommand("linux", "/a", false), `rm /a`, removeCommand("windows", `C:\a`, true), `del C:\a`},
		// In cmd, del with a link to a directory removes the files in that directory.
		{removeCommand("linux", "/$a", false), `rm '/$a'`, removeCommand("windows", `C:\a b`, false), `remove "C:\a b"`},
		// cmd reads %TEMP% in quotes as a variable, and PowerShell $a.
		{removeCommand("linux", "/%a%", true), `rm /%a%`, removeCommand("windows", `C:\%TEMP%`, true), `remove "C:\%TEMP%"`},
		{removeCommand("linux", "/[a]", true), `rm '/[a]'`, removeCommand("windows", `C:\$a`, true), `remove "C:\$a"`},
		{removeCommand("linux", "/“", true), `rm '/“'`, removeCommand("windows", `C:\“`, true), `remove "C:\“"`},

		{enterCommand("linux", "/x", "/a b"), `cd '/a b'`, enterCommand("windows", `c:\x`, `C:\a b`), `cd "C:\a b"`},
		{enterCommand("linux", "/x", "/a"), `cd /a`, enterCommand("windows", `C:\x`, `D:\a`), `pushd D:\a`},
		{enterCommand("linux", "", "/a"), `cd /a`, enterCommand("windows", `C:\x`, `\\host\share`), `pushd \\host\share`},
		{enterCommand("linux", "/x", "/$a"), `cd '/$a'`, enterCommand("windows", `C:\x`, `C:\$a`), `go to "C:\$a"`},

		{unsetCommand("linux", []string{"A"}), "unset A", unsetCommand("windows", []string{"A"}), "remove A from the environment"},
		{unsetCommand("linux", []string{"A", "B", "C"}), "unset A B C",
			unsetCommand("windows", []string{"A", "B", "C"}), "remove A, B and C from the environment"},

		{killCommand("linux", 7), "kill -KILL 7", killCommand("windows", 7), "taskkill /F /PID 7"},
		{resumeCommand("linux", 7, "restart it"), "kill -CONT 7, or fg in its terminal",
			resumeCommand("windows", 7, "restart it"), "taskkill /F /PID 7, then start it again"},
		{resumeCommand("linux", 0, "restart it"), "continue it (fg), or restart it",
			resumeCommand("windows", 0, "restart it"), "restart it"},
		{resumeOrKill("linux", 7), "run `kill -CONT 7` if it is stopped, else `kill -KILL 7`",
			resumeOrKill("windows", 7), "run `taskkill /F /PID 7`"},
		{resumeAdvice("linux", 7), "if it is stopped, type `fg` in its terminal",
			resumeAdvice("windows", 7), "run `taskkill /F /PID 7`, and start it again"},
		{resumeAdvice("linux", 0), "if it is stopped, type `fg` in its terminal",
			resumeAdvice("windows", 0), "end it, and start it again"},
		{suspended("linux"), "is it suspended (Ctrl-Z)?", suspended("windows"), "does it hang?"},
		{ownTempDir("linux"), "export TMPDIR=~/tmp (a directory you own)",
			ownTempDir("windows"), "set TEMP and TMP to a directory you own"},
	} {
		if tt.unix != tt.wantUnix {
			t.Errorf("on Linux: %s, want %s", tt.unix, tt.wantUnix)
		}
		if tt.windows != tt.wantWindows {
			t.Errorf("on Windows: %s, want %s", tt.windows, tt.wantWindows)
		}
	}
}

// The command for a file works in this system's shell, also if its path has a space.
func TestRemoveCommandRemoves(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a b.json")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	command := RemoveCommand(path)
	if out, err := Shell(command).CombinedOutput(); err != nil {
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
	err := ReplaceFile(path, "new")
	if err == nil || !strings.HasSuffix(err.Error(), " with "+makeWritable) {
		t.Fatalf("ReplaceFile of a read-only file: %v", err)
	}
	command := makeWritable + ` "` + path + `"`
	if out, err := Shell(command).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", command, err, out)
	}
	if err := ReplaceFile(path, "new"); err != nil {
		t.Error(err)
	}
}
