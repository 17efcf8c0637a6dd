package change

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"pollux/internal/lazy"
)

// A block is one change as the model wrote it:
//
//	**FILE: path:start-end**
//	===OLD===
//	===NEW===
//	===END===
//
// Without a range, OLD must occur exactly once in the file. A block that creates
// a file starts with **NEW FILE: path** and has no OLD. ===END=== may be missing
// if the end of NEW is clear.
type block struct {
	path       string
	start, end int // line numbers from 1; zero without a range
	create     bool
	old, new   []string
}

var (
	header   = lazy.Regexp(`^\*\*(NEW )?FILE:\s*(.+?)(?::(\d+)(?:-(\d+))?)?\s*\*\*$`)
	fenceRow = lazy.Regexp("^\\s*(`{3,}|~{3,})([^`]*)$")
)

const (
	oldRow = "===OLD==="
	newRow = "===NEW==="
	endRow = "===END==="
)

// parseBlocks returns the blocks of an answer and the text around them. It is
// strict: anything ambiguous is an error that names the block.
func parseBlocks(answer string) (blocks []block, response string, err error) {
	lines := strings.Split(strings.ReplaceAll(answer, "\r\n", "\n"), "\n")
	// If one block has an end marker, all must have one: a block without it may
	// be cut, or may quote another.
	ended := slices.ContainsFunc(lines, func(l string) bool { return strings.TrimSpace(l) == endRow })
	var around []string
	for i := 0; i < len(lines); {
		m := header().FindStringSubmatch(strings.TrimSpace(lines[i]))
		if m == nil {
			if row := strings.TrimSpace(lines[i]); row == oldRow || row == newRow || row == endRow {
				return nil, "", fmt.Errorf("line %d of the answer is %s outside a block", i+1, row)
			}
			around = append(around, lines[i])
			i++
			continue
		}
		b := block{path: m[2], create: m[1] != ""}
		if m[3] != "" {
			b.start, _ = strconv.Atoi(m[3])
			b.end = b.start
			if m[4] != "" {
				b.end, _ = strconv.Atoi(m[4])
			}
		}
		fenced := false
		if n := len(around); n > 0 && opensFence(around[n-1]) && fences(around)%2 == 1 {
			around, fenced = around[:n-1], true
		}
		next, after, err := b.read(lines, i+1, fenced, ended)
		if err != nil {
			return nil, "", fmt.Errorf("the block of %s: %w", b.path, err)
		}
		around = append(around, after...)
		blocks = append(blocks, b)
		i = next
	}
	return blocks, strings.TrimSpace(strings.Join(around, "\n")), nil
}

func opensFence(line string) bool { return fenceRow().MatchString(line) }

// fences counts the opening and closing fences.
func fences(lines []string) (n int) {
	for _, l := range lines {
		if fenceRow().MatchString(l) {
			n++
		}
	}
	return n
}

// read reads the body of a block, starting at lines[i]. It returns the line
// after the block, and any lines of text between NEW and that line.
func (b *block) read(lines []string, i int, fenced, ended bool) (next int, after []string, err error) {
	row := func() string {
		if i < len(lines) {
			return strings.TrimSpace(lines[i])
		}
		return ""
	}
	skipBlank := func() {
		for i < len(lines) && row() == "" {
			i++
		}
	}
	skipBlank()
	if !fenced && i < len(lines) && opensFence(lines[i]) {
		fenced = true
		i++
		skipBlank()
	}
	if row() == oldRow {
		if b.create {
			return 0, nil, fmt.Errorf("a new file must not have %s", oldRow)
		}
		i++
		from := i
		for i < len(lines) && row() != newRow {
			if r := row(); r == oldRow || r == endRow || header().MatchString(r) {
				return 0, nil, fmt.Errorf("%s has no %s", oldRow, newRow)
			}
			i++
		}
		b.old = lines[from:min(i, len(lines))]
	} else if !b.create {
		return 0, nil, fmt.Errorf("%s is missing", oldRow)
	}
	if row() != newRow {
		return 0, nil, fmt.Errorf("%s is missing", newRow)
	}
	i++
	from := i
	for i < len(lines) {
		switch r := row(); {
		case r == endRow:
			b.new = lines[from:i]
			i++
			if fenced && i < len(lines) && opensFence(lines[i]) {
				i++
			}
			return i, nil, nil
		case r == oldRow || r == newRow:
			return 0, nil, fmt.Errorf("%s occurs twice", r)
		case header().MatchString(r) && ended:
			return 0, nil, fmt.Errorf("%s is missing", endRow)
		case header().MatchString(r):
			return b.unended(lines[from:i], i, fenced)
		}
		i++
	}
	if ended {
		return 0, nil, fmt.Errorf("%s is missing", endRow)
	}
	return b.unended(lines[from:], i, fenced)
}

