package cli

import (
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

func await(ts *testscript.TestScript, pattern, text string) {
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		names, _ := filepath.Glob(ts.MkAbs(os.Expand(pattern, ts.Getenv)))
		for _, name := range names {
			if data, err := os.ReadFile(name); err == nil && strings.Contains(string(data), text) {
				return
			}
		}
	}
	ts.Fatalf("%s never held %q", pattern, text)
}
