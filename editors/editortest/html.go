package editortest

import (
	"fmt"
	"html"
	"regexp"
	"strconv"
	"strings"
)

var sgr = regexp.MustCompile("\x1b\\[([0-9;]*)m|\x1b\\[[^m]*[a-zA-Z]|\x1b\\(B|\x0e|\x0f")

// palette holds the sixteen colours of a terminal.
var palette = []string{
	"#1d1f21", "#cc6666", "#8fb573", "#d8a657", "#6f9fd8", "#b294bb", "#7fb5b0", "#c5c8c6",
	"#666b70", "#e78a8a", "#a9d08e", "#f0c674", "#8ab4f0", "#c9a9d6", "#9fd5cf", "#ffffff",
}

// Page converts the result of [Screen.Coloured] to a web page, for a picture.
func Page(coloured string) string {
	var b strings.Builder
	b.WriteString(`<!doctype html><meta charset="utf-8"><body style="margin:0;background:#1d1f21"><pre style="margin:0;padding:10px;` +
		`display:inline-block;font:13px/1.25 'DejaVu Sans Mono',monospace;color:#c5c8c6">`)
	fg, bg := "", ""
	var bold, faint, underline, reverse bool
	open := func() {
		f, g := fg, bg
		if reverse {
			f, g = g, f
			if f == "" {
				f = palette[0]
			}
			if g == "" {
				g = palette[7]
			}
		}
		style := ""
		if f != "" {
			style += "color:" + f + ";"
		}
		if g != "" {
			style += "background:" + g + ";"
		}
		if bold {
			style += "font-weight:bold;"
		}
		if faint {
			style += "opacity:.6;"
		}
		if underline {
			style += "text-decoration:underline;"
		}
		fmt.Fprintf(&b, `<span style="%s">`, style)
	}
	open()
	done := 0
	for _, m := range sgr.FindAllStringSubmatchIndex(coloured, -1) {
		b.WriteString(html.EscapeString(coloured[done:m[0]]))
		done = m[1]
		if m[2] < 0 {
			continue
		}
		codes := strings.Split(coloured[m[2]:m[3]], ";")
		for i := 0; i < len(codes); i++ {
			n, _ := strconv.Atoi(codes[i])
			switch {
			case n == 0:
				fg, bg, bold, faint, underline, reverse = "", "", false, false, false, false
			case n == 1:
				bold = true
			case n == 2:
				faint = true
			case n == 4:
				underline = true
			case n == 7:
				reverse = true
			case n == 22:
				bold, faint = false, false
			case n == 24:
				underline = false
			case n == 27:
				reverse = false
			case n >= 30 && n <= 37:
				fg = palette[n-30]
			case n >= 90 && n <= 97:
				fg = palette[n-82]
			case n == 39:
				fg = ""
			case n >= 40 && n <= 47:
				bg = palette[n-40]
			case n >= 100 && n <= 107:
				bg = palette[n-92]
			case n == 49:
				bg = ""
			case n == 38 || n == 48:
				colour, used := extended(codes[i+1:])
				i += used
				if n == 38 {
					fg = colour
				} else {
					bg = colour
				}
			}
		}
		b.WriteString("</span>")
		open()
	}
	b.WriteString(html.EscapeString(coloured[done:]) + "</span></pre>")
	return b.String()
}

// extended returns one of 256 colours, or one given as red, green and blue, and
// the number of codes that it used.
func extended(codes []string) (string, int) {
	at := func(i int) int {
		if i >= len(codes) {
			return 0
		}
		n, _ := strconv.Atoi(codes[i])
		return n
	}
	if at(0) == 2 {
		return fmt.Sprintf("rgb(%d,%d,%d)", at(1), at(2), at(3)), 4
	}
	n := at(1)
	switch {
	case n < 16:
		return palette[max(n, 0)], 2
	case n < 232:
		n -= 16
		level := func(v int) int {
			if v == 0 {
				return 0
			}
			return 55 + 40*v
		}
		return fmt.Sprintf("rgb(%d,%d,%d)", level(n/36), level(n/6%6), level(n%6)), 2
	}
	return fmt.Sprintf("rgb(%[1]d,%[1]d,%[1]d)", 8+10*(n-232)), 2
}
