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
	"time"

	"pollux/internal/doctor"
	"pollux/internal/ide/codexide"
	"pollux/internal/sys/disk"
	"pollux/internal/sys/shell"
	"pollux/internal/sys/sock"
)

const dialTimeout = 500 * time.Millisecond

// A server serves, or should serve, the socket or pipe that Codex CLI asks.
type server struct {
	path, dir string
	notSocket bool
	foreign   bool // it is another user's
	ours      bool // a companion of Pollux runs here
	err       error
}

// Words returns the words that the table may name.
func (s *server) Words() doctor.Words {
	words := doctor.Words{
		"path": s.path, "dir": s.dir, "remove": shell.RemoveCommand(s.path), "start": doctor.StartWith(codexide.Command),
	}
	if s.err != nil {
		words["error"] = doctor.Reason(s.err)
	}
	return words
}

const another = "end that program, or use its open files"

var causes = []doctor.Cause[*server]{
	doctor.Fails("socket", func(s *server) bool { return s.notSocket },
		"{path} is not a socket, so no companion can serve it", "{remove}"),
	doctor.Fails("user", func(s *server) bool { return s.foreign },
		"{path}, or the program that serves it, belongs to another user or, on Windows, to an administrator: Codex CLI refuses it",
		"start Codex CLI and the editor as the same user, or end that program"),
	doctor.Fails("socket", func(s *server) bool { return sock.Refused(s.err) },
		"nothing is listening on {path}: its companion has ended", "{start}"),
	doctor.Fails("companion", func(s *server) bool { return errors.Is(s.err, codexide.ErrOtherFolder) },
		"the program that serves {path} has no files of {dir}", "{start}"),
	doctor.Fails("socket", func(s *server) bool { return s.err != nil },
		"the program that serves {path} does not answer: {error}", "restart that editor, or end that program"),
	doctor.Warns("rival", func(s *server) bool { return !s.ours }, "a program other than Pollux serves {path}", another),
	doctor.Passes("socket", doctor.Otherwise[*server], "the companion on {path} answers for this directory"),
}

// report reports what serves the socket or pipe.
func (s *server) report(c *doctor.Checker) {
	if s.ours = c.RunningHere() != nil; c.Overview && !s.ours && sock.Refused(s.err) {
		c.None(codexide.Command) // the next companion replaces the socket
		return
	}
	doctor.First(c, causes, s)
	if s.answers() {
		c.OK("ide", "type /ide in each session of Codex CLI: it does not connect automatically, and shows its own diffs")
	}
}

// Codex checks whether /ide in Codex CLI finds a companion.
func Codex(_ context.Context, c *doctor.Checker) {
	path := codexide.Socket()
	if sock.IsPipe(path) {
		checkPipe(c, path)
		return
	}
	for _, path := range codexide.Preferred() {
		if info, err := os.Lstat(path); err == nil && info.Mode().Type() == fs.ModeSocket && !sock.RefusesConnections(path) {
			c.Warn("rival", another, "Codex CLI asks the program that serves %s before any companion of Pollux", path)
		}
	}
	if !checkDirectory(c, filepath.Dir(path)) {
		return
	}
	s := ask(path, c.Dir)
	if errors.Is(s.err, fs.ErrNotExist) {
		found := c.FindTemp(path, []string{"TMPDIR"}, func(tmp string) (string, bool) {
			there := codexide.SocketIn(tmp)
			return "a companion for this folder serves " + there, there != path && ask(there, c.Dir).answers()
		})
		if !found {
			c.None(codexide.Command)
		}
		return
	}
	s.report(c)
}

// checkPipe checks whether a companion serves the pipe that Codex CLI asks on Windows.
func checkPipe(c *doctor.Checker, pipe string) {
	conn, err := codexide.Dial(pipe)
	if sock.Refused(err) {
		c.None(codexide.Command)
		return
	}
	if err == nil {
		defer conn.Close()
		err = codexide.Ask(conn, c.Dir)
	}
	(&server{path: pipe, dir: c.Dir, foreign: codexide.IsForeign(err), err: err}).report(c)
}

// answers reports whether Codex CLI would get an answer.
func (s *server) answers() bool { return !s.notSocket && !s.foreign && s.err == nil }

// ask asks the program that serves a socket, as Codex CLI in a directory does.
func ask(path, dir string) *server {
	s := &server{path: path, dir: dir}
	info, err := os.Lstat(path)
	if s.err = err; err != nil {
		return s
	}
	s.notSocket, s.foreign = info.Mode().Type() != fs.ModeSocket, !disk.Own(path, info)
	if s.notSocket || s.foreign {
		return s
	}
	conn, err := net.DialTimeout("unix", path, dialTimeout)
	if s.err = err; err != nil {
		return s
	}
	defer conn.Close()
	if s.foreign = !sock.TrustedPeer(conn, info); !s.foreign {
		s.err = codexide.Ask(conn, dir)
	}
	return s
}

// checkDirectory reports whether Codex CLI would trust the socket's directory.
func checkDirectory(c *doctor.Checker, dir string) bool {
	info, well := c.OwnDirectory(dir, shell.OwnTempDir+", for the editor and Codex CLI")
	if info == nil || !disk.OthersWrite(dir, info) {
		return well
	}
	c.Fixable("directory", doctor.Failed, "other users can write to the directory of Codex CLI's socket, so it refuses that", doctor.OwnAlone,
		[]string{dir}, disk.Narrow)
	return false
}
