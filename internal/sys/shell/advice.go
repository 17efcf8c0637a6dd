package shell

import (
	"fmt"
	"runtime"
	"strings"
	"unicode"
)

// The functions in this file return what a message tells the user to do next: a command, or
// on Windows words, unless cmd and PowerShell have the same command.

// Quote returns a text as one word of a command that the user can paste.
func Quote(word string) string { return quote(runtime.GOOS, word) }

func quote(goos, word string) string {
	special := func(r rune) bool { return r != '_' && !isASCIIAlnum(r) && !strings.ContainsRune("@%+=:,./~-", r) }
	if goos == "windows" {
		// PowerShell treats a comma, an @ and a % differently from cmd.
		special = func(r rune) bool {
			return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune(`\:._-`, r)
		}
	}
	switch {
	case word != "" && !strings.ContainsFunc(word, special):
		return word
	case goos == "windows":
		return `"` + word + `"`
	}
	return PosixWord(word)
}

// PosixWord returns a text quoted as one word for a POSIX shell.
func PosixWord(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

func isASCIIAlnum(r rune) bool {
	return 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9'
}

// EndOfFlags returns the argument -- as the user must type it. PowerShell does not pass on a
// bare one to a script, such as the one that npm installs for a program.
func EndOfFlags() string { return endOfFlags(runtime.GOOS) }

func endOfFlags(goos string) string {
	if goos == "windows" {
		return `"--"`
	}
	return "--"
}

// RemoveCommand returns what removes a file or a link.
func RemoveCommand(path string) string { return removeCommand(runtime.GOOS, path) }

func removeCommand(goos, path string) string {
	if goos == "windows" { // del removes the files behind a link to a directory
		return "remove " + quote(goos, path)
	}
	return "rm " + quote(goos, path)
}

// EnterCommand returns what changes the working directory.
func EnterCommand(dir string) string { return enterCommand(runtime.GOOS, dir) }

func enterCommand(goos, dir string) string {
	if goos == "windows" { // in cmd, cd stays on its drive
		return "pushd " + quote(goos, dir)
	}
	return "cd " + quote(goos, dir)
}

// UnsetCommand returns what removes environment variables.
func UnsetCommand(names ...string) string { return unsetCommand(runtime.GOOS, names) }

func unsetCommand(goos string, names []string) string {
	if goos == "windows" {
		return "remove " + strings.Join(names, ", ") + " from the environment"
	}
	return "unset " + strings.Join(names, " ")
}

// ResumeOrKill returns what to do about a process that does not answer: on Unix it may be
// stopped. pid is 0 if it is not known.
func ResumeOrKill(pid int) string { return resumeOrKill(runtime.GOOS, pid) }

func resumeOrKill(goos string, pid int) string {
	switch {
	case pid == 0:
		return "continue it if it is stopped, else end it and start it again"
	case goos == "windows":
		return fmt.Sprintf("run `taskkill /F /PID %d`", pid)
	}
	return fmt.Sprintf("run `kill -CONT %d` if it is stopped, else `kill -KILL %[1]d`", pid)
}

// OwnTempDir is the advice that gives a program a temporary directory that no other user owns.
const OwnTempDir = "set TMPDIR (on Windows TEMP and TMP) to a directory you own"
