package companion

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"pollux/internal/hostile"
	"pollux/internal/sys/systest"
)

// rules counts what an excluder keeps.
func (x *excluder) rules() (n int) {
	for _, f := range x.files {
		n += len(f.rules)
	}
	return n
}

// repository returns the directory of a git repository. The user has no rules for all of them.
func repository(t *testing.T) string {
	t.Helper()
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	root := t.TempDir()
	systest.WriteFile(t, filepath.Join(root, ".git", "HEAD"), "")
	return root
}

// A repository's ignore files used too much memory: 38 MB for each file of 1
// MB, and all of them were kept.
func TestIgnoreFilesAreBounded(t *testing.T) {
	const maxRules = maxDecisionCost / ruleCost
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	rules := func(n int) string { return strings.Repeat("a\n", n) }
	for _, test := range []struct {
		name  string
		depth int // of nested directories with an ignore file each
		text  string
		want  bool
	}{
		{"one large file", 1, rules(maxIgnoreFile / 2), true},
		{"one too large file", 1, "a\n" + strings.Repeat("#", maxIgnoreFile), true},
		{"many large files", 61, rules(maxIgnoreFile / 2), true},
		{"many that are too many together", 61, rules(maxRules / 10), true},
		{"rules of many parts", 1, strings.Repeat("a/", maxIgnoreFile/2), true},
		{"many small files", 61, rules(100), false},
		{"one of a generator", 1, strings.Repeat("/a/generated/directory/of/files\n", 8000), false},
	} {
		t.Run(test.name, func(t *testing.T) {
			root := repository(t)
			dir := root
			for range test.depth {
				systest.WriteFile(t, filepath.Join(dir, ".gitignore"), test.text)
				dir = filepath.Join(dir, "d")
			}
			file := filepath.Join(dir, "main.go")
			systest.WriteFile(t, file, "")
			var x excluder
			if got := x.excluded(file, nil); got != test.want {
				t.Errorf("excluded = %v, want %v", got, test.want)
			}
			if x.cost > 2*maxDecisionCost || x.rules() > 2*maxRules {
				t.Errorf("one decision keeps %d rules, %d bytes", x.rules(), x.cost)
			}
		})
	}
	t.Run("many projects", func(t *testing.T) {
		var x excluder
		root := t.TempDir()
		for i := range 20 {
			top := filepath.Join(root, fmt.Sprint(i))
			systest.WriteFile(t, filepath.Join(top, ".git", "HEAD"), "")
			systest.WriteFile(t, filepath.Join(top, ".gitignore"), fmt.Sprintf("secret%d\n", i)+rules(maxRules/2))
			for name, want := range map[string]bool{"main.go": false, fmt.Sprint("secret", i): true} {
				if got := x.excluded(filepath.Join(top, name), nil); got != want {
					t.Errorf("%d/%s excluded = %v", i, name, got)
				}
			}
		}
		cost := 0
		for _, f := range x.files {
			cost += f.cost
		}
		if x.cost != cost || cost > maxKeptCost || len(x.files) == 0 {
			t.Errorf("%d files are kept, of %d bytes (counted as %d)", len(x.files), cost, x.cost)
		}
	})
	t.Run("many files", func(t *testing.T) {
		var x excluder
		root := repository(t)
		systest.WriteFile(t, filepath.Join(root, ".gitignore"), "*.log\n")
		for i := range maxDecisions + 10 {
			if path := filepath.Join(root, fmt.Sprint(i, ".log")); !x.match(path, nil) {
				t.Fatalf("%s is not excluded", path)
			}
		}
		if len(x.decisions) > maxDecisions {
			t.Errorf("%d decisions are kept", len(x.decisions))
		}
	})
}

// Each cursor movement checks all open files, but no ignore file is read or
// matched again until one has changed.
func TestDecisionIsKept(t *testing.T) {
	root := repository(t)
	file := filepath.Join(root, "sub", "main.go")
	systest.WriteFile(t, file, "")
	x := excluder{names: []string{".geminiignore"}}
	for i, step := range []struct {
		change string // an ignore file
		text   string
		want   bool
	}{
		{".gitignore", "*.go\n", true},
		{".gitignore", "*.c\n", false},
		{"sub/.geminiignore", "main.go\n", true},
		{"sub/.geminiignore", "!main.go\n", false},
		{".git/info/exclude", "main.go\n", false},
		{"sub/.geminiignore", "\n", true},
	} {
		systest.WriteFile(t, filepath.Join(root, filepath.FromSlash(step.change)), step.text)
		if got := x.excluded(file, nil); got != step.want {
			t.Errorf("step %d: excluded = %v, want %v", i, got, step.want)
		}
		x.files = nil // reading or matching would fill it
		if got := x.excluded(file, nil); got != step.want || x.files != nil {
			t.Errorf("step %d, again: excluded = %v, want %v; read %d files", i, got, step.want, len(x.files))
		}
	}
	systest.Remove(t, filepath.Join(root, ".git", "info", "exclude"))
	if x.excluded(file, nil) {
		t.Error("the rules of a removed file count")
	}
}

