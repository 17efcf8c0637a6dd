package cli

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/charmbracelet/x/ansi"
	"github.com/spf13/cobra"

	"pollux/docs"
)

func TestHelp(t *testing.T) {
	for args, want := range map[string]string{
		"help":              "pollux help help     list the pages of the manual",
		"help --all":        "\n\nFor editors, shells, MCP clients and scripts:\n  bridge ",
		"--help":            "\n\nEvery day:\n  ask ",
		"help help":         "  agents       Agents: ",
		"help claude-code":  "# Claude Code and opencode", // the name of the file
		"help bridge":       "# The bridge: ask",          // the page, not the command
		"help agents":       "\n  open file, selection\n    Gemini CLI 0.61.0: yes\n",
		"help journal":      "pollux journal COMMAND", // the command
		"help journal show": "pollux journal show ID",
		"journal --help":    "pollux journal COMMAND",
		"help install":      "pollux install EDITOR --remove",
	} {
		var out, errs bytes.Buffer
		code := Run(t.Context(), IO{strings.NewReader(""), &out, &errs}, strings.Fields(args))
		if code != 0 || !strings.Contains(out.String(), want) || errs.Len() > 0 {
			t.Errorf("pollux %s: exit code %d, %q, errors %q; want %q", args, code, out.String(), errs.String(), want)
		}
	}
	for args, want := range map[string]string{
		"help nosuch":      `unknown topic "nosuch": use one of agents, bridge, claude, codex, commands, `,
		"help remotte":     "did you mean `pollux help remote`?",
		"help jurnal":      "did you mean `pollux help journal`?",
		"help journal foo": `unknown topic "journal foo"`,
	} {
		var errs bytes.Buffer
		if code := Run(t.Context(), IO{strings.NewReader(""), io.Discard, &errs}, strings.Fields(args)); code != 2 || !strings.Contains(errs.String(), want) {
			t.Errorf("pollux %s: exit code %d, errors %q; want %q", args, code, errs.String(), want)
		}
	}
}

// Users see what they start themselves; one line says how to see the rest.
func TestHelpGroups(t *testing.T) {
	text := func(args ...string) string {
		var out bytes.Buffer
		if code := Run(t.Context(), IO{strings.NewReader(""), &out, io.Discard}, args); code != 0 {
			t.Errorf("%v: exit code %d", args, code)
		}
		return out.String()
	}
	brief, all := text("help"), text("help", "--all")
	for line := range strings.Lines(all) {
		if ansi.StringWidth(line) > 81 {
			t.Errorf("too wide: %q", line)
		}
	}
	for _, cmd := range Root().Commands() {
		row := "\n  " + cmd.Name() + " "
		if shown := strings.Contains(brief, row); shown != (cmd.GroupID != "") {
			t.Errorf("%s is shown: %v", cmd.Name(), shown)
		}
		if shown := strings.Contains(all, row); shown == cmd.Hidden {
			t.Errorf("--all shows %s: %v", cmd.Name(), shown)
		}
	}
	if row := "\n  completion "; strings.Contains(brief, row) || !strings.Contains(all, row) {
		t.Errorf("completion: %s\n%s", brief, all)
	}
	if !strings.Contains(brief, "pollux help --all") || strings.Contains(all, "pollux help --all") {
		t.Errorf("%s\n%s", brief, all)
	}
	for _, args := range [][]string{{}, {"--help"}, {"-h"}} {
		if got := text(args...); got != brief {
			t.Errorf("%v shows\n%s", args, got)
		}
	}
}

// The page of commands has every command.
func TestCommandsPage(t *testing.T) {
	for _, cmd := range Root().Commands() {
		if !cmd.Hidden && !strings.Contains(readTopic("commands"), "\n| `pollux "+cmd.Name()) {
			t.Errorf("it does not have %s", cmd.Name())
		}
	}
}

// Links lead to files and headings that exist.
func TestLinks(t *testing.T) {
	const root = "../.."
	files, _ := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	for _, name := range append(files, filepath.Join(root, "README.md"), filepath.Join(root, "CONTRIBUTING.md"), filepath.Join(root, "release", "README.md")) {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range link().FindAllStringSubmatch(string(text), -1) {
			file, heading, _ := strings.Cut(m[2], "#")
			if strings.Contains(m[2], "://") {
				continue
			}
			target := name
			if file != "" {
				target = filepath.Join(filepath.Dir(name), filepath.FromSlash(file))
			}
			linked, err := os.ReadFile(target)
			if err != nil && filepath.Ext(target) != "" {
				t.Errorf("%s: %v", name, err)
			}
			if heading != "" && !slices.Contains(anchors(string(linked)), heading) {
				t.Errorf("%s: %s has no heading %q", name, target, heading)
			}
		}
	}
}

