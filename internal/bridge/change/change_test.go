package change

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"pollux/internal/bridge/change/changetest"
)

// unescape is for an agent that writes a backslash before each @ of a prompt.
func unescape(text string) string { return strings.ReplaceAll(text, `\@`, "@") }

// TestChanges applies the diff of each answer with git and checks the file.
func TestChanges(t *testing.T) {
	files := map[string]string{
		"a.txt": "one\ntwo\nthree\ntwo\n", "crlf.txt": "one\r\ntwo\r\nthree\r\n", "open.txt": "one\ntwo",
		"doc.md": "# Title\n\nSome words, and more.\n\n```sh\nls\n```\n", "at.py": "@a\ndef f(): pass\n", "blank.txt": "a\n\nb\n",
		"list.pl": "f(@l);\n", "mixed.txt": "one\ntwo\r\nthree\r\nfour\n", "void.txt": "",
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
		{name: "no final line end", answer: changetest.Block("open.txt:2-2", "two", "2"), file: "open.txt", want: "one\n2"},
		{name: "new file", answer: "**NEW FILE: sub/new.txt**\n===NEW===\nhello\n\nyou\n===END===", file: "sub/new.txt", want: "hello\n\nyou\n"},
		{name: "new empty file", answer: "**NEW FILE: empty.txt**\n===NEW===\n===END===", file: "empty.txt", want: ""},
		// The agent puts a backslash before each @ of a prompt. The model may
		// quote it.
		{name: "escaped, quoted", answer: changetest.Block("at.py:1-1", `\@a`, `\@b`), file: "at.py", want: "@b\ndef f(): pass\n"},
		{name: "escaped, in the new text only", answer: changetest.Block("at.py:2-2", "def f(): pass", "\\@c\ndef f(): pass"), file: "at.py", want: "@a\n@c\ndef f(): pass\n"},
		{name: "escaped, a new file", answer: "**NEW FILE: x.py**\n===NEW===\n\\@c\n===END===", file: "x.py", want: "@c\n"},
		{name: "escaped, told apart", answer: changetest.Block("list.pl:1-1", "f(@l);", `f(\@l);`), file: "list.pl", want: "f(\\@l);\n"},
		{name: "escaped, not to be told apart", answer: "**NEW FILE: x.pl**\n===NEW===\nf(\\@l);\n===END===", words: []string{"may mean @ or be meant literally", "ask again without @"}},
		{name: "not sent", answer: changetest.Block("at.py:2-2", "def f(): pass", `x = "\@"`), file: "at.py", want: "@a\nx = \"\\@\"\n"},
		{name: "mixed line ends", answer: changetest.Block("mixed.txt:1-1", "one", "1\n1b") + changetest.Block("mixed.txt:3-3", "three", "3\n3b"), file: "mixed.txt", want: "1\n1b\ntwo\r\n3\r\n3b\r\nfour\n"},
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
			dir := changetest.Project(t, true, files)
			var undo func(string) string
			if strings.Contains(test.name, "escaped") {
				undo = unescape
			}
			c, err := parse(dir, "", test.answer, undo)
			if test.words != nil {
				for _, w := range test.words {
					if err == nil || !strings.Contains(err.Error(), w) {
						t.Errorf("no %q in the error %v", w, err)
					}
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if c.Response != test.response {
				t.Errorf("response %q", c.Response)
			}
			patch := filepath.Join(t.TempDir(), "patch")
			if err := os.WriteFile(patch, []byte(c.Diff), 0o600); err != nil {
				t.Fatal(err)
			}
			changetest.Git(t, dir, "apply", patch)
			got, err := os.ReadFile(filepath.Join(dir, test.file))
			if err != nil || string(got) != test.want {
				t.Errorf("%s is %q, %v; want %q\n%s", test.file, got, err, test.want, c.Diff)
			}
		})
	}
}

