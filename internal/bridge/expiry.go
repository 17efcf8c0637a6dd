package bridge

import (
	"slices"
	"time"
)

// An expiry limits a map of kept values: the time since the last use of each, their number,
// and their bytes; 0 bytes means no limit.
type expiry struct {
	after        time.Duration
	items, bytes int
}

// A keptState describes a value for prune. A value in use is not removed.
type keptState struct {
	used  time.Time
	bytes int
	inUse bool
}

// prune removes the values that have expired and, beyond the limits, the least recently used
// ones. It keeps one value of any size. It returns the keys of what it has removed.
func prune[T any](all map[string]T, limits expiry, state func(T) keptState) (removed []string) {
	states := make(map[string]keptState, len(all))
	var idle []string
	bytes := 0
	for key, value := range all {
		s := state(value)
		states[key] = s
		bytes += s.bytes
		if !s.inUse {
			idle = append(idle, key)
		}
	}
	slices.SortFunc(idle, func(a, b string) int { return states[a].used.Compare(states[b].used) })
	for _, key := range idle {
		tooMany := len(all) > limits.items
		tooLarge := limits.bytes > 0 && bytes > limits.bytes && len(all) > 1
		if !tooMany && !tooLarge && time.Since(states[key].used) <= limits.after {
			break
		}
		delete(all, key)
		bytes -= states[key].bytes
		removed = append(removed, key)
	}
	return removed
}