// anchors returns what links to the headings of a page say after #.
func anchors(page string) (all []string) {
	other := regexp.MustCompile(`[^\p{L}\p{N}_ -]`)
	for line := range strings.Lines(page) {
		if heading := strings.TrimLeft(line, "#"); heading != line {
			name := other.ReplaceAllString(strings.ToLower(strings.TrimSpace(heading)), "")
			all = append(all, strings.ReplaceAll(name, " ", "-"))
		}
	}
	return all
}

var (
	helpTopic = regexp.MustCompile("pollux help ([a-z]+)")
	docsFile  = regexp.MustCompile(`docs/[A-Z]+\.md`)
)

// Installed users have no docs folder: commands point to topics, which exist, and so do
// the pages of the manual.
func TestHelpNamesTopics(t *testing.T) {
	check := func(where, text string) {
		for _, m := range helpTopic.FindAllStringSubmatch(text, -1) {
			if !slices.Contains(topics(), m[1]) && m[1] != "help" {
				t.Errorf("%s: there is no topic %s", where, m[1])
			}
		}
		if file := docsFile.FindString(text); file != "" {
			t.Errorf("%s names %s", where, file)
		}
	}
	eachCommand(Root(), func(cmd *cobra.Command) { check(cmd.CommandPath(), cmd.Long) })
	for _, topic := range topics() {
		text := readTopic(topic)
		if !strings.HasPrefix(text, "# ") {
			t.Errorf("%s has no title", topic)
		}
		check(topic, forUsers(text))
	}
	for _, name := range docs.Project {
		if _, err := docs.FS.ReadFile(name); err != nil || slices.Contains(topics(), topicOf(name)) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestForUsers(t *testing.T) {
	for text, want := range map[string]string{
		"see [Claude Code](CLAUDE-CODE.md#x).": "see Claude Code (`pollux help claude`).",
		"[POOL.md](POOL.md#x) says":            "`pollux help pool` says",
		"Yes ([how](POOL.md#x)).":              "Yes (how: `pollux help pool`).",
		"[above](#x), [code](../main.go)":      "above, code",
		"[the code](ARCHITECTURE.md)":          "the code",
		"[site](https://example.org/a.md)":     "site (https://example.org/a.md)",
		"![a\npicture](demo.png)\n\nText":      "Text",
		"[two\nlines](POOL.md)":                "two\nlines (`pollux help pool`)",
		"<!-- a -->\nText":                     "Text",
	} {
		if got := forUsers(text); got != want {
			t.Errorf("%q became %q, want %q", text, got, want)
		}
	}
}

func TestFormatMarkdown(t *testing.T) {
	const text = "# A `title`\n\nA paragraph with `code` and\n**bold** words.\n\n" +
		"- one item that is long enough for two lines\n- two\n\n    make `demo`\n\n```\nfenced\n```\n\n" +
		"| key | does | why |\n| --- | --- | --- |\n| `a` | `x \\| y`<br>z | |\n\nEnd.\n"
	const want = "A title\n\nA paragraph with `code` and\nbold words.\n\n" +
		"- one item that is long enough\n  for two lines\n- two\n\n    make `demo`\n\n    fenced\n\n" +
		"  `a`\n    does: `x | y`; z\n\nEnd.\n"
	plain := formatMarkdown(text, 33, boldText)
	if got := ansi.Strip(plain); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if strings.Contains(plain, "\x1b[36m") || !strings.Contains(plain, "\x1b[1m") {
		t.Errorf("without colours: %q", plain)
	}
	coloured := formatMarkdown("see `a long\ncommand` here", 12, colouredText)
	if want := "see \x1b[m\x1b[36ma long\x1b[m\n\x1b[m\x1b[36mcommand\x1b[m\nhere\n"; coloured != want {
		t.Errorf("a style over two lines: %q", coloured)
	}
	if got, want := formatMarkdown("start `pollux pool --log info`", 22, plainText), "start `pollux pool\n--log info`\n"; got != want {
		t.Errorf("a flag is broken: %q, want %q", got, want)
	}
	// A file or a pipe receives no styles, and sees where the headings are.
	if got := formatMarkdown(text, 33, plainText); got != "# "+want {
		t.Errorf("got\n%s\nwant\n# %s", got, want)
	}
}

// A page has what a user needs: no line that is too wide, except for code and words
// without spaces, no marks of Markdown, and nothing for developers.
func TestPagesAreForUsers(t *testing.T) {
	developers := regexp.MustCompile("`(Test|Fuzz)[A-Z]|<br>|<!--|make (test|bench)|`(e2e|internal)/|^ *test: ")
	for _, topic := range topics() {
		for line := range strings.Lines(formatMarkdown(forUsers(readTopic(topic)), 80, plainText)) {
			if ansi.StringWidth(line) > 81 && !strings.HasPrefix(line, "    ") {
				t.Errorf("%s: %q", topic, line)
			}
			if developers.MatchString(line) {
				t.Errorf("%s has something for developers: %q", topic, line)
			}
		}
	}
}
