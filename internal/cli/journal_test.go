package cli

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"pollux/internal/journal"
)

// newTestJournal returns the user's journal, which is the test's own.
func newTestJournal(t *testing.T) *journal.Journal {
	t.Helper()
	t.Setenv("POLLUX_STATE_DIR", t.TempDir())
	j, err := journal.Default()
	if err != nil {
		t.Fatal(err)
	}
	return j
}

// pollux runs one command that must succeed.
func pollux(t *testing.T, args ...string) (out, errs string) {
	t.Helper()
	var o, e bytes.Buffer
	if code := Run(t.Context(), IO{strings.NewReader(""), &o, &e}, args); code != 0 {
		t.Fatalf("pollux %s: exit code %d, %s", strings.Join(args, " "), code, e.String())
	}
	return o.String(), e.String()
}

// A text that was accepted and is not in the file stands out, with the command
// that writes it.
func TestJournalListsTheUnwritten(t *testing.T) {
	j := newTestJournal(t)
	id, err := j.Add(journal.Entry{Path: "/f"}, "proposal")
	if err == nil {
		err = j.FinishUnwritten(id)
	}
	if err != nil {
		t.Fatal(err)
	}
	if out, _ := pollux(t, "journal"); !strings.HasSuffix(out, "  /f  (accepted, not written)\n    pollux journal restore "+id+"\n") {
		t.Errorf("pollux journal prints %q", out)
	}
	if err := j.Edit(id, "mine"); err != nil {
		t.Fatal(err)
	}
	if out, _ := pollux(t, "journal"); !strings.Contains(out, "(accepted, not written, edited)\n") {
		t.Errorf("pollux journal prints %q", out)
	}
	out, _ := pollux(t, "journal", "--json")
	var all []map[string]any
	if err := json.Unmarshal([]byte(out), &all); err != nil || len(all) != 1 || all[0]["unwritten"] != true {
		t.Errorf("pollux journal --json prints %s, %v", out, err)
	}
}
