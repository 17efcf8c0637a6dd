package shell

import (
	"context"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// LineCommand returns a command that runs the value of a variable such as EDITOR or PAGER,
// with more arguments. On Unix, the shell runs it. Windows has no such shell: there it is a
// program and its arguments (see [SplitLine]).
func LineCommand(ctx context.Context, line string, args ...string) (*exec.Cmd, error) {
	return lineCommand(ctx, line, args)
}

// SplitLine returns the program and the arguments in the value of a variable such as
// EDITOR, or nothing if it is empty. On Windows, parts in quotes may contain spaces, and so may
// the path of a program that exists.
func SplitLine(line string) []string { return splitLine(line) }

// lineEditors are the editors that take a line as +LINE.
var lineEditors = []string{"vi", "vim", "nvim", "view", "editor", "nano", "pico", "micro", "emacs", "emacsclient", "kak", "joe", "mg"}

// EditArgs returns the arguments with which an editor, the value of a variable such as EDITOR, opens
// a file at a line, counted from 1. An unknown editor receives the path only.
func EditArgs(editor, path string, line int) []string {
	words := SplitLine(editor)
	if len(words) == 0 || !slices.Contains(lineEditors, filepath.Base(words[0])) {
		return []string{path}
	}
	return []string{"+" + strconv.Itoa(line), path}
}

// DefaultEditor is a program that every machine with this system has.
const DefaultEditor = defaultEditor

// LetSave lets cmd, the user's editor, save its text when the context of cmd ends. On Unix the
// editor receives SIGHUP, as when its terminal closes, and has ten seconds to save. Windows has
// no way to ask: there it runs until the user ends it, or until the system notifies it that its
// console closes.
func LetSave(cmd *exec.Cmd) { letSave(cmd) }

// splitWindows is [SplitLine] on Windows. exists reports whether a program is installed.
func splitWindows(line string, exists func(program string) bool) []string {
	line = strings.TrimSpace(line)
	for end := len(line); end > 0 && line[0] != '"'; end = strings.LastIndexByte(line[:end], ' ') {
		if program := strings.TrimSpace(line[:end]); exists(program) {
			return append([]string{program}, quotedWords(line[end:])...)
		}
	}
	return quotedWords(line)
}

// quotedWords splits a line at spaces that are not in quotes, and removes the quotes.
func quotedWords(line string) (words []string) {
	var word strings.Builder
	started, quoted := false, false
	end := func() {
		if started {
			words = append(words, word.String())
		}
		word.Reset()
		started = false
	}
	for _, r := range line {
		switch {
		case r == '"':
			started, quoted = true, !quoted
		case !quoted && (r == ' ' || r == '\t'):
			end()
		default:
			started = true
			word.WriteRune(r)
		}
	}
	end()
	return words
}
