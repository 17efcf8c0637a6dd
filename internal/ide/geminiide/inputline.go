package geminiide

import (
	"slices"
	"strings"

	"pollux/internal/inputline"
)

// InputLine finds the input line of Gemini CLI or Qwen Code. Neither shows a cursor
// there while its terminal has no focus.
func InputLine(s inputline.Screen) inputline.Line {
	rows, ok := frame(s)
	mark := " > "
	if !ok {
		rows, _, ok = s.Between() // Qwen Code's
		mark = "> "
	}
	if !ok || len(rows) == 0 {
		return inputline.Line{}
	}
	first, ok := strings.CutPrefix(rows[0].Bright, mark)
	if !ok {
		return inputline.Line{}
	}
	if strings.HasPrefix(first, "  "+ready) { // one space is the cursor's
		first = ""
	}
	return inputline.New(first, rows[1:])
}

// frame returns the rows in the last frame of half blocks, Gemini CLI's input line. There is a
// rule above the mode over it, and only the footer below; earlier prompts have neither.
func frame(s inputline.Screen) ([]inputline.Row, bool) {
	last := func(block string, rows []inputline.Row) int {
		for i, row := range slices.Backward(rows) {
			if text := strings.TrimSpace(row.Text); text != "" && strings.Trim(text, block) == "" {
				return i
			}
		}
		return -1
	}
	bottom := last("▀", s.Rows)
	top := last("▄", s.Rows[:max(bottom, 0)])
	if top < 0 || !inputline.Footer(s.Rows[bottom+1:]) || !slices.ContainsFunc(s.Rows[max(top-3, 0):top], inputline.IsRule) {
		return nil, false
	}
	return s.Rows[top+1 : bottom], true
}
