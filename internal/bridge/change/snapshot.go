package change

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
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

// A state is a hash of the names, kinds, sizes, times and identities of the
// files of a tree, in any order. Only hashes with the same seed can be compared.
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
	// batchSize is how many bytes of names a goroutine takes at least.
	batchSize = 32 << 10
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
	problem   string // why there is no state: "gone" or "unreadable"
}

// list adds the files below dir whose names produce writes, each followed by a
// zero byte.
func (s *scan) list(dir string, produce func(io.Writer) error) error {
	names := &batches{use: func(names []byte) error {
		add := func() error { return s.add(dir, names) }
		if s.group.TryGo(add) {
			return nil
		}
		return add() // enough goroutines are running
	}}
	if err := produce(names); err != nil {
		return err
	}
	return names.flush()
}

// repository adds the files of a repository's work tree that git does not
// ignore, and the files that git reads or runs.
func (s *scan) repository(top, gitDir string) error {
	g := git.Repository{Context: s.ctx, Dir: top}
	err := s.list(top, func(names io.Writer) error {
		return g.Run(names, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	})
	if err != nil {
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
	return s.list(base, func(names io.Writer) error {
		return filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			switch {
			case err != nil && path == root:
				return err
			case err != nil:
				s.count(entry{dir: path, problem: "unreadable"})
				return nil
			case s.ctx.Err() != nil:
				return context.Cause(s.ctx)
			case s.walked.Add(1) > maxWalk:
				return fmt.Errorf("there are more than %d files: make it a git repository", maxWalk)
			case d.IsDir():
				return nil
			}
			below := strings.TrimPrefix(path[len(base):], string(filepath.Separator))
			_, err = io.WriteString(names, below+"\x00")
			return err
		})
	})
}

// add adds the files below dir with these names, each followed by a zero byte.
func (s *scan) add(dir string, names []byte) error {
	d, err := disk.OpenDir(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	last := ""
	for all := range bytes.SplitSeq(names[:len(names)-1], []byte{0}) {
		name := string(all)
		if name == last { // git lists a file with conflicts several times
			continue
		}
		last = name
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

// A batches divides names, each followed by a zero byte, into batches for use. Equal
// names in a row are in one batch.
type batches struct {
	use  func(names []byte) error
	rest []byte
}

func (b *batches) Write(p []byte) (int, error) {
	b.rest = append(b.rest, p...)
	if len(b.rest) < batchSize {
		return len(p), nil
	}
	end := lastName(b.rest[:bytes.LastIndexByte(b.rest, 0)+1])
	if end == 0 {
		return len(p), nil
	}
	batch := b.rest[:end]
	b.rest = bytes.Clone(b.rest[end:])
	return len(p), b.use(batch)
}

// lastName returns where the last name begins, or the first of those equal to it.
func lastName(names []byte) int {
	start := bytes.LastIndexByte(names[:max(len(names)-1, 0)], 0) + 1
	name := names[start:]
	for start > 0 && bytes.HasSuffix(names[:start], name) && (start == len(name) || names[start-len(name)-1] == 0) {
		start -= len(name)
	}
	return start
}

// flush uses the last names.
func (b *batches) flush() error {
	if len(b.rest) == 0 {
		return nil
	}
	return b.use(b.rest)
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
