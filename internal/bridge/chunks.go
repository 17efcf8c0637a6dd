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

// A chunkCache keeps the pieces of long answers for cacheTTL. Their number and
// total size are limited. The least recently used answers are dropped first.
type chunkCache struct {
	mu      sync.Mutex
	entries map[string]*list.Element // of *cached
	recent  list.List                // the most recently used first
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

// put stores pieces and returns their key, which cannot be guessed.
func (c *chunkCache) put(pieces []string) string {
	key := rand.Text()
	c.keep(key, pieces)
	return key
}

// keep stores pieces under an existing key, for another cacheTTL.
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

func (c *chunkCache) removeLocked(el *list.Element) {
	e := c.recent.Remove(el).(*cached)
	delete(c.entries, e.key)
	c.bytes -= e.bytes
}

// get returns a piece, counted from 1, and the number of pieces.
func (c *chunkCache) get(key string, index int) (string, int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	el := c.entries[key]
	if el != nil && el.Value.(*cached).until.Before(time.Now()) {
		c.removeLocked(el)
		el = nil
	}
	if el == nil {
		return "", 0, fmt.Errorf("there is no answer with this cacheKey: it is wrong or older than %d minutes; "+
			"ask again", int(cacheTTL.Minutes()))
	}
	c.recent.MoveToFront(el)
	pieces := el.Value.(*cached).pieces
	if index > len(pieces) {
		return "", 0, fmt.Errorf("chunkIndex is %d, but the answer has %d chunks: pass a number from 1 to %d",
			index, len(pieces), len(pieces))
	}
	return pieces[index-1], len(pieces), nil
}

func (c *chunkCache) len() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.entries)
}

// split cuts a text into pieces of similar size, of at most budget bytes and
// lines lines. Joined, they form the text. A piece ends at the end of a nearby
// paragraph, line or word or, without one, between two characters.
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

// cutNear returns the best offset for the end of a piece, at or after least.
func cutNear(s string, least int) int {
	for _, sep := range []string{"\n\n", "\n", " "} {
		if i := strings.LastIndex(s, sep); i+len(sep) > least {
			return i + len(sep)
		}
	}
	cut := len(s)
	// s may end inside a character.
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
