// Package blockingtest contains a companion for the tests of the servers for agents.
package blockingtest

import (
	"errors"
	"sync"

	"pollux/internal/companion"
	"pollux/internal/ide/attach"
)

// A Session is the type of an agent's sessions.
type Session interface {
	comparable
	companion.Session
}

// A Backend is a companion with one rule of the real one: a proposal replaces the one
// that the session has for the same file. Its methods may be called from many goroutines.
type Backend[S Session] struct {
	attach.Backend // the methods that it does not have
	// OnPropose, if set, runs before a proposal is shown. Its error is Propose's.
	OnPropose func(companion.Proposal) error
	// These channels receive the proposals, and the sessions that connect and disconnect.
	Proposed     chan companion.Proposal
	Joined, Gone chan S

	mu       sync.Mutex
	context  companion.Context
	open     map[key[S]]companion.Proposal
	sessions map[S]bool
}

type key[S Session] struct {
	session S
	path    string
}

// New returns a companion without sessions.
func New[S Session]() *Backend[S] {
	return &Backend[S]{
		Proposed: make(chan companion.Proposal, 100), Joined: make(chan S, 100), Gone: make(chan S, 100),
		open: make(map[key[S]]companion.Proposal), sessions: make(map[S]bool),
	}
}

func (b *Backend[S]) Connect(s companion.Session) {
	b.mu.Lock()
	b.sessions[s.(S)] = true
	b.mu.Unlock()
	s.ContextChanged()
	b.Joined <- s.(S)
}

func (b *Backend[S]) Disconnect(s companion.Session) {
	b.mu.Lock()
	delete(b.sessions, s.(S))
	b.mu.Unlock()
	b.Gone <- s.(S)
}

func (b *Backend[S]) Propose(s companion.Session, p companion.Proposal) error {
	if b.OnPropose != nil {
		if err := b.OnPropose(p); err != nil {
			return err
		}
	}
	b.mu.Lock()
	k := key[S]{s.(S), p.Path}
	if !b.sessions[k.session] {
		b.mu.Unlock()
		panic("a proposal of a session that is not connected")
	}
	if old, ok := b.open[k]; ok {
		s.Resolve(old, companion.Outcome{Superseded: true}, func(error) {})
	}
	b.open[k] = p
	b.mu.Unlock()
	b.Proposed <- p
	return nil
}

func (b *Backend[S]) Withdraw(s companion.Session, path string) (string, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	k := key[S]{s.(S), path}
	if _, ok := b.open[k]; !ok {
		return "", errors.New("no such diff")
	}
	delete(b.open, k)
	return "", nil
}

// Resolve decides about the diff that a session has for a path. The result receives
// each value that done was called with.
func (b *Backend[S]) Resolve(s S, path string, o companion.Outcome) <-chan error {
	b.mu.Lock()
	defer b.mu.Unlock()
	k := key[S]{s, path}
	p, ok := b.open[k]
	if !ok {
		panic("no diff is open for " + path)
	}
	delete(b.open, k)
	done := make(chan error, 2) // a second call would be seen
	s.Resolve(p, o, func(err error) { done <- err })
	return done
}

// Open returns how many diffs are open.
func (b *Backend[S]) Open() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.open)
}

func (b *Backend[S]) Context() companion.Context {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.context
}

// SetContext replaces the context and announces it, as a companion does.
func (b *Backend[S]) SetContext(c companion.Context) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.context = c
	for s := range b.sessions {
		s.ContextChanged()
	}
}
