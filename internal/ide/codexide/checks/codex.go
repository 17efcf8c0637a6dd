// Package checks contains doctor's checks of Codex CLI: which socket it asks for the
// open files, and whether it would trust that socket.
package checks

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"time"

	"pollux/internal/doctor"
	"pollux/internal/ide/asking"
	"pollux/internal/ide/codexide"
	"pollux/internal/sys/disk"
	"pollux/internal/sys/proc"
	"pollux/internal/sys/shell"
	"pollux/internal/sys/sock"
)

const (
	startOne    = "pollux run -- codex, or start an editor here that has Pollux (pollux install)"
	dialTimeout = 500 * time.Millisecond
)

// Codex checks whether /ide in Codex CLI finds a companion, and whether Codex CLI asks
// before it changes a file.
func Codex(_ context.Context, c *doctor.Checker) {
	if m := codexide.Asking(asking.Start{Dir: c.Dir, Getenv: os.Getenv}); m.Silent != "" {
		text, next := m.Finding("Codex CLI", codexide.Command)
		c.Warn("mode", next, "%s", text)
	}
	if pipe := codexide.Socket(); sock.IsPipe(pipe) {
		checkPipe(c, pipe)
		return
	}
	for _, path := range codexide.Preferred() {
		if info, err := os.Lstat(path); err == nil && info.Mode().Type() == fs.ModeSocket && !sock.RefusesConnections(path) {
			c.Warn("rival", "end that program, or use its open files",
				"Codex CLI asks the program that serves %s before any companion of Pollux", path)
		}
	}
	path := codexide.Socket()
	if !checkDirectory(c, filepath.Dir(path)) {
		return
	}
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		explainNone(c, path)
		return
	case err != nil || info.Mode().Type() != fs.ModeSocket:
		c.Fail("socket", shell.RemoveCommand(path), "%s is not a socket, so no companion can serve it", path)
		return
	case !disk.Own(path, info):
		c.Fail("user", "start Codex CLI and the editor as the same user",
			"%s belongs to another user: Codex CLI refuses it", path)
		return
	}
	conn, err := net.DialTimeout("unix", path, dialTimeout)
	if err != nil {
		c.Fail("socket", startOne, "nobody serves %s: its companion has ended or hangs", path)
		return
	}
	defer conn.Close()
	if !sock.TrustedPeer(conn, info) {
		c.Fail("user", "start Codex CLI and the editor as the same user", "another user's program serves %s", path)
		return
	}
	checkAnswer(c, conn, path)
}

// checkPipe checks whether a companion serves the pipe that Codex CLI asks on Windows.
func checkPipe(c *doctor.Checker, pipe string) {
	conn, err := codexide.Dial(pipe)
	switch {
	case err == nil:
		defer conn.Close()
		checkAnswer(c, conn, pipe)
	case sock.Refused(err):
		c.Fail("companion", startOne, "no companion serves %s", pipe)
	case codexide.IsForeign(err):
		c.Fail("user", "end that program: Windows has only one such pipe",
			"a program of another user, or one that runs as administrator, serves %s", pipe)
	default:
		c.Fail("socket", "end that program", "the program that serves %s does not answer: %s", pipe, doctor.Reason(err))
	}
}

// checkAnswer checks what the program answers that serves the socket or pipe.
func checkAnswer(c *doctor.Checker, conn net.Conn, path string) {
	switch err := codexide.Ask(conn, c.Dir); {
	case err == nil:
		c.OK("socket", "the companion on %s answers for this folder", path)
	case errors.Is(err, codexide.ErrOtherFolder):
		c.Fail("companion", startOne, "the program that serves %s has no files of %s", path, c.Dir)
		return
	default:
		c.Fail("socket", "restart that editor", "the program that serves %s does not answer: %s", path, doctor.Reason(err))
		return
	}
	if c.RunningHere() == nil {
		c.Warn("rival", "end that program, or use its open files", "another program than Pollux serves %s", path)
	}
	c.OK("ide", "type /ide in each session of Codex CLI: it does not connect by itself, and shows its own diffs")
}

// checkDirectory reports whether Codex CLI would trust the socket's directory.
func checkDirectory(c *doctor.Checker, dir string) bool {
	info, err := os.Lstat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return true
	case err != nil || !info.IsDir():
		c.Fail("directory", shell.RemoveCommand(dir), "%s is not a directory", dir)
	case !disk.Own(dir, info):
		c.Fail("directory", shell.OwnTempDir+", for the editor and Codex CLI",
			"%s belongs to another user: Codex CLI refuses it", dir)
	case disk.OthersWrite(dir, info):
		c.Add(doctor.Finding{
			Check: "directory", Status: doctor.Failed, Next: doctor.FixCommand,
			Text: "other users can write to " + dir + ": Codex CLI refuses it",
			Fix:  "make readable for you alone: " + dir, Apply: func() error { return disk.Narrow(dir) },
		})
	default:
		return true
	}
	return false
}

// explainNone says why there is no socket.
func explainNone(c *doctor.Checker, path string) {
	tmps := append(proc.Environs("TMPDIR"), "/tmp")
	slices.Sort(tmps)
	for _, tmp := range slices.Compact(tmps) {
		there := codexide.SocketIn(tmp)
		if there == path || !filepath.IsAbs(tmp) || !answers(there, c.Dir) {
			continue
		}
		next := "export TMPDIR=" + doctor.Word(tmp)
		if tmp == "/tmp" {
			next = "unset TMPDIR"
		}
		c.Fail("tmpdir", next, "a companion for this folder serves %s, but a Codex CLI started here looks for %s: TMPDIR differs",
			there, path)
		return
	}
	c.Fail("companion", startOne, "no companion serves %s", path)
}

// answers reports whether a program of the user serves the socket for the folder.
func answers(path, dir string) bool {
	info, err := os.Lstat(path)
	if err != nil || info.Mode().Type() != fs.ModeSocket || !disk.Own(path, info) {
		return false
	}
	conn, err := net.DialTimeout("unix", path, dialTimeout)
	if err != nil {
		return false
	}
	defer conn.Close()
	return sock.TrustedPeer(conn, info) && codexide.Ask(conn, dir) == nil
}
