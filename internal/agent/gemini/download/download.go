// Package download installs the release of Gemini CLI that Pollux is tested with,
// for users who have none. npm verifies each package against the checksums in
// package-lock.json, and runs no script of a package.
package download

import (
	"bufio"
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"pollux/internal/agent"
	"pollux/internal/sys/disk"
	"pollux/internal/sys/proc"
)

const (
	// Package is the npm package of Gemini CLI.
	Package = "@google/gemini-cli"
	// Version is the release that this package installs.
	Version = "0.61.0"
	// Size is the size of the download, for messages.
	Size = "21 MB"
)

//go:embed package.json
var manifest []byte

//go:embed package-lock.json
var lock []byte

// Dir returns the directory of the release, below the user's directory for data. It
// may not exist.
func Dir(env agent.Env) (string, error) {
	name := "gemini-cli-" + Version
	if dir := env.Get("XDG_DATA_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "pollux", name), nil
	}
	if dir := env.Get("LOCALAPPDATA"); runtime.GOOS == "windows" && filepath.IsAbs(dir) {
		return filepath.Join(dir, "pollux", "data", name), nil
	}
	home, err := env.HomeDir()
	if err != nil {
		return "", err
	}
	return filepath.Join(home, ".local", "share", "pollux", name), nil
}

// Find returns the path of the installed release's command. ok is false if the
// release is not installed.
func Find(env agent.Env) (path string, ok bool) {
	dir, err := Dir(env)
	if err != nil {
		return "", false
	}
	return find(dir)
}

func find(dir string) (path string, ok bool) {
	path, err := exec.LookPath(filepath.Join(dir, "node_modules", ".bin", "gemini"))
	return path, err == nil
}

// leftovers finds what killed installations left behind.
var leftovers = disk.Leftovers{Pattern: "download-*-*", Type: fs.ModeDir, MinAge: time.Hour, InUse: proc.InUse(func(name string) int {
	pid, _ := strconv.Atoi(strings.Split(name, "-")[1])
	return pid
})}

// Install installs the release with npm, in this process's environment, and returns
// the path of its command. fetched is called for each package that npm has
// downloaded. If ctx ends, nothing of the release is left, and Install returns the
// cause.
func Install(ctx context.Context, fetched func()) (string, error) {
	dir, err := Dir(nil)
	if err != nil {
		return "", err
	}
	parent := filepath.Dir(dir)
	if err := disk.PrivateDir(parent); err != nil {
		return "", err
	}
	leftovers.Remove(parent)
	tmp, err := os.MkdirTemp(parent, fmt.Sprintf("download-%d-", os.Getpid()))
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(tmp)
	for name, text := range map[string][]byte{"package.json": manifest, "package-lock.json": lock} {
		if err := os.WriteFile(filepath.Join(tmp, name), text, 0o600); err != nil {
			return "", err
		}
	}
	if err := runNPM(ctx, tmp, fetched); err != nil {
		return "", err
	}
	if _, ok := find(tmp); !ok {
		return "", errors.New("npm installed no command named gemini")
	}
	return place(ctx, tmp, dir, os.Rename)
}

// renameTimeout limits the wait for a virus scanner that reads the new files.
const renameTimeout = 20 * time.Second

// errPlaced reports that another process has installed the release.
var errPlaced = errors.New("the release is installed")

// place renames the new tree to dir and returns the path of its command. Windows refuses that
// while a virus scanner reads a file in the tree.
func place(ctx context.Context, tree, dir string, rename func(from, to string) error) (string, error) {
	if _, ok := find(dir); !ok { // it may be damaged
		os.RemoveAll(dir)
	}
	err := disk.RetryRename(ctx, renameTimeout, func() error { return rename(tree, dir) }, func() error {
		if _, ok := find(dir); ok {
			return errPlaced
		}
		return nil
	})
	if path, ok := find(dir); ok { // also if another process was faster
		return path, nil
	}
	return "", err
}

// stopDelay is the time that npm has to end after it is asked to.
const stopDelay = 2 * time.Second

// runNPM installs the packages of the lock file in dir.
func runNPM(ctx context.Context, dir string, fetched func()) error {
	npm, err := exec.LookPath("npm")
	if err != nil {
		return err
	}
	cmd, err := proc.Command(context.Background(), npm,
		"ci", "--prefix", dir, "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=http")
	if err != nil {
		return err
	}
	cmd.Dir = dir
	child, err := proc.StartPiped(cmd, proc.Stderr)
	if err != nil {
		return err
	}
	defer child.ClosePipes()
	said := make(chan string, 1)
	go func() { said <- readLog(child.Stderr, fetched) }()
	select {
	case <-ctx.Done():
		child.Stop(stopDelay)
		child.ClosePipes()
		<-said
		return context.Cause(ctx)
	case <-child.Done():
	}
	// The whole group has ended, so that the pipe has an end.
	errs := <-said
	if child.ExitCode() != 0 {
		return fmt.Errorf("npm failed with exit code %d%s", child.ExitCode(), errs)
	}
	return nil
}

// maxErrors limits how much of npm's errors Pollux shows, in bytes.
const maxErrors = 400

// readLog reads npm's log to its end. It calls fetched for each package, and returns
// the errors.
func readLog(r io.Reader, fetched func()) string {
	var errs strings.Builder
	in := bufio.NewReader(r)
	for {
		line, err := in.ReadSlice('\n')
		text := string(bytes.TrimSpace(line))
		if strings.HasPrefix(text, "npm http fetch GET 200 ") && strings.Contains(text, ".tgz") {
			fetched()
		}
		// npm 9 and older write ERR!.
		for _, prefix := range []string{"npm error ", "npm ERR! "} {
			if text, ok := strings.CutPrefix(text, prefix); ok && errs.Len()+len(text) < maxErrors {
				errs.WriteString("\n  " + text)
			}
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return errs.String()
		}
	}
}