// unended finds the end of a NEW without ===END===, before the next block or the
// end of the answer. NEW ends at the closing fence, or before prose that follows
// an empty line if OLD contains no prose.
func (b *block) unended(body []string, next int, fenced bool) (int, []string, error) {
	if b.create {
		return 0, nil, fmt.Errorf("the text of a new file must end with %s", endRow)
	}
	// An opening fence at the end belongs to the next block.
	var opening []string
	if n := len(trimBlank(body)); n > 0 && !fenced {
		if m := fenceRow().FindStringSubmatch(body[n-1]); m != nil && strings.TrimSpace(m[2]) != "" {
			body, opening = body[:n-1], body[n-1:n]
		}
	}
	depth := 0
	for i, line := range body {
		m := fenceRow().FindStringSubmatch(line)
		switch {
		case m == nil:
		case strings.TrimSpace(m[2]) != "":
			depth++
		case depth > 0:
			depth--
		case fences(body[i+1:]) == 0 && fences(b.old)%2 == 0:
			b.new = body[:i]
			return next, append(body[i+1:len(body):len(body)], opening...), nil
		default:
			return 0, nil, fmt.Errorf("it is not clear where its text ends, because %s is missing", endRow)
		}
	}
	if fenced {
		return 0, nil, fmt.Errorf("its fence is not closed, and %s is missing", endRow)
	}
	code := trimBlank(body)
	if i := lastBlank(code); i >= 0 && isProse(code[i+1:]) {
		if hasProse(b.old) || !isChatter(code[i+1:]) {
			return 0, nil, fmt.Errorf("it is not clear where its text ends, because %s is missing", endRow)
		}
		code = trimBlank(code[:i])
	}
	b.new = code
	return next, append(body[len(code):len(body):len(body)], opening...), nil
}

func trimBlank(lines []string) []string {
	for len(lines) > 0 && strings.TrimSpace(lines[len(lines)-1]) == "" {
		lines = lines[:len(lines)-1]
	}
	return lines
}

func lastBlank(lines []string) int {
	for i := len(lines) - 1; i >= 0; i-- {
		if strings.TrimSpace(lines[i]) == "" {
			return i
		}
	}
	return -1
}

// sentence matches a line of prose, as opposed to code.
var sentence = lazy.Regexp(`^([A-Z][\w']*|I'\w+)[ ,].*[.!?:]$`)

func isProse(lines []string) bool {
	for i, l := range lines {
		l = strings.TrimSpace(l)
		if i == len(lines)-1 && !sentence().MatchString(l) || strings.ContainsAny(l, ";{}=<>") {
			return false
		}
	}
	return len(lines) > 0 && strings.Contains(lines[0], " ")
}

// chatter matches the start of a closing remark.
var chatter = lazy.Regexp(`^(I|I've|I'll|I'm|I'd|Let me|Let's|Hope|I hope|Feel free|Please|Done|All done|That's|You can|You may|(This|These|The) (change|fix|update|edit|modification|code)s?)\b`)

func isChatter(lines []string) bool {
	return len(lines) > 0 && chatter().MatchString(strings.TrimSpace(lines[0]))
}

func hasProse(lines []string) bool {
	for _, l := range lines {
		if sentence().MatchString(strings.TrimSpace(l)) {
			return true
		}
	}
	return false
}
