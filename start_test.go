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

	"pollux/internal/sys/systest"
)

// startBudget limits what all packages together may allocate before main runs. It stands for
// 12 ms of work, which differ from run to run: `go run ./bench -of start` measures them.
// With more, the garbage collector runs meanwhile.
var startBudget = struct{ allocs, bytes int }{30_000, 2_800_000}

// envMain makes the test binary the program.
const envMain = "POLLUX_TEST_MAIN"

func TestMain(m *testing.M) {
	if os.Getenv(envMain) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// The program starts within its budget, and is no larger than it needs to be.
func TestStart(t *testing.T) {
	if _, err := exec.LookPath("go"); err != nil && runtime.GOOS == "windows" {
		// The test binary has all packages of the program.
		self := systest.Self(t)
		t.Setenv(envMain, "1")
		checkInit(t, self)
		return
	}
	program := filepath.Join(t.TempDir(), "pollux")
	// Without what debuggers need, as in a release, the linker is quicker.
	if out, err := exec.Command("go", "build", "-tags=grpcnotrace", "-ldflags=-w", "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Run("packages start within the budget", func(t *testing.T) { checkInit(t, program) })
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
	var allocs, bytes int
	for _, m := range lines {
		b, _ := strconv.Atoi(m[2])
		a, _ := strconv.Atoi(m[3])
		allocs, bytes = allocs+a, bytes+b
	}
	if allocs > startBudget.allocs || bytes > startBudget.bytes {
		t.Errorf("all packages allocate %d bytes in %d parts when the program starts, over the budget of %d in %d:\n%s",
			bytes, allocs, startBudget.bytes, startBudget.allocs, out)
	}
}

// checkLinked checks that the program, as a release builds it, cannot call methods by names
// that the linker does not know. If it could, the linker would keep the methods of all types,
// which was a fifth of the program.
func checkLinked(t *testing.T, program string) {
	symbols, err := exec.Command("go", "tool", "nm", program).Output()
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(symbols), " main.main\n") {
		t.Fatal("the program has no symbols")
	}
	for _, name := range []string{"text/template.(*Template).Execute", "net/http.(*Server).SetKeepAlivesEnabled"} {
		if strings.Contains(string(symbols), " "+name+"\n") {
			t.Errorf("%s is linked: look for a caller of MethodByName with `go build -ldflags=-dumpdep`", name)
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
