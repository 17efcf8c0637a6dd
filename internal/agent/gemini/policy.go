package gemini

import (
	"bytes"
	"cmp"
	_ "embed"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"pollux/internal/agent"
	"pollux/internal/agent/gemini/settings"
	"pollux/internal/lazy"
)

// readOnlyPolicy allows only reading and searching, in every approval mode. The
// CLI does not even offer denied tools to the model.
//
//go:embed readonly.toml
var readOnlyPolicy []byte

// changePolicy also allows the tools that write, in a process whose files Pollux
// serves.
//
//go:embed changes.toml
var changePolicy []byte

// policy returns the rules for a CLI that works in dir: the tools that it may
// call, and the restriction of paths and patterns to dir. The CLI itself checks
// most paths. But its glob tool lists the names in any directory, and its other
// tools also read the CLI's own directory for the project, which holds the
// transcripts of earlier questions.
func policy(dir string, change bool) []byte {
	rules := readOnlyPolicy
	if change {
		rules = changePolicy
	}
	b := bytes.NewBuffer(slices.Clone(rules))
	for _, r := range pathRules(dir) {
		fmt.Fprintf(b, "\n[[rule]]\ntoolName = %q\nargsPattern = '%s'\ndecision = \"deny\"\npriority = 995\n", r.tool, r.args)
	}
	return b.Bytes()
}

// A pathRule denies the calls of a tool whose arguments, as JSON, match.
type pathRule struct{ tool, args string }

const (
	// pathNames matches the arguments that are paths, with their names in all versions.
	pathNames = `"(file_path|absolute_path|dir_path|path)":"`
	// inValue matches a part of an argument. The CLI writes a NUL between arguments.
	inValue = `[^\x00]*`
	// maxArgs is less than the longest expression that the CLI accepts.
	maxArgs = 1900
)

// pathRules returns the rules about paths. The CLI rejects an expression with a
// repetition inside repeated parentheses.
func pathRules(dir string) (rules []pathRule) {
	windows, anywhere := !strings.HasPrefix(dir, "/"), dir == "/"
	unless := func(name, but string) string {
		if but != "" && len(but) < maxArgs {
			name += `(?!` + but + `)`
		}
		return name
	}
	absolute := func(name, but string) string {
		return unless(name, but) + `(/|\\|~|[A-Za-z]:|[Ff][Ii][Ll][Ee]:)`
	}
	for _, tool := range []string{"read_file", "list_directory", "glob", "grep_search"} {
		if !anywhere {
			rules = append(rules, pathRule{tool, absolute(pathNames, pathsIn(dir))})
		}
		for _, args := range []string{
			inValue + `\.\.[/\\"]`,
			inValue + `%[0-9A-Fa-f]`, // the CLI decodes it
		} {
			rules = append(rules, pathRule{tool, pathNames + args})
		}
	}
	for tool, name := range map[string]string{"glob": `"pattern":"`, "grep_search": `"(include_pattern|include)":"`} {
		within := patternsIn(dir)
		if !anywhere {
			rules = append(rules, pathRule{tool, absolute(name, within)})
		}
		if windows { // a drive composed from braces or brackets
			rules = append(rules, pathRule{tool, unless(name, within) + inValue + `:`})
		}
		for _, args := range []string{
			`:`,              // git's pathspecs
			inValue + `\.\.`, // a parent directory
			inValue + `\\`,   // a backslash escapes a character
		} {
			rules = append(rules, pathRule{tool, name + args})
		}
		for _, args := range composed {
			rules = append(rules, pathRule{tool, name + args})
		}
	}
	slices.SortFunc(rules, func(a, b pathRule) int { return cmp.Or(cmp.Compare(a.tool, b.tool), cmp.Compare(a.args, b.args)) })
	return rules
}

