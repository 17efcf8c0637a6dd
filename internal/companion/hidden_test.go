package companion

import (
	"path/filepath"
	"testing"

	"pollux/internal/editor"
	"pollux/internal/sys/systest"
)

// Claude Code asked about files outside the workspace, and no program showed the change.
func TestHiddenChangeOutsideTheWorkspace(t *testing.T) {
	c, v, s := newReview(t)
	dir := systest.Dir(t)
	outside := filepath.Join(dir, "outside")
	systest.WriteFile(t, outside, "old\n")
	link := filepath.Join(c.dir, "link")
	systest.Link(t, outside, link)
	for path, old := range map[string]string{outside: "old\n", link: "old\n", filepath.Join(dir, "new", "file"): ""} {
		actual := path
		if path == link {
			actual = outside
		}
		c.proposes(t, s, Proposal{Path: path, Text: "new\n", Hidden: true})
		v.Reads("outside the workspace (" + c.dir + "): " + actual)
		if d := systest.Receive(t, v.Opened); d.Path != path || d.Original != old || d.Text() != "new\n" {
			t.Errorf("the diff is %+v", d)
		}
		if _, err := c.Withdraw(s, path); err != nil {
			t.Fatal(err)
		}
	}

	// Pollux itself writes only in the workspace: the agent that would have written has ended.
	d := c.propose(t, s, v, Proposal{Path: link, Text: "new\n", Hidden: true})
	v.Reads()
	c.Disconnect(s)
	v.Reads("pollux journal restore " + d.ID)
	_, err := c.save(editor.DiffAccept{ID: d.ID, Content: "new\n"})
	systest.WantError(t, err, outside+" is outside the workspace")
	systest.WantFile(t, outside, "old\n")
	s = c.connect(t, newFakeSession())

	// What cannot be displayed is not shown in the agent's terminal, either.
	systest.WriteFile(t, outside, "caf\xe9")
	c.proposes(t, s, Proposal{Path: outside, Text: "new\n", Hidden: true})
	v.Reads("not UTF-8", "answer no")
}
