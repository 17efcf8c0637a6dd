package bridge

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// continued limits the conversations that can be continued.
var continued = expiry{after: 30 * time.Minute, items: 50, bytes: 64 << 20}

// conversationBytes is the size from which a conversation accepts no further queries.
const conversationBytes = 2 << 20

// A conversation is a sequence of queries. The process that answered the last
// one continues it. If that process has ended, another one gets the transcript.
type conversation struct {
	id    string
	begun time.Time
	turn  chan struct{} // holds a token while no query is running

	// Guarded by conversations.mu. Only the holder of the turn changes these
	// fields.
	agent      string // the name of the one that answered last
	dir, model string
	said       []exchange
	bytes      int
	used       time.Time
}

// An exchange is a prompt and its answer.
type exchange struct{ prompt, answer string }

// A keeper stores conversations for all bridges that share a runner, so that a client of
// another bridge can continue one whose ID it was given. The runner of a pool is one, and a
// [History] is another.
type keeper interface {
	// Keep stores a conversation of n exchanges. It does not wait.
	Keep(session string, n int, data []byte)
	// Kept returns a conversation if it has more than n exchanges, and nil otherwise.
	// It fails if it cannot find out.
	Kept(ctx context.Context, session string, n int) ([]byte, error)
}

// A keptConversation is the form of a conversation in a keeper.
type keptConversation struct {
	Begun time.Time   `json:"begun"`
	Agent string      `json:"agent,omitempty"` // older versions asked Gemini CLI only
	Dir   string      `json:"dir"`
	Model string      `json:"model"`
	Said  [][2]string `json:"said"` // prompts and answers
}

// kept returns the form of the conversation in a keeper.
func (c *conversation) kept() []byte {
	k := keptConversation{Begun: c.begun, Agent: c.agent, Dir: c.dir, Model: c.model}
	for _, e := range c.said {
		k.Said = append(k.Said, [2]string{e.prompt, e.answer})
	}
	data, _ := json.Marshal(k)
	return data
}

// restore replaces the conversation by one from a keeper.
func (c *conversation) restore(data []byte) bool {
	var k keptConversation
	if json.Unmarshal(data, &k) != nil || len(k.Said) == 0 {
		return false
	}
	c.begun, c.agent, c.dir, c.model, c.used = k.Begun, k.Agent, k.Dir, k.Model, time.Now()
	c.said, c.bytes = nil, 0
	for _, e := range k.Said {
		c.said = append(c.said, exchange{e[0], e[1]})
		c.bytes += len(e[0]) + len(e[1])
	}
	return true
}

// replay returns a prompt that starts with the transcript, or "" if the
// transcript is empty.
func (c *conversation) replay(prompt string) string {
	if len(c.said) == 0 {
		return ""
	}
	var b strings.Builder
	b.WriteString("This is the conversation so far:\n")
	for _, e := range c.said {
		fmt.Fprintf(&b, "\n<user>\n%s\n</user>\n\n<you>\n%s\n</you>\n", e.prompt, e.answer)
	}
	b.WriteString("\nThe next message of the user:\n\n" + prompt)
	return b.String()
}

// conversations holds all conversations of a bridge.
type conversations struct {
	agents []*asked
	own    *History // may be nil
	names  *Names

	mu   sync.Mutex
	byID map[string]*conversation
}

func newConversations(agents []*asked, cfg Config) *conversations {
	return &conversations{agents: agents, own: cfg.History, names: cfg.Names, byID: make(map[string]*conversation)}
}

// keeper returns the keeper of the conversations that an agent continues, or nil. A pool
// finds them whichever agent's runner asks it.
func (cs *conversations) keeper(a *asked) keeper {
	if cs.own != nil {
		return cs.own
	}
	k, _ := a.opened().(keeper)
	return k
}