// composed matches patterns in which braces or brackets make a parent directory
// or an absolute path out of parts that are neither.
//
// Braces keep all characters in order. So two dots can become adjacent only
// if each has a brace or a comma on the side towards the other. They are a
// parent only if each also touches the edge of a name. A flat group, with a
// comma and no braces inside, can disappear only if one of its alternatives is
// empty. A set in brackets is a dot if it contains nothing else. An inverted
// range is empty.
var composed = func() []string {
	const (
		from   = `(?<=[/{},"])` // the start of a name
		to     = `(?=[/{},"])`  // the end of the name
		within = `[^{}"\x00]*`
		flat   = `\{[^{},"\x00]*,` + within + `\}`
		empty  = `\{,|\{` + within + `,[,}]` // an empty alternative of a flat group
		dot    = from + `\.`
		set    = `\[\]?[^\]{},/"\x00]*\.[^\]{},/"\x00]*\]`
	)
	// then matches the text after one dot, up to another dot that can become
	// adjacent.
	then := inValue + `(?<=[{},])\.` + to
	return []string{
		inValue + dot + `(?=[},])` + then,
		inValue + dot + `(?=` + empty + `)` + then,
		inValue + dot + `(?=\{)(?!` + flat + `)` + then,
		inValue + dot + `\{(|` + within + `,)\.` + to,
		// Sets.
		inValue + `\[\]?[^\]{},/"\x00]*[{},]`, // a set composed from braces
		inValue + from + `(\.` + set + `|` + set + `\.|` + set + set + `)` + to,
		inValue + from + set + `[{},]`,
		inValue + `[{},]` + set + to,
		// Absolute paths.
		`(?=\{)(?!` + flat + `)` + inValue + `[{,][/},]`,
		`(?=` + empty + `)\{` + within + `\}[/{]`,
		`\{(|` + within + `,)/`,
	}
}()

// pathsIn returns an expression for the start of the absolute paths in a
// directory, which may be a Windows directory. It returns "" if no expression is
// possible.
func pathsIn(dir string) string {
	if strings.HasPrefix(dir, "/") || !utf8.ValidString(dir) {
		if dir = literal(dir); dir == "" {
			return ""
		}
		return dir + `[/"]`
	}
	const separator = `(/|\\\\)`
	names := strings.Split(strings.TrimSuffix(dir, `\`), `\`)
	for i, name := range names {
		names[i] = literal(name)
	}
	return strings.Join(names, separator) + `("|` + separator + `)`
}

// patternsIn returns an expression for the start of the glob patterns that name
// a directory. It returns "" for a directory with special characters in its
// name, because the CLI would read the name as a pattern too.
func patternsIn(dir string) string {
	if !strings.HasPrefix(dir, "/") {
		dir = strings.TrimSuffix(strings.ReplaceAll(dir, `\`, "/"), "/")
	}
	if dir == "" || !utf8.ValidString(dir) || globs().MatchString(dir) {
		return ""
	}
	return literal(dir) + "/"
}

// globs matches the special characters of a glob pattern.
var globs = lazy.Regexp(`[*?\[\]{}\\]|[!@+]\(`)

// literal returns an expression that matches a path inside JSON. It returns ""
// for a path that is not valid UTF-8.
func literal(path string) string {
	if !utf8.ValidString(path) {
		return ""
	}
	var b strings.Builder
	for _, r := range path {
		escaped := ""
		switch r {
		case '"', '\\':
			escaped = `\` + string(r)
		case '\b':
			escaped = `\b`
		case '\f':
			escaped = `\f`
		case '\n':
			escaped = `\n`
		case '\r':
			escaped = `\r`
		case '\t':
			escaped = `\t`
		default:
			escaped = string(r)
			if r < ' ' {
				escaped = fmt.Sprintf(`\u%04x`, r)
			}
		}
		for _, r := range escaped {
			if r == '/' || r == '-' || r == '_' || '0' <= r && r <= '9' || 'A' <= r && r <= 'Z' || 'a' <= r && r <= 'z' || r >= 0x80 {
				b.WriteRune(r)
			} else {
				fmt.Fprintf(&b, `\x%02x`, r)
			}
		}
	}
	return b.String()
}

// writeTools are the tools that changePolicy allows in addition.
var writeTools = []string{"write_file", "replace"}

// readTools are the tools that both policies allow.
var readTools = []string{"read_file", "list_directory", "glob", "grep_search", "google_web_search"}

// searchTool is the web search among the readTools.
const searchTool = "google_web_search"

// readAliases are older names for readTools that the CLI still accepts.
var readAliases = []string{"search_file_content"}

// systemPolicies returns the directory with the administrator's policies. The CLI
// ignores --admin-policy if it contains any.
func systemPolicies() string {
	return filepath.Join(settings.SystemDir(), "policies")
}

var permissive = lazy.Regexp(`(?i)["'](allow|ask_user)["']`)

// checkSystemPolicies returns an error if policies in dir override Pollux's
// policy and allow something. Pollux's policy is also passed as a user policy,
// so system policies that only deny do no harm.
func checkSystemPolicies(dir string) error {
	files, _ := filepath.Glob(filepath.Join(dir, "*.toml"))
	for _, f := range files {
		data, err := os.ReadFile(f)
		if err != nil || permissive().Match(data) {
			return fault(agent.Unenforceable, "the policies in "+dir+" make Gemini CLI ignore Pollux's read-only policy")
		}
	}
	return nil
}
