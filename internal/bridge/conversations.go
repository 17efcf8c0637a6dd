package bridge

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	// A conversation is kept for conversationTTL after it was used last, at
	// most so many, with so much text in all; the least recently used go first.
	// One with more than conversationBytes takes no further query.
	conversationTTL    = 30 * time.Minute
	maxConversations   = 50
	conversationsBytes = 64 << 20
	conversationBytes  = 2 << 20
)

// A conversation is what was said in several queries. While the process lives
// that answered, it goes on there; else it is told to another from here.
type conversation struct {
	id    string
	begun time.Time
	turn  chan struct{} // holds one when no query is under way

	// Of conversations.mu, changed by whoever has the turn:
	dir, model string
	said       []exchange
	bytes      int
	used       time.Time
}

// busy reports whether a query is under way.
func (c *conversation) busy() bool { return len(c.turn) == 0 }

// An exchange is a prompt and its answer.
type exchange struct{ prompt, answer string }

// replay is a prompt that says what was said before.
func (c *conversation) replay(prompt string) string {
	if len(c.said) == 0 {
		return ""
	}
	var b strings.Builder
	b.WriteString("We are in the middle of a conversation. This was said so far:\n")
	for _, e := range c.said {
		fmt.Fprintf(&b, "\n<user>\n%s\n</user>\n\n<you>\n%s\n</you>\n", e.prompt, e.answer)
	}
	b.WriteString("\nNow the user says:\n\n" + prompt)
	return b.String()
}

type conversations struct {
	forget func(id string)

	mu   sync.Mutex
	byID map[string]*conversation
}

func newConversations(forget func(string)) *conversations {
	return &conversations{forget: forget, byID: make(map[string]*conversation)}
}

// take is the conversation of that name, or a new one where there is none,
// with its turn, which give gives back.
func (cs *conversations) take(ctx context.Context, id string) (*conversation, error) {
	if id == "" {
		return &conversation{id: rand.Text(), begun: time.Now(), turn: make(chan struct{}, 1)}, nil
	}
	cs.mu.Lock()
	cs.pruneLocked()
	c := cs.byID[id]
	cs.mu.Unlock()
	gone := fmt.Errorf("there is no session %q: it has ended, or its %d minutes are over; leave sessionId out to begin a new one", shorten(id, 60), int(conversationTTL.Minutes()))
	if c == nil {
		return nil, gone
	}
	select {
	case <-c.turn:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if cs.byID[id] != c { // ended meanwhile
		c.turn <- struct{}{}
		return nil, gone
	}
	if c.bytes > conversationBytes {
		c.turn <- struct{}{}
		return nil, fmt.Errorf("the session has %d bytes and the limit is %d: begin a new one, with what matters of it", c.bytes, conversationBytes)
	}
	return c, nil
}

// give ends a turn. What was said, if the query was answered, is kept. It
// reports whether the conversation can go on.
func (cs *conversations) give(c *conversation, e *exchange, dir, model string) bool {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	first := len(c.said) == 0
	if e != nil {
		c.said = append(c.said, *e)
		c.bytes += len(e.prompt) + len(e.answer)
		c.dir, c.model = dir, model
		if first {
			cs.byID[c.id] = c
		}
	}
	c.used = time.Now()
	kept := cs.byID[c.id] == c
	if !kept { // it failed at the start, or was closed meanwhile
		cs.forget(c.id)
	}
	c.turn <- struct{}{}
	cs.pruneLocked()
	return kept
}

func (cs *conversations) pruneLocked() {
	for id, c := range cs.byID {
		if !c.busy() && time.Since(c.used) > conversationTTL {
			cs.dropLocked(id)
		}
	}
	for {
		bytes := 0
		for _, c := range cs.byID {
			bytes += c.bytes
		}
		if len(cs.byID) <= maxConversations && bytes <= conversationsBytes {
			return
		}
		var oldest *conversation
		for _, c := range cs.byID {
			if !c.busy() && (oldest == nil || c.used.Before(oldest.used)) {
				oldest = c
			}
		}
		if oldest == nil {
			return
		}
		cs.dropLocked(oldest.id)
	}
}

func (cs *conversations) dropLocked(id string) {
	delete(cs.byID, id)
	cs.forget(id)
}

// close ends a conversation; it reports whether there was one.
func (cs *conversations) close(id string) bool {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	cs.pruneLocked()
	if cs.byID[id] == nil {
		return false
	}
	cs.dropLocked(id)
	return true
}

// A Session is a conversation that can go on.
type Session struct {
	ID      string `json:"sessionId"`
	Dir     string `json:"workingDirectory"`
	Queries int    `json:"queries"`
	// IdleSeconds is how long it was not used, ExpiresSeconds when it ends.
	IdleSeconds    int    `json:"idleSeconds"`
	ExpiresSeconds int    `json:"expiresSeconds"`
	About          string `json:"about"` // the start of its first prompt
}

// list are the conversations, the most recently used first.
func (cs *conversations) list() []Session {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	cs.pruneLocked()
	all := []Session{}
	for _, c := range cs.byID {
		idle := time.Since(c.used)
		all = append(all, Session{
			ID: c.id, Dir: c.dir, Queries: len(c.said), About: shorten(visible(strings.Join(strings.Fields(c.said[0].prompt), " ")), 80),
			IdleSeconds: int(idle.Seconds()), ExpiresSeconds: int((conversationTTL - idle).Seconds()),
		})
	}
	slices.SortFunc(all, func(a, b Session) int {
		return cmp.Or(cmp.Compare(a.IdleSeconds, b.IdleSeconds), strings.Compare(a.ID, b.ID))
	})
	return all
}
