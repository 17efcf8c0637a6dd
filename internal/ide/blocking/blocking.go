// Package blocking implements protocols in which the call that shows a change returns only
// after the user has decided: the calls and their answers, and the message with
// the context. The package of an agent knows its transport, and the names of its tools.
package blocking

import (
	"context"

	"pollux/internal/companion"
)

// A Backend is the companion that a server belongs to.
type Backend interface {
	Connect(s companion.Session)
	Disconnect(s companion.Session)
	Propose(ctx context.Context, s companion.Session, p companion.Proposal) error
	Withdraw(ctx context.Context, s companion.Session, path string) (text string, err error)
	Context() companion.Context
	Roots() []string
}

// OnPanic is called before a panic ends the process; nothing happens if it is nil.
type OnPanic func()

// Report, when deferred, reports a panic and lets it continue.
func (f OnPanic) Report() {
	if r := recover(); r != nil {
		if f != nil {
			f()
		}
		panic(r)
	}
}
