// Package npm reads installed npm packages.
package npm

import (
	"encoding/json"
	"path/filepath"

	"pollux/internal/sys/disk"
)

const (
	// maxManifest bounds a package.json, in bytes.
	maxManifest = 1 << 20
	// maxDepth bounds how many folders a program may be below its package.json.
	maxDepth = 4
)

// Version returns the version of the package that contains a program, which is the script
// that Node.js runs, or a link to it. An empty name stands for any package. Version returns ""
// if it finds no package with that name.
func Version(program, name string) string {
	script, err := disk.EvalSymlinks(program)
	if err != nil {
		return ""
	}
	dir := filepath.Dir(script)
	for range maxDepth {
		var p struct{ Name, Version string }
		data, err := disk.ReadFile(filepath.Join(dir, "package.json"), maxManifest)
		if err == nil && json.Unmarshal(data, &p) == nil && p.Version != "" && (name == "" || p.Name == name) {
			return p.Version
		}
		dir = filepath.Dir(dir)
	}
	return ""
}
