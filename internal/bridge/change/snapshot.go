package change

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

	"pollux/internal/sys"
)

// A state records the kind, size, times and identity of the files below a
// directory that git does not ignore. In a repository, it covers the entire
// repository with nested ones, and the files that git itself runs or reads.
type state struct {
	files map[string]fileState
	// prefix is the path of the directory relative to the top of its repository,
	// with a final slash. It is empty at the top and outside of a repository.
	prefix string
}

func (s state) equal(other state) bool { return maps.Equal(s.files, other.files) }

// A fileState is the state of one file.
type fileState struct {
	mode           fs.FileMode
	size, modified int64
	changed        int64
	id             uint64
	problem        string // why there is no state: "gone" or "unreadable"
}

// snapshotTimeout limits a snapshot.
const snapshotTimeout = time.Minute

// snapshot returns the state of a directory. It does not trust the repository:
// no command in the configuration runs. git only lists the files. It does not
// compare them, because that could run the repository's filters.
func snapshot(ctx context.Context, dir string) (state, error) {
	ctx, cancel := context.WithTimeout(ctx, snapshotTimeout)
	defer cancel()
	s := state{files: make(map[string]fileState)}
	g := git{ctx: ctx, dir: dir}
	if _, err := exec.LookPath("git"); err != nil {
		return s, s.walk(ctx, dir)
	}
	inside, err := g.run("rev-parse", "--is-inside-work-tree")
	if err != nil && inRepository(dir) {
		return s, fmt.Errorf("git cannot read this repository: %w", err)
	}
	if err != nil || strings.TrimSpace(string(inside)) != "true" {
		return s, s.walk(ctx, dir)
	}
	where, err := g.run("rev-parse", "--show-toplevel", "--absolute-git-dir", "--show-prefix")
	lines := strings.Split(string(where), "\n")
	if err != nil || len(lines) < 3 {
		return s, fmt.Errorf("git does not report where its files are: %w", err)
	}
	top, gitDir := strings.TrimRight(lines[0], "\r"), strings.TrimRight(lines[1], "\r")
	s.prefix = strings.TrimRight(lines[2], "\r")
	if _, err := g.run("check-ignore", "-q", "--", dir); err == nil {
		return s, s.walk(ctx, dir)
	}
	return s, s.repository(ctx, top, gitDir)
}

// repository adds the state of a repository: the files of its work tree that git
// does not ignore, and the files that git reads or runs.
func (s state) repository(ctx context.Context, top, gitDir string) error {
	g := git{ctx: ctx, dir: top}
	names, err := g.run("ls-files", "-z", "--cached", "--others", "--exclude-standard")
	if err != nil {
		return err
	}
	for name := range bytes.SplitSeq(names, []byte{0}) {
		if len(name) == 0 {
			continue
		}
		path := filepath.Join(top, filepath.FromSlash(string(name)))
		info, err := os.Lstat(path)
		if err == nil && info.IsDir() {
			if err := s.nested(ctx, path); err != nil {
				return err
			}
			continue
		}
		s.files[path] = describe(info, err)
	}
	dirs := []string{gitDir}
	// A linked work tree keeps its configuration and hooks elsewhere.
	if common, err := os.ReadFile(filepath.Join(gitDir, "commondir")); err == nil {
		dir := strings.TrimSpace(string(common))
		if !filepath.IsAbs(dir) {
			dir = filepath.Join(gitDir, dir)
		}
		dirs = append(dirs, dir)
	}
	for _, dir := range dirs {
		for _, name := range []string{"HEAD", "config", "hooks", "info"} {
			if err := s.walk(ctx, filepath.Join(dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
	}
	return nil
}

// nested adds the state of a submodule or of a nested repository.
func (s state) nested(ctx context.Context, dir string) error {
	g := git{ctx: ctx, dir: dir}
	where, err := g.run("rev-parse", "--absolute-git-dir", "--show-prefix")
	gitDir, prefix, _ := strings.Cut(string(where), "\n")
	if err != nil || strings.TrimSpace(prefix) != "" { // not a repository, or an empty submodule
		return s.walk(ctx, dir)
	}
	return s.repository(ctx, dir, strings.TrimRight(gitDir, "\r"))
}

func describe(info fs.FileInfo, err error) fileState {
	if err != nil {
		return fileState{problem: "gone"}
	}
	s := fileState{mode: info.Mode(), size: info.Size(), modified: info.ModTime().UnixNano()}
	s.changed, s.id = sys.Stamp(info)
	return s
}

// inRepository reports whether dir or a directory above it has a .git.
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

// A git runs git commands in a repository that is not trusted.
type git struct {
	ctx context.Context
	dir string
}

func (g *git) run(args ...string) ([]byte, error) {
	args = append([]string{
		"-c", "core.fsmonitor=false", "-c", "core.hooksPath=" + os.DevNull, "-c", "core.pager=cat",
		"-c", "core.untrackedCache=false", "-c", "submodule.recurse=false",
	}, args...)
	cmd := exec.CommandContext(g.ctx, "git", args...)
	cmd.Dir = g.dir
	cmd.WaitDelay = time.Second
	for _, kv := range os.Environ() {
		if !strings.HasPrefix(kv, "GIT_") {
			cmd.Env = append(cmd.Env, kv)
		}
	}
	// Do not fetch objects: the repository could name a command for that.
	cmd.Env = append(cmd.Env, "GIT_OPTIONAL_LOCKS=0", "GIT_TERMINAL_PROMPT=0", "GIT_NO_LAZY_FETCH=1",
		"GIT_ALLOW_PROTOCOL=none", "LC_ALL=C")
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

// maxWalk limits the number of files in a directory outside of git.
const maxWalk = 200_000

// walk adds the state of all files below a directory outside of git.
func (s state) walk(ctx context.Context, dir string) error {
	n := 0
	return filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			if path == dir {
				return err
			}
			s.files[path] = fileState{problem: "unreadable"}
			return nil
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if n++; n > maxWalk {
			return fmt.Errorf("there are more than %d files: make it a git repository", maxWalk)
		}
		if !d.IsDir() {
			s.files[path] = describe(d.Info())
		}
		return nil
	})
}
