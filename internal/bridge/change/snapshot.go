package change

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"pollux/internal/git"
	"pollux/internal/sys/disk"
)

// A tree is the set of files that change mode watches: the files below a
// directory that git does not ignore. In a repository, it is the entire
// repository with nested ones, and the files that git itself runs or reads.
type tree struct {
	dir string
	// top and gitDir are the directories of the repository. They are empty if
	// the files do not come from git.
	top, gitDir string
	// prefix is the path of the directory relative to the top of its repository,
	// with a final slash. It is empty at the top and outside of a repository.
	prefix string
	seed   maphash.Seed
}

// A state is a hash of the names, kinds, sizes, times and identities of all files in a
// tree, in any order. Only hashes with the same seed can be compared.
type state struct {
	sum   uint64
	files int64
}

const (
	// snapshotTimeout limits a snapshot.
	snapshotTimeout = time.Minute
	// scanWorkers is how many goroutines list files or look at them. They mostly
	// wait for the file system, so the number does not depend on the processors.
	scanWorkers = 4
	// batchSize is how many files a goroutine looks at before it is free for others.
	batchSize = 1000
	// maxWalk limits the number of files in a directory outside of git.
	maxWalk = 200_000
)

// openTree returns the tree for a directory. It does not trust the repository:
// no command in the configuration runs. git only lists the files. It does not
// compare them, because that could run the repository's filters.
func openTree(ctx context.Context, dir string) (tree, error) {
	ctx, cancel := context.WithTimeout(ctx, snapshotTimeout)
	defer cancel()
	t := tree{dir: dir, seed: maphash.MakeSeed()}
	if _, err := exec.LookPath("git"); err != nil {
		return t, nil
	}
	g := git.Repository{Context: ctx, Dir: dir}
	where, err := g.Output("rev-parse", "--is-inside-work-tree", "--show-toplevel", "--absolute-git-dir", "--show-prefix")
	lines := strings.Split(where, "\n")
	switch inside := strings.TrimSpace(lines[0]); {
	case err != nil && inside != "false" && inRepository(dir):
		return t, fmt.Errorf("git cannot read this repository: %w", err)
	case err != nil || inside != "true":
		return t, nil
	case len(lines) < 4:
		return t, errors.New("git does not report where its files are")
	}
	top, gitDir := strings.TrimRight(lines[1], "\r"), strings.TrimRight(lines[2], "\r")
	t.prefix = strings.TrimRight(lines[3], "\r")
	if t.prefix != "" {
		if _, err := g.Output("check-ignore", "-q", "--", dir); err == nil {
			return t, nil
		}
	}
	t.top, t.gitDir = top, gitDir
	return t, nil
}

// snapshot returns the state of a tree.
func (t tree) snapshot(ctx context.Context) (state, error) {
	ctx, cancel := context.WithTimeout(ctx, snapshotTimeout)
	defer cancel()
	s := &scan{seed: t.seed}
	s.group, s.ctx = errgroup.WithContext(ctx)
	s.group.SetLimit(scanWorkers)
	s.group.Go(func() error {
		if t.top != "" {
			return s.repository(t.top, t.gitDir)
		}
		return s.walk(t.dir, "")
	})
	err := s.group.Wait()
	return state{s.sum.Load(), s.files.Load()}, err
}

// A scan adds up the state of a tree. Its goroutines look at batches of files.
type scan struct {
	ctx    context.Context
	group  *errgroup.Group
	seed   maphash.Seed
	sum    atomic.Uint64
	files  atomic.Int64
	walked atomic.Int64 // files outside of git, with directories
}

// An entry is one file of a tree.
type entry struct {
	dir, name string
	state     disk.FileState
	problem   string // why the state is unknown: "gone" or "unreadable"
}

// list adds the files below dir with these names, which are in order.
func (s *scan) list(dir string, names []string) error {
	names = slices.Compact(names) // git lists a file with conflicts several times
	for batch := range slices.Chunk(names, batchSize) {
		add := func() error { return s.add(dir, batch) }
		if s.group.TryGo(add) {
			continue
		}
		if err := add(); err != nil { // enough goroutines are running
			return err
		}
	}
	return nil
}

// repository adds the files of a repository's work tree that git does not
// ignore, and the files that git reads or runs.
func (s *scan) repository(top, gitDir string) error {
	g := git.Repository{Context: s.ctx, Dir: top}
	out, err := g.Output("ls-files", "-z", "--cached", "--others", "--exclude-standard")
	if err != nil {
		return err
	}
	if err := s.list(top, strings.FieldsFunc(out, func(r rune) bool { return r == 0 })); err != nil {
		return err
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
			if err := s.walk(dir, name); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
	}
	return nil
}

// nested adds a submodule or a nested repository.
func (s *scan) nested(dir string) error {
	g := git.Repository{Context: s.ctx, Dir: dir}
	where, err := g.Output("rev-parse", "--absolute-git-dir", "--show-prefix")
	gitDir, prefix, _ := strings.Cut(where, "\n")
	if err != nil || strings.TrimSpace(prefix) != "" { // not a repository, or an empty submodule
		return s.walk(dir, "")
	}
	return s.repository(dir, strings.TrimRight(gitDir, "\r"))
}

// walk adds all files below a directory outside of git, or one file. name is its
// path below base, or empty.
func (s *scan) walk(base, name string) error {
	root := filepath.Join(base, name)
	var names []string
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil && path == root:
			return err
		case err != nil:
			s.count(entry{dir: path, problem: "unreadable"})
		case s.ctx.Err() != nil:
			return context.Cause(s.ctx)
		case s.walked.Add(1) > maxWalk:
			return fmt.Errorf("there are more than %d files: make it a git repository", maxWalk)
		case !d.IsDir():
			names = append(names, strings.TrimPrefix(path[len(base):], string(filepath.Separator)))
		}
		return nil
	})
	if err != nil {
		return err
	}
	return s.list(base, names)
}

// add adds the files below dir with these names.
func (s *scan) add(dir string, names []string) error {
	d, err := disk.OpenDir(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	for _, name := range names {
		st, err := d.Lstat(name)
		switch {
		case err != nil:
			s.count(entry{dir: dir, name: name, problem: "gone"})
		case st.IsDir:
			if err := s.nested(filepath.Join(dir, filepath.FromSlash(name))); err != nil {
				return err
			}
		default:
			s.count(entry{dir: dir, name: name, state: st})
		}
	}
	return context.Cause(s.ctx)
}

func (s *scan) count(e entry) {
	s.sum.Add(maphash.Comparable(s.seed, e))
	s.files.Add(1)
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