// On a Mac, agents received the files of a directory that git ignores, since it had
// another case there than in .gitignore.
func TestRulesIgnoreCaseLikeTheSystem(t *testing.T) {
	root := repository(t)
	systest.WriteFile(t, filepath.Join(root, ".gitignore"), "/Build/\n*.LOG\n!keep.log\n[A-C]1\n")
	for _, test := range []struct {
		path        string
		exact, fold bool
	}{
		{"Build/a", true, true}, {"build/a", false, true}, {"sub/build/a", false, false},
		{"a.LOG", true, true}, {"a.log", false, true}, {"Keep.log", false, false},
		{"B1", true, true}, {"b1", false, true}, {"d1", false, false},
	} {
		file := filepath.Join(root, filepath.FromSlash(test.path))
		exact := excluder{style: func(text string) string { return text }}
		folding := excluder{style: strings.ToLower}
		if got := exact.excluded(file, nil); got != test.exact {
			t.Errorf("%s: excluded = %v", test.path, got)
		}
		if got := folding.excluded(file, nil); got != test.fold {
			t.Errorf("%s, on a system that ignores case: excluded = %v", test.path, got)
		}
	}
}

// Rules that cannot be read may be those that matter.
func TestUnreadableRulesExclude(t *testing.T) {
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	plant := func(kind string) func(t *testing.T, rules string) {
		return func(t *testing.T, rules string) { hostile.Plant(t, kind, rules) }
	}
	for name, tt := range map[string]struct {
		make func(t *testing.T, rules string)
		want bool
	}{
		"sparse": {plant("sparse"), true}, // larger than the limit
		"FIFO":   {plant("FIFO"), false},
		"device": {plant("device"), false},
		"directory": {func(t *testing.T, rules string) { // as a FIFO and a device, it holds no rules
			systest.MakeDir(t, rules)
		}, false},
		"loop": {func(t *testing.T, rules string) { systest.Link(t, ".gitignore", rules) }, true},
		"unreadable": {func(t *testing.T, rules string) {
			systest.WriteFile(t, rules, "x\n")
			systest.Unreadable(t, rules)
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			root := repository(t)
			tt.make(t, filepath.Join(root, ".gitignore"))
			var x excluder
			if got := x.excluded(filepath.Join(root, "main.go"), nil); got != tt.want {
				t.Errorf("excluded = %v, want %v", got, tt.want)
			}
		})
	}
	for _, name := range []string{".gitignore", ".git"} {
		t.Run("elsewhere "+name, func(t *testing.T) { // as OneDrive's files on Windows
			root := t.TempDir()
			x := excluder{stat: func(path string) (fs.FileInfo, error) {
				if path == filepath.Join(root, name) {
					return irregular{}, nil
				}
				return os.Stat(path)
			}}
			if !x.excluded(filepath.Join(root, "main.go"), []string{root}) {
				t.Error("a file with unreadable rules is sent")
			}
		})
	}
}

// A look at a file on another server sends the user's credentials there.
func TestGitDirectoryOnAnotherServer(t *testing.T) {
	if runtime.GOOS != "windows" {
		t.Skip("only Windows has such paths")
	}
	for name, files := range map[string]map[string]string{
		"gitdir":    {".git": `gitdir: \\server\share\git`},
		"slashes":   {".git": "gitdir: //server/share/git"},
		"commondir": {".git": "gitdir: git", "git/commondir": `\\server\share\git`},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			for file, text := range files {
				systest.WriteFile(t, filepath.Join(root, file), text+"\n")
			}
			x := excluder{stat: func(path string) (fs.FileInfo, error) {
				if strings.HasPrefix(filepath.Clean(path), `\\server`) {
					t.Errorf("it looks at %s", path)
				}
				return os.Stat(path)
			}}
			if !x.excluded(filepath.Join(root, "main.go"), nil) {
				t.Error("a file with unreadable rules is sent")
			}
		})
	}
}

// An irregular has the mode that Go reports for a file in OneDrive.
type irregular struct{ fs.FileInfo }

func (irregular) Mode() fs.FileMode { return fs.ModeIrregular | 0o666 }

// A repository's excludes also apply in its linked work trees, and a submodule's excludes
// in the submodule. There, .git is a file.
func TestExcludesOfAnotherWorkTree(t *testing.T) {
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	root := t.TempDir()
	at := func(name string) string { return filepath.Join(root, filepath.FromSlash(name)) }
	for name, text := range map[string]string{
		"main/.git/info/exclude":             "notes.txt\n",
		"main/.git/worktrees/w/commondir":    "../..\n",
		"tree/.git":                          "gitdir: " + at("main/.git/worktrees/w") + "\n",
		"main/.git/modules/sub/info/exclude": "secret.txt\n",
		"main/sub/.git":                      "gitdir: ../.git/modules/sub\n",
	} {
		systest.WriteFile(t, at(name), text)
	}
	var x excluder
	for name, want := range map[string]bool{
		"main/notes.txt": true, "tree/notes.txt": true, "tree/deep/notes.txt": true, "tree/main.go": false,
		"main/sub/secret.txt": true, "main/sub/notes.txt": false,
	} {
		if got := x.excluded(at(name), nil); got != want {
			t.Errorf("%s: excluded = %v, want %v", name, got, want)
		}
	}
}
