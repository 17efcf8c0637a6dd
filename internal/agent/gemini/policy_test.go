package gemini

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/dlclark/regexp2/v2"
)

// For each tool, the argument that is a path, and the one that is a pattern of paths.
var (
	pathArguments    = map[string]string{"read_file": "file_path", "list_directory": "dir_path", "glob": "dir_path", "grep_search": "dir_path"}
	patternArguments = map[string]string{"glob": "pattern", "grep_search": "include_pattern"}
	fileArgument     = map[string]string{"read_file": "file_path"}
)

// glob listed the names in any directory, and read_file read the transcripts of
// earlier questions, which the CLI keeps in its own directory.
func TestPolicyKeepsPathsInside(t *testing.T) {
	const dir = `/home/u/my "odd" (project)+*`
	wantDenied(t, true, dir, pathArguments,
		"/etc/passwd", "..", "../x", "a/../../x", "a/..", "~/.ssh/id_rsa", "/home/u/my", dir+"2/x", dir+"/../x", "%2e%2e/x", "file:///etc/passwd", `C:\x`, "c:/x")
	wantDenied(t, false, dir, pathArguments,
		"a.txt", "src/main.go", ".gemini/settings.json", ".", dir, dir+"/a.txt", "a..b/c", "[...slug]/page.tsx", "100%.txt", "Grüße/世界.md", "a'b.txt")
	patterns := []string{
		"/etc/pass*", "/**/id_rsa", "../**", "a/../../*", "~/*", "{/etc/*,x}", "{x,/etc/*}", "{,x}/etc/*", "{x,}/etc/*", "{a,{,b}}/etc/*", ".{.,x}/*", "{.,x}./*", ".{,x}./*",
		".{x,}./*", "{x,.}./*", "{.,}{.,}/*", ".{x,}{.,y}/*", "{{.,b},a}./*", "[.][.]/*", "[.]./*", ".[.]/*", "[.-.][.-.]/*", "[.]{.,a}/*", ".{},.}/*", ".{a},.}/*", "{[,]}.]{[,]}.]/*", ".{Z..a}./*", `\.\./*`, `.\./*`, `C:\*`, "c:/*",
	}
	for _, parent := range strings.Fields(parents) {
		patterns = append(patterns, parent, parent+"/*", "src/"+parent+"/*", "{"+parent+",x}/*", "{x,"+parent+"}/*")
	}
	for _, pattern := range strings.Fields(absolutes) {
		patterns = append(patterns, pattern+"etc/*")
	}
	wantDenied(t, true, dir, patternArguments, patterns...)
	wantDenied(t, true, dir, map[string]string{"grep_search": "include_pattern"}, ":/") // of git
	wantDenied(t, false, "/home/u/project", map[string]string{"glob": "pattern"}, "/home/u/project/**/*.go")
	wantDenied(t, false, dir, patternArguments,
		"**/*", "*", "src/**/*.go", "**/*.{ts,tsx}", "*{.ts,.tsx}", "{package.json,*.toml}", "**/*.{d.ts,ts}", "{.github,docs}/**/*.{md,yml}", "[A-Z]*.md", "!(*.test).ts", ".env*", "**/.*", "*.ts{,x}",
		// These were denied although they name no parent.
		"**/*.{test,spec}.ts", "src/**/*.{test,spec}.{ts,tsx}", "**/tsconfig.{base,app}.json", "**/.{eslintrc,prettierrc}.json", "**/.{eslintrc,prettierrc}.{js,json}", "**/*.{ts,.tsx}",
		"**/*.{test,{e2e,it}}.{ts,js}", "{**/*.{ts,tsx},.eslintrc.js}", "**/.{git,}ignore", "[a.z]*", "**/[._]*.{js,ts}", "{src,test}/**/*.{ts,}", "{,src/}**/*.ts", "{src/{a,b},docs}/*")
	// The text that grep_search looks for is not a path.
	wantDenied(t, false, dir, map[string]string{"grep_search": "pattern"}, "/api/v1", `\.\./`, "../x", "~", "{.}.")
	wantDenied(t, false, "/", fileArgument, "/etc/passwd")
	// If no expression can name the directory, absolute paths are denied.
	for _, odd := range []string{"/home/\xff", "/" + strings.Repeat("long(", 1000)} {
		wantDenied(t, true, odd, fileArgument, odd+"/x")
		wantDenied(t, false, odd, fileArgument, "x")
	}
}