// No command in a repository's configuration runs.
func TestRepositoryIsNotTrusted(t *testing.T) {
	dir := changetest.Project(t, true, map[string]string{"a.txt": "one\n", ".gitattributes": "*.txt filter=evil\n"})
	mark := filepath.Join(t.TempDir(), "ran")
	run := "touch " + mark
	for _, c := range []string{
		"core.fsmonitor=" + run, "filter.evil.clean=" + run + "; cat", "filter.evil.process=" + run, "filter.evil.required=true",
		"core.sshCommand=" + run, "extensions.partialClone=origin", "core.repositoryFormatVersion=1", "remote.origin.url=ext::sh -c touch% " + mark,
		"protocol.ext.allow=always", "core.hooksPath=" + filepath.Join(dir, "hooks"), "core.pager=" + run,
	} {
		name, value, _ := strings.Cut(c, "=")
		changetest.Git(t, dir, "config", name, value)
	}
	if err := os.WriteFile(filepath.Join(dir, "a.txt"), []byte("two\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := snapshot(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
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
	s, err := snapshot(t.Context(), filepath.Join(dir, "build"))
	if err != nil || s.prefix != "build/" || len(s.files) != 1 {
		t.Errorf("%+v, %v", s, err)
	}
}

// Files that git writes itself do not count as changes, not even in a nested
// repository.
func TestSnapshotIsNotDisturbedByGit(t *testing.T) {
	dir := changetest.Project(t, true, map[string]string{"a.txt": "one\n"})
	nested := filepath.Join(dir, "nested")
	if err := os.Mkdir(nested, 0o755); err != nil {
		t.Fatal(err)
	}
	changetest.Git(t, nested, "init", "-q")
	for name, text := range map[string]string{"f": "x", ".gitignore": "*.log\n"} {
		if err := os.WriteFile(filepath.Join(nested, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	changetest.Git(t, nested, "add", "-A")
	before, err := snapshot(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range []string{dir, nested} {
		if err := os.Chtimes(filepath.Join(d, ".git", "index"), time.Now(), time.Now()); err != nil {
			t.Fatal(err)
		}
		changetest.Git(t, d, "status")
	}
	if err := os.WriteFile(filepath.Join(nested, "x.log"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if after, err := snapshot(t.Context(), dir); err != nil || !before.equal(after) {
		t.Errorf("taken for a write, %v", err)
	}
}

// A file had changes before the task, and is changed again.
func TestSnapshotSeesASecondChange(t *testing.T) {
	dir := changetest.Project(t, true, map[string]string{"dirty.txt": "x\n"})
	write := func(text string) {
		if err := os.WriteFile(filepath.Join(dir, "dirty.txt"), []byte(text), 0o644); err != nil {
			t.Error(err)
		}
	}
	write("first\n")
	before, err := snapshot(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	write("later\n")
	after, err := snapshot(t.Context(), dir)
	if err != nil || before.equal(after) {
		t.Errorf("not seen, %v", err)
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

// A snapshot covers an entire repository, except files that git ignores.
func TestSnapshotSeesCorners(t *testing.T) {
	for name, test := range map[string]struct {
		prepare func(t *testing.T, dir string)
		file    string
	}{
		"submodule": {func(t *testing.T, dir string) {
			other := changetest.Project(t, true, map[string]string{"f": "x"})
			changetest.Git(t, dir, "-c", "protocol.file.allow=always", "submodule", "add", "-q", other, "mod")
		}, "mod/f"},
		"nested repository": {func(t *testing.T, dir string) {
			if err := os.Mkdir(filepath.Join(dir, "nested"), 0o755); err != nil {
				t.Fatal(err)
			}
			changetest.Git(t, filepath.Join(dir, "nested"), "init", "-q")
			if err := os.WriteFile(filepath.Join(dir, "nested", "f"), nil, 0o644); err != nil {
				t.Fatal(err)
			}
		}, "nested/f"},
		"assumed unchanged":  {func(t *testing.T, dir string) { changetest.Git(t, dir, "update-index", "--assume-unchanged", "a.txt") }, "a.txt"},
		"outside the tree":   {func(t *testing.T, dir string) { changetest.Git(t, dir, "config", "core.worktree", t.TempDir()) }, "a.txt"},
		"ignored altogether": {func(t *testing.T, dir string) { os.WriteFile(filepath.Join(dir, ".gitignore"), []byte("*\n"), 0o644) }, "b.txt"},
		"a hook":             {func(*testing.T, string) {}, ".git/hooks/pre-commit"},
		"an empty submodule": {func(t *testing.T, dir string) {
			other := changetest.Project(t, true, map[string]string{"f": "x"})
			changetest.Git(t, dir, "-c", "protocol.file.allow=always", "submodule", "add", "-q", other, "mod")
			changetest.Git(t, dir, "submodule", "deinit", "-q", "-f", "mod")
		}, "mod/f"},
		"a linked work tree's hook": {func(t *testing.T, dir string) {
			changetest.Git(t, dir, "worktree", "add", "-q", filepath.Join(dir, "linked"))
		}, "../.git/hooks/pre-commit"},
		"the configuration": {func(*testing.T, string) {}, ".git/config"},
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
			before, err := snapshot(t.Context(), work)
			if err != nil {
				t.Fatal(err)
			}
			f, err := os.OpenFile(filepath.Join(work, test.file), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
			if err != nil {
				t.Fatal(err)
			}
			f.WriteString("\n")
			f.Close()
			if after, err := snapshot(t.Context(), work); err != nil || before.equal(after) {
				t.Errorf("not seen, %v", err)
			}
		})
	}
}

// A write is detected even if size and times stay the same.
func TestSnapshotSeesDisguisedWrites(t *testing.T) {
	dir := changetest.Project(t, true, map[string]string{"a.txt": "one\n"})
	path := filepath.Join(dir, "a.txt")
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	before, err := snapshot(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("two\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(path, info.ModTime(), info.ModTime()); err != nil {
		t.Fatal(err)
	}
	if after, err := snapshot(t.Context(), dir); err != nil || before.equal(after) {
		t.Errorf("not seen, %v", err)
	}
}

// The parser accepts any input. Its edits are always within an existing file.
func FuzzBlocks(f *testing.F) {
	f.Add(changetest.Block("a.txt:1-1", "one", "1"))
	f.Add("```\n**FILE: a.txt**\n===OLD===\ntwo\n===NEW===\n```\nBye, all of you.")
	f.Add("**NEW FILE: x**\n===NEW===\n===END===")
	dir := f.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "a.txt"), []byte("one\ntwo\n\nthree"), 0o600); err != nil {
		f.Fatal(err)
	}
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
