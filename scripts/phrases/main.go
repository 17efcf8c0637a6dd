// Command phrases reports turns of phrase that do not read as plain English,
// in the Go comments, the documentation and the messages of a repository. It
// is a report and never fails because of what it finds.
//
//	go run ./scripts/phrases [-v] [DIRECTORY]
package main

import (
	"cmp"
	"flag"
	"fmt"
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"io"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// phrases are the turns of phrase to avoid, with what matches each.
var phrases = []struct {
	name  string
	match *regexp.Regexp
}{
	{"held to", word(`(held|holds?|holding) (\w+ ){0,3}to (its|the|their|a|reading|what|this|that|it)`)},
	{"mend", word(`mend(s|ed|ing)?`)},
	{"hear/tell of", word(`(hears?|heard|hearing|tells?|told|telling) of`)},
	{"is told", word(`(is|are|was|were|be|been) told`)},
	{"to be had", word(`(to|be|may|can) be had|to be had|has to be had`)},
	{"What is X is Y", regexp.MustCompile(`(^|[.:;?!] |: )What (is|are|was|were|has|have|had|does|do|can|cannot|could|it|they|he|we|others|nobody)\b`)},
	{"who has no", word(`who (has|have|had|is|are) (no|not)`)},
	{"door, front, far", word(`doors?|the front|the far (side|end|one|host|machine)`)},
	{"spare, exam, Whole", word(`spares?|exams?|Whole`)},
	{"Warm as a noun", word(`(the|a|no|its) Warm|Warms`)},
	{"anew", word(`anew`)},
	{"besides", word(`besides`)},
	{"all the same", word(`all the same`)},
	{"passes over", word(`(pass|passes|passed|passing) over`)},
	{"comes to", word(`(come|comes|came|coming) (to|of|about)`)},
	{"of the X's", regexp.MustCompile(`\bof (the |a |an )?\w+'s( own)?([.,;:)]|$| (is|are|was|that|which|and|or|to|in|for|by|on|at|with|as|when|it|has)\b)`)},
	{"of ours", word(`of (ours|yours|theirs|hers|its own|their own|our own|one's own|your own)`)},
	{"by which", word(`(by|with|of|from) (which|whose|whom)`)},
	{"stands beside", word(`(stand|stands|stood) (beside|for itself|there)`)},
	{"as ever", word(`as ever|for ever`)},
	{"the way of", word(`the ways? of`)},
	{"goes on with", word(`(go|goes|went|going) on( with)?`)},
	{"no X of it", word(`(no|none|nothing)( \w+)? of (it|its|that|what|theirs)`)},
	{"there is none", word(`there (is|are|was) none|is no longer there|is (there )?no more`)},
	{"what it has", word(`what (it|they|one) (has|have|had)|what there (is|was)`)},
	{"X: the tests'", regexp.MustCompile(`: (the )?(tests?|demo|user|doctor|kit|companion|page)('s|s')(\W|$)`)},
	{"X is what Y is", regexp.MustCompile(`(^|[.;:] )(An? |The )?\w+ (is|are) (what|who|whoever|whatever)\b`)},
	{"else (otherwise)", word(`(which|that|and|it|or|who) else|else (is|are|it|the|there|nothing|they)`)},
	{"puts right", word(`puts? right|sets? right|(is|are) well`)},
	{"old words", word(`hence|thus|whence|wherein|thereof|whereof|thereby|unasked|lest|nought|alike|of late|for good`)},
	{"is to be, shall", word(`(is|are) (not )?to be|ought to|shall`)},
}

func word(expr string) *regexp.Regexp { return regexp.MustCompile(`\b(` + expr + `)\b`) }

// A count is how much of one kind of text matches.
type count struct {
	name           string
	lines, matched int
	byPhrase       []int
}

var verbose = flag.Bool("v", false, "print each match and each long line")

// text counts the matches in a text of several lines, which starts at a line of
// a file. A phrase may be wrapped.
func (c *count) text(file string, line int, text string) {
	lines := strings.Split(text, "\n")
	joined := strings.Join(lines, " ")
	hit := make(map[int]bool)
	for i, p := range phrases {
		for _, m := range p.match.FindAllStringIndex(joined, -1) {
			n := strings.Count(text[:m[0]], "\n")
			if *verbose {
				fmt.Printf("%s:%d: %s: %s\n", file, line+n, p.name, strings.TrimSpace(lines[n]))
			}
			hit[n] = true
			c.byPhrase[i]++
		}
	}
	for _, l := range lines {
		if strings.TrimSpace(l) != "" {
			c.lines++
		}
	}
	c.matched += len(hit)
}

func newCount(name string) *count { return &count{name: name, byPhrase: make([]int, len(phrases))} }

// A report is what is counted in a repository.
type report struct {
	comments, docs, messages *count
	openings                 map[string]int // function comments, by how they start
	shadows                  []string       // positions of shadowed predeclared names
	long                     []string       // positions of lines over maxColumns
}

// maxColumns is the longest a line should be, with tabs of four columns.
const maxColumns = 120

func main() {
	log.SetFlags(0)
	log.SetPrefix("phrases: ")
	flag.Parse()
	dir := cmp.Or(flag.Arg(0), ".")
	list := exec.Command("git", "ls-files", "--cached", "--others", "--exclude-standard")
	list.Dir = dir
	out, err := list.Output()
	if err != nil {
		log.Fatal(err)
	}
	r := report{
		comments: newCount("Go comments"), docs: newCount("docs and help"), messages: newCount("Go strings"),
		openings: make(map[string]int),
	}
	for file := range strings.Lines(string(out)) {
		file = strings.TrimSpace(file)
		data, err := os.ReadFile(filepath.Join(dir, file))
		if os.IsNotExist(err) {
			continue // deleted, but not in the index
		} else if err != nil {
			log.Fatal(err)
		}
		switch {
		case strings.HasPrefix(file, "scripts/phrases/"):
		case strings.HasSuffix(file, ".go"):
			if err := r.source(file, data); err != nil {
				log.Fatal(err)
			}
		case strings.HasSuffix(file, ".md") && !strings.Contains(file, "testdata"), strings.HasPrefix(file, "editors/") && strings.Contains(file, "/doc/"):
			r.documentation(file, string(data))
		}
	}
	r.print(os.Stdout)
}

var fence = regexp.MustCompile("(?ms)^ *```.*?^ *```")

// documentation counts a page of documentation, without its code blocks.
func (r *report) documentation(file, text string) {
	text = fence.ReplaceAllStringFunc(text, func(block string) string {
		return strings.Repeat("\n", strings.Count(block, "\n"))
	})
	r.docs.text(file, 1, text)
}

// source counts a Go file.
func (r *report) source(file string, data []byte) error {
	fset := token.NewFileSet()
	tree, err := parser.ParseFile(fset, file, data, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	position := func(p token.Pos) string { return fmt.Sprintf("%s:%d", file, fset.Position(p).Line) }
	for _, group := range tree.Comments {
		var lines []string
		for _, c := range group.List {
			if !strings.HasPrefix(c.Text, "//go:") {
				lines = append(lines, strings.Trim(strings.TrimLeft(c.Text, "/*"), " \t*/"))
			}
		}
		r.comments.text(file, fset.Position(group.Pos()).Line, strings.Join(lines, "\n"))
	}
	test := strings.HasSuffix(file, "_test.go")
	ast.Inspect(tree, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ImportSpec:
			return false
		case *ast.BasicLit:
			if s, err := strconv.Unquote(n.Value); n.Kind == token.STRING && !test && err == nil && strings.Contains(strings.TrimSpace(s), " ") {
				r.messages.text(file, fset.Position(n.Pos()).Line, s)
			}
		case *ast.FuncDecl:
			if n.Doc != nil && !test {
				r.openings[opening(n)]++
			}
		}
		for _, id := range defines(n) {
			if doc.IsPredeclared(id.Name) {
				r.shadows = append(r.shadows, position(id.Pos())+" "+id.Name)
			}
		}
		return true
	})
	for i, line := range strings.Split(string(data), "\n") {
		if utf8.RuneCountInString(strings.ReplaceAll(line, "\t", "    ")) > maxColumns {
			r.long = append(r.long, fmt.Sprintf("%s:%d", file, i+1))
		}
	}
	return nil
}

