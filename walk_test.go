package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"regexp"
	"strings"
	"testing"
)

// maxWalk limits the functions of a walk.
const maxWalk = 25

// TestWalks checks the walks of docs/ARCHITECTURE.md: lists of functions, in code blocks with
// the word walk, as "agent/pool.Pool.Attempt" below internal, one a line, and what it does.
// Each function exists, and no two of a walk have the same name.
func TestWalks(t *testing.T) {
	doc, err := os.ReadFile("docs/ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	walks := regexp.MustCompile("(?s)\n```walk\n(.*?)\n```\n").FindAllStringSubmatch(string(doc), -1)
	if len(walks) == 0 {
		t.Fatal("docs/ARCHITECTURE.md has no walk")
	}
	known := make(map[string]map[string]bool) // by package
	for _, walk := range walks {
		lines := strings.Split(walk[1], "\n")
		if len(lines) > maxWalk {
			t.Errorf("the walk from %s has %d functions, more than %d", lines[0], len(lines), maxWalk)
		}
		seen := make(map[string]string)
		for _, line := range lines {
			name, _, _ := strings.Cut(line, " ")
			slash := strings.LastIndex(name, "/") + 1
			pkg, function, _ := strings.Cut(name[slash:], ".")
			pkg = name[:slash] + pkg
			if known[pkg] == nil {
				known[pkg] = functions(t, "internal/"+pkg)
			}
			if !known[pkg][function] {
				t.Errorf("docs/ARCHITECTURE.md names %s, which does not exist", name)
			}
			short := strings.ToLower(function[strings.LastIndex(function, ".")+1:])
			if other := seen[short]; other != "" {
				t.Errorf("%s and %s in a walk of docs/ARCHITECTURE.md have the same name", other, name)
			}
			seen[short] = name
		}
	}
}

// functions returns the functions of a package, as "Type.method" or "function".
func functions(t *testing.T, dir string) map[string]bool {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	all := make(map[string]bool)
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), ".go") || strings.HasSuffix(e.Name(), "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), dir+"/"+e.Name(), nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok {
				all[receiver(f)+f.Name.Name] = true
			}
		}
	}
	return all
}

// receiver returns the type of a method and a dot, or "" for a function.
func receiver(f *ast.FuncDecl) string {
	if f.Recv == nil {
		return ""
	}
	typ := f.Recv.List[0].Type
	for {
		switch x := typ.(type) {
		case *ast.StarExpr:
			typ = x.X
		case *ast.IndexExpr: // of a generic type
			typ = x.X
		case *ast.Ident:
			return x.Name + "."
		default:
			return ""
		}
	}
}
