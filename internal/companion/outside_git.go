package companion

import (
	"bytes"
	"context"
	"errors"
	"path"
	"path/filepath"
	"slices"
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
	asked   time.Time       // when the last question began
	next    time.Time       // of the next question
	off     bool            // git cannot answer
	known   map[string]bool // the changed files; nil before the first answer
	filters []string        // options that turn off the filters of the repository
}

// askGit asks git which files in the roots have changed, if the time has come.
func (o *outside) askGit() {
	if !o.asking.TryLock() {
		return
	}
	defer o.asking.Unlock()
	for _, root := range o.c.Roots() {
		o.mu.Lock()
		g := o.git[root]
		if g == nil {
			g = &gitRoot{}
			o.git[root] = g
		}
		o.mu.Unlock()
		if !g.off && !time.Now().Before(g.next) {
			o.ask(root, g)
		}
	}
}

// ask asks git which files in a root have changed. The files in the first answer had changed
// before, so their present state is the earlier one. For files in later answers, the earlier state
// is git's, also if the user has opened the file in the meantime: an agent may have created it.
func (o *outside) ask(root string, g *gitRoot) {
	ctx, cancel := context.WithTimeout(o.c.sending, gitTimeout)
	defer cancel()
	repository := git.Repository{Context: ctx, Dir: root}
	before, first := g.asked, g.known == nil
	g.asked = time.Now()
	if first {
		g.known = make(map[string]bool)
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
	g.next = time.Now().Add(max(gitInterval, gitShare*time.Since(g.asked)))
	roots := o.c.Roots()
	for name, untracked := range changed {
		path := filepath.Join(root, filepath.FromSlash(name))
		if g.known[path] {
			continue
		}
		g.known[path] = true
		o.mu.Lock()
		known := o.files[path]
		o.mu.Unlock()
		if known != nil && (first || !known.opened.After(before)) {
			continue
		}
		f := &outsideFile{learn: true}
		if !first {
			if !o.concerns(path, roots) {
				continue
			}
			f = g.earlier(repository, name, untracked)
		}
		o.mu.Lock()
		if o.git[root] == g && o.files[path] == known {
			o.setLocked(path, f)
		}
		o.mu.Unlock()
	}
	o.c.watch.wake.Set()
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
			if len(name) == 0 || name[len(name)-1] == '/' { // a nested repository
				continue
			}
			if list.untracked && temporary(string(name)) {
				continue
			}
			files[string(name)] = list.untracked
		}
	}
	return files, nil
}

// temporaryNames are patterns for the names of files that editors write next to an edited file:
// swap files, locks, backups and automatically saved copies.
var temporaryNames = []string{
	".*.sw[a-p]", ".sw[a-p]", "4913", // Vim
	".#*", "#*#", // Emacs
	".*.kak.??????", // Kakoune
	"*~",            // several
}

// temporary reports whether the name of a file, with slashes, is that of a temporary file.
func temporary(name string) bool {
	base := path.Base(name)
	return slices.ContainsFunc(temporaryNames, func(pattern string) bool {
		matches, _ := path.Match(pattern, base)
		return matches
	})
}

// earlier returns a file as git has it.
func (g *gitRoot) earlier(repository git.Repository, name string, untracked bool) *outsideFile {
	if untracked {
		return &outsideFile{version: absent, seen: unseen}
	}
	f := &outsideFile{exists: true, git: true, seen: unseen}
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
