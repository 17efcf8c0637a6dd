package main

import (
	"strings"
	"testing"
)

const events = `{"Action":"start","Package":"p/a"}
{"Action":"run","Package":"p/a","Test":"TestOne"}
{"Action":"pass","Package":"p/a","Test":"TestOne","Elapsed":0.1}
{"Action":"run","Package":"p/a","Test":"TestTwo"}
{"Action":"output","Package":"p/a","Test":"TestTwo","Output":"=== RUN   TestTwo\n"}
{"Action":"output","Package":"p/a","Test":"TestTwo","Output":"    a_test.go:1: needs a printer\n"}
{"Action":"output","Package":"p/a","Test":"TestTwo","Output":"--- SKIP: TestTwo (0.00s)\n"}
{"Action":"skip","Package":"p/a","Test":"TestTwo","Elapsed":0}
{"Action":"pass","Package":"p/a","Elapsed":1.5}
{"Action":"run","Package":"p/b","Test":"TestSubs"}
{"Action":"run","Package":"p/b","Test":"TestSubs/x"}
{"Action":"output","Package":"p/b","Test":"TestSubs/x","Output":"    b_test.go:7: it is wrong\n"}
{"Action":"fail","Package":"p/b","Test":"TestSubs/x","Elapsed":0}
{"Action":"run","Package":"p/b","Test":"TestSubs/y"}
{"Action":"pass","Package":"p/b","Test":"TestSubs/y","Elapsed":0}
{"Action":"fail","Package":"p/b","Test":"TestSubs","Elapsed":0}
{"Action":"fail","Package":"p/b","Test":"TestTwice","Elapsed":0}
{"Action":"pass","Package":"p/b","Test":"TestTwice","Elapsed":0}
{"Action":"run","Package":"p/b","Test":"TestHangs"}
{"Action":"output","Package":"p/b","Test":"TestHangs","Output":"panic: test timed out\n"}
{"Action":"fail","Package":"p/b","Elapsed":2}
{"ImportPath":"p/c [p/c.test]","Action":"build-output","Output":"c.go:3: undefined: x\n"}
{"ImportPath":"p/c [p/c.test]","Action":"build-fail"}
{"Action":"fail","Package":"p/c","Elapsed":0,"FailedBuild":"p/c [p/c.test]"}
{"Action":"output","Package":"p/d","Output":"?   \tp/d\t[no test files]\n"}
{"Action":"skip","Package":"p/d","Elapsed":0}
`

// A test that never ends, one that failed in one of several runs, and a package that does
// not build, count as failed.
func TestTable(t *testing.T) {
	var ended []string
	r, err := read(strings.NewReader(events), func(p *pkg) { ended = append(ended, p.name) })
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(ended, " "); got != "p/a p/b p/c p/d" {
		t.Errorf("packages ended: %s", got)
	}
	if r.passed() {
		t.Error("the run passed")
	}
	var out strings.Builder
	report(&out, r, false, false)
	want := `=== p/b: failed
panic: test timed out
    b_test.go:7: it is wrong
=== p/c: does not build
c.go:3: undefined: x
skipped: p/a TestTwo: a_test.go:1: needs a printer
package  passed  failed  skipped  seconds
p/a           1       0        1      1.5
p/b           1       3        0      2.0  failed
p/c           0       0        0      0.0  does not build
total         2       3        1      3.5
`
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
	out.Reset()
	report(&out, r, true, true)
	if want := "| p/a     |      1 |      0 |       1 |     1.5 |"; !strings.Contains(out.String(), want) {
		t.Errorf("no row %q in\n%s", want, out.String())
	}
}

// A run without packages did not pass, and what `go test` says is shown.
func TestNothingRan(t *testing.T) {
	r, err := read(strings.NewReader("go: cannot find main module\n"), nil)
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	r.writeFailures(&out)
	if r.passed() || out.String() != "go: cannot find main module\n" {
		t.Errorf("passed: %v, output %q", r.passed(), out.String())
	}
}
