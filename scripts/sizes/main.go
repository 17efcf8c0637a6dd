// Command sizes reports the lines of each package of a repository, its longest
// files and its longest functions. Blank lines and comments count.
//
//	go run ./scripts/sizes [DIRECTORY]
package main

import (
	"bytes"
	"cmp"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"log"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// A size is the number of lines of something.
type size struct {
	name  string
	lines int
}

// A pkg is the size of a package.
type pkg struct{ files, lines, testFiles, testLines int }

func main() {
	log.SetFlags(0)
	log.SetPrefix("sizes: ")
	flag.Parse()
	dir := cmp.Or(flag.Arg(0), ".")
	list := exec.Command("git", "ls-files", "--cached", "--others", "--exclude-standard", "*.go")
	list.Dir = dir
	out, err := list.Output()
	if err != nil {
		log.Fatal(err)
	}
	pkgs := make(map[string]*pkg)
	var files, testFiles, funcs, testFuncs []size
	for file := range strings.Lines(string(out)) {
		file = strings.TrimSpace(file)
		data, err := os.ReadFile(filepath.Join(dir, file))
		if os.IsNotExist(err) {
			continue // deleted, but not in the index
		} else if err != nil {
			log.Fatal(err)
		}
		p := pkgs[path.Dir(file)]
		if p == nil {
			p = new(pkg)
			pkgs[path.Dir(file)] = p
		}
		lines := bytes.Count(data, []byte("\n"))
		if strings.HasSuffix(file, "_test.go") {
			p.testFiles++
			p.testLines += lines
			testFiles = append(testFiles, size{file, lines})
			testFuncs = append(testFuncs, functions(file, data)...)
		} else {
			p.files++
			p.lines += lines
			files = append(files, size{file, lines})
			funcs = append(funcs, functions(file, data)...)
		}
	}
	fmt.Printf("%-42s %6s %7s %6s %7s\n", "package", "files", "lines", "tests", "lines")
	row := func(name string, p pkg) {
		fmt.Printf("%-42s %6d %7d %6d %7d\n", name, p.files, p.lines, p.testFiles, p.testLines)
	}
	names := make([]string, 0, len(pkgs))
	for name := range pkgs {
		names = append(names, name)
	}
	slices.Sort(names)
	var total pkg
	for _, name := range names {
		p := *pkgs[name]
		row(name, p)
		total.files, total.lines = total.files+p.files, total.lines+p.lines
		total.testFiles, total.testLines = total.testFiles+p.testFiles, total.testLines+p.testLines
	}
	row("total", total)
	longest("longest files", files)
	longest("longest test files", testFiles)
	longest("longest functions", funcs)
	longest("longest test functions", testFuncs)
}

// functions returns the size of each function of a file.
func functions(file string, data []byte) (sizes []size) {
	fset := token.NewFileSet()
	tree, err := parser.ParseFile(fset, file, data, parser.SkipObjectResolution)
	if err != nil {
		log.Fatal(err)
	}
	for _, d := range tree.Decls {
		if f, ok := d.(*ast.FuncDecl); ok {
			first, last := fset.Position(f.Pos()).Line, fset.Position(f.End()).Line
			sizes = append(sizes, size{fmt.Sprintf("%s:%d %s", file, first, f.Name.Name), last - first + 1})
		}
	}
	return sizes
}

func longest(title string, sizes []size) {
	slices.SortStableFunc(sizes, func(a, b size) int { return b.lines - a.lines })
	fmt.Printf("\n%s\n", title)
	for _, s := range sizes[:min(5, len(sizes))] {
		fmt.Printf("%6d  %s\n", s.lines, s.name)
	}
}