// take returns the conversation with an ID, or a new one for an empty ID. The
// caller holds the turn until it calls give.
func (cs *conversations) take(ctx context.Context, id string) (*conversation, error) {
	if id == "" {
		return &conversation{id: rand.Text(), begun: time.Now(), turn: make(chan struct{}, 1)}, nil
	}
	cs.mu.Lock()
	dropped := cs.pruneLocked()
	c := cs.byID[id]
	cs.mu.Unlock()
	cs.forgetAll(dropped)
	gone := fmt.Errorf("there is no session %q: it was closed, or not used for %d minutes; omit %s to "+
		"start a new one", shorten(id, 60), int(continued.after.Minutes()), cs.names.Session)
	if c == nil {
		var err error
		if c, err = cs.fetch(ctx, id); err != nil {
			return nil, cmp.Or(context.Cause(ctx), fmt.Errorf("this bridge has no session %q now, and it cannot be "+
				"looked up elsewhere (%w): try again, or omit %s to start a new one", shorten(id, 60), err, cs.names.Session))
		}
		if c == nil {
			return nil, gone
		}
	}
	select {
	case <-c.turn:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	var newer []byte
	if k := cs.keeper(cs.agents[0]); k != nil { // another bridge may have continued it
		newer, _ = k.Kept(ctx, id, len(c.said)) // without an answer, this one is the newest known
	}
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if newer != nil {
		c.restore(newer)
	}
	if cs.byID[id] != c { // closed in the meantime
		c.turn <- struct{}{}
		return nil, gone
	}
	if c.bytes > conversationBytes {
		c.turn <- struct{}{}
		return nil, fmt.Errorf("the session has %d bytes, over the limit of %d: start a new one and repeat what "+
			"matters", c.bytes, conversationBytes)
	}
	return c, nil
}

// fetch returns a conversation of another bridge, or nil if no bridge has it.
func (cs *conversations) fetch(ctx context.Context, id string) (*conversation, error) {
	k := cs.keeper(cs.agents[0])
	if k == nil {
		return nil, nil
	}
	c := &conversation{id: id, turn: make(chan struct{}, 1)}
	c.turn <- struct{}{}
	data, err := k.Kept(ctx, id, 0)
	if err != nil || data == nil {
		return nil, err
	}
	if !c.restore(data) {
		return nil, errUnreadable
	}
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if other := cs.byID[id]; other != nil { // fetched by another call
		return other, nil
	}
	cs.byID[id] = c
	return c, nil
}

// give ends a turn. It stores the exchange, which is nil if the query failed,
// and reports whether the conversation can be continued.
func (cs *conversations) give(c *conversation, e *exchange, by *asked, dir, model string) bool {
	cs.mu.Lock()
	first := len(c.said) == 0
	if e != nil {
		c.said = append(c.said, *e)
		c.bytes += len(e.prompt) + len(e.answer)
		c.agent, c.dir, c.model = by.Agent.Name, dir, model
		if first {
			cs.byID[c.id] = c
		}
	}
	c.used = time.Now()
	kept := cs.byID[c.id] == c
	if k := cs.keeper(by); kept && e != nil && k != nil {
		n, data := len(c.said), c.kept()
		defer k.Keep(c.id, n, data)
	}
	c.turn <- struct{}{}
	dropped := cs.pruneLocked()
	if !kept { // the first query failed, or the conversation was closed in the meantime
		dropped = append(dropped, c.id)
	}
	cs.mu.Unlock()
	cs.forgetAll(dropped)
	if e != nil { // what another agent knows of it is old now
		for _, a := range cs.agents {
			if r := a.opened(); r != nil && a != by {
				r.Forget(c.id)
			}
		}
	}
	return kept
}

// forgetAll makes the runners forget conversations.
func (cs *conversations) forgetAll(ids []string) {
	for _, a := range cs.agents {
		if r := a.opened(); r != nil {
			for _, id := range ids {
				r.Forget(id)
			}
		}
	}
}

// pruneLocked removes conversations that have expired or exceed the limits. It
// returns their IDs, which the runner must forget.
func (cs *conversations) pruneLocked() (dropped []string) {
	return prune(cs.byID, continued, func(c *conversation) keptState {
		return keptState{used: c.used, bytes: c.bytes, inUse: len(c.turn) == 0}
	})
}

// close removes a conversation. It reports whether the conversation existed.
func (cs *conversations) close(id string) bool {
	cs.mu.Lock()
	dropped := cs.pruneLocked()
	_, ok := cs.byID[id]
	if ok {
		delete(cs.byID, id)
		dropped = append(dropped, id)
	}
	cs.mu.Unlock()
	cs.forgetAll(dropped)
	return ok
}

// A conversationState describes a conversation in a list.
type conversationState struct {
	ID      string `json:"sessionId"`
	Agent   string `json:"agent"`
	Dir     string `json:"workingDirectory"`
	Queries int    `json:"queries"`
	// IdleSeconds is the time since the last use. ExpiresSeconds is the time
	// until the conversation ends.
	IdleSeconds    int    `json:"idleSeconds"`
	ExpiresSeconds int    `json:"expiresSeconds"`
	About          string `json:"about"` // the start of its first prompt
}

// list describes all conversations, the most recently used first.
func (cs *conversations) list() []conversationState {
	cs.mu.Lock()
	dropped := cs.pruneLocked()
	all := []conversationState{}
	for _, c := range cs.byID {
		idle := time.Since(c.used)
		all = append(all, conversationState{
			ID: c.id, Agent: c.agent, Dir: c.dir, Queries: len(c.said), About: summary(c.said[0].prompt),
			IdleSeconds: int(idle.Seconds()), ExpiresSeconds: int((continued.after - idle).Seconds()),
		})
	}
	cs.mu.Unlock()
	cs.forgetAll(dropped)
	slices.SortFunc(all, func(a, b conversationState) int {
		return cmp.Or(cmp.Compare(a.IdleSeconds, b.IdleSeconds), strings.Compare(a.ID, b.ID))
	})
	return all
}
