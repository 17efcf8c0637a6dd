package remote

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"

	"pollux/internal/termtext"
)

// maxRoots bounds what an error shows of a companion's directories, in bytes.
const maxRoots = 1000

// Paths map directories here, where the CLI runs, to those there, where the
// companion runs. The longest that holds a path counts. No pairs at all mean
// that paths are the same on both sides.
type Paths []Pair

// A Pair is one directory under its two names, both absolute and clean.
type Pair struct{ Here, There string }

// ParsePaths parses pairs of the form HERE=THERE. A directory here must be
// absolute on this system, one there on some system: /home/me/app, or
// C:\Users\me\app where the companion is in Windows.
func ParsePaths(pairs []string) (Paths, error) {
	var p Paths
	for _, text := range pairs {
		here, there, ok := strings.Cut(text, "=")
		if !ok || !filepath.IsAbs(here) || !path.IsAbs(there) && !windows(there) {
			return nil, fmt.Errorf("--map %s: name two absolute directories, as the CLI and as the companion see them: --map /workspaces/app=/home/me/app", text)
		}
		if info, err := os.Stat(here); err != nil || !info.IsDir() {
			return nil, fmt.Errorf("--map %s: there is no directory %s here", text, here)
		}
		if real, err := filepath.EvalSymlinks(here); err == nil {
			here = real // as the CLI names its files
		}
		p = append(p, Pair{filepath.Clean(here), trim(there)})
	}
	return p, nil
}

// windows reports whether a path is one of Windows', wherever this runs.
func windows(p string) bool {
	return len(p) > 2 && p[1] == ':' && (p[2] == '\\' || p[2] == '/') || strings.HasPrefix(p, `\\`)
}

func trim(p string) string {
	if windows(p) {
		p = strings.ReplaceAll(p, "/", `\`)
		if len(p) > 3 {
			p = strings.TrimRight(p, `\`)
		}
		return p
	}
	return path.Clean(p)
}

// Fit reports an error for paths of which a companion with these roots has
// nothing: it would be taken for this project's, and show none of its changes.
// With no pairs, dir has the same name on both sides. No roots fit all.
func (p Paths) Fit(roots []string, dir string) error {
	if len(roots) == 0 {
		return nil
	}
	pairs := p
	if len(p) == 0 {
		pairs = Paths{{dir, trim(dir)}}
	}
	for _, pair := range pairs {
		for _, r := range roots {
			if holds(trim(r), pair.There) || holds(pair.There, trim(r)) {
				return nil
			}
		}
	}
	return fmt.Errorf("the companion there is for %s, and not for %s: --map %s=%s would do",
		termtext.Line(strings.Join(roots, ", "), maxRoots), pairs[0].There, pairs[0].Here, termtext.Line(roots[0], maxRoots))
}

func holds(root, name string) bool {
	_, ok := below(root, name)
	return ok
}

// Roots are the directories here.
func (p Paths) Roots() (roots []string) {
	for _, pair := range p {
		roots = append(roots, pair.Here)
	}
	return roots
}

// ToThere is the name there of a path here; ok is false if no pair holds it.
func (p Paths) ToThere(here string) (there string, ok bool) {
	return p.translate(here, func(pair Pair) (string, string) { return pair.Here, pair.There })
}

// ToHere is the name here of a path there; ok is false if no pair holds it.
func (p Paths) ToHere(there string) (here string, ok bool) {
	return p.translate(there, func(pair Pair) (string, string) { return pair.There, pair.Here })
}

func (p Paths) translate(name string, sides func(Pair) (from, to string)) (string, bool) {
	if len(p) == 0 {
		return name, true
	}
	if path.IsAbs(name) {
		name = path.Clean(name) // no .. leads out of a pair
	}
	best, result := -1, ""
	for _, pair := range p {
		from, to := sides(pair)
		rest, ok := below(from, name)
		if !ok || len(from) <= best {
			continue
		}
		best, result = len(from), join(to, rest)
	}
	return result, best >= 0
}

// below is the rest of a name that is root or below it, with slashes.
func below(root, name string) (rest string, ok bool) {
	if windows(root) {
		// Windows' names are alike in either case, and with either slash.
		name = strings.ReplaceAll(name, "/", `\`)
		if len(name) < len(root) || !strings.EqualFold(name[:len(root)], root) {
			return "", false
		}
		rest = strings.ReplaceAll(name[len(root):], `\`, "/")
	} else if rest, ok = strings.CutPrefix(name, root); !ok {
		return "", false
	}
	if rest != "" && rest[0] != '/' && !strings.HasSuffix(root, "/") && !strings.HasSuffix(root, `\`) {
		return "", false // a name that only begins alike
	}
	return strings.TrimPrefix(rest, "/"), true
}

func join(root, rest string) string {
	if rest == "" {
		return root
	}
	sep := "/"
	if windows(root) {
		sep, rest = `\`, strings.ReplaceAll(rest, "/", `\`)
	}
	return strings.TrimSuffix(root, sep) + sep + rest
}
