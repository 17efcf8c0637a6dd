package npm

import (
	"path/filepath"
	"testing"

	"pollux/internal/sys/systest"
)

// A program's package is the nearest one above it that has a version, and the wanted name.
func TestVersion(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		path := filepath.Join(dir, filepath.FromSlash(name))
		systest.WriteFile(t, path, text)
	}
	write("a/package.json", `{"name": "@x/agent", "version": "1.2.3"}`)
	write("a/dist/package.json", `{"type": "module"}`)
	write("a/dist/bundle/package.json", `{"name": "inner", "version": "9.0.0"}`)
	write("a/dist/bundle/cli.js", "")
	write("a/1/2/3/4/deep.js", "")
	write("b/package.json", "{")
	write("b/cli.js", "")
	systest.Link(t, filepath.Join(dir, "a", "dist", "bundle", "cli.js"), filepath.Join(dir, "agent"))
	for _, tt := range []struct{ program, name, want string }{
		{"agent", "", "9.0.0"},
		{"agent", "@x/agent", "1.2.3"},
		{"agent", "@x/other", ""},
		{"a/1/2/3/4/deep.js", "@x/agent", ""},
		{"b/cli.js", "", ""},
		{"missing", "", ""},
	} {
		if got := Version(filepath.Join(dir, filepath.FromSlash(tt.program)), tt.name); got != tt.want {
			t.Errorf("Version(%q, %q) = %q, want %q", tt.program, tt.name, got, tt.want)
		}
	}
}
