package sys

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"unicode"
)

// The functions in this file return what a message tells the user to do next. On Windows
// it is a command that cmd and PowerShell both run, or a few words if there is none.

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

// literal reports whether cmd and PowerShell take a path in double quotes as it is.
// PowerShell also ends a text at quotes such as “, and takes brackets for a pattern.
func literal(path string) bool { return !strings.ContainsAny(path, "%$`\"“”„[]") }

// Explained returns a line that shows a command and says what it is about.
func Explained(command, about string) string { return explained(runtime.GOOS, command, about) }

func explained(goos, command, about string) string {
	if goos == "windows" { // cmd has no comments
		return about + ": " + command
	}
	return command + "  # " + about
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

// RemoveCommand returns what removes a file.
func RemoveCommand(path string) string {
	info, err := os.Lstat(path)
	return removeCommand(runtime.GOOS, path, err == nil && info.Mode().IsRegular())
}

func removeCommand(goos, path string, regular bool) string {
	switch {
	case goos != "windows":
		return "rm " + quote(goos, path)
	case regular && literal(path):
		return "del " + quote(goos, path)
	}
	return "remove " + quote(goos, path) // for a link to a directory, del removes the files there
}

// EnterCommand returns what changes the working directory from one to another.
func EnterCommand(from, to string) string { return enterCommand(runtime.GOOS, from, to) }

func enterCommand(goos, from, to string) string {
	switch {
	case goos != "windows":
		return "cd " + quote(goos, to)
	case !literal(to):
		return "go to " + quote(goos, to)
	case len(from) > 1 && len(to) > 1 && strings.EqualFold(from[:2], to[:2]):
		return "cd " + quote(goos, to)
	}
	return "pushd " + quote(goos, to) // in cmd, cd stays on its drive
}

// UnsetCommand returns what removes environment variables.
func UnsetCommand(names ...string) string { return unsetCommand(runtime.GOOS, names) }

func unsetCommand(goos string, names []string) string {
	if goos != "windows" {
		return "unset " + strings.Join(names, " ")
	}
	list := names[len(names)-1]
	if len(names) > 1 {
		list = strings.Join(names[:len(names)-1], ", ") + " and " + list
	}
	return "remove " + list + " from the environment"
}

func killCommand(goos string, pid int) string {
	if goos == "windows" {
		return fmt.Sprintf("taskkill /F /PID %d", pid)
	}
	return fmt.Sprintf("kill -KILL %d", pid)
}

// ResumeCommand returns what to do about a process that does not answer: on Unix it may be
// suspended. If pid is 0, because it is not known, otherwise says what else helps.
func ResumeCommand(pid int, otherwise string) string {
	return resumeCommand(runtime.GOOS, pid, otherwise)
}

func resumeCommand(goos string, pid int, otherwise string) string {
	switch {
	case goos == "windows" && pid > 0:
		return killCommand(goos, pid) + ", then start it again"
	case goos == "windows":
		return otherwise
	case pid > 0:
		return fmt.Sprintf("kill -CONT %d, or fg in its terminal", pid)
	}
	return "continue it (fg), or " + otherwise
}

// ResumeOrKill returns what to do about such a process if it may be killed.
func ResumeOrKill(pid int) string { return resumeOrKill(runtime.GOOS, pid) }

func resumeOrKill(goos string, pid int) string {
	kill := killCommand(goos, pid)
	if goos == "windows" {
		return fmt.Sprintf("run `%s`", kill)
	}
	return fmt.Sprintf("run `kill -CONT %d` if it is stopped, else `%s`", pid, kill)
}

// ResumeAdvice returns what to do about such a process as a clause of an error. pid is 0 if
// it is not known.
func ResumeAdvice(pid int) string { return resumeAdvice(runtime.GOOS, pid) }

func resumeAdvice(goos string, pid int) string {
	switch {
	case goos != "windows":
		return "if it is stopped, type `fg` in its terminal"
	case pid > 0:
		return fmt.Sprintf("run `%s`, and start it again", killCommand(goos, pid))
	}
	return "end it, and start it again"
}

// Suspended asks why a process does not answer.
func Suspended() string { return suspended(runtime.GOOS) }

func suspended(goos string) string {
	if goos == "windows" {
		return "does it hang?"
	}
	return "is it suspended (Ctrl-Z)?"
}

// OwnTempDir returns what gives a program a temporary directory that no other user owns.
func OwnTempDir() string { return ownTempDir(runtime.GOOS) }

func ownTempDir(goos string) string {
	if goos == "windows" {
		return "set TEMP and TMP to a directory you own"
	}
	return "export TMPDIR=~/tmp (a directory you own)"
}
