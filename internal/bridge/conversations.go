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

	"pollux/internal/agent"
)

// continued limits the conversations that can be continued.
var continued = expiry{after: 30 * time.Minute, items: 50, bytes: 64 << 20}

// conversationBytes is the size from which a conversation accepts no further queries.
const conversationBytes = 2 << 20

// A conversation is a sequence of queries. The process that answered the last
// one continues it. If that process has ended, another one gets the transcript.
type conversation struct {
	id   string
	turn chan struct{} // holds a token while no query is running

	// Guarded by conversations.mu. Only the holder of the turn changes these
	// fields.
	transcript
	used time.Time
}

// A transcript holds the prompts and answers of a conversation. Keepers store it as JSON.
type transcript struct {
	Begun time.Time `json:"begun"`
	// Agent is the name of the one that answered last. It is empty if an older version of
	// Pollux kept the conversation, which asked Gemini CLI only.
	Agent string     `json:"agent,omitempty"`
	Dir   string     `json:"dir"`
	Model string     `json:"model"`
	Said  []exchange `json:"said"`
}

// An exchange is a prompt and its answer.
type exchange [2]string

// size returns the length of all prompts and answers, in bytes.
func (t *transcript) size() (bytes int) {
	for _, e := range t.Said {
		bytes += len(e[0]) + len(e[1])
	}
	return bytes
}

// read replaces the transcript by one from a keeper.
func (t *transcript) read(data []byte) error {
	var kept transcript
	if json.Unmarshal(data, &kept) != nil || len(kept.Said) == 0 {
		return errUnreadable
	}
	*t = kept
	return nil
}

// A keeper stores conversations for all bridges that share a runner, so that a client of
// another bridge can continue one whose ID it was given. The runner of a pool is one, and a
// [History] is another.
type keeper interface {
	// Keep stores a conversation of n exchanges. When it returns, Kept finds it.
	Keep(session string, n int, data []byte)
	// Kept returns a conversation if it has more than n exchanges, and nil otherwise.
	// It fails if it cannot find out.
	Kept(ctx context.Context, session string, n int) ([]byte, error)
}

// replay returns a prompt that starts with the transcript, or "" if the
// transcript is empty.
func (t *transcript) replay(prompt string) string {
	if len(t.Said) == 0 {
		return ""
	}
	var b strings.Builder
	b.WriteString("This is the conversation so far:\n")
	for _, e := range t.Said {
		fmt.Fprintf(&b, "\n<user>\n%s\n</user>\n\n<you>\n%s\n</you>\n", e[0], e[1])
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

// keeper returns the keeper of an agent's conversations, or nil. A pool finds a conversation
// regardless of which runner asks.
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
		return &conversation{id: rand.Text(), turn: make(chan struct{}, 1), transcript: transcript{Begun: time.Now()}}, nil
	}
	cs.mu.Lock()
	dropped := cs.pruneLocked()
	c := cs.byID[id]
	cs.mu.Unlock()
	cs.forgetAll(dropped)
	gone := fmt.Errorf("there is no session %q: it was closed, or not used for %d minutes; omit %s to "+
		"start a new one", agent.Shorten(id, 60), int(continued.after.Minutes()), cs.names.Session)
	if c == nil {
		var err error
		if c, err = cs.fetch(ctx, id); err != nil {
			return nil, cmp.Or(context.Cause(ctx), fmt.Errorf("this bridge has no session %q now, and it cannot be "+
				"looked up elsewhere (%w): try again, or omit %s to start a new one", agent.Shorten(id, 60), err, cs.names.Session))
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
		newer, _ = k.Kept(ctx, id, len(c.Said)) // without an answer, this one is the newest known
	}
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if newer != nil && c.read(newer) == nil {
		c.used = time.Now()
	}
	if cs.byID[id] != c { // closed in the meantime
		c.turn <- struct{}{}
		return nil, gone
	}
	if bytes := c.size(); bytes > conversationBytes {
		c.turn <- struct{}{}
		return nil, fmt.Errorf("the session has %d bytes, over the limit of %d: start a new one and repeat what "+
			"matters", bytes, conversationBytes)
	}
	return c, nil
}

// fetch returns a conversation of another bridge, or nil if no bridge has it.
func (cs *conversations) fetch(ctx context.Context, id string) (*conversation, error) {
	k := cs.keeper(cs.agents[0])
	if k == nil {
		return nil, nil
	}
	c := &conversation{id: id, turn: make(chan struct{}, 1), used: time.Now()}
	c.turn <- struct{}{}
	data, err := k.Kept(ctx, id, 0)
	if err != nil || data == nil {
		return nil, err
	}
	if err := c.read(data); err != nil {
		return nil, err
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
	if e != nil {
		c.Said = append(c.Said, *e)
		c.Agent, c.Dir, c.Model = by.Agent.Name, dir, model
		if len(c.Said) == 1 {
			cs.byID[c.id] = c
		}
	}
	c.used = time.Now()
	kept := cs.byID[c.id] == c
	if k := cs.keeper(by); kept && e != nil && k != nil {
		n := len(c.Said)
		data, _ := json.Marshal(c.transcript)
		defer k.Keep(c.id, n, data)
	}
	c.turn <- struct{}{}
	dropped := cs.pruneLocked()
	if !kept { // the first query failed, or the conversation was closed in the meantime
		dropped = append(dropped, c.id)
	}
	cs.mu.Unlock()
	cs.forgetAll(dropped)
	if e != nil { // the sessions of other agents lack this exchange
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
		return keptState{used: c.used, bytes: c.size(), inUse: len(c.turn) == 0}
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
			ID: c.id, Agent: c.Agent, Dir: c.Dir, Queries: len(c.Said), About: summary(c.Said[0][0]),
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
