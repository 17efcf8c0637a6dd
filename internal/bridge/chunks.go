package bridge

import (
	"container/list"
	"crypto/rand"
	"fmt"
	"strings"
	"sync"
	"time"
	"unicode/utf8"
)

const (
	cacheEntries = 50
	cacheBytes   = 64 << 20
	cacheTTL     = 10 * time.Minute
)

// A chunkCache keeps long answers in pieces for a while: bounded in number, in
// bytes and in time, the least recently used go first.
type chunkCache struct {
	mu      sync.Mutex
	entries map[string]*list.Element // of *cached
	recent  list.List                // the most recently used in front
	bytes   int
}

type cached struct {
	key    string
	pieces []string
	bytes  int
	until  time.Time
}

func newChunkCache() *chunkCache {
	return &chunkCache{entries: make(map[string]*list.Element)}
}

// put keeps pieces and returns the key to get them by, which cannot be
// guessed.
func (c *chunkCache) put(pieces []string) string {
	key := rand.Text()
	c.keep(key, pieces)
	return key
}

// keep keeps pieces by a key that they have already, from now on.
func (c *chunkCache) keep(key string, pieces []string) {
	e := &cached{key: key, pieces: pieces, until: time.Now().Add(cacheTTL)}
	for _, p := range pieces {
		e.bytes += len(p)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if el := c.entries[key]; el != nil {
		c.removeLocked(el)
	}
	c.entries[e.key] = c.recent.PushFront(e)
	c.bytes += e.bytes
	now := time.Now()
	for el := c.recent.Back(); el != nil && el != c.recent.Front(); {
		older := el.Prev()
		if len(c.entries) > cacheEntries || c.bytes > cacheBytes || el.Value.(*cached).until.Before(now) {
			c.removeLocked(el)
		}
		el = older
	}
}

// all are the pieces of a key; nil if it has none any more.
func (c *chunkCache) all(key string) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if el := c.entries[key]; el != nil {
		return el.Value.(*cached).pieces
	}
	return nil
}

func (c *chunkCache) removeLocked(el *list.Element) {
	e := c.recent.Remove(el).(*cached)
	delete(c.entries, e.key)
	c.bytes -= e.bytes
}

// get returns a piece, from 1, and how many there are.
func (c *chunkCache) get(key string, index int) (string, int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	el := c.entries[key]
	if el != nil && el.Value.(*cached).until.Before(time.Now()) {
		c.removeLocked(el)
		el = nil
	}
	if el == nil {
		return "", 0, fmt.Errorf("there is no answer with this cacheKey: it was given out more than %d minutes ago or never; ask again", int(cacheTTL.Minutes()))
	}
	c.recent.MoveToFront(el)
	pieces := el.Value.(*cached).pieces
	if index > len(pieces) {
		return "", 0, fmt.Errorf("chunkIndex is %d and the answer has %d chunks: ask for one from 1 to %d", index, len(pieces), len(pieces))
	}
	return pieces[index-1], len(pieces), nil
}

func (c *chunkCache) len() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.entries)
}

// split cuts a text into pieces of at most budget bytes and so many lines that
// make the text again when joined. They are of about one size, and end where a
// paragraph, a line or a word does if one ends near there, else between two
// characters.
func split(text string, budget, lines int) []string {
	var pieces []string
	for len(text) > budget || strings.Count(text, "\n") > lines {
		left := (len(text) + budget - 1) / budget
		target := len(text) / left
		cut := len(text)
		if left > 1 {
			cut = cutNear(text[:min(budget, target+target/4)], target/2)
		}
		if n := strings.Count(text[:cut], "\n"); n > lines {
			cut = 0
			for range lines {
				cut += strings.IndexByte(text[cut:], '\n') + 1
			}
		}
		pieces = append(pieces, text[:cut])
		text = text[cut:]
	}
	return append(pieces, text)
}

// cutNear finds the best place to end a piece, not before least.
func cutNear(s string, least int) int {
	for _, sep := range []string{"\n\n", "\n", " "} {
		if i := strings.LastIndex(s, sep); i+len(sep) > least {
			return i + len(sep)
		}
	}
	cut := len(s)
	// s was cut from a longer text, perhaps within a character.
	for i := 1; i < utf8.UTFMax && i < cut; i++ {
		if utf8.RuneStart(s[cut-i]) {
			if !utf8.FullRuneInString(s[cut-i:]) {
				cut -= i
			}
			break
		}
	}
	return cut
}
