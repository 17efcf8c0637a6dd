package program

import (
	"errors"
	"os"
	"testing"
	"time"

	"pollux/internal/agent"
	"pollux/internal/agent/agenttest"
)

// A program that takes too long to print its version is stopped.
func TestLateVersion(t *testing.T) {
	agenttest.Isolate(t, "pollux*")
	path := agenttest.WriteProgram(t, t.TempDir(), "agent", "echo 0.50.1; sleep 3600 & wait", "echo 0.50.1\n:wait\ngoto wait")
	version, late := askVersion(t.Context(), agent.Program{Argv: []string{path}}, os.Environ(), 50*time.Millisecond)
	if version != "" || !late {
		t.Errorf("got %q, %v", version, late)
	}
}

func TestReadOnly(t *testing.T) {
	for version, want := range map[string]agent.Kind{"": agent.NoVersion, "one.two.three": agent.NoVersion, "0.9.9": agent.TooOld, "1.1.9": agent.TooOld, "1.2.2-9": agent.TooOld, "1.2": agent.NoVersion, "1.2.3": "", "1.2.4-rc.1": "", "1.10.0": "", "2.0.0": ""} {
		r := Release{Oldest: "1.2.3"}
		err := r.ReadOnly(agent.Source{}, agent.Program{Path: "/bin/x", Version: version})
		fault, _ := errors.AsType[*agent.Error](err)
		if (err == nil) != (want == "") || err != nil && (fault.Kind != want || fault.Message == "") {
			t.Errorf("%q: %v; want %q", version, err, want)
		}
	}
}

// An agent receives no variable that it does not need.
func TestVariables(t *testing.T) {
	v := Variables{Names: []string{"KEY"}, Prefixes: []string{"OWN_"}, Dropped: []string{"OWN_NOT"}}
	got := v.Of(agent.Env{"HOME=/h", "https_proxy=p", "KEY=k", "OWN_A=a", "OWN_NOT_B=b", "OTHER=o", "LC_ALL=C", "OWN_EMPTY=", "OWN_B=="})
	want := []string{"HOME=/h", "KEY=k", "LC_ALL=C", "OWN_A=a", "OWN_B==", "https_proxy=p"}
	if len(got) != len(want) {
		t.Fatalf("got %q, want %q", got, want)
	}
	for i := range got {
		if got[i] != want[i] {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
