package companion

import (
	"path/filepath"
	"strings"
	"testing"

	"pollux/internal/editor"
	"pollux/internal/sys/systest"
)

// An agent that ignores edits receives none, and nothing makes it overwrite a file that
// has changed.
func TestReadOnly(t *testing.T) {
	c, v, s := newReview(t)
	path := filepath.Join(c.dir, "a")
	systest.WriteFile(t, path, "old\n")
	p := Proposal{Path: path, Text: "new\n", ReadOnly: "it ignores edits"}
	d := c.propose(t, s, v, p)
	if d.ReadOnly != "it ignores edits" {
		t.Errorf("the view receives %q", d.ReadOnly)
	}
	v.Edits(d, "mine\n")
	var edit editor.DiffEdit
	take := editor.DiffTake{DiffText: editor.DiffText{ID: d.ID, Content: "new\n"}, Line: 1, Take: editor.TakeOriginal}
	err := v.Call(t.Context(), editor.MethodDiffHunk, take, &edit)
	systest.WantError(t, err, "it ignores edits")
	if list, err := v.Diffs(t.Context()); err != nil || len(list) != 1 || list[0].Content != nil {
		t.Errorf("after an edit: %+v, %v", list, err)
	}
	systest.WriteFile(t, path, "theirs\n")
	accept := editor.DiffAccept{ID: d.ID, Content: "new\n"}
	res, err := v.Accept(t.Context(), accept)
	if err != nil || res.Status != editor.StatusRefused || res.Version != "" || !strings.Contains(res.Message, "Fake would overwrite") {
		t.Errorf("after a change on disk: %+v, %v", res, err)
	}
	now, err := c.diffs[d.ID].target.read()
	if err != nil {
		t.Fatal(err)
	}
	accept.Overwrite = now.version
	if res, err := v.Accept(t.Context(), accept); err != nil || res.Status != editor.StatusRefused {
		t.Errorf("with the version on disk: %+v, %v", res, err)
	}
	if len(s.outcomes) != 0 {
		t.Error("the agent received an outcome")
	}
	// Pollux itself writes the file of an agent that has ended, if the user says so.
	c.Disconnect(s)
	res, err = v.Save(t.Context(), editor.DiffAccept{ID: d.ID, Content: "new\n"})
	if err != nil || res.Status != editor.StatusConflict {
		t.Fatalf("saved: %+v, %v", res, err)
	}
	res, err = v.Save(t.Context(), editor.DiffAccept{ID: d.ID, Content: "new\n", Overwrite: res.Version})
	if err != nil || res.Status != editor.StatusAccepted {
		t.Errorf("saved: %+v, %v", res, err)
	}
}
