package checks

import (
	"cmp"
	"context"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"pollux/internal/doctor"
	"pollux/internal/ide/geminiide"
	"pollux/internal/sys/proc"
)

// Qwen checks which companion Qwen Code finds, and whether that answers. It looks for the
// lock file of the port in its variable, or otherwise of this directory, the newest first.
func Qwen(ctx context.Context, c *doctor.Checker) {
	home, err := os.UserHomeDir()
	if err != nil {
		c.Fail("companion", "set HOME", "%v", err)
		return
	}
	type lock struct {
		path     string
		modified int64
		geminiide.DiscoveryFile
	}
	var locks []lock
	dir := filepath.Join(home, ".qwen", "ide")
	pattern := cmp.Or(env("QWEN_CODE_IDE_SERVER_PORT"), "*") + ".lock"
	paths, _ := filepath.Glob(filepath.Join(dir, pattern))
	for _, path := range paths {
		info, err := os.Stat(path)
		if err != nil {
			continue
		}
		f, err := geminiide.Read(path)
		if err == nil && proc.Alive(f.PPID) && geminiide.Holds(f.WorkspacePath, c.Dir) {
			locks = append(locks, lock{path, info.ModTime().UnixNano(), f})
		}
	}
	if len(locks) == 0 {
		c.Fail("companion", startOne, "no file %s in %s names a running companion for %s", pattern, dir, c.Dir)
		return
	}
	l := slices.MaxFunc(locks, func(a, b lock) int { return cmp.Compare(a.modified, b.modified) })
	host := geminiide.DialHost(geminiide.Launch{Dir: c.Dir, Getenv: os.Getenv, PID: os.Getpid(), Minor: newestMinor})
	if _, err := connectPort(ctx, host, strconv.Itoa(l.Port), l.AuthToken); err != nil {
		c.Fail("companion", "restart the companion, then Qwen Code", "port %d of %s, in %s, does not answer: %v", l.Port, host, l.path, err)
		return
	}
	c.OK("companion", "%s (port %d) answers", l.IDEInfo.DisplayName, l.Port)
}
