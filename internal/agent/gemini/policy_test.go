package gemini

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"

	"github.com/dlclark/regexp2/v2"
)

// glob listed the names in any directory, and read_file read the transcripts of
// earlier questions, which the CLI keeps in its own directory.
func TestPolicyKeepsPathsInside(t *testing.T) {
	denied := deniedIn(t)
	const dir = `/home/u/my "odd" (project)+*`
	for _, path := range []string{
		"/etc/passwd", "..", "../x", "a/../../x", "a/..", "~/.ssh/id_rsa", "/home/u/my", dir + "2/x", dir + "/../x", "%2e%2e/x", "file:///etc/passwd", `C:\x`, "c:/x",
	} {
		for tool, name := range map[string]string{"read_file": "file_path", "list_directory": "dir_path", "glob": "dir_path", "grep_search": "dir_path"} {
			if !denied(dir, tool, map[string]any{name: path, "pattern": "x"}) {
				t.Errorf("%s may be called with %q", tool, path)
			}
		}
	}
	for _, path := range []string{"a.txt", "src/main.go", ".gemini/settings.json", ".", dir, dir + "/a.txt", "a..b/c", "[...slug]/page.tsx", "100%.txt", "Grüße/世界.md", "a'b.txt"} {
		for tool, name := range map[string]string{"read_file": "file_path", "list_directory": "dir_path", "glob": "dir_path", "grep_search": "dir_path"} {
			if denied(dir, tool, map[string]any{name: path, "pattern": "x"}) {
				t.Errorf("%s may not be called with %q", tool, path)
			}
		}
	}
	for _, pattern := range []string{
		"/etc/pass*", "/**/id_rsa", "../**", "a/../../*", "~/*", "{/etc/*,x}", "{x,/etc/*}", "{,x}/etc/*", "{x,}/etc/*", "{a,{,b}}/etc/*", ".{.,x}/*", "{.,x}./*", ".{,x}./*",
		".{x,}./*", "{x,.}./*", "{.,}{.,}/*", ".{x,}{.,y}/*", "{{.,b},a}./*", "[.][.]/*", "[.]./*", ".[.]/*", "[.-.][.-.]/*", "[.]{.,a}/*", ".{},.}/*", ".{a},.}/*", "{[,]}.]{[,]}.]/*", ".{Z..a}./*", `\.\./*`, `.\./*`, `C:\*`, "c:/*",
	} {
		for tool, name := range map[string]string{"glob": "pattern", "grep_search": "include_pattern"} {
			if !denied(dir, tool, map[string]any{name: pattern}) {
				t.Errorf("%s may be called with %q", tool, pattern)
			}
		}
	}
	for _, parent := range strings.Fields(parents) {
		for _, pattern := range []string{parent, parent + "/*", "src/" + parent + "/*", "{" + parent + ",x}/*", "{x," + parent + "}/*"} {
			if !denied(dir, "glob", map[string]any{"pattern": pattern}) {
				t.Errorf("glob may be called with %q", pattern)
			}
		}
	}
	for _, pattern := range strings.Fields(absolutes) {
		if !denied(dir, "glob", map[string]any{"pattern": pattern + "etc/*"}) {
			t.Errorf("glob may be called with %q", pattern+"etc/*")
		}
	}
	if denied("/home/u/project", "glob", map[string]any{"pattern": "/home/u/project/**/*.go"}) {
		t.Error("glob may not be called with the directory's own path")
	}
	if !denied(dir, "grep_search", map[string]any{"pattern": "x", "include_pattern": ":/"}) {
		t.Error("grep_search may be called with git's :/")
	}
	for _, pattern := range []string{
		"**/*", "*", "src/**/*.go", "**/*.{ts,tsx}", "*{.ts,.tsx}", "{package.json,*.toml}", "**/*.{d.ts,ts}", "{.github,docs}/**/*.{md,yml}", "[A-Z]*.md", "!(*.test).ts", ".env*", "**/.*", "*.ts{,x}",
		// These were denied although they name no parent.
		"**/*.{test,spec}.ts", "src/**/*.{test,spec}.{ts,tsx}", "**/tsconfig.{base,app}.json", "**/.{eslintrc,prettierrc}.json", "**/.{eslintrc,prettierrc}.{js,json}", "**/*.{ts,.tsx}",
		"**/*.{test,{e2e,it}}.{ts,js}", "{**/*.{ts,tsx},.eslintrc.js}", "**/.{git,}ignore", "[a.z]*", "**/[._]*.{js,ts}", "{src,test}/**/*.{ts,}", "{,src/}**/*.ts", "{src/{a,b},docs}/*",
	} {
		for tool, name := range map[string]string{"glob": "pattern", "grep_search": "include_pattern"} {
			if denied(dir, tool, map[string]any{name: pattern}) {
				t.Errorf("%s may not be called with %q", tool, pattern)
			}
		}
	}
	// The text that grep_search looks for is not a path.
	for _, pattern := range []string{"/api/v1", `\.\./`, "../x", "~", "{.}."} {
		if denied(dir, "grep_search", map[string]any{"pattern": pattern}) {
			t.Errorf("grep_search may not look for %q", pattern)
		}
	}
	if denied("/", "read_file", map[string]any{"file_path": "/etc/passwd"}) {
		t.Error("in / an absolute path is refused")
	}
	// If no expression can name the directory, absolute paths are denied.
	for _, odd := range []string{"/home/\xff", "/" + strings.Repeat("long(", 1000)} {
		if !denied(odd, "read_file", map[string]any{"file_path": odd + "/x"}) || denied(odd, "read_file", map[string]any{"file_path": "x"}) {
			t.Errorf("the rules for %.20q... are wrong", odd)
		}
	}
}

