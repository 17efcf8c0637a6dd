package opencode

import (
	"slices"
	"testing"
	"time"

	"pollux/internal/agent"
	"pollux/internal/agent/agenttest"
)

func TestRecorded(t *testing.T) { agenttest.TestRecorded(t, row) }

func FuzzMessages(f *testing.F) { agenttest.FuzzMessages(f, row) }

// opencode tries for ever when a quota is used up or the network is down, and says so only in its
// log. After other errors, it ends the request.
func TestRetries(t *testing.T) {
	want := []agent.Retry{
		{Wait: 3 * time.Second, Kind: agent.QuotaMinute, Message: "Rate limit reached for requests", Session: "ses_de474797bffe67t8Xkv9gxN1Ai"},
		{
			Wait: 3 * time.Second, Kind: agent.Network, Session: "ses_de4727e79ffeVfKP1wHBkhALUg", Message: "Cannot connect to API: Unable to connect. " +
				"Is the computer able to access the url? (cause: Error: Unable to connect. Is the computer able to access the url?)",
		},
	}
	if got := agenttest.Retries(t, row, ""); !slices.Equal(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}
