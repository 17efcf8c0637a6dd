package bridge

import (
	"crypto/rand"
	"fmt"
	"strings"
	"sync"
	"time"
	"unicode/utf8"
)

// cached limits the stored answers.
var cached = expiry{after: 10 * time.Minute, items: 50, bytes: 64 << 20}

// A chunkCache keeps the pieces of long answers.
type chunkCache struct {
	mu      sync.Mutex
	answers map[string]*longAnswer
}

type longAnswer struct {
	pieces []string
	used   time.Time
}

func newChunkCache() *chunkCache { return &chunkCache{answers: make(map[string]*longAnswer)} }

// put stores pieces and returns their key, which cannot be guessed.
func (c *chunkCache) put(pieces []string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	key := rand.Text()
	c.answers[key] = &longAnswer{pieces, time.Now()}
	c.pruneLocked()
	return key
}

func (c *chunkCache) pruneLocked() {
	prune(c.answers, cached, func(a *longAnswer) keptState {
		bytes := 0
		for _, p := range a.pieces {
			bytes += len(p)
		}
		return keptState{used: a.used, bytes: bytes}
	})
}

// get returns a piece, counted from 1, and the number of pieces.
func (c *chunkCache) get(key string, index int) (string, int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pruneLocked()
	a := c.answers[key]
	if a == nil {
		return "", 0, fmt.Errorf("there is no answer with this cacheKey: it is wrong or older than %d minutes; "+
			"ask again", int(cached.after.Minutes()))
	}
	a.used = time.Now()
	if n := len(a.pieces); index > n {
		return "", 0, fmt.Errorf("chunkIndex is %d, but the answer has %d chunks: pass a number from 1 to %d", index, n, n)
	}
	return a.pieces[index-1], len(a.pieces), nil
}

func (c *chunkCache) len() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.answers)
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
