package companion

import (
	"path"
	"strings"

	"pollux/internal/lazy"
)

// A rule is a line of an ignore file, with the meaning that it has for git (gitignore(5)).
type rule struct {
	parts    []string // between slashes, as patterns of [path.Match]; "**" stands for any number of them
	include  bool     // it begins with an exclamation mark
	dirOnly  bool     // it ends with a slash
	anchored bool     // it is for paths below the file's directory, not for a name at any depth
}

// brackets matches brackets in a rule. A closing bracket that comes first in them is a character.
var brackets = lazy.Regexp(`\\.|\[[!^]?\]?(?:\[:[a-z]+:\]|\\.|[^\]\\])*\]`)

var classes = strings.NewReplacer("[:alnum:]", "0-9A-Za-z", "[:alpha:]", "A-Za-z", "[:digit:]", "0-9",
	"[:lower:]", "a-z", "[:upper:]", "A-Z", "[:xdigit:]", "0-9A-Fa-f", "[:space:]", "\t-\r ", "[:punct:]", "!-.:-@\\[-`{-~")

// pattern returns a rule with brackets as [path.Match] knows them.
func pattern(rule string) string {
	return brackets().ReplaceAllStringFunc(rule, func(part string) string {
		if part[0] != '[' {
			return part // a backslash and a character
		}
		in, not := part[1:len(part)-1], ""
		if strings.HasPrefix(in, "!") || strings.HasPrefix(in, "^") {
			in, not = in[1:], "^"
		}
		if in = classes.Replace(in); strings.HasPrefix(in, "]") || strings.HasPrefix(in, "-") {
			in = `\` + in
		}
		if last, ok := strings.CutSuffix(in, "-"); ok && !strings.HasSuffix(last, `\`) {
			in = last + `\-`
		}
		return "[" + not + in + "]"
	})
}

func newRule(line string) (r rule) {
	line, r.include = strings.CutPrefix(line, "!")
	if !strings.HasSuffix(line, `\ `) {
		line = strings.TrimRight(line, " ")
	}
	line, r.dirOnly = strings.CutSuffix(line, "/")
	r.anchored = strings.Contains(line, "/")
	r.parts = strings.Split(pattern(strings.TrimPrefix(line, "/")), "/")
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
