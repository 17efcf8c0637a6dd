package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// maxAllocs limits what a package may allocate when the program starts. It counts
// allocations and not time, because every machine and every run has the same number.
const maxAllocs = 400

// startAllocs are the packages over that limit.
var startAllocs = map[string]int{
	"github.com/santhosh-tekuri/jsonschema/v6": 22_000, // compiles the metaschemas of all drafts
}

// A command does not pay for what it does not use: packages do no work when the program
// starts.
func TestStart(t *testing.T) {
	program := filepath.Join(t.TempDir(), "pollux")
	if out, err := exec.Command("go", "build", "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	cmd := exec.Command(program, "--version")
	cmd.Env = append(os.Environ(), "GODEBUG=inittrace=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	lines := regexp.MustCompile(`(?m)^init (\S+) .* (\d+) allocs$`).FindAllSubmatch(out, -1)
	if len(lines) == 0 {
		t.Fatalf("no packages: %s", out)
	}
	for _, m := range lines {
		name := string(m[1])
		n, _ := strconv.Atoi(string(m[2]))
		if n > max(maxAllocs, startAllocs[name]) {
			t.Errorf("%s allocates %d times when the program starts", name, n)
		}
	}
}

// The expressions that are compiled at their first use are valid.
func TestRegexps(t *testing.T) {
	n := 0
	err := filepath.WalkDir("internal", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(node ast.Node) bool {
			call, ok := node.(*ast.CallExpr)
			if !ok || len(call.Args) != 1 || !isLazyRegexp(call.Fun) {
				return true
			}
			n++
			if _, err := regexp.Compile(text(call.Args[0])); err != nil {
				t.Errorf("%s: %v", path, err)
			}
			return true
		})
		return nil
	})
	if err != nil || n == 0 {
		t.Errorf("%d expressions, %v", n, err)
	}
}

func isLazyRegexp(fun ast.Expr) bool {
	s, ok := fun.(*ast.SelectorExpr)
	if !ok || s.Sel.Name != "Regexp" {
		return false
	}
	pkg, ok := s.X.(*ast.Ident)
	return ok && pkg.Name == "lazy"
}

// text returns the value of an expression of strings, with a letter for each name.
func text(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.BasicLit:
		s, _ := strconv.Unquote(e.Value)
		return s
	case *ast.BinaryExpr:
		return text(e.X) + text(e.Y)
	}
	return "x"
}
