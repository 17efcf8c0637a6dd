package companion

import (
	"slices"

	"pollux/internal/editor"
)

// An asking records whether an agent asks before it changes a file.
type asking struct {
	// silent says why it does not; "" if it does, or if that is not known.
	silent string
	// disproved is the value of silent when the agent asked nevertheless: its user has
	// changed the mode since it started.
	disproved string
	// looked means that silent is known, and asked that the agent has asked.
	looked, asked bool
}

// checkAsking finds out in the background whether the agents ask. Call it when an agent has
// connected or its process is known, and before a status: an answer such as "don't ask
// again" changes it.
func (c *Companion) checkAsking() {
	c.mu.Lock()
	sessions := slices.Clone(c.sessions)
	c.mu.Unlock()
	for _, s := range sessions {
		name, _ := s.Client()
		p := s.Process()
		k := c.kindNamed(name)
		if k.Silent == nil || p.PID == 0 {
			continue
		}
		silent, err := within(diskTimeout, func() (string, error) { return k.Silent(p), nil })
		if err != nil {
			continue
		}
		c.mu.Lock()
		if slices.Contains(c.sessions, s) {
			c.lookedLocked(s, silent)
		}
		c.mu.Unlock()
	}
}

// lookedLocked notes why an agent does not ask.
func (c *Companion) lookedLocked(s Session, silent string) {
	before, a := c.silentLocked(s), c.asking[s]
	if !a.looked && a.asked {
		a.disproved = silent // it has asked since it started
	}
	a.silent, a.looked = silent, true
	c.asking[s] = a
	now := c.silentLocked(s)
	if now == before {
		return
	}
	c.clientsChangedLocked()
	if now != "" {
		c.warnLocked(now)
	}
}

// warnLocked shows a warning in the editors. The review page shows it with the agents.
func (c *Companion) warnLocked(text string) {
	for _, d := range c.conns {
		if !d.page {
			d.notify(editor.MethodMessage, editor.Message{Level: "warning", Text: text})
		}
	}
}

// askedLocked notes that an agent has asked about a change.
func (c *Companion) askedLocked(s Session) {
	before, a := c.silentLocked(s), c.asking[s]
	a.disproved, a.asked = a.silent, true
	c.asking[s] = a
	if before != "" {
		c.clientsChangedLocked()
	}
}

// silentLocked returns why an agent does not ask, for [editor.Agent]; "" if it does.
func (c *Companion) silentLocked(s Session) string {
	if a := c.asking[s]; a.silent != a.disproved {
		return a.silent
	}
	return ""
}
