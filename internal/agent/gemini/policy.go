package gemini

import (
	"bytes"
	"cmp"
	_ "embed"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"pollux/internal/agent"
	"pollux/internal/agent/gemini/settings"
)

// readOnlyPolicy allows reading and searching and nothing else, in every approval
// mode. The CLI does not even offer denied tools to the model.
//
//go:embed readonly.toml
var readOnlyPolicy []byte

// changePolicy also allows the tools that write, in a process whose files Pollux
// serves.
//
//go:embed changes.toml
var changePolicy []byte

// policy returns the rules for a CLI that works in dir: which tools it may call,
// and that no path and no pattern of a call leads out of dir. The CLI checks most
// paths itself. But its glob tool lists the names in any directory, and its other
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
// repetition inside of repeated parentheses.
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
			inValue + `%[0-9A-Fa-f]`, // which the CLI decodes
		} {
			rules = append(rules, pathRule{tool, pathNames + args})
		}
	}
	for tool, name := range map[string]string{"glob": `"pattern":"`, "grep_search": `"(include_pattern|include)":"`} {
		within := patternsIn(dir)
		if !anywhere {
			rules = append(rules, pathRule{tool, absolute(name, within)})
		}
		if windows { // a drive composed of braces or brackets
			rules = append(rules, pathRule{tool, unless(name, within) + inValue + `:`})
		}
		for _, args := range []string{
			`:`,              // git's pathspecs
			inValue + `\.\.`, // a parent
			inValue + `\\`,   // which escapes a character
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

// composed matches patterns in which braces or brackets make a parent directory or
// an absolute path out of parts that are neither.
//
// Braces keep the order of the characters. So two dots meet only if each has a
// brace or a comma on the side of the other, and they are a parent only if each is
// also at the edge of a name. A flat group, with a comma and no braces inside,
// disappears only if one of its alternatives is empty. A set in brackets is a dot
// if it contains nothing else; an inverted range is empty.
var composed = func() []string {
	const (
		from   = `(?<=[/{},"])` // the start of a name
		to     = `(?=[/{},"])`  // its end
		within = `[^{}"\x00]*`
		flat   = `\{[^{},"\x00]*,` + within + `\}`
		empty  = `\{,|\{` + within + `,[,}]` // an alternative of a flat group
		dot    = from + `\.`
		set    = `\[\]?[^\]{},/"\x00]*\.[^\]{},/"\x00]*\]`
	)
	// then matches what follows one dot, up to another that it can meet.
	then := inValue + `(?<=[{},])\.` + to
	return []string{
		inValue + dot + `(?=[},])` + then,
		inValue + dot + `(?=` + empty + `)` + then,
		inValue + dot + `(?=\{)(?!` + flat + `)` + then,
		inValue + dot + `\{(|` + within + `,)\.` + to,
		// Sets.
		inValue + `\[\]?[^\]{},/"\x00]*[{},]`, // one composed of braces
		inValue + from + `(\.` + set + `|` + set + `\.|` + set + set + `)` + to,
		inValue + from + set + `[{},]`,
		inValue + `[{},]` + set + to,
		// Absolute paths.
		`(?=\{)(?!` + flat + `)` + inValue + `[{,][/},]`,
		`(?=` + empty + `)\{` + within + `\}[/{]`,
		`\{(|` + within + `,)/`,
	}
}()

// pathsIn returns an expression for the start of the absolute paths in a directory,
// which may be a Windows directory. It is empty if no expression is possible.
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

// patternsIn returns an expression for the start of the glob patterns that name a
// directory. It is empty for a directory with special characters in its name,
// which the CLI would read as a pattern too.
func patternsIn(dir string) string {
	if !strings.HasPrefix(dir, "/") {
		dir = strings.TrimSuffix(strings.ReplaceAll(dir, `\`, "/"), "/")
	}
	if dir == "" || !utf8.ValidString(dir) || globs.MatchString(dir) {
		return ""
	}
	return literal(dir) + "/"
}

// globs matches the special characters of a glob pattern.
var globs = regexp.MustCompile(`[*?\[\]{}\\]|[!@+]\(`)

// literal returns an expression that matches a path inside of JSON. It is empty
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

// searchTool is the web search of the readTools.
const searchTool = "google_web_search"

// readAliases are older names of the readTools that the CLI still accepts.
var readAliases = []string{"search_file_content"}

// systemPolicies returns the directory of the administrator's policies. The CLI
// ignores --admin-policy if it contains any.
func systemPolicies() string {
	return filepath.Join(settings.SystemDir(), "policies")
}

var permissive = regexp.MustCompile(`(?i)["'](allow|ask_user)["']`)

// checkSystemPolicies returns an error if policies in dir override ours and allow
// something. Ours is also passed as a user's policy, so policies that only deny
// do no harm.
func checkSystemPolicies(dir string) error {
	files, _ := filepath.Glob(filepath.Join(dir, "*.toml"))
	for _, f := range files {
		data, err := os.ReadFile(f)
		if err != nil || permissive.Match(data) {
			return fault(agent.Unenforceable, "the policies in "+dir+" make Gemini CLI ignore Pollux's read-only policy")
		}
	}
	return nil
}
