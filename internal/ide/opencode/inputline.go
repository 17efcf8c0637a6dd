package opencode

import (
	"slices"
	"strings"

	"pollux/internal/inputline"
)

// InputLine finds opencode's input line. It has a bar at its left and the cursor. It
// begins with an empty row, and ends with an empty row, the agent with the model, and a
// rule. Something else may be to the right of them. A list above has bars on both sides.
func InputLine(s inputline.Screen) inputline.Line {
	bottom := len(s.Rows) - 1
	for bottom >= 0 && !strings.HasPrefix(strings.TrimSpace(s.Rows[bottom].Text), "╹▀▀▀▀") {
		bottom--
	}
	if bottom < 0 || !s.Visible {
		return inputline.Line{}
	}
	before, rule, _ := strings.Cut(s.Rows[bottom].Text, "╹")
	left := len(before) // spaces only
	width := strings.Count(rule, "▀")
	var rows []inputline.Row
	for top := bottom - 1; top >= 0; top-- {
		row := []rune(s.Rows[top].Text)
		if len(row) <= left || row[left] != '┃' {
			break
		}
		text := strings.TrimRight(string(row[left+1:min(len(row), left+1+width)]), " ")
		if strings.HasSuffix(text, "┃") {
			break
		}
		rows = slices.Insert(rows, 0, inputline.Row{Text: text, Bright: text})
	}
	n := len(rows)
	// "Shell" in place of the agent means that a shell would run the text.
	if n < 4 || !strings.Contains(rows[n-1].Text, " · ") || s.Y <= bottom-n || s.Y >= bottom-2 {
		return inputline.Line{}
	}
	if s.X == left+3 && strings.HasPrefix(strings.TrimSpace(rows[1].Text), ready) {
		return inputline.Line{Shown: true} // a hint
	}
	return inputline.New("", rows[1:n-2])
}
