package main

import (
	"regexp"
	"strconv"
	"testing"
)

// The bounds in the table of docs/BRIDGE.md hold in the measurement.
func TestBounds(t *testing.T) {
	measured := regexp.MustCompile(`(?m)^ +(.+): a later question \[(.+)\] .* x([\d.]+)$`).
		FindAllStringSubmatch(read(t, "../docs/BENCHMARKS.md"), -1)
	for _, m := range measured {
		ratio, err := strconv.ParseFloat(m[3], 64)
		if err != nil {
			t.Fatal(err)
		}
		bound := regexp.MustCompile(`(?m)^\| ` + m[1] + ` .*\| 1/(\d+) of .` + regexp.QuoteMeta(m[2]) + `. \|`).
			FindStringSubmatch(read(t, "../docs/BRIDGE.md"))
		if bound == nil {
			t.Errorf("docs/BRIDGE.md has no bound for %s", m[1])
			continue
		}
		if least, _ := strconv.ParseFloat(bound[1], 64); ratio < least {
			t.Errorf("%s: docs/BRIDGE.md says 1/%s of %s, but 1/%s was measured", m[1], bound[1], m[2], m[3])
		}
	}
}
