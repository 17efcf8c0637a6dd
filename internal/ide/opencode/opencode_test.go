package opencode

import (
	"testing"

	"pollux/internal/editor"
	"pollux/internal/inputline/inputlinetest"
)

func TestInputLine(t *testing.T) { inputlinetest.Check(t, "opencode", InputLine) }

func TestPrompt(t *testing.T) {
	p := editor.PromptParams{Path: "/project/a b.go", Line: 3, EndLine: 5}
	if got := Prompt(p, []string{"/project"}); got.Text != `@"a b.go"#L3-5 ` || got.Ready != ready {
		t.Errorf("%+v", got)
	}
}
