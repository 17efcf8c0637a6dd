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
	"runtime"
	"strconv"
	"strings"
	"testing"
)

// A startCost is what packages allocate when the program starts. It counts allocations
// and bytes and not time, which differs from run to run.
type startCost struct{ allocs, bytes int }

func (c startCost) within(limit startCost) bool {
	return c.allocs <= limit.allocs && c.bytes <= limit.bytes
}

var (
	// packageLimit is about 0.2 ms of work.
	packageLimit = startCost{500, 128 << 10}
	programLimit = startCost{3000, 512 << 10}
)

// envMain makes the test binary the program.
const envMain = "POLLUX_TEST_MAIN"

func TestMain(m *testing.M) {
	if os.Getenv(envMain) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// A command does not pay for what it does not use.
func TestStart(t *testing.T) {
	if _, err := exec.LookPath("go"); err != nil && runtime.GOOS == "windows" {
		// The test binary has all packages of the program.
		self, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		t.Setenv(envMain, "1")
		checkInit(t, self)
		return
	}
	program := filepath.Join(t.TempDir(), "pollux")
	if out, err := exec.Command("go", "build", "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Run("packages do no work when the program starts", func(t *testing.T) { checkInit(t, program) })
	t.Run("methods that nothing calls are not linked", func(t *testing.T) { checkLinked(t, program) })
}

func checkInit(t *testing.T, program string) {
	cmd := exec.Command(program, "--version")
	cmd.Env = append(os.Environ(), "GODEBUG=inittrace=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	lines := regexp.MustCompile(`(?m)^init (\S+) .* (\d+) bytes, (\d+) allocs$`).FindAllStringSubmatch(string(out), -1)
	if len(lines) == 0 {
		t.Fatalf("no packages: %s", out)
	}
	var total startCost
	for _, m := range lines {
		var cost startCost
		cost.bytes, _ = strconv.Atoi(m[2])
		cost.allocs, _ = strconv.Atoi(m[3])
		if !cost.within(packageLimit) {
			t.Errorf("%s allocates %d bytes in %d parts when the program starts", m[1], cost.bytes, cost.allocs)
		}
		total.bytes += cost.bytes
		total.allocs += cost.allocs
	}
	if !total.within(programLimit) {
		t.Errorf("all packages allocate %d bytes in %d parts when the program starts", total.bytes, total.allocs)
	}
}

// checkLinked checks that the program cannot call methods by names that the linker does
// not know. If it could, the linker would keep the methods of all types, which was a fifth
// of the program.
func checkLinked(t *testing.T, program string) {
	symbols, err := exec.Command("go", "tool", "nm", program).Output()
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(symbols), " main.main\n") {
		t.Fatal("the program has no symbols")
	}
	for _, name := range []string{"text/template.(*Template).Execute", "reflect.Value.MethodByName"} {
		if strings.Contains(string(symbols), " "+name+"\n") {
			t.Errorf("%s is linked: look for its caller with `go build -ldflags=-dumpdep`", name)
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