// opening classifies how a function's comment starts.
func opening(f *ast.FuncDecl) string {
	words := strings.Fields(f.Doc.Text())
	if len(words) > 1 && words[0] == f.Name.Name {
		words = words[1:]
	}
	switch first := strings.ToLower(strings.Trim(words[0], ".,:;")); {
	case first == "is", first == "are", first == "was", first == "has", first == "have":
		return "X is, are, has"
	case strings.HasSuffix(first, "s") && !strings.HasSuffix(first, "'s"):
		return "X returns, X starts"
	}
	return "other"
}

// defines returns the names that a node declares in a scope.
func defines(n ast.Node) (ids []*ast.Ident) {
	expressions := func(list ...ast.Expr) {
		for _, e := range list {
			if id, ok := e.(*ast.Ident); ok {
				ids = append(ids, id)
			}
		}
	}
	switch n := n.(type) {
	case *ast.AssignStmt:
		if n.Tok == token.DEFINE {
			expressions(n.Lhs...)
		}
	case *ast.RangeStmt:
		if n.Tok == token.DEFINE {
			expressions(n.Key, n.Value)
		}
	case *ast.ValueSpec:
		ids = n.Names
	case *ast.TypeSpec:
		ids = []*ast.Ident{n.Name}
	case *ast.FuncDecl:
		if n.Recv == nil {
			ids = append(ids, n.Name)
		} else {
			ids = append(ids, fields(n.Recv)...)
		}
	case *ast.FuncType:
		ids = append(fields(n.Params), fields(n.Results)...)
	}
	return ids
}

