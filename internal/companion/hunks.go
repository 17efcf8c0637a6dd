package companion

import (
	"errors"
	"fmt"
	"strings"

	"pollux/internal/editor"
	"pollux/internal/hunk"
)

// hunks returns where the text of a client's view differs from the original.
func (c *Companion) hunks(t editor.DiffText) (any, error) {
	d, err := c.find(t.ID)
	if err != nil {
		return nil, err
	}
	original := d.original
	res := editor.DiffHunks{Hunks: []editor.DiffHunk{}}
	for _, h := range hunk.Between(original, t.Content) {
		removed := hunk.Split(h.OldText(original))
		if removed == nil {
			removed = []string{}
		}
		res.Hunks = append(res.Hunks, editor.DiffHunk{
			Line: h.New, Lines: h.NewLines, Original: h.Old, OriginalLines: h.OldLines, Removed: removed,
		})
	}
	return res, nil
}

// takeHunk returns the edit that makes a hunk of a client's view equal to the
// original or to the proposal.
func (c *Companion) takeHunk(t editor.DiffTake) (any, error) {
	d, err := c.find(t.ID)
	if err != nil {
		return nil, err
	}
	if d.proposal.ReadOnly != "" {
		return nil, errors.New(d.proposal.ReadOnly)
	}
	from, none := d.original, "nothing to undo in this line: it is as in the file"
	switch t.Take {
	case editor.TakeOriginal:
	case editor.TakeProposed:
		from, none = d.proposal.Text, "nothing to take over in this line: it is as proposed"
	default:
		return nil, fmt.Errorf("unknown take %q: use original or proposed", t.Take)
	}
	h, ok := hunk.At(hunk.Between(from, t.Content), t.Line)
	if !ok {
		return nil, errors.New(none)
	}
	after := h.Replace(from, t.Content)
	eol := strings.HasSuffix(after, "\n")
	return editor.DiffEdit{Line: h.New, Lines: h.NewLines, Text: h.OldText(from), EOL: eol}, nil
}
