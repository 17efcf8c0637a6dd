// Testtable reads the output of `go test -json` and prints a table of the packages with
// the number of tests that passed, failed and were skipped, then the output of the tests
// that failed and the reasons of those that were skipped. Its exit status is 1 if a
// package failed, or if there is none.
//
//	go test -json ./... | go run ./scripts/testtable
//
// With -markdown the table is one for a document. With -brief it prints the table only.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
)

func main() {
	markdown := flag.Bool("markdown", false, "print the table in Markdown")
	brief := flag.Bool("brief", false, "print the table only")
	flag.Parse()
	// Slow packages are shown as they end, on another stream than the table.
	r, err := read(os.Stdin, func(p *pkg) { fmt.Fprintln(os.Stderr, p.progress()) })
	if err != nil {
		fmt.Fprintln(os.Stderr, "testtable:", err)
		os.Exit(2)
	}
	report(os.Stdout, r, *markdown, *brief)
	if !r.passed() {
		os.Exit(1)
	}
}

func report(w io.Writer, r *run, markdown, brief bool) {
	if !brief {
		r.writeFailures(w)
		r.writeSkips(w)
	}
	r.writeTable(w, markdown)
}
