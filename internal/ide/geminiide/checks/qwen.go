package checks

import (
	"cmp"
	"context"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"pollux/internal/doctor"
	"pollux/internal/ide/geminiide"
	"pollux/internal/sys/disk"
	"pollux/internal/sys/proc"
	"pollux/internal/sys/shell"
)

// Qwen checks which companion Qwen Code finds, and whether that answers. It looks for the
// lock file of the port in its variable, or otherwise of this directory, the newest first.
func Qwen(ctx context.Context, c *doctor.Checker) {
	home, err := os.UserHomeDir()
	if err != nil {
		c.Fail("companion", "set "+disk.HomeVar, "%v", err)
		return
	}
	const variable = "QWEN_CODE_IDE_SERVER_PORT"
	files, _ := filepath.Glob(filepath.Join(home, ".qwen", "ide", cmp.Or(env(variable), "*")+".lock"))
	host := qwenHost(ctx)
	var locks []*doctor.Lock
	var newest *doctor.Lock
	token, changed := "", int64(0)
	for _, path := range files {
		f, err := geminiide.Read(path)
		port := strconv.Itoa(f.Port)
		l := &doctor.Lock{
			Agent: "Qwen Code", Command: geminiide.QwenCommand, Dir: c.Dir, Path: path, Process: f.PPID, Skipped: err,
			Program: cmp.Or(f.IDEInfo.DisplayName, "a companion") + " (port " + port + ")", Address: net.JoinHostPort(host, port),
			Folders: filepath.SplitList(f.WorkspacePath), Live: proc.Alive(f.PPID),
		}
		if f.Pollux == 0 || proc.Alive(f.Pollux) { // the next companion removes others
			locks = append(locks, l)
		}
		if info, err := os.Stat(path); err == nil && l.Skipped == nil && l.Live && l.Covers() && info.ModTime().UnixNano() > changed {
			newest, token, changed = l, f.AuthToken, info.ModTime().UnixNano()
		}
	}
	switch {
	case newest != nil:
		c.Ask(ctx, newest, func(ctx context.Context) error {
			_, port, _ := net.SplitHostPort(newest.Address)
			_, err := connectPort(ctx, host, port, token)
			return answer(err)
		})
	case doctor.First(c, doctor.Locks, locks...):
	case env(variable) != "":
		c.Fail("variables", shell.UnsetCommand(variable), "%s names no running companion for %s", variable, c.Dir)
	default:
		c.None(geminiide.QwenCommand)
	}
}

// lookupHost resolves a host's name. The tests replace it.
var lookupHost = net.DefaultResolver.LookupHost

// qwenHost returns the host at which Qwen Code dials a companion's port: the container's host if
// this is a container and that name can be resolved, and otherwise the loopback address. Unlike
// Gemini CLI (see [dialHost]), Qwen Code reads no variables for this.
func qwenHost(ctx context.Context) string {
	if geminiide.InContainer() {
		ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
		defer cancel()
		if _, err := lookupHost(ctx, containerHost); err == nil {
			return containerHost
		}
	}
	return "127.0.0.1"
}
