package change

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"pollux/internal/bridge/change/changetest"
	"pollux/internal/sys/systest"
)

// unescape is for an agent that writes a backslash before each @ of a prompt.
func unescape(text string) string { return strings.ReplaceAll(text, `\@`, "@") }

// TestChanges applies the diff of each answer with git and checks the file.
func TestChanges(t *testing.T) {
	files := map[string]string{
		"a.txt": "one\ntwo\nthree\ntwo\n", "crlf.txt": "one\r\ntwo\r\nthree\r\n", "open.txt": "one\ntwo",
		"doc.md": "# Title\n\nSome words, and more.\n\n```sh\nls\n```\n", "at.py": "@a\ndef f(): pass\n", "blank.txt": "a\n\nb\n",
		"list.pl": "f(@l);\n", "mixed.txt": "one\ntwo\r\nthree\r\nfour\n", "void.txt": "",
		"mark.txt": "\ufeffone\ntwo\n",
	}
	for _, test := range []struct {
		name, answer string
		file, want   string // after the diff
		response     string
		words        []string // of the error
	}{
		{name: "range", answer: changetest.Block("a.txt:2-3", "two\nthree", "2\n3\n3b"), file: "a.txt", want: "one\n2\n3\n3b\ntwo\n"},
		{name: "one line's range", answer: changetest.Block("a.txt:2", "two", "2"), file: "a.txt", want: "one\n2\nthree\ntwo\n"},
		{name: "bare", answer: changetest.Block("a.txt", "three", "3"), file: "a.txt", want: "one\ntwo\n3\ntwo\n"},
		{name: "words around", answer: "I do it.\n\n" + changetest.Block("a.txt:1-1", "one", "1") + "\nAll done!", file: "a.txt", want: "1\ntwo\nthree\ntwo\n", response: "I do it.\n\n\nAll done!"},
		{name: "two blocks", answer: changetest.Block("a.txt:4-4", "two", "4") + changetest.Block("a.txt:1-1", "one", "1"), file: "a.txt", want: "1\ntwo\nthree\n4\n"},
		{name: "deletion", answer: "**FILE: a.txt:2-3**\n===OLD===\ntwo\nthree\n===NEW===\n===END===", file: "a.txt", want: "one\ntwo\n"},
		{name: "an empty line", answer: changetest.Block("a.txt:2-2", "two", ""), file: "a.txt", want: "one\n\nthree\ntwo\n"},
		{name: "in place of an empty line", answer: "**FILE: blank.txt:2-2**\n===OLD===\n===NEW===\nx\n===END===", file: "blank.txt", want: "a\nx\nb\n"},
		{name: "CRLF", answer: changetest.Block("crlf.txt:2-2", "two", "2\n2b"), file: "crlf.txt", want: "one\r\n2\r\n2b\r\nthree\r\n"},
		{name: "CRLF in the answer", answer: strings.ReplaceAll(changetest.Block("a.txt:1-1", "one", "1"), "\n", "\r\n"), file: "a.txt", want: "1\ntwo\nthree\ntwo\n"},
		{name: "no final line ending", answer: changetest.Block("open.txt:2-2", "two", "2"), file: "open.txt", want: "one\n2"},
		{name: "new file", answer: "**NEW FILE: sub/new.txt**\n===NEW===\nhello\n\nyou\n\n\n===END===", file: "sub/new.txt", want: "hello\n\nyou\n\n"},
		{name: "new empty file", answer: "**NEW FILE: empty.txt**\n===NEW===\n===END===", file: "empty.txt", want: ""},
		// The agent puts a backslash before each @ of a prompt. The model may
		// quote it.
		{name: "escaped, quoted", answer: changetest.Block("at.py:1-1", `\@a`, `\@b`), file: "at.py", want: "@b\ndef f(): pass\n"},
		{name: "escaped, in the new text only", answer: changetest.Block("at.py:2-2", "def f(): pass", "\\@c\ndef f(): pass"), file: "at.py", want: "@a\n@c\ndef f(): pass\n"},
		{name: "escaped, a new file", answer: "**NEW FILE: x.py**\n===NEW===\n\\@c\n===END===", file: "x.py", want: "@c\n"},
		{name: "escaped, told apart", answer: changetest.Block("list.pl:1-1", "f(@l);", `f(\@l);`), file: "list.pl", want: "f(\\@l);\n"},
		{name: "escaped, not to be told apart", answer: "**NEW FILE: x.pl**\n===NEW===\nf(\\@l);\n===END===", words: []string{"may mean @ or be meant literally", "ask again without @"}},
		{name: "not sent", answer: changetest.Block("at.py:2-2", "def f(): pass", `x = "\@"`), file: "at.py", want: "@a\nx = \"\\@\"\n"},
		{name: "mixed line endings", answer: changetest.Block("mixed.txt:1-1", "one", "1\n1b") + changetest.Block("mixed.txt:3-3", "three", "3\n3b"), file: "mixed.txt", want: "1\n1b\ntwo\r\n3\r\n3b\r\nfour\n"},
		{name: "a byte order mark", answer: changetest.Block("mark.txt:1-1", "one", "1"), file: "mark.txt", want: "\ufeff1\ntwo\n"},
		{name: "a byte order mark, bare", answer: changetest.Block("mark.txt", "one", "1"), file: "mark.txt", want: "\ufeff1\ntwo\n"},
		{name: "a byte order mark in the answer", answer: changetest.Block("mark.txt:1-1", "\ufeffone", "1"), file: "mark.txt", want: "\ufeff1\ntwo\n"},
		{name: "a byte order mark before", answer: changetest.Block("mark.txt:2-2", "two", "2"), file: "mark.txt", want: "\ufeffone\n2\n"},
		{name: "an empty file", answer: "**FILE: void.txt**\n===OLD===\n===NEW===\nx\ny\n===END===", file: "void.txt", want: "x\ny\n"},
		{name: "an empty file's first line", answer: "**FILE: void.txt:1-1**\n===OLD===\n\n===NEW===\nx\n===END===", file: "void.txt", want: "x\n"},
		{name: "a code block before", answer: "Like so:\n```\nx\n```\n" + changetest.Block("a.txt:1-1", "one", "1"), file: "a.txt", want: "1\ntwo\nthree\ntwo\n", response: "Like so:\n```\nx\n```"},

		// Fences and prose are not code, with or without an end marker.
		{name: "fenced, with an end", answer: "```\n" + changetest.Block("a.txt:1-1", "one", "1") + "```\nHope this helps!", file: "a.txt", want: "1\ntwo\nthree\ntwo\n", response: "Hope this helps!"},
		{name: "fenced, without an end", answer: "```text\n**FILE: a.txt:1-1**\n===OLD===\none\n===NEW===\n1\n```\nHope this helps!", file: "a.txt", want: "1\ntwo\nthree\ntwo\n", response: "Hope this helps!"},
		{name: "fence inside", answer: "**FILE: a.txt:1-1**\n```\n===OLD===\none\n===NEW===\n1\n```\n", file: "a.txt", want: "1\ntwo\nthree\ntwo\n"},
		{name: "trailing fence", answer: "**FILE: a.txt:1-1**\n===OLD===\none\n===NEW===\n1\n```\n\nBye.", file: "a.txt", want: "1\ntwo\nthree\ntwo\n", response: "Bye."},
		{name: "chatter without an end", answer: "**FILE: a.txt:1-1**\n===OLD===\none\n===NEW===\n1\n\nLet me know if you need anything else!", file: "a.txt", want: "1\ntwo\nthree\ntwo\n", response: "Let me know if you need anything else!"},
		{name: "without an end", answer: "**FILE: a.txt:1-1**\n===OLD===\none\n===NEW===\n1\n\n1b\n", file: "a.txt", want: "1\n\n1b\ntwo\nthree\ntwo\n"},
		{name: "without an end, before another", answer: "**FILE: a.txt:1-1**\n===OLD===\none\n===NEW===\n1\n\n**FILE: a.txt:3-3**\n===OLD===\nthree\n===NEW===\n3\n", file: "a.txt", want: "1\ntwo\n3\ntwo\n"},
		{name: "a fence of the file's", answer: changetest.Block("doc.md:5-7", "```sh\nls\n```", "```sh\npwd\n```"), file: "doc.md", want: "# Title\n\nSome words, and more.\n\n```sh\npwd\n```\n"},

		// An ambiguous block is refused.
		{name: "ambiguous", answer: changetest.Block("a.txt", "two", "2"), words: []string{"a.txt", "2 times", "no line numbers"}},
		{name: "not there", answer: changetest.Block("a.txt", "four", "4"), words: []string{"does not contain"}},
		{name: "other lines", answer: changetest.Block("a.txt:1-1", "two", "2"), words: []string{"lines 1 to 1 of a.txt differ"}},
		{name: "other indentation", answer: changetest.Block("a.txt:1-1", " one", "1"), words: []string{"differ from the OLD part"}},
		{name: "empty OLD beyond the file", answer: "**FILE: a.txt:9-9**\n===OLD===\n===NEW===\nx\n===END===", words: []string{"has 4 lines", "9 to 9"}},
		{name: "empty OLD without a range", answer: "**FILE: a.txt**\n===OLD===\n===NEW===\nx\n===END===", words: []string{"neither line numbers nor"}},
		{name: "backward range", answer: changetest.Block("a.txt:3-2", "two", "2"), words: []string{"3 to 2"}},
		{name: "overlap", answer: changetest.Block("a.txt:1-2", "one\ntwo", "x") + changetest.Block("a.txt:2-3", "two\nthree", "y"), words: []string{"two blocks change line 2"}},
		{name: "new file that exists", answer: "**NEW FILE: a.txt**\n===NEW===\nx\n===END===", words: []string{"a.txt is not a new file: it exists"}},
		{name: "new file without an end", answer: "**NEW FILE: b.txt**\n===NEW===\nx\n\nSo be it.", words: []string{"must end with ===END==="}},
		{name: "new file twice", answer: strings.Repeat("**NEW FILE: b.txt**\n===NEW===\nx\n===END===\n", 2), words: []string{"both created and changed"}},
		{name: "no such file", answer: changetest.Block("none.txt:1-1", "x", "y"), words: []string{"there is no file none.txt"}},
		{name: "outside", answer: changetest.Block("../x.txt:1-1", "x", "y"), words: []string{"../x.txt"}},
		{name: "new file outside", answer: "**NEW FILE: ../../x.txt**\n===NEW===\nx\n===END===", words: []string{"outside"}},
		{name: "git's own", answer: "**NEW FILE: .git/hooks/pre-commit**\n===NEW===\nx\n===END===", words: []string{"belongs to git"}},
		{name: "no OLD", answer: "**FILE: a.txt:1-1**\n===NEW===\nx\n===END===", words: []string{"the block of a.txt", "===OLD=== is missing"}},
		{name: "no NEW", answer: "**FILE: a.txt:1-1**\n===OLD===\none\n===END===", words: []string{"has no ===NEW==="}},
		{name: "cut", answer: "**FILE: a.txt:1-1**\n===OLD===\none\n", words: []string{"===NEW=== is missing"}},
		{name: "stray row", answer: "===NEW===\nx", words: []string{"outside a block"}},
		{name: "prose in prose without an end", answer: "**FILE: doc.md:3-3**\n===OLD===\nSome words, and more.\n===NEW===\nSome other words.\n\nI changed the words.", words: []string{"not clear where its text ends"}},
		{name: "paragraphs without an end", answer: "**FILE: a.txt:1-1**\n===OLD===\none\n===NEW===\nSome text\n\nThis is the second paragraph.", words: []string{"not clear where its text ends"}},
		{name: "one ended, one not", answer: "**FILE: a.txt:1-1**\n===OLD===\none\n===NEW===\nQuote:\n" + changetest.Block("a.txt:3-3", "three", "pwned"), words: []string{"===END=== is missing"}},
		{name: "a tab in a name", answer: "**NEW FILE: a\tb.txt**\n===NEW===\nx\n===END===", words: []string{"cannot be written in a diff"}},
		{name: "a fence for a fence", answer: "**FILE: doc.md:5-5**\n===OLD===\n```sh\n===NEW===\n```\n", words: []string{"not clear where its text ends"}},
		{name: "a fence within a fence", answer: "```\n**FILE: a.txt:1-1**\n===OLD===\none\n===NEW===\nRun:\n```\nmake\n```\nMore.\n```\n", words: []string{"not clear where its text ends"}},
		{name: "an open fence", answer: "```\n**FILE: a.txt:1-1**\n===OLD===\none\n===NEW===\n1\n\nHope this helps!", words: []string{"fence is not closed"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := changetest.Project(t, false, files)
			var undo func(string) string
			if strings.Contains(test.name, "escaped") {
				undo = unescape
			}
			c, err := parse(dir, "", test.answer, undo)
			if test.words != nil {
				systest.WantError(t, err, test.words...)
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if c.Response != test.response {
				t.Errorf("response %q", c.Response)
			}
			patch := filepath.Join(t.TempDir(), "patch")
			systest.WriteFile(t, patch, c.Diff)
			changetest.Git(t, dir, "apply", patch)
			got, err := os.ReadFile(filepath.Join(dir, test.file))
			if err != nil || string(got) != test.want {
				t.Errorf("%s is %q, %v; want %q\n%s", test.file, got, err, test.want, c.Diff)
			}
		})
	}
}

// Git for Windows converts line endings by default. A file has CRLF on disk and LF in the
// repository. The diff applies, the file keeps its CRLF, and git shows no other change.
func TestAutocrlf(t *testing.T) {
	files := map[string]string{
		"crlf.txt": "one\r\ntwo\r\nthree\r\n", "lf.txt": "one\ntwo\nthree\n", "mixed.txt": "one\ntwo\r\nthree\n", "open.txt": "one\r\ntwo",
	}
	dir := changetest.Project(t, false, files)
	changetest.Git(t, dir, "init", "-q")
	changetest.Git(t, dir, "config", "core.autocrlf", "true")
	changetest.Git(t, dir, "add", "-A")
	changetest.Git(t, dir, "-c", "user.name=x", "-c", "user.email=x@example.org", "commit", "-qm", "x")
	// git reads each file once more, to learn that it is as it was committed.
	now := time.Now().Add(time.Hour)
	for name := range files {
		systest.SetTime(t, filepath.Join(dir, name), now)
	}
	index := systest.ReadFile(t, filepath.Join(dir, ".git", "index"))
	written := func(t *testing.T, task *Task) (Set, error) {
		files := task.Files()
		for name, text := range map[string]string{
			"crlf.txt": "one\n2\nthree\n", "lf.txt": "one\n2\nthree\n", "mixed.txt": "one\n2\nthree\n", "open.txt": "one\n2",
			"new.txt": "x\ny\n",
		} {
			if err := files.Write(filepath.Join(dir, name), text); err != nil {
				t.Fatal(err)
			}
		}
		return task.Written()
	}
	parsed := func(_ *testing.T, task *Task) (Set, error) {
		answer := "**NEW FILE: new.txt**\n===NEW===\nx\ny\n===END===\n"
		for name := range files {
			answer += changetest.Block(name+":2-2", "two", "2")
		}
		return task.Parse(answer, nil)
	}
	for name, edits := range map[string]func(*testing.T, *Task) (Set, error){"written": written, "parsed": parsed} {
		t.Run(name, func(t *testing.T) {
			task, err := Begin(t.Context(), dir)
			if err != nil {
				t.Fatal(err)
			}
			set, err := edits(t, task)
			if err != nil {
				t.Fatal(err)
			}
			if err := task.Verify(t.Context()); err != nil {
				t.Error(err)
			}
			for name, want := range files {
				systest.WantFile(t, filepath.Join(dir, name), want)
			}
			systest.WantFile(t, filepath.Join(dir, ".git", "index"), index)
			work := filepath.Join(t.TempDir(), "work")
			if err := os.CopyFS(work, os.DirFS(dir)); err != nil {
				t.Fatal(err)
			}
			patch := filepath.Join(t.TempDir(), "patch")
			systest.WriteFile(t, patch, set.Diff)
			changetest.Git(t, work, "apply", patch)
			for name, want := range map[string]string{
				"crlf.txt": "one\r\n2\r\nthree\r\n", "lf.txt": "one\r\n2\r\nthree\r\n", "open.txt": "one\r\n2", "new.txt": "x\r\ny\r\n",
			} {
				if got, err := os.ReadFile(filepath.Join(work, name)); err != nil || string(got) != want {
					t.Errorf("%s is %q, %v; want %q, by\n%s", name, got, err, want, set.Diff)
				}
			}
			changes := changetest.Git(t, work, "-c", "core.safecrlf=false", "diff", "--numstat")
			for name := range files {
				want := "1\t1\t" + name + "\n"
				if !strings.Contains(changes, want) {
					t.Errorf("no %q in the changes:\n%s", want, changes)
				}
			}
		})
	}
}

func openTest(t *testing.T, dir string) tree {
	t.Helper()
	tr, err := openTree(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	return tr
}

func stateOf(t *testing.T, tr tree) state {
	t.Helper()
	s, err := tr.snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// envMark is the file that the test program creates instead of running tests.
const envMark = "POLLUX_TEST_MARK"

func TestMain(m *testing.M) {
	if mark := os.Getenv(envMark); mark != "" {
		if os.WriteFile(mark, nil, 0o600) != nil {
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// No command in a repository's configuration runs.
func TestRepositoryIsNotTrusted(t *testing.T) {
	dir := changetest.Project(t, true, map[string]string{"a.txt": "one\n", ".gitattributes": "*.txt filter=evil\n"})
	self := systest.Self(t)
	run := filepath.ToSlash(self)
	for _, c := range []string{
		"core.fsmonitor=" + run, "filter.evil.clean=" + run, "filter.evil.process=" + run, "filter.evil.required=true",
		"core.sshCommand=" + run, "extensions.partialClone=origin", "core.repositoryFormatVersion=1", "remote.origin.url=ext::" + run,
		"protocol.ext.allow=always", "core.hooksPath=" + filepath.Join(dir, "hooks"), "core.pager=" + run,
	} {
		name, value, _ := strings.Cut(c, "=")
		changetest.Git(t, dir, "config", name, value)
	}
	systest.WriteFile(t, filepath.Join(dir, "a.txt"), "two\n")
	mark := filepath.Join(t.TempDir(), "ran")
	t.Setenv(envMark, mark)
	stateOf(t, openTest(t, dir))
	if _, err := os.Stat(mark); err == nil {
		t.Fatal("a command from the repository ran")
	}
	// Without protection it would run:
	plain := exec.Command("git", "status") // it fails because of what it runs
	plain.Dir = dir
	plain.Run()
	if _, err := os.Stat(mark); err != nil {
		t.Error("plain git does not run it either, so the test proves nothing")
	}
}

// The prefix is also correct if git ignores the directory.
func TestDiffOfAnIgnoredDirectory(t *testing.T) {
	dir := changetest.Project(t, true, map[string]string{".gitignore": "build\n", "build/a.txt": "one\n"})
	tr := openTest(t, filepath.Join(dir, "build"))
	if s := stateOf(t, tr); tr.prefix != "build/" || s.files != 1 {
		t.Errorf("%+v, %+v", tr, s)
	}
}

// Files that git writes itself do not count as changes, not even in a nested
// repository.
func TestSnapshotIsNotDisturbedByGit(t *testing.T) {
	dir := changetest.Project(t, true, map[string]string{"a.txt": "one\n"})
	nested := filepath.Join(dir, "nested")
	systest.MakeDir(t, nested)
	changetest.Git(t, nested, "init", "-q")
	for name, text := range map[string]string{"f": "x", ".gitignore": "*.log\n"} {
		systest.WriteFile(t, filepath.Join(nested, name), text)
	}
	changetest.Git(t, nested, "add", "-A")
	tr := openTest(t, dir)
	before := stateOf(t, tr)
	for _, d := range []string{dir, nested} {
		if err := os.Chtimes(filepath.Join(d, ".git", "index"), time.Now(), time.Now()); err != nil {
			t.Fatal(err)
		}
		changetest.Git(t, d, "status")
	}
	systest.WriteFile(t, filepath.Join(nested, "x.log"), "")
	if stateOf(t, tr) != before {
		t.Error("taken for a write")
	}
}

// The edits distinguish a deletion from an empty line.
func TestDeletionIsMarked(t *testing.T) {
	dir := changetest.Project(t, false, map[string]string{"a.txt": "one\ntwo\n"})
	for text, want := range map[string]bool{"": true, "\n": false} {
		c, err := parse(dir, "", "**FILE: a.txt:1-1**\n===OLD===\none\n===NEW===\n"+text+"===END===", nil)
		if err != nil || c.Edits[0].Delete != want || c.Edits[0].New != "" {
			t.Errorf("%q: %+v, %v", text, c, err)
		}
	}
}

// addSubmodule does what "git submodule add" does. That is a shell script, which cannot run
// under Wine.
func addSubmodule(t *testing.T, dir, name string) {
	t.Helper()
	mod := filepath.Join(dir, name)
	gitDir := filepath.Join(dir, ".git", "modules", name)
	if err := errors.Join(os.Mkdir(mod, 0o755), os.MkdirAll(filepath.Dir(gitDir), 0o755)); err != nil {
		t.Fatal(err)
	}
	changetest.Git(t, mod, "init", "-q", "--separate-git-dir", gitDir)
	changetest.Git(t, mod, "config", "core.worktree", "../../../"+name)
	systest.WriteFile(t, filepath.Join(mod, "f"), "x")
	changetest.Git(t, mod, "add", "-A")
	changetest.Git(t, mod, "-c", "user.name=x", "-c", "user.email=x@example.org", "commit", "-qm", "x")
	changetest.Git(t, dir, "config", "-f", ".gitmodules", "submodule."+name+".path", name)
	changetest.Git(t, dir, "config", "-f", ".gitmodules", "submodule."+name+".url", mod)
	changetest.Git(t, dir, "add", ".gitmodules", name)
	if modes := changetest.Git(t, dir, "ls-files", "-s", name); !strings.HasPrefix(modes, "160000 ") {
		t.Fatalf("it is not a submodule: %s", modes)
	}
}

// longDir is a path that Git for Windows handles only with core.longPaths.
var longDir = strings.Repeat(strings.Repeat("d", 100)+"/", 3)

// A snapshot covers an entire repository, except files that git ignores.
func TestSnapshotSeesCorners(t *testing.T) {
	for name, test := range map[string]struct {
		prepare func(t *testing.T, dir string)
		file    string
	}{
		"submodule": {func(t *testing.T, dir string) {
			addSubmodule(t, dir, "mod")
		}, "mod/f"},
		"nested repository": {func(t *testing.T, dir string) {
			systest.MakeDir(t, filepath.Join(dir, "nested"))
			changetest.Git(t, filepath.Join(dir, "nested"), "init", "-q")
			systest.WriteFile(t, filepath.Join(dir, "nested", "f"), "")
		}, "nested/f"},
		"assumed unchanged":  {func(t *testing.T, dir string) { changetest.Git(t, dir, "update-index", "--assume-unchanged", "a.txt") }, "a.txt"},
		"outside the tree":   {func(t *testing.T, dir string) { changetest.Git(t, dir, "config", "core.worktree", t.TempDir()) }, "a.txt"},
		"ignored altogether": {func(t *testing.T, dir string) { os.WriteFile(filepath.Join(dir, ".gitignore"), []byte("*\n"), 0o644) }, "b.txt"},
		"a hook":             {func(*testing.T, string) {}, ".git/hooks/pre-commit"},
		"an empty submodule": {func(t *testing.T, dir string) {
			addSubmodule(t, dir, "mod")
			// What "git submodule deinit" leaves.
			mod := filepath.Join(dir, "mod")
			if err := errors.Join(os.RemoveAll(mod), os.Mkdir(mod, 0o755)); err != nil {
				t.Fatal(err)
			}
		}, "mod/f"},
		"a linked work tree's hook": {func(t *testing.T, dir string) {
			changetest.Git(t, dir, "worktree", "add", "-q", filepath.Join(dir, "linked"))
		}, "../.git/hooks/pre-commit"},
		"the configuration": {func(*testing.T, string) {}, ".git/config"},
		"a long path": {func(t *testing.T, dir string) {
			systest.MakeDir(t, filepath.Join(dir, longDir))
		}, longDir + "f"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := changetest.Project(t, true, map[string]string{"a.txt": "one\n", "ignored/x": ""})
			test.prepare(t, dir)
			work := dir
			if strings.HasPrefix(name, "a linked") {
				work = filepath.Join(dir, "linked")
			}
			if name == "ignored altogether" {
				work = filepath.Join(dir, "ignored")
				changetest.Git(t, dir, "rm", "-q", "--cached", "ignored/x")
			}
			tr := openTest(t, work)
			before := stateOf(t, tr)
			f, err := os.OpenFile(filepath.Join(work, test.file), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
			if err != nil {
				t.Fatal(err)
			}
			f.WriteString("\n")
			f.Close()
			if stateOf(t, tr) == before {
				t.Error("not seen")
			}
		})
	}
}

// Each kind of change is detected, in the first and the last batch of names, with git and
// without: also a second write to a file, of which the size and the times stay the same. A
// look changes nothing, and so does a file that git ignores.
func TestSnapshotSeesEachChange(t *testing.T) {
	files := map[string]string{".gitignore": "*.log\nignored/\n", "aaa.txt": "one\n", "zzz.txt": "one\n"}
	long := strings.Repeat("x", 200)
	const names = batchSize + 1
	links := systest.TryLink("aaa.txt", filepath.Join(t.TempDir(), "link")) == nil
	for i := range names {
		files[fmt.Sprintf("dir/%04d-%s", i, long)] = ""
	}
	for _, repository := range []bool{true, false} {
		dir := changetest.Project(t, repository, files)
		tr := openTest(t, dir)
		before := stateOf(t, tr)
		if again := stateOf(t, tr); again != before || before.files < names {
			t.Fatalf("repository %v: %+v, then %+v", repository, before, again)
		}
		in := func(name string) string { return filepath.Join(dir, name) }
		type step struct {
			name    string
			do      func() error
			ignored bool // by git
		}
		steps := []step{
			{"an empty directory", func() error { return os.MkdirAll(in("empty/deep"), 0o755) }, true},
			{"a file there", func() error { return os.WriteFile(in("empty/deep/new"), nil, 0o644) }, false},
			{"a move", func() error { return os.Rename(in("empty/deep/new"), in("empty/new")) }, false},
			{"a removal", func() error { return os.Remove(in("empty/new")) }, false},
			{"an ignored file", func() error { return os.WriteFile(in("x.log"), nil, 0o644) }, repository},
			{"an ignored directory", func() error {
				return errors.Join(os.Mkdir(in("ignored"), 0o755), os.WriteFile(in("ignored/x"), nil, 0o644))
			}, repository},
			{"other rules", func() error { return os.WriteFile(in(".gitignore"), []byte("*.log\n"), 0o644) }, false},
			{"a directory moved", func() error { return os.Rename(in("dir"), in("dir2")) }, false},
		}
		if links {
			steps = append(steps, step{"a link", func() error { return os.Symlink("aaa.txt", in("link")) }, false},
				step{"another target", func() error { return errors.Join(os.Remove(in("link")), os.Symlink("zzz.txt", in("link"))) }, false},
				step{"a file behind a link", func() error {
					away := t.TempDir()
					return errors.Join(os.Symlink(away, in("away")), os.WriteFile(filepath.Join(away, "x"), nil, 0o644))
				}, false})
		}
		for _, file := range []string{"aaa.txt", "zzz.txt"} {
			steps = append(steps,
				step{file + " written", func() error { return os.WriteFile(in(file), []byte("two\n"), 0o644) }, false},
				step{file + " written again, in disguise", func() error {
					info, err := os.Stat(in(file))
					if err != nil {
						return err
					}
					return errors.Join(os.WriteFile(in(file), []byte("six\n"), 0o644), os.Chtimes(in(file), info.ModTime(), info.ModTime()))
				}, false},
				step{file + " now a directory", func() error { return errors.Join(os.Remove(in(file)), os.Mkdir(in(file), 0o755)) }, false},
				step{file + " a file again", func() error { return errors.Join(os.Remove(in(file)), os.WriteFile(in(file), nil, 0o644)) }, false},
				step{file + " read-only", func() error { return os.Chmod(in(file), 0o444) }, false},
				step{file + " removed", func() error { return os.Remove(in(file)) }, false})
		}
		for _, s := range steps {
			if err := s.do(); err != nil {
				t.Fatal(err)
			}
			after := stateOf(t, tr)
			if changed := after != before; changed == s.ignored {
				t.Errorf("repository %v, %s: changed is %v", repository, s.name, changed)
			}
			before = after
		}
		// Files behind a link to a directory are not part of the tree.
		if links {
			target, err := os.Readlink(in("away"))
			if err != nil {
				t.Fatal(err)
			}
			systest.WriteFile(t, filepath.Join(target, "y"), "")
			if stateOf(t, tr) != before {
				t.Errorf("repository %v: a file outside counts", repository)
			}
		}
	}
}

// A directory that becomes a repository while the agent runs has changed.
func TestSnapshotSeesANewRepository(t *testing.T) {
	dir := changetest.Project(t, false, map[string]string{"a.txt": "one\n"})
	tr := openTest(t, dir)
	before := stateOf(t, tr)
	changetest.Git(t, dir, "init", "-q")
	if stateOf(t, tr) == before {
		t.Error("not seen")
	}
}

// git lists a file with conflicts several times. It counts once, so that
// resolving the conflict without a change to the file is not a write.
func TestSnapshotCountsConflictsOnce(t *testing.T) {
	dir := changetest.Project(t, true, map[string]string{"a.txt": "one\n"})
	commit := func(text string) {
		systest.WriteFile(t, filepath.Join(dir, "a.txt"), text)
		changetest.Git(t, dir, "-c", "user.name=x", "-c", "user.email=x@example.org", "commit", "-qam", "x")
	}
	changetest.Git(t, dir, "checkout", "-qb", "other")
	commit("two\n")
	changetest.Git(t, dir, "checkout", "-q", "-")
	commit("three\n")
	merge := exec.Command("git", "-c", "user.name=x", "-c", "user.email=x@example.org", "merge", "-q", "other")
	merge.Dir = dir
	if merge.Run() == nil {
		t.Fatal("there is no conflict")
	}
	tr := openTest(t, dir)
	before := stateOf(t, tr)
	changetest.Git(t, dir, "add", "a.txt")
	if stateOf(t, tr) != before {
		t.Error("taken for a write")
	}
}

// The parser accepts any input. Its edits are always within an existing file.
func FuzzBlocks(f *testing.F) {
	f.Add(changetest.Block("a.txt:1-1", "one", "1"))
	f.Add("```\n**FILE: a.txt**\n===OLD===\ntwo\n===NEW===\n```\nBye, all of you.")
	f.Add("**NEW FILE: x**\n===NEW===\n===END===")
	dir := f.TempDir()
	systest.WriteFile(f, filepath.Join(dir, "a.txt"), "one\ntwo\n\nthree")
	f.Fuzz(func(t *testing.T, answer string) {
		c, err := parse(dir, "", answer, unescape)
		if err != nil {
			return
		}
		for _, e := range c.Edits {
			if e.Path == "a.txt" && (e.StartLine < 1 || e.EndLine < e.StartLine || e.EndLine > 4) {
				t.Errorf("edit %+v", e)
			}
		}
	})
}
