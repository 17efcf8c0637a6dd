package companion

import (
	"path"
	"strings"
)

// A rule is a line of an ignore file, with the meaning that it has for git (gitignore(5)). It
// knows no classes such as [:alpha:].
type rule struct {
	parts    []string // between slashes, as patterns of [path.Match]; "**" stands for any number of them
	include  bool     // it begins with an exclamation mark
	dirOnly  bool     // it ends with a slash
	anchored bool     // it is for paths below the file's directory, not for a name at any depth
}

// negated writes [!a] as [path.Match] knows it.
var negated = strings.NewReplacer(`\\`, `\\`, `\[`, `\[`, "[!", "[^")

func newRule(line string) (r rule) {
	line, r.include = strings.CutPrefix(line, "!")
	if !strings.HasSuffix(line, `\ `) {
		line = strings.TrimRight(line, " ")
	}
	line, r.dirOnly = strings.CutSuffix(line, "/")
	r.anchored = strings.Contains(line, "/")
	r.parts = strings.Split(negated.Replace(strings.TrimPrefix(line, "/")), "/")
	return r
}

// matches reports whether the rule is for a file or directory itself. A rule for a directory
// above it does not match.
func (r rule) matches(parts []string, dir bool) bool {
	switch {
	case r.dirOnly && !dir:
		return false
	case !r.anchored:
		return matchName(r.parts[0], parts[len(parts)-1])
	}
	return matchParts(r.parts, parts)
}

func matchName(pattern, name string) bool {
	ok, err := path.Match(pattern, name)
	return ok && err == nil
}

// matchParts goes back only to the last "**", so its work is at most the product of both lengths.
func matchParts(pattern, parts []string) bool {
	var after, rest []string // the last "**"
	for len(parts) > 0 {
		switch {
		case len(pattern) == 1 && manyParts(pattern[0]):
			return true
		case len(pattern) > 0 && manyParts(pattern[0]):
			pattern = pattern[1:]
			after, rest = pattern, parts
		case len(pattern) > 0 && matchName(pattern[0], parts[0]):
			pattern, parts = pattern[1:], parts[1:]
		case after != nil:
			rest = rest[1:]
			pattern, parts = after, rest
		default:
			return false
		}
	}
	return len(pattern) == 0
}

// manyParts reports whether a part of a rule is two or more stars.
func manyParts(part string) bool { return len(part) > 1 && strings.Trim(part, "*") == "" }
