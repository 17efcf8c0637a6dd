package companion

import (
	"bytes"
	"context"
	"errors"
	"path/filepath"
	"strings"
	"time"

	"pollux/internal/git"
)

const (
	// gitTimeout limits one question to git.
	gitTimeout = 10 * time.Second
	// maxGitOutput limits git's answer in bytes. The changes of a workspace with more
	// changed files are not looked at.
	maxGitOutput = 1 << 20
)

// A gitRoot is a root of the workspace as git knows it.
type gitRoot struct {
	next    time.Time       // of the next question
	off     bool            // git cannot answer
	known   map[string]bool // the changed files
	filters []string        // options that turn off the filters of the repository
}

// askGit asks git which files in a root have changed, if the time has come or the question is
// urgent. The files in the first answer had changed before, so their present state is the
// earlier one. For files in later answers, the earlier state is git's.
func (o *outside) askGit(ctx context.Context, root string, urgent bool) {
	g, first := o.git[root], false
	if g == nil {
		g, first = &gitRoot{known: make(map[string]bool)}, true
		o.git[root] = g
	}
	start := time.Now()
	if g.off || start.Before(g.next) && !urgent {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, gitTimeout)
	defer cancel()
	repository := git.Repository{Context: ctx, Dir: root}
	if first {
		names, err := repository.Output("config", "--null", "--name-only", "--get-regexp", `^filter\..*\.(clean|process|required)$`)
		if err != nil && names != "" {
			g.off = true
			return
		}
		for name := range strings.SplitSeq(names, "\x00") {
			switch {
			case strings.HasSuffix(name, ".required"):
				g.filters = append(g.filters, "-c", name+"=false")
			case name != "":
				g.filters = append(g.filters, "-c", name+"=")
			}
		}
	}
	changed, err := g.changed(repository)
	if err != nil {
		g.off = true
		return
	}
	took := time.Since(start)
	g.next = time.Now().Add(max(gitInterval, gitShare*took))
	roots := o.c.Roots()
	for name, untracked := range changed {
		path := filepath.Join(root, filepath.FromSlash(name))
		if g.known[path] {
			continue
		}
		g.known[path] = true
		o.mu.Lock()
		_, known := o.files[path]
		o.mu.Unlock()
		if known {
			continue
		}
		if first {
			o.learn(path, roots)
		} else if o.concerns(path, roots) {
			f := g.earlier(repository, name, untracked)
			o.mu.Lock()
			o.setLocked(path, f)
			o.mu.Unlock()
		}
	}
}

// changed returns the files that differ from the index, and with the value true those that
// git does not have and does not ignore. It starts no filter, and compares no contents.
func (g *gitRoot) changed(repository git.Repository) (map[string]bool, error) {
	files := make(map[string]bool)
	for _, list := range []struct {
		untracked bool
		args      []string
	}{
		{false, []string{"diff-files", "--name-only", "--relative", "--ignore-submodules=all", "-z"}},
		{true, []string{"ls-files", "--others", "--exclude-standard", "-z"}},
	} {
		out := limited{left: maxGitOutput}
		if err := repository.Run(&out, append(g.filters, list.args...)...); err != nil {
			return nil, err
		}
		for name := range bytes.SplitSeq(out.Bytes(), []byte{0}) {
			if len(name) > 0 && name[len(name)-1] != '/' { // a nested repository
				files[string(name)] = list.untracked
			}
		}
	}
	return files, nil
}

// earlier returns a file as git has it.
func (g *gitRoot) earlier(repository git.Repository, name string, untracked bool) *outsideFile {
	if untracked {
		return &outsideFile{version: absent, seen: unseen, last: unseen}
	}
	f := &outsideFile{exists: true, git: true, seen: unseen, last: unseen}
	out := limited{left: maxOutsideFile}
	if err := repository.Run(&out, "cat-file", "blob", ":./"+name); err != nil {
		f.why = "git does not show its earlier text: " + err.Error()
		return f
	}
	if !isText(out.String()) {
		f.why = "it is not UTF-8 text"
		return f
	}
	f.text, f.version = out.String(), versionOf(out.Bytes())
	return f
}

// A limited is a buffer that fails when it would hold too much.
type limited struct {
	bytes.Buffer
	left int
}

func (l *limited) Write(data []byte) (int, error) {
	if l.left -= len(data); l.left < 0 {
		return 0, errors.New("too much output")
	}
	return l.Buffer.Write(data)
}
