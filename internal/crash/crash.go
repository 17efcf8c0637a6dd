// Package crash runs functions before a panic ends the process. A companion removes the files
// that lead agents to it: an agent that finds them would look for no other companion.
package crash

import "sync"

var (
	mu    sync.Mutex
	hooks = make(map[*func()]bool)
)

// Before makes [Report] call f, until the caller calls cancel.
func Before(f func()) (cancel func()) {
	mu.Lock()
	defer mu.Unlock()
	hooks[&f] = true
	return func() {
		mu.Lock()
		defer mu.Unlock()
		delete(hooks, &f)
	}
}

// Report, when deferred, calls the functions if there is a panic, and lets the panic continue.
func Report() {
	r := recover()
	if r == nil {
		return
	}
	mu.Lock()
	var all []func()
	for f := range hooks {
		all = append(all, *f)
	}
	mu.Unlock()
	for _, f := range all {
		f()
	}
	panic(r)
}
