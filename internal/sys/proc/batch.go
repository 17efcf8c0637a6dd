package proc

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// Command returns a command that runs a program with exactly these arguments. The program
// is a path or a name on the PATH. ctx ends the command as with [exec.CommandContext].
//
// On Windows, npm installs programs as batch files, which run in a shell: cmd.exe reads
// their arguments a second time, so that `fix a & b` would run b. Command starts the
// program behind such a file directly: see [Direct]. For other batch files it quotes the
// arguments for cmd.exe, and returns an error if that is not possible.
func Command(ctx context.Context, program string, args ...string) (*exec.Cmd, error) {
	return command(ctx, program, args)
}

// SetDir sets the directory in which a command of [Command] runs, "" for that of this
// process. On Windows, it returns an error for a batch file in a directory on a server:
// cmd.exe would run it in the directory of Windows.
func SetDir(cmd *exec.Cmd, dir string) error {
	cmd.Dir = dir
	if dir == "" {
		dir, _ = os.Getwd()
	}
	if runsInShell(cmd) && strings.HasPrefix(dir, `\\`) {
		return fmt.Errorf("a batch file cannot run in %s: map a drive letter to that directory with `net use`, "+
			"and work there", dir)
	}
	return nil
}

// Direct returns the program and the first arguments that a file starts: the file itself,
// or on Windows what a batch file of npm starts, which usually is Node.js with a script.
// lookPath finds Node.js if it is not next to the file. Its error is returned.
func Direct(path string, lookPath func(string) (string, error)) ([]string, error) {
	return direct(path, lookPath)
}

// CommandName returns the name of a program without its directory and without the extension
// that it has on Windows.
func CommandName(path string) string {
	name := filepath.Base(path)
	switch ext := filepath.Ext(name); strings.ToLower(ext) {
	case ".exe", ".cmd", ".bat", ".ps1":
		return strings.TrimSuffix(name, ext)
	}
	return name
}

// isBatch reports whether Windows runs a file in cmd.exe.
func isBatch(path string) bool {
	// Windows ignores dots and spaces at the end of a name.
	switch strings.ToLower(filepath.Ext(strings.TrimRight(path, ". "))) {
	case ".cmd", ".bat":
		return true
	}
	return false
}

// A shim describes the program that a batch file of npm starts. Paths are relative to the
// file's directory.
type shim struct {
	// beside is the path of the program, or "". name is the program on the PATH if that
	// file does not exist, or "".
	beside, name string
	args         []shimArg
}

type shimArg struct {
	text   string
	isPath bool
}

// shimLines are the other lines in batch files of npm, pnpm and Yarn (all versions of
// cmd-shim), in lower case and without an @ in front.
var shimLines = []string{
	"", "echo off", "setlocal", "endlocal", "goto start", ":start", "call :find_dp0", ":find_dp0", "set dp0=%~dp0",
	"exit /b", "exit /b %errorlevel%", ") else (", ")", "set pathext=%pathext:;.js;=;%",
}

// shimPrefix makes cmd.exe end before the program does.
const shimPrefix = "endlocal & goto #_undefined_# 2>nul || title %comspec% & "

// parseShim reads a batch file. ok is false if it does anything but start a program with
// all arguments of the file.
func parseShim(text string) (s shim, ok bool) {
	var lines [][]shimArg
	for line := range strings.Lines(text) {
		line = strings.TrimPrefix(strings.TrimSpace(line), "@")
		lower := strings.ToLower(line)
		switch {
		case slices.Contains(shimLines, lower):
		case strings.HasPrefix(lower, `if exist "`) && strings.HasSuffix(lower, `" (`):
			// Its program follows.
		case strings.HasPrefix(lower, `set "_prog=`) && strings.HasSuffix(lower, `"`):
			program, ok := parseShimWord(line[len(`set "_prog=`) : len(line)-1])
			switch {
			case !ok:
				return shim{}, false
			case program.isPath:
				s.beside = program.text
			default:
				s.name = program.text
			}
		case strings.HasSuffix(line, "%*"):
			if strings.HasPrefix(lower, shimPrefix) {
				line = line[len(shimPrefix):]
			}
			words, ok := shimWords(strings.TrimSuffix(line, "%*"))
			if !ok {
				return shim{}, false
			}
			lines = append(lines, words)
		default:
			return shim{}, false
		}
	}
	for i, words := range lines {
		switch program := words[0]; {
		case program.text == "%_prog%" && len(lines) == 1 && s.beside+s.name != "":
		case program.isPath && s.beside == "":
			s.beside = program.text
		case !program.isPath && s.name == "" && i > 0:
			s.name = program.text
		default:
			return shim{}, false
		}
		if !slices.Equal(words[1:], lines[0][1:]) {
			return shim{}, false
		}
		s.args = words[1:]
	}
	// Windows would look for the program of another kind of file.
	isProgram := s.beside == "" || strings.EqualFold(filepath.Ext(s.beside), ".exe")
	return s, len(lines) > 0 && len(lines) < 3 && isProgram && !strings.ContainsAny(s.name, `\/:`)
}

