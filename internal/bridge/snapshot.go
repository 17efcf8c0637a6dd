package bridge

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// A state is what the files of a directory are like, in so far as git does not
// ignore them: what git says of each that is not as committed, and the size,
// times and kind of each of those. A file that git reports neither before nor
// after is the same.
type state map[string]string

func (s state) equal(other state) bool { return maps.Equal(s, other) }

// snapshotTime bounds a snapshot.
const snapshotTime = time.Minute

// snapshot takes the state of a directory. The repository is not trusted:
// nothing that its configuration names is run.
func snapshot(ctx context.Context, dir string) (state, error) {
	ctx, cancel := context.WithTimeout(ctx, snapshotTime)
	defer cancel()
	if _, err := exec.LookPath("git"); err != nil {
		return walk(ctx, dir)
	}
	g := git{ctx: ctx, dir: dir}
	if _, err := g.run("rev-parse", "--is-inside-work-tree"); err != nil {
		if inRepository(dir) {
			return nil, fmt.Errorf("git does not read this repository: %w", err)
		}
		return walk(ctx, dir)
	}
	if err := g.disarm(); err != nil {
		return nil, err
	}
	top, err := g.run("rev-parse", "--show-toplevel")
	if err != nil {
		return nil, err
	}
	head, _ := g.run("rev-parse", "--verify", "--quiet", "HEAD") // there may be none yet
	out, err := g.run("status", "--porcelain=v1", "-z", "--untracked-files=all", "--ignore-submodules=all", "--no-renames")
	if err != nil {
		return nil, err
	}
	s := state{"HEAD": string(head)}
	root := strings.TrimRight(string(top), "\r\n")
	for entry := range bytes.SplitSeq(out, []byte{0}) {
		if len(entry) < 4 {
			continue
		}
		path := filepath.Join(root, filepath.FromSlash(string(entry[3:])))
		info, err := os.Lstat(path)
		s[path] = string(entry[:2]) + describe(info, err)
	}
	return s, nil
}

func describe(info fs.FileInfo, err error) string {
	if err != nil {
		return " gone"
	}
	return fmt.Sprintf(" %v %d %d", info.Mode(), info.Size(), info.ModTime().UnixNano())
}

// inRepository reports whether dir or one above it has a .git.
func inRepository(dir string) bool {
	for {
		if _, err := os.Lstat(filepath.Join(dir, ".git")); err == nil {
			return true
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return false
		}
		dir = parent
	}
}

// A git runs git's commands in a repository that is not trusted.
type git struct {
	ctx    context.Context
	dir    string
	filter []string // -c settings that turn the repository's filters off
}

func (g *git) run(args ...string) ([]byte, error) {
	args = append(append([]string{
		"-c", "core.fsmonitor=false", "-c", "core.hooksPath=" + os.DevNull, "-c", "core.pager=cat",
		"-c", "core.untrackedCache=false", "-c", "submodule.recurse=false",
	}, g.filter...), args...)
	cmd := exec.CommandContext(g.ctx, "git", args...)
	cmd.Dir = g.dir
	cmd.WaitDelay = time.Second
	for _, kv := range os.Environ() {
		if !strings.HasPrefix(kv, "GIT_") {
			cmd.Env = append(cmd.Env, kv)
		}
	}
	// No object is fetched, by whatever command the repository names for it.
	cmd.Env = append(cmd.Env, "GIT_OPTIONAL_LOCKS=0", "GIT_TERMINAL_PROMPT=0", "GIT_NO_LAZY_FETCH=1", "GIT_ALLOW_PROTOCOL=none", "LC_ALL=C")
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		if err := context.Cause(g.ctx); err != nil {
			return nil, fmt.Errorf("git took too long: %w", err)
		}
		line, _, _ := strings.Cut(strings.TrimSpace(stderr.String()), "\n")
		if line == "" {
			line = err.Error()
		}
		return nil, errors.New(line)
	}
	return stdout.Bytes(), nil
}

// disarm turns off the repository's content filters, which are commands that
// git runs to tell whether a file has changed.
func (g *git) disarm() error {
	out, err := g.run("config", "--list", "--name-only", "-z")
	if err != nil {
		return err
	}
	seen := make(map[string]bool)
	for name := range bytes.SplitSeq(out, []byte{0}) {
		section, key := string(name), ""
		if i := strings.LastIndexByte(section, '.'); i >= 0 {
			section, key = section[:i], section[i+1:]
		}
		if !strings.HasPrefix(section, "filter.") || seen[section] || key == "" {
			continue
		}
		seen[section] = true
		if strings.ContainsAny(section, "=\n") {
			return errors.New("its configuration names a filter in an odd way")
		}
		g.filter = append(g.filter, "-c", section+".clean=", "-c", section+".smudge=", "-c", section+".process=", "-c", section+".required=false")
	}
	return nil
}

// maxWalk bounds the files of a directory without git.
const maxWalk = 200_000

// walk takes the state of a directory that git does not know: of every file.
func walk(ctx context.Context, dir string) (state, error) {
	s := make(state)
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			if path == dir {
				return err
			}
			s[path] = "unreadable"
			return nil
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if len(s) >= maxWalk {
			return fmt.Errorf("there are over %d files: make it a git repository", maxWalk)
		}
		info, err := d.Info()
		if !d.IsDir() {
			s[path] = describe(info, err)
		}
		return nil
	})
	return s, err
}
