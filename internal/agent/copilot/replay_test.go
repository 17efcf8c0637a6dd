package copilot

import (
	"testing"

	"pollux/internal/agent/agenttest"
)

func TestRecorded(t *testing.T) { agenttest.TestRecorded(t, row) }

func FuzzMessages(f *testing.F) { agenttest.FuzzMessages(f, row) }
