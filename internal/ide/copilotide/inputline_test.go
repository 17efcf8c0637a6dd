package copilotide

import (
	"testing"

	"pollux/internal/inputline/inputlinetest"
)

func TestInputLine(t *testing.T) { inputlinetest.Check(t, "copilot", InputLine) }
