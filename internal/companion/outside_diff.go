package companion

import (
	"errors"
	"fmt"

	"pollux/internal/companion/journal"
	"pollux/internal/editor"
)

// outsideAgent takes the place of an agent's name.
const outsideAgent = "changed outside Pollux"

// openOutside shows a client a listed change as a diff from the earlier text to the present
// one. The user edits it, usually by undoing hunks, and saves it, or takes it off the list.
func (c *Companion) openOutside(viewer *conn, path string) (any, error) {
	path, ok := cleanPath(path)
	if !ok {
		return nil, fmt.Errorf("the path %q is not absolute: pass one of the list", path)
	}
	f, ok := c.outside.file(path)
	if !ok {
		return nil, fmt.Errorf("%s is not in the list of changes outside Pollux: it may be as before again", path)
	}
	if f.why != "" {
		return nil, fmt.Errorf("the change to %s cannot be displayed: %s", path, f.why)
	}
	t, err := newTarget(path, c.Roots())
	var now file
	if err == nil {
		now, err = t.read()
	}
	if err != nil {
		return nil, fmt.Errorf("the change to %s cannot be displayed: %w", path, err)
	}
	var rules LFRules
	text := rules.Shown(now.text, "")
	d := &diff{
		id: journal.NewID(), companion: c, rules: rules, agent: outsideAgent, client: outsideAgent,
		proposal: Proposal{Path: path, Text: text}, target: t, base: now, original: rules.Shown(f.text, text),
		opened: f.since, ended: make(chan struct{}), state: journal.Orphaned,
		content: text, kept: text, shown: true, viewer: viewer, created: !f.exists,
	}
	d.record = d.newRecord()
	close(d.ended)
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, open := range c.diffs {
		if open.viewer == viewer && open.path() == path {
			if open.base.version == now.version && open.original == d.original {
				viewer.offer(open, func(error) {})
				return editor.DiffID{ID: open.id}, nil
			}
			c.stepLocked(open, evSupersede)
		}
	}
	c.diffs[d.id] = d
	viewer.offer(d, func(error) {})
	return editor.DiffID{ID: d.id}, nil
}

var errAlreadyMade = errors.New("this change is in the file already: save it with diff/save, " +
	"or take it off the list with diff/reject")
