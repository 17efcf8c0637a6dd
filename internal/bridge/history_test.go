package bridge

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"pollux/internal/agent/agents"
	"pollux/internal/config"
	"pollux/internal/sys/systest"
)

// A bridge with a history continues conversations of earlier processes. Only the user can
// read the files, and a conversation that was not used for long is removed.
func TestHistory(t *testing.T) {
	state := filepath.Join(t.TempDir(), "ask")
	one, two := t.TempDir(), t.TempDir()
	p := newParrot()
	var failures []error
	history := NewHistory(state, func(err error) { failures = append(failures, err) })
	ask := func(dir, id, prompt string) string {
		t.Helper()
		cfg := Configure(agents.Default(), config.Defaults())
		cfg.History = history
		b, err := New(p, cfg)
		if err != nil {
			t.Fatal(err)
		}
		defer b.Close()
		a, err := b.Ask(t.Context(), QueryInput{Prompt: prompt, SessionID: id, Common: Common{WorkingDirectory: dir}}, nil)
		if strings.Contains(prompt, "fail") != (err != nil) {
			t.Fatal(err)
		}
		return a.Meta.SessionID
	}
	last := func(dir string) string {
		t.Helper()
		id, err := history.Last(dir)
		if err != nil {
			t.Error(err)
		}
		return id
	}
	has := func(id string) bool {
		t.Helper()
		known, err := history.Has(id)
		if err != nil {
			t.Error(err)
		}
		return known
	}
	if id := last(one); id != "" || has("x") {
		t.Errorf("an empty history has %q", id)
	}
	first := ask(one, "", "my name is Ann")
	other := ask(two, "", "and mine is Ben")
	if last(one) != first || last(two) != other || !has(first) {
		t.Errorf("the last conversations are %q and %q, want %q and %q", last(one), last(two), first, other)
	}
	ask(one, first, "what is my name?")
	if replay := p.last().Replay; !strings.Contains(replay, "my name is Ann") || !strings.Contains(replay, "what is my name?") {
		t.Errorf("the agent got %q", replay)
	}
	ask(one, first, "fail") // not a part of the conversation
	ask(one, first, "and?")
	if replay := p.last().Replay; !strings.Contains(replay, "what is my name?") || strings.Contains(replay, "fail") {
		t.Errorf("the agent got %q", replay)
	}

	// A copy is another conversation in the same directory.
	data, err := history.Kept(t.Context(), first, 0)
	if err != nil {
		t.Fatal(err)
	}
	id, err := history.Add(data)
	if err != nil || id == first || !has(id) || !has(first) {
		t.Errorf("a copy of %q is %q, %v", first, id, err)
	}
	if _, err := history.Add([]byte("{}")); err == nil {
		t.Error("a copy of nothing")
	}

	entries, err := os.ReadDir(state)
	if err != nil || len(entries) != 3 {
		t.Fatalf("%v, %v", entries, err)
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || runtime.GOOS != "windows" && info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has the mode %s, %v", e.Name(), info.Mode(), err)
		}
		old := time.Now().Add(-HistoryTTL - time.Hour)
		if strings.Contains(e.Name(), first) {
			systest.SetTime(t, filepath.Join(state, e.Name()), old)
		}
	}
	ask(two, other, "still here?")
	if has(first) || !has(other) {
		t.Error("an old conversation is not removed, or a new one is")
	}
	if len(failures) > 0 {
		t.Error(failures)
	}
}

// The ID of a conversation is not a path.
func TestHistoryReadsOnlyItsFiles(t *testing.T) {
	dir := t.TempDir()
	systest.WriteFile(t, filepath.Join(dir, "x.json"), `{"said":[["a","b"]]}`)
	h := NewHistory(filepath.Join(dir, "ask"), func(err error) { t.Error(err) })
	for _, id := range []string{"../x", "x", "", "*", strings.Repeat("A", 26)} {
		known, err := h.Has(id)
		data, err2 := h.Kept(t.Context(), id, 0)
		if known || data != nil || err != nil || err2 != nil {
			t.Errorf("there is a conversation %q, or an error: %v, %v", id, err, err2)
		}
	}
}

// A history that cannot be read is an error. It is not taken for an empty one.
func TestHistoryUnreadable(t *testing.T) {
	file := filepath.Join(t.TempDir(), "ask") // where the directory should be
	systest.WriteFile(t, file, "")
	h := NewHistory(file, func(error) {})
	id := strings.Repeat("A", 26)
	_, last := h.Last(t.TempDir())
	_, has := h.Has(id)
	_, kept := h.Kept(t.Context(), id, 0)
	if last == nil || has == nil || kept == nil {
		t.Errorf("without a directory to read: %v, %v, %v", last, has, kept)
	}

	dir := t.TempDir()
	systest.WriteFile(t, filepath.Join(dir, dirHash(dir)+"-"+id+".json"), "{")
	if data, err := NewHistory(dir, func(error) {}).Kept(t.Context(), id, 0); err == nil {
		t.Errorf("a damaged conversation is %q", data)
	}
}
