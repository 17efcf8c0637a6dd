package copilot

import (
	"slices"
	"testing"
	"time"

	"pollux/internal/agent"
	"pollux/internal/agent/agenttest"
)

func TestRecorded(t *testing.T) { agenttest.TestRecorded(t, row) }

func FuzzMessages(f *testing.F) { agenttest.FuzzMessages(f, row) }

// Copilot CLI tries for a minute when a quota is used up, and says so only in its log.
func TestRetries(t *testing.T) {
	retry := agent.Retry{Wait: 5 * time.Second, Kind: agent.QuotaMinute}
	want := []agent.Retry{retry, retry, retry}
	if got := agenttest.Retries(t, row, "process-1795758496419-17616.log"); !slices.Equal(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}
