package proc

import (
	"context"
	"os/exec"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/windows"

	"pollux/internal/sys/disk"
)

func command(ctx context.Context, program string, args []string) (*exec.Cmd, error) {
	path, err := exec.LookPath(program)
	if err != nil || !isBatch(path) {
		return exec.CommandContext(ctx, program, args...), nil // Start reports the error
	}
	argv, err := Direct(path, exec.LookPath)
	if err != nil {
		return nil, err
	}
	args = append(argv[1:], args...)
	if !isBatch(argv[0]) {
		return exec.CommandContext(ctx, argv[0], args...), nil
	}
	// Not %COMSPEC%, which may be another shell.
	system, err := windows.GetSystemDirectory()
	if err != nil {
		return nil, err
	}
	shell := filepath.Join(system, "cmd.exe")
	line, err := batchLine(shell, argv[0], args)
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, shell)
	cmd.SysProcAttr = &syscall.SysProcAttr{CmdLine: line}
	return cmd, nil
}

// runsInShell reports whether a command runs a batch file.
func runsInShell(cmd *exec.Cmd) bool { return cmd.SysProcAttr != nil && cmd.SysProcAttr.CmdLine != "" }

const (
	// maxShim bounds the size of a batch file of npm, in bytes.
	maxShim = 16 << 10
	// maxShims bounds how many of them start each other.
	maxShims = 4
)

// direct follows batch files that start each other: Node.js may be one of a version
// manager. A batch file that does more than start a program is returned.
func direct(path string, lookPath func(string) (string, error)) ([]string, error) {
	argv := []string{path}
	for range maxShims {
		path, err := filepath.Abs(argv[0])
		if err != nil {
			return nil, err
		}
		argv[0] = path
		if !isBatch(path) {
			break
		}
		text, err := disk.ReadFile(path, maxShim)
		if err != nil {
			break // npm did not make it
		}
		s, ok := parseShim(string(text))
		if !ok {
			break
		}
		started, err := s.argv(filepath.Dir(path), disk.Exists, lookPath)
		if err != nil {
			return nil, err
		}
		argv = append(started, argv[1:]...)
	}
	return argv, nil
}
