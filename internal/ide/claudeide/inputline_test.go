package claudeide

import (
	"testing"

	"pollux/internal/inputline/inputlinetest"
)

func TestInputLine(t *testing.T) {
	inputlinetest.Check(t, "claude", ClaudeInputLine)
}
