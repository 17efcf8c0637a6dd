package companion

import (
	"errors"
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"pollux/internal/sys/systest"
)

// A gitRepository has files that git may ignore.
type gitRepository struct {
	root  string
	files []string
}

func newGitRepository(t *testing.T, files ...string) gitRepository {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("Windows has no such names")
	}
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	r := gitRepository{systest.Dir(t), files}
	if out, err := exec.Command("git", "-C", r.root, "init", "-q").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, f := range files {
		systest.WriteFile(t, filepath.Join(r.root, f), "x")
	}
	return r
}

// wantAsGit checks that an excluder and git agree about the files.
func (r gitRepository) wantAsGit(t *testing.T, rules string) {
	t.Helper()
	cmd := exec.Command("git", "-C", r.root, "check-ignore", "--no-index", "--stdin", "-z")
	cmd.Stdin = strings.NewReader(strings.Join(r.files, "\x00"))
	out, err := cmd.Output()
	if exit := new(exec.ExitError); err != nil && !(errors.As(err, &exit) && exit.ExitCode() == 1) { // 1: none is ignored
		t.Fatal(err)
	}
	ignored := strings.Split(string(out), "\x00")
	var x excluder
	for _, f := range r.files {
		if want := slices.Contains(ignored, f); x.excluded(filepath.Join(r.root, f), nil) != want {
			t.Errorf("rules %q: git ignores %s: %v", rules, f, want)
		}
	}
}

// Some files that git ignores reached agents: a rule could include a file of an excluded directory
// again, and [!a] and some forms of "**" were not read as git reads them.
func TestRulesAreGits(t *testing.T) {
	r := newGitRepository(t,
		"config/a.cred", "config/sub/a.cred", "a/b/x/b/c.txt", "a/x/b/c.txt", "a/b/c.txt", "notes.1", "notes.a", "keys/prod/deep/db.pass",
		"keys/x.pass", "private/in/x.txt", "private/keep.txt", "logs/debug.txt", "x/logs/y/logs/debug.txt", "#odd", "!odd", "main.go",
		"src/deep/private/x.txt", "src/private/x.txt", "space ", "[!a]")
	for _, rules := range []string{
		"private/\n!private/keep.txt\n", "private\n!*.txt\n", "*\n!*/\n!*.go\n", "private/*\n!private/keep.txt\n", "!private\nprivate\n",
		"notes.[!a]\n", "notes.[^a]\n", "notes.[0-9]\n", "notes.?\n", "\\[!a]\n",
		"config/**.cred\n", "config/**/\n", "config/**\n", "a/**/b/c.txt\n", "**/logs/debug.txt\n", "log**/debug.txt\n", "keys/**/*.pass\n",
		"keys/***\n", "/src/**/private/\n", "src/**/private/**\n", "**/private/*\n", "private/**/\n", "**/deep\n", "**\n", "/**/x.txt\n",
		"src/*/private\n", "/private\n", "private/in\n", "in/x.txt\n", "\\#odd\n", "\\!odd\n", "#odd\n", "space\\ \n", "notes.a  \n", "/\n!\n",
	} {
		systest.WriteFile(t, filepath.Join(r.root, ".gitignore"), rules)
		r.wantAsGit(t, rules)
	}
}

// Brackets that [path.Match] does not know, such as [-_] and [[:digit:]].
func TestBracketsAreGits(t *testing.T) {
	r := newGitRepository(t, "a-secret", "a_secret", "a]b", "x5", "xa", "axb", "a-b", "a!b", "a[b", "a.b")
	for _, rules := range []string{
		"*[-_]secret\n", "a[]x]b\n", "x[[:digit:]]\n", "a[x-]b\n", "a[!]]b\n", "a[\\]]b\n", "a[!-]b\n", "a[_.-]b\n", "a[a-]secret\n",
		"a[^-_]secret\n", "[[:alpha:]]5\n", "a[[:punct:]]b\n", "a[[:punct:]x-]b\n", "a[\n", "a[x\n", "*[-\n", "a[!!]b\n", "a[\\-_]b\n",
		"a[]-x]b\n", "a[[]b\n", "[]\n", "a[]b\n",
	} {
		systest.WriteFile(t, filepath.Join(r.root, ".gitignore"), rules)
		r.wantAsGit(t, rules)
	}
}

// Rules of any kind, in two files.
func TestAnyRulesAreGits(t *testing.T) {
	names := []string{"a", "b", "ab", "c.x"}
	var files []string
	for _, p := range names {
		for _, q := range names {
			for _, r := range names {
				files = append(files, p+"d/"+q+"d/"+r)
			}
		}
	}
	r := newGitRepository(t, files...)
	atoms := []string{"a", "b", "ad", "bd", "*", "**", "?d", "[!a]*", "*.x", "ab*", "**b", "abd"}
	random := rand.New(rand.NewPCG(1, 2))
	one := func(of ...string) string { return of[random.IntN(len(of))] }
	for range 100 {
		var lines []string
		for range 1 + random.IntN(3) {
			var parts []string
			for range 1 + random.IntN(3) {
				parts = append(parts, one(atoms...))
			}
			lines = append(lines, one("", "", "!")+one("", "", "/")+strings.Join(parts, "/")+one("", "", "/"))
		}
		rules := strings.Join(lines, "\n") + "\n"
		systest.WriteFile(t, filepath.Join(r.root, ".gitignore"), rules)
		systest.WriteFile(t, filepath.Join(r.root, "ad", ".gitignore"), lines[0]+"\n")
		r.wantAsGit(t, rules)
	}
}
