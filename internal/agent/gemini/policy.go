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

// readOnlyPolicy lets the CLI read and search and nothing else, in every
// approval mode. Tools that it denies are not even offered to the model.
//
//go:embed readonly.toml
var readOnlyPolicy []byte

// changePolicy lets it call the tools that write, too, in a process whose
// files we serve.
//
//go:embed changes.toml
var changePolicy []byte

// policy returns the rules for a CLI that works in dir: what it may call, and
// that no path and no pattern of a call leads out of dir. The CLI checks most
// paths itself, but its glob lists the names of any directory, and its other
// tools also read its own directory for the project, which holds the transcripts
// of earlier questions.
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
	// pathNames are the arguments that are paths, by their names in all versions.
	pathNames = `"(file_path|absolute_path|dir_path|path)":"`
	// inValue is a part of an argument. The CLI writes a NUL between arguments.
	inValue = `[^\x00]*`
	// maxArgs is less than the longest expression that the CLI takes.
	maxArgs = 1900
)

// pathRules are the rules about paths. The CLI refuses an expression in which
// something is repeated within parentheses that are repeated.
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
		if windows { // a drive that braces or brackets put together
			rules = append(rules, pathRule{tool, unless(name, within) + inValue + `:`})
		}
		for _, args := range []string{
			`:`,              // git's pathspecs
			inValue + `\.\.`, // a parent
			inValue + `\\`,   // which takes a character's meaning away
		} {
			rules = append(rules, pathRule{tool, name + args})
		}
		for _, args := range putTogether {
			rules = append(rules, pathRule{tool, name + args})
		}
	}
	slices.SortFunc(rules, func(a, b pathRule) int { return cmp.Or(cmp.Compare(a.tool, b.tool), cmp.Compare(a.args, b.args)) })
	return rules
}

// putTogether are expressions for patterns in which braces or brackets make a
// parent or an absolute path out of parts that are neither.
//
// Braces keep the order of the characters. So two dots come together only if each
// has a brace or a comma on the side of the other, and they are a parent only if
// each is also at the edge of a name. A flat group, which has a comma and no braces
// inside, does not vanish unless one of its alternatives is empty. A set in brackets
// is a dot if it holds nothing else; a range that is upside down counts as nothing.
var putTogether = func() []string {
	const (
		from   = `(?<=[/{},"])` // the start of a name
		to     = `(?=[/{},"])`  // its end
		within = `[^{}"\x00]*`
		flat   = `\{[^{},"\x00]*,` + within + `\}`
		empty  = `\{,|\{` + within + `,[,}]` // an alternative of a flat group
		dot    = from + `\.`
		set    = `\[\]?[^\]{},/"\x00]*\.[^\]{},/"\x00]*\]`
	)
	// then is what follows one dot, up to another that it can meet.
	then := inValue + `(?<=[{},])\.` + to
	return []string{
		inValue + dot + `(?=[},])` + then,
		inValue + dot + `(?=` + empty + `)` + then,
		inValue + dot + `(?=\{)(?!` + flat + `)` + then,
		inValue + dot + `\{(|` + within + `,)\.` + to,
		// Sets.
		inValue + `\[\]?[^\]{},/"\x00]*[{},]`, // one that braces put together
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
// which may be one of Windows, or nothing if there is none.
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
// directory, or nothing if there is none: the CLI reads special characters in the
// directory's own name as a pattern too.
func patternsIn(dir string) string {
	if !strings.HasPrefix(dir, "/") {
		dir = strings.TrimSuffix(strings.ReplaceAll(dir, `\`, "/"), "/")
	}
	if dir == "" || !utf8.ValidString(dir) || globs.MatchString(dir) {
		return ""
	}
	return literal(dir) + "/"
}

// globs matches what is special in a glob pattern.
var globs = regexp.MustCompile(`[*?\[\]{}\\]|[!@+]\(`)

// literal returns an expression that matches a path where it stands in JSON, or
// nothing for a path that is not valid UTF-8.
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

// writeTools are the tools that changePolicy allows besides.
var writeTools = []string{"write_file", "replace"}

// ReadTools are the tools that the policy allows.
var ReadTools = []string{"read_file", "list_directory", "glob", "grep_search", "google_web_search"}

// readAliases are older names that the CLI takes for one of [ReadTools].
var readAliases = []string{"search_file_content"}

// systemPolicies is where an administrator's policies are. The CLI ignores
// --admin-policy when there are any.
func systemPolicies() string {
	return filepath.Join(settings.SystemDir(), "policies")
}

var permissive = regexp.MustCompile(`(?i)["'](allow|ask_user)["']`)

// checkSystemPolicies reports an error when policies in dir stand above ours
// and allow something. Ours is then passed as the user's too, which holds
// against all but the administrator's own.
func checkSystemPolicies(dir string) error {
	files, _ := filepath.Glob(filepath.Join(dir, "*.toml"))
	for _, f := range files {
		data, err := os.ReadFile(f)
		if err != nil || permissive.Match(data) {
			return &agent.Error{Kind: agent.Unenforceable, Message: "the policies in " + dir + " make Gemini CLI ignore Pollux's read-only policy"}
		}
	}
	return nil
}
