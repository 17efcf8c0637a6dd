// Package checks contains doctor's checks of Codex CLI: which socket it asks for the
// open files, and whether it would trust that socket.
package checks

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"time"

	"pollux/internal/doctor"
	"pollux/internal/sys"
)

// Names of the command and of the npm package that contains it.
const (
	Command = "codex"
	Package = "@openai/codex"
)

const (
	startOne    = "pollux run -- codex, or start an editor here that has Pollux (pollux install)"
	dialTimeout = 500 * time.Millisecond
)

// Home returns the directory of Codex CLI's settings.
func Home() (string, error) {
	if dir := os.Getenv("CODEX_HOME"); dir != "" {
		return filepath.Abs(dir)
	}
	home, err := os.UserHomeDir()
	return filepath.Join(home, ".codex"), err
}

// socketIn returns the socket below a temporary directory.
func socketIn(tmp string) string {
	return filepath.Join(tmp, "codex-ipc", "ipc-"+strconv.Itoa(os.Getuid())+".sock")
}

// preferred returns the sockets that Codex CLI tries first. Its vendor's programs serve
// them.
func preferred() (paths []string) {
	if home, err := Home(); err == nil {
		paths = append(paths, filepath.Join(home, "ipc", "ipc.sock"))
	}
	if os.Getuid() == 0 {
		paths = append(paths, filepath.Join(os.TempDir(), "codex-ipc", "ipc.sock"))
	}
	return paths
}

// Codex checks whether /ide in Codex CLI finds a companion.
func Codex(_ context.Context, c *doctor.Checker) {
	if runtime.GOOS == "windows" {
		c.OK("socket", "Codex CLI uses a named pipe on Windows, which doctor does not check")
		return
	}
	for _, path := range preferred() {
		if info, err := os.Lstat(path); err == nil && info.Mode().Type() == fs.ModeSocket && !sys.RefusesConnections(path) {
			c.Warn("rival", "end that program, or use its open files",
				"Codex CLI asks the program that serves %s before any companion of Pollux", path)
		}
	}
	path := socketIn(os.TempDir())
	if !checkDirectory(c, filepath.Dir(path)) {
		return
	}
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		explainNone(c, path)
		return
	case err != nil || info.Mode().Type() != fs.ModeSocket:
		c.Fail("socket", "rm "+doctor.Word(path), "%s is not a socket, so no companion can serve it", path)
		return
	case !sys.Own(info):
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
	if !sys.TrustedPeer(conn, info) {
		c.Fail("user", "start Codex CLI and the editor as the same user", "another user's program serves %s", path)
		return
	}
	switch err := ask(conn, c.Dir); {
	case err == nil:
		c.OK("socket", "the companion on %s answers for this folder", path)
	case errors.Is(err, errOtherFolder):
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
		c.Fail("directory", "rm "+doctor.Word(dir), "%s is not a directory", dir)
	case !sys.Own(info):
		c.Fail("directory", "export TMPDIR=~/tmp (a directory you own), for the editor and Codex CLI",
			"%s belongs to another user: Codex CLI refuses it", dir)
	case info.Mode().Perm()&0o022 != 0:
		c.Add(doctor.Finding{
			Check: "directory", Status: doctor.Failed, Next: doctor.FixCommand,
			Text: "other users can write to " + dir + ": Codex CLI refuses it",
			Fix:  "make readable for you alone: " + dir, Apply: func() error { return sys.Narrow(dir) },
		})
	default:
		return true
	}
	return false
}

// explainNone says why there is no socket.
func explainNone(c *doctor.Checker, path string) {
	tmps := append(sys.Environs("TMPDIR"), "/tmp")
	slices.Sort(tmps)
	for _, tmp := range slices.Compact(tmps) {
		there := socketIn(tmp)
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
	if err != nil || info.Mode().Type() != fs.ModeSocket || !sys.Own(info) {
		return false
	}
	conn, err := net.DialTimeout("unix", path, dialTimeout)
	if err != nil {
		return false
	}
	defer conn.Close()
	return sys.TrustedPeer(conn, info) && ask(conn, dir) == nil
}

// errOtherFolder reports that the program has no files of the folder.
var errOtherFolder = errors.New("it has no files of this folder")

const (
	// answerTimeout limits the wait for an answer, as Codex CLI does.
	answerTimeout = 6 * time.Second
	// maxAnswer bounds an answer, in bytes.
	maxAnswer = 64 << 20
)

// ask asks for the context of a folder, as Codex CLI does. It ignores the answer's
// contents, which are the user's. A message is 32 bits with its length, the lowest byte
// first, and JSON.
func ask(conn net.Conn, dir string) error {
	if err := conn.SetDeadline(time.Now().Add(answerTimeout)); err != nil {
		return err
	}
	const id = "pollux-doctor"
	request, err := json.Marshal(map[string]any{
		"type": "request", "requestId": id, "sourceClientId": id, "version": 0, "method": "ide-context",
		"params": map[string]any{"workspaceRoot": dir},
	})
	if err != nil {
		return err
	}
	frame := binary.LittleEndian.AppendUint32(nil, uint32(len(request)))
	if _, err := conn.Write(append(frame, request...)); err != nil {
		return err
	}
	if _, err := io.ReadFull(conn, frame); err != nil {
		return err
	}
	size := binary.LittleEndian.Uint32(frame)
	if size > maxAnswer {
		return errors.New("it does not speak Codex CLI's protocol")
	}
	data := make([]byte, size)
	if _, err := io.ReadFull(conn, data); err != nil {
		return err
	}
	var answer struct{ ResultType, Error string }
	switch err := json.Unmarshal(data, &answer); {
	case err != nil:
		return err
	case answer.ResultType == "success":
		return nil
	case answer.Error == "no-client-found":
		return errOtherFolder
	}
	return errors.New(doctor.Short(answer.Error))
}