// deniedIn returns a function that reports whether the rules deny a call.
func deniedIn(t *testing.T) func(dir, tool string, args map[string]any) bool {
	return func(dir, tool string, args map[string]any) bool {
		t.Helper()
		// The arguments as the CLI writes them: sorted, with a NUL around each.
		var parts []string
		for _, name := range []string{"dir_path", "file_path", "include_pattern", "pattern"} {
			if v, ok := args[name]; ok {
				var b strings.Builder
				enc := json.NewEncoder(&b)
				enc.SetEscapeHTML(false)
				if err := enc.Encode(v); err != nil {
					t.Fatal(err)
				}
				parts = append(parts, "\x00\""+name+"\":"+strings.TrimSpace(b.String())+"\x00")
			}
		}
		text := "{" + strings.Join(parts, ",") + "}"
		for _, r := range pathRules(dir) {
			re, err := regexp2.Compile(r.args, regexp2.ECMAScript)
			if err != nil {
				t.Fatalf("%s: %v", r.args, err)
			}
			if ok, err := re.MatchString(text); err != nil || ok && r.tool == tool {
				return true
			}
		}
		return false
	}
}

// The CLI on Windows writes absolute paths with a backslash, and all were denied.
func TestPolicyKnowsWindows(t *testing.T) {
	denied := deniedIn(t)
	calls := []struct{ tool, arg string }{{"read_file", "file_path"}, {"list_directory", "dir_path"}, {"glob", "dir_path"}, {"grep_search", "dir_path"}}
	for _, test := range []struct {
		dir             string
		inside, outside []string
	}{
		{`C:\work\a (b)`, []string{`C:\work\a (b)`, `C:\work\a (b)\x.go`, `C:/work/a (b)/x/y.go`, `C:\work\a (b)/x`, `C:\work/a (b)\x`, `x\y.go`},
			[]string{`C:\work`, `C:\work\a (b)2\x`, `C:\work\a (b)\..\x`, `C:\work\a`, `D:\work\a (b)\x`, `\work\a (b)\x`, `C:workx`, `\\server\share`, `/x`, `x\..\..\y`}},
		{`C:\`, []string{`C:\`, `C:\x.go`, `C:/`, `C:/x/y.go`, `x.go`}, []string{`D:\`, `D:\x`, `\\server\share\x`, `C:x`, `C:\x\..\..\y`}},
		{`\\server\share\p`, []string{`\\server\share\p`, `\\server\share\p\x.go`, `//server/share/p/x.go`}, []string{`\\server\share\q`, `\\server\share`, `\server\share\p\x`, `C:\x`}},
	} {
		for _, call := range calls {
			for _, path := range test.inside {
				if denied(test.dir, call.tool, map[string]any{call.arg: path, "pattern": "x"}) {
					t.Errorf("in %s: %s may not be called with %s", test.dir, call.tool, path)
				}
			}
			for _, path := range test.outside {
				if !denied(test.dir, call.tool, map[string]any{call.arg: path, "pattern": "x"}) {
					t.Errorf("in %s: %s may be called with %s", test.dir, call.tool, path)
				}
			}
		}
	}
	for tool, arg := range map[string]string{"glob": "pattern", "grep_search": "include_pattern"} {
		for _, pattern := range []string{"C:/work/**/*.go", "*.go", "src/**/*.{test,spec}.ts"} {
			if denied(`C:\work`, tool, map[string]any{arg: pattern}) {
				t.Errorf("%s may not be called with %s", tool, pattern)
			}
		}
		for _, pattern := range []string{"C:/*", "C:/work2/*", "D:/work/*", "{C:,x}/*", "{C,D}:/*", "[C]:/*", "C{:,x}/*", "//server/share/*", `C:\work\*`} {
			if !denied(`C:\work`, tool, map[string]any{arg: pattern}) {
				t.Errorf("%s may be called with %s", tool, pattern)
			}
		}
		if denied(`C:\`, tool, map[string]any{arg: "C:/**/*.go"}) || !denied(`C:\`, tool, map[string]any{arg: "D:/**/*.go"}) {
			t.Errorf("%s: the rules for patterns in a drive's root are wrong", tool)
		}
	}
}

// If a directory's name is also a pattern, the pattern names other directories.
func TestPolicyOfADirectoryLikeAPattern(t *testing.T) {
	denied := deniedIn(t)
	for _, dir := range []string{"/home/u/*", "/home/{u,v}/p", "/home/u/p?", "/app/[slug]", "/app/@(group)"} {
		for tool, arg := range map[string]string{"glob": "pattern", "grep_search": "include_pattern"} {
			if !denied(dir, tool, map[string]any{arg: dir + "/x*"}) || denied(dir, tool, map[string]any{arg: "x*"}) {
				t.Errorf("in %s the rules for the patterns of %s are wrong", dir, tool)
			}
		}
		if denied(dir, "read_file", map[string]any{"file_path": dir + "/x"}) {
			t.Errorf("in %s its own files may not be read", dir)
		}
	}
}

// The CLI rejects an expression that is too long, or that it considers slow. It
// would then ignore the policy, and the runner would end the request.
func TestPolicyIsTaken(t *testing.T) {
	unsafe := regexp.MustCompile(`\([^)]*[*+?{].*\)[*+?{]`) // the CLI's own definition
	for _, dir := range []string{"/home/u/project", `/a (b)+*?{c} 'd' "e" \f`, "/" + strings.Repeat("x", 4000), "/\x01\n\u2028\x7f", "/\xff", "/", `C:\work\a (b)`, `C:\`, `\\server\share\p`} {
		for _, r := range pathRules(dir) {
			if len(r.args) > 2048 || unsafe.MatchString(r.args) || strings.ContainsAny(r.args, "'\n\x00\x01\x7f") {
				t.Errorf("in %.20q: the CLI does not take %.200q", dir, r.args)
			}
		}
		if text := string(policy(dir, true)); !strings.Contains(text, "write_file") || strings.Contains(string(policy(dir, false)), "write_file") {
			t.Errorf("the policy of change mode is %s", text)
		}
	}
}

// parents and absolutes are all of the shortest patterns that the CLI's glob
// library turns into a parent or an absolute path: up to six of the characters
// .{},/x and up to seven of .[]{},-. Patterns with two adjacent dots or with a
// leading slash are left out.
const (
	parents = `
	.{.,} .{,.} .{,}. {.,}. {,.}. .[.[-,] .[.[--] .[.] .[.]{,} .[.{],} .[.{,]} .[.{,}] .[.{-[] .[.{-,] .[.{--]
	.[.}-[] .[.}-{] .[.}-,] .[.}--] .[.-.] .[[-,.] .[[--.] .[]-[.] .[]-,.] .[]--.] .[{.],} .[{.,}] .[{,.]} .[{,.}]
	.[{,}.] .[{-[.] .[{-,.] .[{--.] .[}-[.] .[}-{.] .[}-,.] .[}--.] .[--,.] .{.,{}} .{[.],} .{[.,}] .{,[.]}
	.{,[.}] .{,{}}. .{,}[.] [.[-,]. [.[--]. [.]. [.].{,} [.][.] [.]{.,} [.]{,.} [.]{,}. [.{].,} [.{,].} [.{,}].
	[.{-[]. [.{-,]. [.{--]. [.}-[]. [.}-{]. [.}-,]. [.}--]. [.-.]. [[-,.]. [[--.]. []-[.]. []-,.]. []--.]. [{.].,}
	[{.],}. [{.,}]. [{,.].} [{,.]}. [{,.}]. [{,}.]. [{-[.]. [{-,.]. [{--.]. [}-[.]. [}-{.]. [}-,.]. [}--.].
	[--,.]. {.[.],} {.[.,}] {.[,}.] {.,{}}. {.,}[.] {[.].,} {[.],}. {[.,}]. {[,}.]. {{},.}. {,.[.]} {,.[.}]
	{,.[}.] {,.}[.] {,[.].} {,[.]}. {,[.}]. {,[}.]. {,}.[.] {,}[.].
`
	absolutes = `
	{{},}/ {{},/} {,{}}/ {,}/ {,/} {/,}
`
)
