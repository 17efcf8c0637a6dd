package geminiide

import (
	"testing"

	"pollux/internal/inputline/inputlinetest"
)

func TestInputLine(t *testing.T) {
	inputlinetest.Check(t, "gemini", InputLine)
	inputlinetest.Check(t, "qwen", InputLine)
}
