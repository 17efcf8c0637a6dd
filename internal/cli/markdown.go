package cli

import (
	"strings"

	"github.com/charmbracelet/x/ansi"

	"pollux/internal/lazy"
)

// A textStyle says what the reader of a formatted text can see. Each one includes those
// before it.
type textStyle int

const (
	plainText    textStyle = iota // in a file or a pipe
	boldText                      // on a terminal
	colouredText                  // on a terminal whose user wants colours
)

// A markdownFormatter formats the manual's Markdown: headings, paragraphs, lists, tables,
// and blocks of code. It uses only the terminal's own colours, which are readable on its
// background.
type markdownFormatter struct {
	out   strings.Builder
	width int
	style textStyle
	blank bool // the last line is blank, or no line was written yet
}

// formatMarkdown returns the text with lines of at most this width, where words allow
// that. Code keeps its lines.
func formatMarkdown(text string, width int, style textStyle) string {
	f := &markdownFormatter{width: width, style: style, blank: true}
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	for len(lines) > 0 {
		n := f.block(lines)
		lines = lines[n:]
	}
	return f.out.String()
}

var (
	listItem = lazy.Regexp(`^( *)([-*]|\d+\.) +(.*)$`)
	heading  = lazy.Regexp(`^(#+ +)(.*)$`)
)

// block formats the block at the start of the lines, and returns how many lines it
// has.
func (f *markdownFormatter) block(lines []string) int {
	// until returns the number of lines up to one that starts another block.
	until := func(more func(line string) bool) int {
		n := 1
		for n < len(lines) && more(lines[n]) {
			n++
		}
		return n
	}
	first := lines[0]
	switch {
	case strings.TrimSpace(first) == "":
		f.space()
		return 1
	case strings.HasPrefix(first, "```"):
		n := until(func(l string) bool { return !strings.HasPrefix(l, "```") })
		for _, l := range lines[1:n] {
			f.code("    " + l)
		}
		return min(n+1, len(lines))
	case strings.HasPrefix(first, "    "):
		f.code(first)
		return 1
	case strings.HasPrefix(first, "|"):
		n := until(func(l string) bool { return strings.HasPrefix(l, "|") })
		f.table(lines[:n])
		return n
	}
	if m := heading().FindStringSubmatch(first); m != nil {
		f.space()
		mark := ""
		if f.style == plainText {
			mark = m[1]
		}
		f.paragraph("**"+strings.ReplaceAll(m[2], "`", "")+"**", mark, "")
		return 1
	}
	indent := ""
	if m := listItem().FindStringSubmatch(first); m != nil {
		first, indent = m[3], m[1]+strings.Repeat(" ", len(m[2])+1)
		n := until(continues)
		f.paragraph(strings.Join(append([]string{first}, lines[1:n]...), " "), m[1]+m[2]+" ", indent)
		return n
	}
	n := until(continues)
	f.paragraph(strings.Join(lines[:n], " "), "", "")
	return n
}

// continues reports whether a line continues the paragraph or the item before it.
func continues(line string) bool {
	return strings.TrimSpace(line) != "" && !strings.HasPrefix(line, "|") && !strings.HasPrefix(line, "```") &&
		!heading().MatchString(line) && !listItem().MatchString(line)
}

// space writes one blank line between blocks.
func (f *markdownFormatter) space() {
	if !f.blank {
		f.out.WriteByte('\n')
		f.blank = true
	}
}

func (f *markdownFormatter) code(line string) {
	line = strings.TrimRight(line, " ")
	if f.style >= colouredText && line != "" {
		line = sgrCyan + line + sgrPlain
	}
	f.out.WriteString(line + "\n")
	f.blank = false
}

// paragraph writes a wrapped paragraph, with a text before the first line and an
// indentation before the others.
func (f *markdownFormatter) paragraph(text, before, indent string) {
	text = strings.Join(strings.Fields(text), " ")
	text = strings.ReplaceAll(text, "<br>", "; ")
	var code, bold bool
	width := f.width - len(indent)
	for i, line := range strings.Split(ansi.Hardwrap(wrap(text, width), width, true), "\n") {
		if i > 0 {
			before = indent
		}
		f.out.WriteString(before)
		f.styled(strings.TrimSpace(line), &code, &bold)
		f.out.WriteByte('\n')
	}
	f.blank = false
}

// styled writes a line with its marks for code and bold replaced by styles. A style
// may begin in an earlier line. It ends with the line, because pagers need that.
func (f *markdownFormatter) styled(line string, code, bold *bool) {
	restore := func() {
		if f.style == plainText {
			return
		}
		f.out.WriteString(sgrPlain)
		if *bold {
			f.out.WriteString(sgrBold)
		}
		if *code && f.style >= colouredText {
			f.out.WriteString(sgrCyan)
		}
	}
	if *code || *bold {
		restore()
	}
	for line != "" {
		switch {
		case line[0] == '`':
			*code = !*code
			if f.style >= colouredText {
				restore()
			} else {
				f.out.WriteByte('`')
			}
			line = line[1:]
		case strings.HasPrefix(line, "**") && !*code:
			*bold = !*bold
			restore()
			line = line[2:]
		default:
			f.out.WriteByte(line[0])
			line = line[1:]
		}
	}
	if (*code || *bold) && f.style > plainText {
		f.out.WriteString(sgrPlain)
	}
}

// table writes each row as a list: the first cell, and below it the others with the
// headings of their columns. The cells of the manual are too long for columns.
func (f *markdownFormatter) table(lines []string) {
	head := cells(lines[0])
	for i, l := range lines[1:] {
		row := cells(l)
		if i == 0 && strings.Trim(l, "|-: ") == "" {
			continue
		}
		f.space()
		if row[0] != "" {
			f.paragraph("**"+row[0]+"**", "  ", "  ")
		}
		for j, cell := range row[1:] {
			if cell == "" {
				continue
			}
			if j+1 < len(head) && head[j+1] != "" {
				cell = head[j+1] + ": " + cell
			}
			f.paragraph(cell, "    ", "    ")
		}
	}
	f.space()
}

// cells returns the cells of a table's row.
func cells(line string) (all []string) {
	line = strings.TrimSuffix(strings.TrimPrefix(strings.TrimSpace(line), "|"), "|")
	cell := ""
	for _, part := range strings.Split(line, "|") {
		if before, escaped := strings.CutSuffix(part, `\`); escaped {
			cell += before + "|"
			continue
		}
		all, cell = append(all, strings.TrimSpace(cell+part)), ""
	}
	return all
}
