package qwen

import (
	"slices"
	"testing"
	"time"

	"pollux/internal/agent"
	"pollux/internal/agent/agenttest"
)

func TestRecorded(t *testing.T) { agenttest.TestRecorded(t, row) }

func FuzzMessages(f *testing.F) { agenttest.FuzzMessages(f, row) }

// Qwen Code tries for minutes when a quota is used up, and says so only in the log of the session.
func TestRetries(t *testing.T) {
	const session = "924e43da-7996-4efd-a3c2-544bcb522efe"
	limit := "429 Rate limit reached for requests"
	want := []agent.Retry{
		{Attempt: 1, Wait: 2 * time.Second, Kind: agent.QuotaMinute, Message: limit, Session: session},
		{Attempt: 2, Wait: 4 * time.Second, Kind: agent.QuotaMinute, Message: limit, Session: session},
		{Attempt: 1, Wait: 2 * time.Second, Kind: agent.Capacity, Message: "503 scripted error", Session: session},
	}
	if got := agenttest.Retries(t, row, session+".txt"); !slices.Equal(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}
