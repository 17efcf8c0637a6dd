package remote

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"

	"pollux/internal/paths"
	"pollux/internal/termtext"
)

// maxRoots limits how much of a companion's directories an error quotes, in bytes.
const maxRoots = 1000

// Paths map directories here, where the agent runs, to those there, where the
// companion runs. The longest directory that contains a path applies. Without any
// pairs, paths are the same on both sides.
type Paths []Pair

// A Pair holds the two names of one directory, both absolute and clean.
type Pair struct{ Here, There string }

// ParsePaths parses pairs of the form HERE=THERE. The directory here must exist and be
// absolute on this system. The one there must be absolute on any system: /home/me/app,
// or C:\Users\me\app for a companion in Windows.
func ParsePaths(pairs []string) (Paths, error) {
	var p Paths
	for _, text := range pairs {
		here, there, ok := strings.Cut(text, "=")
		if !ok || !filepath.IsAbs(here) || !path.IsAbs(there) && !paths.IsWindows(there) {
			return nil, fmt.Errorf("--map %s: give two absolute directories, "+
				"as the agent and as the companion see them: "+
				"--map /workspaces/app=/home/me/app", text)
		}
		if info, err := os.Stat(here); err != nil || !info.IsDir() {
			return nil, fmt.Errorf("--map %s: there is no directory %s here", text, here)
		}
		if target, err := paths.Existing(here); err == nil {
			here = target // as the agent names its files
		}
		p = append(p, Pair{filepath.Clean(here), clean(there)})
	}
	return p, nil
}

// clean returns the canonical form of a path of any system.
func clean(p string) string {
	if paths.IsWindows(p) {
		p = strings.ReplaceAll(p, "/", `\`)
		if len(p) > 3 {
			p = strings.TrimRight(p, `\`)
		}
		return p
	}
	return path.Clean(p)
}

// Fit returns an error if no path leads into a workspace with these roots: agents
// would find the companion here, and it could show none of their changes. Without
// pairs, dir has the same name on both sides. Without roots, all paths fit.
func (p Paths) Fit(roots []string, dir string) error {
	if len(roots) == 0 {
		return nil
	}
	pairs := p
	if len(p) == 0 {
		pairs = Paths{{dir, clean(dir)}}
	}
	for _, pair := range pairs {
		for _, r := range roots {
			if contains(clean(r), pair.There) || contains(pair.There, clean(r)) {
				return nil
			}
		}
	}
	return fmt.Errorf("the companion there is for %s, not for %s: try --map %s=%s",
		termtext.Line(strings.Join(roots, ", "), maxRoots), pairs[0].There,
		pairs[0].Here, termtext.Line(roots[0], maxRoots))
}

func contains(root, name string) bool {
	_, ok := paths.Foreign(root, name)
	return ok
}

// Roots returns the directories here.
func (p Paths) Roots() (roots []string) {
	for _, pair := range p {
		roots = append(roots, pair.Here)
	}
	return roots
}

// ToThere returns the name there of a path here; ok is false if no pair contains it.
func (p Paths) ToThere(here string) (there string, ok bool) {
	return p.translate(here, func(pair Pair) (string, string) { return pair.Here, pair.There })
}

// ToHere returns the name here of a path there; ok is false if no pair contains it.
func (p Paths) ToHere(there string) (here string, ok bool) {
	return p.translate(there, func(pair Pair) (string, string) { return pair.There, pair.Here })
}

func (p Paths) translate(name string, sides func(Pair) (from, to string)) (string, bool) {
	if len(p) == 0 {
		return name, true
	}
	length, result := -1, ""
	for _, pair := range p {
		from, to := sides(pair)
		if moved, ok := paths.Move(name, from, to); ok && len(from) > length {
			length, result = len(from), moved
		}
	}
	return result, length >= 0
}