func fields(list *ast.FieldList) (ids []*ast.Ident) {
	if list != nil {
		for _, f := range list.List {
			ids = append(ids, f.Names...)
		}
	}
	return ids
}

func (r *report) print(w io.Writer) {
	counts := []*count{r.comments, r.docs, r.messages}
	fmt.Fprintf(w, "%-22s", "")
	for _, c := range counts {
		fmt.Fprintf(w, "%14s", c.name)
	}
	row := func(name string, value func(*count) string) {
		fmt.Fprintf(w, "\n%-22s", name)
		for _, c := range counts {
			fmt.Fprintf(w, "%14s", value(c))
		}
	}
	order := make([]int, len(phrases))
	total := func(i int) (n int) {
		for _, c := range counts {
			n += c.byPhrase[i]
		}
		return n
	}
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return total(b) - total(a) })
	for _, i := range order {
		if total(i) > 0 {
			row(phrases[i].name, func(c *count) string { return strconv.Itoa(c.byPhrase[i]) })
		}
	}
	row("lines", func(c *count) string { return strconv.Itoa(c.lines) })
	row("lines that match", func(c *count) string { return strconv.Itoa(c.matched) })
	row("per cent", func(c *count) string { return fmt.Sprintf("%.1f %%", 100*float64(c.matched)/float64(max(c.lines, 1))) })
	fmt.Fprintf(w, "\n\nfunction comments:\n")
	for _, name := range []string{"X returns, X starts", "X is, are, has", "other"} {
		fmt.Fprintf(w, "%6d  %s\n", r.openings[name], name)
	}
	inTests := 0
	for _, p := range r.long {
		if strings.Contains(p, "_test.go:") {
			inTests++
		} else if *verbose {
			fmt.Fprintf(w, "%s: over %d columns\n", p, maxColumns)
		}
	}
	fmt.Fprintf(w, "\nlines over %d columns: %d, and %d in tests\n", maxColumns, len(r.long)-inTests, inTests)
	fmt.Fprintf(w, "\nshadowed predeclared names: %d\n", len(r.shadows))
	for _, p := range r.shadows {
		fmt.Fprintf(w, "  %s\n", p)
	}
}