// wantDenied checks whether the rules for a directory deny calls of each tool with these
// values of an argument.
func wantDenied(t *testing.T, want bool, dir string, arguments map[string]string, values ...string) {
	t.Helper()
	rules := make(map[string][]*regexp2.Regexp) // by tool
	for _, r := range pathRules(dir) {
		re, err := regexp2.Compile(r.args, regexp2.ECMAScript)
		if err != nil {
			t.Fatalf("%s: %v", r.args, err)
		}
		rules[r.tool] = append(rules[r.tool], re)
	}
	for tool, name := range arguments {
		for _, value := range values {
			var b strings.Builder
			enc := json.NewEncoder(&b)
			enc.SetEscapeHTML(false)
			if err := enc.Encode(value); err != nil {
				t.Fatal(err)
			}
			// The arguments as the CLI writes them: sorted, with a NUL around each.
			text := "{\x00\"" + name + "\":" + strings.TrimSpace(b.String()) + "\x00"
			if name != "pattern" {
				text += ",\x00\"pattern\":\"x\"\x00"
			}
			denied := slices.ContainsFunc(rules[tool], func(re *regexp2.Regexp) bool {
				ok, err := re.MatchString(text + "}")
				return ok || err != nil
			})
			if denied != want {
				t.Errorf("in %.50q, the rules deny %s with %q: %v", dir, tool, value, denied)
			}
		}
	}
}

// The CLI on Windows writes absolute paths with a backslash, and all were denied.
func TestPolicyKnowsWindows(t *testing.T) {
	for _, test := range []struct {
		dir             string
		inside, outside []string
	}{
		{`C:\work\a (b)`, []string{`C:\work\a (b)`, `C:\work\a (b)\x.go`, `C:/work/a (b)/x/y.go`, `C:\work\a (b)/x`, `C:\work/a (b)\x`, `x\y.go`},
			[]string{`C:\work`, `C:\work\a (b)2\x`, `C:\work\a (b)\..\x`, `C:\work\a`, `D:\work\a (b)\x`, `\work\a (b)\x`, `C:workx`, `\\server\share`, `/x`, `x\..\..\y`}},
		{`C:\`, []string{`C:\`, `C:\x.go`, `C:/`, `C:/x/y.go`, `x.go`}, []string{`D:\`, `D:\x`, `\\server\share\x`, `C:x`, `C:\x\..\..\y`}},
		{`\\server\share\p`, []string{`\\server\share\p`, `\\server\share\p\x.go`, `//server/share/p/x.go`}, []string{`\\server\share\q`, `\\server\share`, `\server\share\p\x`, `C:\x`}},
	} {
		wantDenied(t, false, test.dir, pathArguments, test.inside...)
		wantDenied(t, true, test.dir, pathArguments, test.outside...)
	}
	wantDenied(t, false, `C:\work`, patternArguments, "C:/work/**/*.go", "*.go", "src/**/*.{test,spec}.ts")
	wantDenied(t, true, `C:\work`, patternArguments, "C:/*", "C:/work2/*", "D:/work/*", "{C:,x}/*", "{C,D}:/*", "[C]:/*", "C{:,x}/*", "//server/share/*", `C:\work\*`)
	wantDenied(t, false, `C:\`, patternArguments, "C:/**/*.go")
	wantDenied(t, true, `C:\`, patternArguments, "D:/**/*.go")
}

// If a directory's name is also a pattern, the pattern names other directories.
func TestPolicyOfADirectoryLikeAPattern(t *testing.T) {
	for _, dir := range []string{"/home/u/*", "/home/{u,v}/p", "/home/u/p?", "/app/[slug]", "/app/@(group)"} {
		wantDenied(t, true, dir, patternArguments, dir+"/x*")
		wantDenied(t, false, dir, patternArguments, "x*")
		wantDenied(t, false, dir, fileArgument, dir+"/x")
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
