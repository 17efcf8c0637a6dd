package companion

import (
	"fmt"
	"path/filepath"
	"time"

	"pollux/internal/companion/journal"
)

// observeDelay is how long an agent may take to write a change after it has closed the
// diff. Gemini CLI takes some 10 ms.
const observeDelay = 3 * time.Second

// observe writes to the journal how a change ended after its agent closed the diff. The agent
// does not report that, but the file shows it: after a yes, the agent writes text. An agent that
// does not read the user's edits writes its own text; then observe offers to write the edits.
func (c *Companion) observe(d *diff, text string, unwritten journal.Ending) {
	delay := time.NewTimer(observeDelay)
	defer delay.Stop()
	select {
	case <-delay.C:
	case <-c.sending.Done(): // the companion ends
	}
	now, err := d.target.read()
	how, own := unwritten, d.answer(d.proposal.Text)
	switch {
	case err != nil:
		return
	case now.exists && d.rules.Holds(now.text, text):
		how = journal.InTerminal
		c.outside.account(d.path())
	case text != own && now.exists && d.rules.Holds(now.text, own):
		how = journal.InTerminal
		c.outside.account(d.path())
		d.record.SetUnwritten(true)
		c.sync(d)
		late := d.light()
		late.base = now // "Write the file" replaces the agent's text
		c.misses(late, look{}, fmt.Sprintf("%s was accepted in the terminal of %s, which wrote its own text, without your edits. "+
			"To write yours: pollux journal restore %s", filepath.Base(d.path()), d.agent, d.id))
	case now.version != d.base.version:
		return
	case c.sending.Err() != nil && unwritten == journal.Refused:
		return // the agent may still write it
	}
	if err := c.journal.SetEnding(d.id, how); err != nil {
		c.log.Warn("the journal cannot be written", "err", err)
	}
	if how == journal.InTerminal {
		c.checkAsking() // the answer may have been "don't ask again"
	}
}