// shimWords splits a line into words. Words in quotes may contain spaces. There is at
// least one word.
func shimWords(line string) (words []shimArg, ok bool) {
	for line = strings.TrimLeft(line, " \t"); line != ""; line = strings.TrimLeft(line, " \t") {
		var word string
		if rest, quoted := strings.CutPrefix(line, `"`); quoted {
			if word, line, ok = strings.Cut(rest, `"`); !ok {
				return nil, false
			}
			if line != "" && line[0] != ' ' && line[0] != '\t' {
				return nil, false
			}
		} else {
			word, line = line, ""
			if i := strings.IndexAny(word, " \t"); i >= 0 {
				word, line = word[:i], word[i:]
			}
			if strings.ContainsAny(word, `"&|<>^()`) {
				return nil, false
			}
		}
		arg := shimArg{text: word}
		if word != "%_prog%" || len(words) > 0 {
			if arg, ok = parseShimWord(word); !ok {
				return nil, false
			}
		}
		words = append(words, arg)
	}
	return words, len(words) > 0
}

// parseShimWord reads a word that may start with the file's directory. Other variables are
// not known.
func parseShimWord(word string) (arg shimArg, ok bool) {
	for _, dir := range []string{`%~dp0\`, `%dp0%\`, `%~dp0`} {
		if len(word) > len(dir) && strings.EqualFold(word[:len(dir)], dir) {
			arg = shimArg{word[len(dir):], true}
			return arg, !strings.ContainsAny(arg.text, `%:`)
		}
	}
	return shimArg{text: word}, word != "" && !strings.Contains(word, "%")
}

// argv returns the command line that a shim in dir starts.
func (s shim) argv(dir string, exists func(path string) bool, lookPath func(string) (string, error)) ([]string, error) {
	path := func(relative string) string {
		return filepath.Join(dir, strings.ReplaceAll(relative, `\`, string(filepath.Separator)))
	}
	program := path(s.beside)
	if s.name != "" && (s.beside == "" || !exists(program)) {
		var err error
		if program, err = lookPath(s.name); err != nil {
			return nil, err
		}
	}
	argv := []string{program}
	for _, arg := range s.args {
		if arg.isPath {
			arg.text = path(arg.text)
		}
		argv = append(argv, arg.text)
	}
	return argv, nil
}

// batchPercent is a percent sign for cmd.exe. %cd:~,% is always empty; in front of the name
// of a variable, it keeps cmd.exe from replacing that.
const batchPercent = "%%cd:~,%"

// errBatchArg reports an argument that cmd.exe cannot pass on.
var errBatchArg = errors.New("it is a batch file, which cannot receive line breaks in its arguments: leave them out, or start the program that the file starts")

// batchLine returns the command line with which shell, the path of cmd.exe, runs a batch
// file with exactly these arguments. Its rules come from the standard library of Rust
// since CVE-2024-24576 (library/std/src/sys/args/windows.rs, make_bat_command_line).
func batchLine(shell, file string, args []string) (string, error) {
	if strings.ContainsAny(file, "\"\r\n\x00") || strings.HasSuffix(file, `\`) {
		return "", fmt.Errorf("%q is not the name of a batch file", file)
	}
	var b strings.Builder
	// Extensions on, delayed expansion off, no AutoRun. The outer quotes are removed.
	fmt.Fprintf(&b, `"%s" /e:ON /v:OFF /d /c ""%s"`, shell, strings.ReplaceAll(file, "%", batchPercent))
	for _, arg := range args {
		if strings.ContainsAny(arg, "\r\n\x00") {
			return "", fmt.Errorf("%s: %w", file, errBatchArg)
		}
		b.WriteByte(' ')
		writeBatchArg(&b, arg)
	}
	b.WriteByte('"')
	return b.String(), nil
}

func writeBatchArg(b *strings.Builder, arg string) {
	quoted := arg == "" || strings.HasSuffix(arg, `\`) || strings.ContainsFunc(arg, func(r rune) bool {
		isPlain := 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || strings.ContainsRune(`#$*+-./:?@\_`, r)
		return r < 0x80 && !isPlain || 0x80 <= r && r < 0xa0
	})
	if quoted {
		b.WriteByte('"')
	}
	backslashes := 0
	for _, c := range []byte(arg) {
		switch c {
		case '\\':
			backslashes++
		case '"':
			b.WriteString(strings.Repeat(`\`, backslashes))
			b.WriteByte('"')
			backslashes = 0
		case '%':
			b.WriteString(batchPercent)
			backslashes = 0
			continue
		default:
			backslashes = 0
		}
		b.WriteByte(c)
	}
	if quoted {
		b.WriteString(strings.Repeat(`\`, backslashes))
		b.WriteByte('"')
	}
}
