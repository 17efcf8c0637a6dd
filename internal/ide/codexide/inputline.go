package codexide

import (
	"strings"

	"pollux/internal/inputline"
)

// InputLine finds Codex CLI's input line: it has the cursor, and below it may be an empty
// row and a footer. A question has no cursor, or indents the line for notes. The line is
// dim while the agent ends, as are earlier prompts.
func InputLine(s inputline.Screen) inputline.Line {
	if !s.Visible || s.Y >= len(s.Rows) {
		return inputline.Line{}
	}
	top := s.Y
	for !strings.HasPrefix(s.Rows[top].Bright, "›") {
		if row := s.Rows[top].Text; top == 0 || row != "" && !strings.HasPrefix(row, "  ") {
			return inputline.Line{}
		}
		top--
	}
	skip := func(end int, full bool) int {
		for end > top+1 && (strings.TrimSpace(s.Rows[end-1].Text) != "") == full {
			end--
		}
		return end
	}
	bottom := skip(len(s.Rows), false)
	if footer := skip(bottom, true); footer > top+1 {
		bottom = skip(footer, false)
	}
	if s.Y >= bottom {
		return inputline.Line{}
	}
	return inputline.New(strings.TrimPrefix(s.Rows[top].Bright, "›"), s.Rows[top+1:bottom])
}
